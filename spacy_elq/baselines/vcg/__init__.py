"""VCG: linking by the question, the names and the relations of the candidates."""

"""TAGME: linking by counts of hyperlinks."""

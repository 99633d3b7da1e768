"""Question answering over passages, with entity links: the paper's Table 3 in small."""

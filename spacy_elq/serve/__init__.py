"""The HTTP server and its page: `python -m spacy elq serve PIPELINE`."""

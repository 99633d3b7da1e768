"""The published ELQ models: their files, and the pipelines made of them."""

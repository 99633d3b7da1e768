"""Arithmetic over arrays: spans, losses, decoding, negatives."""

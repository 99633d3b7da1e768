"""BLINK's two stages: a span extractor, then one pass of an encoder for each mention."""

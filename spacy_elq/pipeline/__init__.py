"""The components, and what else touches docs."""

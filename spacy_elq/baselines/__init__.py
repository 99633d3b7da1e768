"""What ELQ is compared with, as spaCy components that take the same catalogue and the same scorer."""

"""`python -m elq_qa`."""

from .commands import app

app(prog_name="python -m elq_qa")

"""`python -m elq_qa`."""

import sys

import typer

from .commands import app
from .types import QAError

try:
    app(prog_name="python -m elq_qa")
except QAError as err:
    # not wrapped, so that commands can be copied
    typer.secho(f"✘ {err}", fg="red", err=True)
    sys.exit(1)

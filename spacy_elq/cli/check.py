"""`spacy elq check`."""

from pathlib import Path

import typer
from wasabi import msg

from ._util import command


@command("check")
def check_cli(index_path: Path = typer.Argument(..., help="The index")) -> None:
    """Read every byte of an index and compare it with what was written.

    Ends with exit code 1 if anything is damaged, and says what can be done about it. Opening an index checks only
    headers and sizes, which is quick.
    """
    from ..index import check_index

    found = check_index(index_path)
    for damage in found:
        msg.fail(f"{damage.file}: {damage.problem}", f"To repair it: {damage.remedy}")
    if found:
        raise typer.Exit(1)
    msg.good(f"{index_path}: no damage found")

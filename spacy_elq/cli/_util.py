"""What the commands share."""

import functools
from typing import Any, Callable, TypeVar

import typer

from ..errors import ELQError, explain

app = typer.Typer(
    name="elq",
    help="Entity linking for questions (spacy-elq): index a catalogue, train a linker, link text.",
    no_args_is_help=True,
)


FuncT = TypeVar("FuncT", bound=Callable[..., Any])


def command(name: str) -> Callable[[FuncT], FuncT]:
    """Add a function to `spacy elq`; an `ELQError`, or what the operating system refuses, ends it with the
    message alone and exit code 1.
    """

    def decorate(func: FuncT) -> FuncT:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return func(*args, **kwargs)
            except BrokenPipeError:  # nobody reads on, as with `| head`: typer ends quietly
                raise
            except (ELQError, OSError) as err:
                text = explain(err) if isinstance(err, OSError) else str(err)
                # not wrapped, so that commands can be copied, and not among the results on stdout
                typer.secho(f"✘ {text}", fg="red", err=True)
                raise typer.Exit(1) from None

        app.command(name)(wrapped)
        return func

    return decorate


def print_next(command: str) -> None:
    """Name the command to go on with, on one line, so that it can be copied."""
    typer.echo(f"Next: {command}")

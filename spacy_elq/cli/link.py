"""`spacy elq link`."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Iterable, Optional

import typer
from tqdm import tqdm

from ._util import command


@command("link")
def link_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    input_path: Path = typer.Argument(
        Path("-"),
        help='Text (one question per line) or JSONL with "text"; - for stdin',
        allow_dash=True,
    ),
    output_path: Path = typer.Argument(Path("-"), help="JSONL; - for stdout", allow_dash=True),
    jsonl: Optional[bool] = typer.Option(
        None,
        "--jsonl/--text",
        help="Input format; by default from its suffix, text for stdin",
    ),
    threshold: Optional[float] = typer.Option(
        None, "--threshold", "-t", help="Minimum joint probability, instead of the pipeline's"
    ),
    alternatives: int = typer.Option(
        3, "--alternatives", "-n", help="Number of other candidates to write for each link, with their scores"
    ),
    batch_size: int = typer.Option(64, "--batch-size", "-b", help="Questions in one batch"),
    n_process: int = typer.Option(1, "--n-process", "-p", help="Worker processes"),
) -> None:
    """Link text as a stream: one JSON object per question, in the same order.

        echo "who is the president of france" | python -m spacy elq link models/elq

    Each object has "text", "links" with "start", "end" (characters, half-open), "mention", "id", "title",
    "label", "score" and "alternatives", plus all other fields of the input object. An output file that
    exists is replaced only when the new one is complete.
    """
    from ..evaluation.pipelines import load_pipeline
    from ..files import check_file, check_output
    from ..pipeline.settings import update_settings
    from ..pipeline.stream import link, read_records, to_line, write_results

    is_stdin, is_stdout = str(input_path) == "-", str(output_path) == "-"
    if not is_stdin:
        check_file(input_path, "Expected text or JSONL.")
    if not is_stdout:
        check_output(output_path, *([] if is_stdin else [input_path]))
    nlp, linker = load_pipeline(pipeline)
    if threshold is not None:
        update_settings(nlp, linker.name, {"decoder.threshold": threshold, "decoder.first_threshold": None})
    is_jsonl = input_path.suffix == ".jsonl" if jsonl is None else jsonl
    with ExitStack() as stack:
        source: Iterable[bytes] = sys.stdin.buffer
        if not is_stdin:
            source = stack.enter_context(input_path.open("rb"))
        records = read_records(source, is_jsonl=is_jsonl, name=str(input_path))
        results = link(nlp, records, alternatives=alternatives, batch_size=batch_size, n_process=n_process)
        if not is_stdout:
            write_results(tqdm(results, desc="Link", unit=" questions"), output_path)
            return
        for result in results:
            sys.stdout.write(to_line(result))
            sys.stdout.flush()

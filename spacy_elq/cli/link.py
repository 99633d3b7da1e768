"""`spacy elq link`."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Optional

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
        None, "--threshold", "-t", help="Least score of a link, instead of the pipeline's"
    ),
    alternatives: int = typer.Option(
        3,
        "--alternatives",
        "-n",
        min=0,
        help="Number of candidates to write for each link, best first, including the linked entity; 0 for none",
    ),
    batch_size: int = typer.Option(64, "--batch-size", "-b", help="Questions in one batch"),
    n_process: int = typer.Option(1, "--n-process", "-p", help="Worker processes"),
) -> None:
    """Link text as a stream: one JSON object per question, in the same order.

        echo "who is the president of france" | python -m spacy elq link models/elq

    Each object has "text", "links" with "start", "end" (characters, half-open), "mention", "id", "title",
    "label", "score" and "alternatives" (the candidates, the linked entity first), plus all other fields of the
    input object. An output file that exists is replaced only when the new one is complete.

    From stdin, every line is linked as soon as it arrives; lines that are already waiting are linked in batches.
    With --n-process 2 or more, batches are always full.
    """
    from ..evaluation.pipelines import load_pipeline
    from ..files import check_file, check_output
    from ..pipeline.settings import update_settings
    from ..pipeline.stream import link, link_waiting, read_records, to_line, write_results

    is_stdin, is_stdout = str(input_path) == "-", str(output_path) == "-"
    if not is_stdin:
        check_file(input_path, "Expected text or JSONL.")
    if not is_stdout:
        check_output(output_path, *([] if is_stdin else [input_path]))
    nlp, linker = load_pipeline(pipeline)
    if threshold is not None:
        update_settings(nlp, linker.name, {"decoder.threshold": threshold, "decoder.first_threshold": None})
    is_jsonl = input_path.suffix == ".jsonl" if jsonl is None else jsonl
    form: Dict[str, Any] = {"is_jsonl": is_jsonl, "name": str(input_path)}
    settings: Dict[str, Any] = {
        "alternatives": alternatives,
        "batch_size": batch_size,
        "n_process": n_process,
    }
    with ExitStack() as stack:
        source = sys.stdin.buffer if is_stdin else stack.enter_context(input_path.open("rb"))
        if is_stdin and n_process == 1:
            results = link_waiting(nlp, source, **form, **settings)
        else:
            results = link(nlp, read_records(source, **form), **settings)
        if not is_stdout:
            write_results(tqdm(results, desc="Link", unit=" questions"), output_path)
            return
        for result in results:
            sys.stdout.write(to_line(result))
            sys.stdout.flush()

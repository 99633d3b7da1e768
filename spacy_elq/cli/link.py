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
    input_path: str = typer.Argument(
        "-",
        help='Text (one question per line) or JSONL with "text"; - for stdin; or a URL such as '
        "s3://bucket/questions.txt",
    ),
    output_path: str = typer.Argument("-", help="JSONL; - for stdout; or a URL"),
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
    n_process: Optional[int] = typer.Option(
        None, "--n-process", "-p", min=1, help="Worker processes; by default 1, or with --ray one per CPU"
    ),
    ray: Optional[str] = typer.Option(
        None,
        "--ray",
        help="Link on a Ray cluster (pip install 'spacy-elq[ray]'): its address, HOST:PORT; auto for the one that "
        "this machine is a node of; local for one that is started here and ends with the work. What is finished is "
        "kept in OUTPUT.parts: the same command goes on with it",
    ),
) -> None:
    """Link text as a stream: one JSON object per question, in the same order.

        echo "who is the president of france" | python -m spacy elq link models/elq

    Each object has "text", "links" with "start", "end" (characters, half-open), "mention", "id", "title",
    "label", "score" and "alternatives" (the candidates, the linked entity first), plus all other fields of the
    input object. An output file that exists is replaced only when the new one is complete.

    From stdin, every line is linked as soon as it arrives; lines that are already waiting are linked in batches.
    With --n-process 2 or more, batches are always full.
    """
    from ..distributed.link import link_parts, open_linker
    from ..distributed.parts import is_url
    from ..files import check_file, check_output
    from ..pipeline.stream import link, link_waiting, read_records, to_line, write_results

    is_jsonl = input_path.endswith(".jsonl") if jsonl is None else jsonl
    settings: Dict[str, Any] = {"alternatives": alternatives, "batch_size": batch_size}
    if ray is not None or is_url(input_path) or is_url(output_path):
        link_parts(
            pipeline,
            input_path,
            output_path,
            is_jsonl=is_jsonl,
            ray=ray,
            n_process=n_process,
            threshold=threshold,
            progress=True,
            **settings,
        )
        return
    is_stdin, is_stdout = input_path == "-", output_path == "-"
    if not is_stdin:
        check_file(Path(input_path), "Expected text or JSONL.")
    if not is_stdout:
        check_output(Path(output_path), *([] if is_stdin else [Path(input_path)]))
    nlp, _ = open_linker(pipeline, threshold)
    form: Dict[str, Any] = {"is_jsonl": is_jsonl, "name": input_path}
    settings["n_process"] = n_process or 1
    with ExitStack() as stack:
        source = sys.stdin.buffer if is_stdin else stack.enter_context(Path(input_path).open("rb"))
        if is_stdin and n_process in (None, 1):
            results = link_waiting(nlp, source, **form, **settings)
        else:
            results = link(nlp, read_records(source, **form), **settings)
        if not is_stdout:
            write_results(tqdm(results, desc="Link", unit=" questions"), Path(output_path))
            return
        for result in results:
            sys.stdout.write(to_line(result))
            sys.stdout.flush()

"""Link a file of questions with workers that may be anywhere, from and to any file system."""

import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from spacy.language import Language
from tqdm import tqdm

from ..errors import ELQError, Errors
from ..evaluation.pipelines import load_pipeline
from ..files import check_file, check_output, replace_file
from ..pipeline.settings import update_settings
from ..pipeline.stream import link, read_records, to_line
from ..types import Linker
from .parts import Parts, check_visible, digest, fetched, is_url, part_name, replacing
from .work import workers


class Lines(NamedTuple):
    """Lines of an input.

    number (int): Which part of the input they are.
    name (str): What the part is called that they become.
    first (int): The number of the first line.
    lines (List[bytes]): The lines.
    """

    number: int
    name: str
    first: int
    lines: List[bytes]


def open_linker(pipeline: str, threshold: Optional[float] = None) -> Tuple[Language, Linker]:
    """Load a pipeline to link with.

    threshold (Optional[float]): Least score of a link, instead of the pipeline's.
    RETURNS (Tuple[Language, Linker]): The pipeline and its linker.
    """
    nlp, linker = load_pipeline(pipeline)
    if threshold is not None:
        settings = {"decoder.threshold": threshold, "decoder.first_threshold": None}
        update_settings(nlp, linker.name, settings)
    return nlp, linker


def link_parts(
    pipeline: str,
    source: str,
    output: str,
    *,
    is_jsonl: bool,
    ray: Optional[str] = None,
    n_process: Optional[int] = None,
    threshold: Optional[float] = None,
    alternatives: int = 3,
    batch_size: int = 64,
    part_size: int = 2048,
    progress: bool = False,
) -> int:
    """Link a file of questions by parts, here or on Ray. The result is that of `link`, in the same order.

    What is finished is kept in `OUTPUT.parts`, beside the output. Started again, the same command goes on
    with it: a part counts if its questions, the pipeline and the settings are the same.

    pipeline (str): Folder or name of an installed package; with Ray, all machines have it.
    source (str): Text or JSONL, local, a URL of fsspec, or - for stdin.
    output (str): JSONL, local or a URL. An existing file is replaced in the end.
    is_jsonl (bool): Whether the input is JSONL.
    ray (Optional[str]): The address of a Ray cluster, see `connected`; None to link in this process.
    n_process (Optional[int]): Actors; None for one per CPU.
    threshold, alternatives, batch_size: See `open_linker` and `spacy_elq.pipeline.stream.link`.
    part_size (int): Questions in a part, about: it has whole batches, as in one process.
    RETURNS (int): How many lines were written.
    """
    if output == "-":
        problem = "finished parts are kept beside the output, name a file to write"
        raise ELQError(Errors.E227.format(path="-", problem=problem))
    _check_paths(source, output)
    nlp, linker = open_linker(pipeline, threshold)
    pipeline = str(nlp.path) if Path(pipeline).exists() else pipeline
    settings = {"alternatives": alternatives, "batch_size": batch_size}
    stamp = digest(_describe_pipeline(nlp, linker), threshold, settings, is_jsonl)
    del nlp, linker
    parts = Parts(f"{output if is_url(output) else Path(output).absolute()}.parts")
    form: Dict[str, Any] = {"is_jsonl": is_jsonl, "name": source}
    make_worker = _MakeLineLinker(pipeline, threshold, parts, form, settings)
    with ExitStack() as stack:
        bar = stack.enter_context(tqdm(desc="Link", unit=" questions", disable=not progress))
        lines = stack.enter_context(_open(source))
        run = stack.enter_context(workers(ray, n_process, output=output))
        parts.claim()
        names: List[str] = []
        size = batch_size * max(1, part_size // batch_size)
        jobs = _missing(split_lines(lines, stamp, size, is_jsonl=is_jsonl), parts, names)
        try:
            for done in run(make_worker, jobs):
                bar.update(done)
        except ELQError as err:
            raise ELQError(Errors.E142.format(path=parts.url, problem=err)) from err
    count = _join(parts, names, output)
    parts.drop()
    return count


def _check_paths(source: str, output: str) -> None:
    is_file = source != "-" and not is_url(source)
    if is_file:
        check_file(Path(source), "Expected text or JSONL.")
    if not is_url(output):
        check_output(Path(output), *([Path(source)] if is_file else []))


@contextmanager
def _open(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
        return
    with fetched(source) as path, path.open("rb") as file_:
        yield file_


def split_lines(lines: Iterable[bytes], stamp: str, size: int, *, is_jsonl: bool) -> Iterator[Lines]:
    """Split an input into parts.

    stamp (str): What else decides about the links.
    size (int): Questions in a part. A blank line of JSONL is none.
    YIELDS (Lines): The parts.
    """
    own: List[bytes] = []
    number, first, questions = 0, 1, 0
    for line in lines:
        own.append(line)
        questions += not is_jsonl or bool(line.strip())
        if questions == size:
            yield _to_part(number, first, own, stamp)
            number, first, questions, own = number + 1, first + len(own), 0, []
    if own:
        yield _to_part(number, first, own, stamp)


def _to_part(number: int, first: int, lines: List[bytes], stamp: str) -> Lines:
    name = part_name(number, digest(stamp, first, b"".join(lines).hex()), "jsonl")
    return Lines(number, name, first, lines)


def _missing(jobs: Iterable[Lines], parts: Parts, names: List[str]) -> Iterator[Lines]:
    """YIELDS (Lines): Those that are no part yet.

    names (List[str]): Gets the names of all, in order.
    """
    there = parts.names()
    for job in jobs:
        names.append(job.name)
        if job.name not in there:
            yield job


def _join(parts: Parts, names: List[str], output: str) -> int:
    """Make the output of its parts. RETURNS (int): How many lines it has."""
    count = 0
    with ExitStack() as stack:
        if is_url(output):
            file_ = stack.enter_context(replacing(output))
        else:
            file_ = stack.enter_context(stack.enter_context(replace_file(Path(output))).open("wb"))
        for name in names:
            data = parts.read(name)
            file_.write(data)
            count += data.count(b"\n")
    return count


def _describe_pipeline(nlp: Language, linker: Linker) -> Any:
    """RETURNS (Any): What tells a pipeline and its index from others."""
    index = linker.index
    folder = nlp.path
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
    files = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return [nlp.meta, files, getattr(index, "stamp", None)]


class _MakeLineLinker:
    """Makes a `LineLinker` where the work is done."""

    def __init__(
        self, pipeline: str, threshold: Optional[float], parts: Parts, form: Dict[str, Any], settings: Any
    ) -> None:
        self._pipeline = (pipeline, threshold)
        self._places = [pipeline] if Path(pipeline).exists() else []
        self._rest = (parts, form, settings)

    def __call__(self) -> "LineLinker":
        """RETURNS (LineLinker): With the pipeline.
        RAISES (ELQError): If it, or the output, is not visible here.
        """
        check_visible(*self._places)
        self._rest[0].check()
        return LineLinker(open_linker(*self._pipeline)[0], *self._rest)


class LineLinker:
    """Links lines and writes them as a part."""

    def __init__(self, nlp: Language, parts: Parts, form: Dict[str, Any], settings: Dict[str, Any]) -> None:
        """Nothing is linked yet."""
        self._nlp = nlp
        self._parts = parts
        self._form = form
        self._settings = settings

    def __call__(self, job: Lines) -> int:
        """Link lines. RETURNS (int): How many questions there were."""
        records = read_records(job.lines, first=job.first, **self._form)
        texts = [to_line(result) for result in link(self._nlp, records, **self._settings)]
        self._parts.write(job.name, "".join(texts).encode("utf8"))
        return len(texts)

"""The speed of a pipeline compared with the bare forward pass of its encoder, and where the time goes."""

import contextlib
import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from spacy.language import Language
from spacy.util import minibatch

from ..errors import ELQError, Errors
from ..model.transformer import TransformerModel, time_forward
from ..types import Linker
from ..util import set_threads
from .pipelines import load_pipeline, read_docs

STAGES = ("tokenizer", "encoder", "mentions", "search", "decode", "annotation", "rest")
_MB = 1e6
# questions that the pipeline, then the bare encoder, processes in turn, as a machine's speed varies over time
_BLOCK = 64


def bench(
    pipeline: str,
    data_path: Path,
    batch_sizes: List[int],
    *,
    n_threads: int = 1,
    limit: int = 500,
    repeats: int = 3,
    lengths: List[int] = [],  # noqa: B006  (never changed)
) -> Dict[str, Any]:
    """Measure a pipeline.

    RETURNS (Dict[str, Any]): Threads, questions, entities, seconds to load it, peak memory of this process
        and, in "runs", figures for each batch size, in "lengths" for docs of a given number of tokens.
    """
    subject = _prepare(pipeline, data_path, limit=limit)
    set_threads(n_threads)
    (runs,) = _run_in_turn([subject], batch_sizes, repeats=repeats)
    return {
        "threads": n_threads,
        "questions": len(subject.texts),
        "entities": subject.entities,
        "runs": runs,
        "lengths": [_run_length(subject.nlp, subject.texts, tokens, repeats=repeats) for tokens in lengths],
        "load_seconds": subject.load_seconds,
        "peak_mb": _peak_mb(),
    }


def bench_in_turn(
    pipelines: List[str],
    data_path: Path,
    batch_sizes: List[int],
    *,
    n_threads: int = 1,
    limit: int = 500,
    repeats: int = 3,
) -> List[List[Dict[str, Any]]]:
    """Measure several pipelines in one run, taking turns.

    RETURNS (List[List[Dict[str, Any]]]): Of each pipeline, the "runs" of `bench`.
    """
    subjects = [_prepare(pipeline, data_path, limit=limit) for pipeline in pipelines]
    set_threads(n_threads)
    return _run_in_turn(subjects, batch_sizes, repeats=repeats)


@dataclass(frozen=True)
class _Subject:
    """A pipeline with a clock around its stages, and the texts that it is measured on."""

    nlp: Language
    texts: List[str]
    clock: Dict[str, float]
    entities: int
    load_seconds: float

    @property
    def encoder(self) -> Any:
        """RETURNS (Any): The model of its transformer, or None."""
        models = (getattr(pipe, "model", None) for _, pipe in self.nlp.pipeline)
        return next((model for model in models if isinstance(model, TransformerModel)), None)


def _prepare(pipeline: str, data_path: Path, *, limit: int) -> _Subject:
    begin = time.perf_counter()
    nlp, linker = load_pipeline(pipeline)
    load_seconds = time.perf_counter() - begin
    if linker.index is None:
        raise ELQError(Errors.E001.format(name=linker.name))
    texts = [doc.text for doc in read_docs(data_path, nlp)][:limit]
    return _Subject(nlp, texts, _install_clock(nlp, linker), len(linker.index), load_seconds)


def _run_in_turn(
    subjects: List[_Subject], batch_sizes: List[int], *, repeats: int
) -> List[List[Dict[str, Any]]]:
    """RETURNS (List[List[Dict[str, Any]]]): Of each subject, the figures of each batch size."""
    for subject in subjects:
        list(subject.nlp.pipe(subject.texts[:64]))
    runs: List[List[Dict[str, Any]]] = [[] for _ in subjects]
    for size in batch_sizes:
        measured: List[List[Dict[str, float]]] = [[] for _ in subjects]
        for _ in range(repeats):
            for subject, own in zip(subjects, measured, strict=True):
                own.append(_measure(subject, size))
        for subject, own, figures in zip(subjects, measured, runs, strict=True):
            figures.append(_sum_up(own, size, len(subject.texts)))
    return runs


def _measure(subject: _Subject, batch_size: int) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Seconds by stage and, in "forward", of the bare forward pass."""
    subject.clock.update(dict.fromkeys(STAGES, 0.0))
    total, forward = 0.0, 0.0
    for block in minibatch(subject.texts, max(_BLOCK, batch_size)):
        begin = time.perf_counter()
        for _ in subject.nlp.pipe(block, batch_size=batch_size):
            pass
        total += time.perf_counter() - begin
        if subject.encoder is not None:
            forward += time_forward(subject.encoder, list(minibatch(block, batch_size)))
    spent = dict(subject.clock)
    spent["rest"] = total - sum(spent.values())
    return {**spent, "forward": forward} if subject.encoder is not None else spent


def _sum_up(measured: List[Dict[str, float]], batch_size: int, questions: int) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): Seconds per question by stage and of the forward pass, and their ratio."""
    totals = [sum(m[stage] for stage in STAGES) for m in measured]
    bare = [m["forward"] for m in measured if "forward" in m]
    ratios = [total / own for total, own in zip(totals, bare, strict=False)]
    return {
        "batch_size": batch_size,
        "questions": questions,
        "questions_per_second": questions / statistics.median(totals),
        "seconds": {stage: statistics.median(m[stage] for m in measured) / questions for stage in STAGES},
        "forward": statistics.median(bare) / questions if bare else None,
        "ratio": statistics.median(ratios) if ratios else None,
    }


def _run_length(nlp: Language, texts: List[str], tokens: int, *, repeats: int) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Tokens/s on a doc of a given number of tokens."""
    words = itertools.chain.from_iterable([w.text for w in nlp.make_doc(t)] for t in itertools.cycle(texts))
    text = " ".join(itertools.islice(words, tokens))
    length = len(nlp.make_doc(text))
    spent = []
    for _ in range(repeats):
        begin = time.perf_counter()
        nlp(text)
        spent.append(time.perf_counter() - begin)
    return {"tokens": length, "tokens_per_second": length / statistics.median(spent)}


def _peak_mb() -> Optional[float]:
    """RETURNS (Optional[float]): Peak resident memory in MB, where the system reports it (Linux)."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf8").splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / _MB


def _install_clock(nlp: Language, linker: Linker) -> Dict[str, float]:
    """Put a clock around the stages of a pipeline that was loaded for this alone.

    RETURNS (Dict[str, float]): Seconds by stage, counted up. What one stage asks of another is the other's.
    """
    clock: Dict[str, float] = dict.fromkeys(STAGES, 0.0)
    running: List[str] = []
    since = 0.0

    def switch() -> None:
        nonlocal since
        now = time.perf_counter()
        if running:
            clock[running[-1]] += now - since
        since = now

    def timed(stage: str, func: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            switch()
            running.append(stage)
            try:
                return func(*args, **kwargs)
            finally:
                switch()
                running.pop()

        return call

    def put_clock(owner: Any, stages: Dict[str, str]) -> None:
        for method, stage in stages.items():
            # not every linker has all of them, and nothing can be put around the methods of a compiled
            # component: its time is part of the rest
            with contextlib.suppress(AttributeError):
                setattr(owner, method, timed(stage, getattr(owner, method)))

    put_clock(linker.index, dict.fromkeys(["search", "match_names", "are_names"], "search"))
    put_clock(linker.index, dict.fromkeys(["find", "senses", "relatedness"], "search"))
    put_clock(linker.index, dict.fromkeys(["candidates", "edges", "have_words"], "search"))
    put_clock(linker, {"predict": "mentions", "set_annotations": "annotation"})
    put_clock(linker, dict.fromkeys(["_link_best", "_accept", "_make_links"], "decode"))
    for name, pipe in nlp.pipeline:
        if name == linker.name:
            break
        put_clock(pipe, dict.fromkeys(["predict", "set_annotations"], "encoder"))
    nlp.tokenizer = timed("tokenizer", nlp.tokenizer)
    return clock

"""Compare back ends over the same vectors, each in a process of its own, into `results/backend-….json`."""

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, cast

import faiss
import numpy as np
import srsly
import typer
from records import RESULTS, slug, write_record
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from spacy_elq.evaluation import load_pipeline, read_gold
from spacy_elq.index import EntityIndex, build_index
from spacy_elq.index.backend import default_factory, plan_backend
from spacy_elq.pipeline.base import IndexedLinker
from spacy_elq.types import Array

app = typer.Typer(help=__doc__, no_args_is_help=True)
K, PROBED = 10, 1000
# queries per call; the quickest of so many rounds over the same queries counts
BATCHES, ROUNDS = (1, 64), 3
MB = 1e6


@app.command()
def measure(
    vectors: Path = typer.Argument(..., help="Vectors of `spacy elq encode`, or of `scripts/synthetic.py`"),
    factory: List[str] = typer.Option(
        ...,
        "--factory",
        "-f",
        help="Factory string, `default`, or with settings: IVF256,SQ8@nprobe=64,rescore=50",
    ),
    work: Path = typer.Option(..., help="Folder for the indexes and the results of exact search"),
    pipeline: Optional[Path] = typer.Option(None, help="Trained pipeline, for queries and weak F1"),
    questions: List[Path] = typer.Option([], help="Questions with gold links (.spacy), for both"),
    queries: Optional[Path] = typer.Option(None, help="Queries of `synthesize`, instead of a pipeline"),
    encoder: Optional[Path] = typer.Option(None, help="Encoder of the vectors, named in the table"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Measure every back end.

    Indexes and exact results that are already in the work folder are used again.
    """
    if pipeline is None and queries is None:
        raise typer.BadParameter("Give a pipeline with questions, or queries.")
    source = EntityIndex.open(vectors)
    default, _ = _read_spec("default", source)
    work = _prepare(work / f"{len(source)}-{source.width}", source)
    folders = [_build(source, spec, work) for spec in factory]
    weak: Dict[str, float] = {}
    if queries is None:
        queries = work / "queries.npz"
        places = map(str, folders)
        weak = _run("link", str(pipeline), str(queries), *(f"--questions={q}" for q in questions), *places)
    truth = _find_truth(source, queries, work / "truth.npy")
    for spec, folder in zip(factory, folders, strict=True):
        figures = _run("probe", str(folder), str(queries), str(truth))
        built = srsly.read_json(_beside(folder, "build.json"))
        backend = dict(EntityIndex.open(folder).meta["backend"])
        is_synthetic = str(source.meta["encoder"].get("name", "")).startswith("synthetic")
        row = {
            "default": backend == default,
            "factory": backend.pop("factory"),
            "widths": ", ".join(f"{key} {value}" for key, value in backend.items()),
            "encoder": encoder and encoder.name,
            "entities": len(source),
            "width": source.width,
            "vectors": "synthetic" if is_synthetic else "real",
            **figures,
            **built,
            "weak_f": weak.get(str(folder)),
        }
        write_record(results, f"backend-{len(source)}-{source.width}-{row['encoder']}-{slug(spec)}", row)


@app.command(hidden=True)
def build(vectors: Path, folder: Path, spec: str) -> None:
    """Build an index as a specification says, of vectors or of an index with the same factory string."""
    settings, _ = _read_spec(spec, EntityIndex.open(vectors))
    widths = {key: value for key, value in settings.items() if key not in ("factory", "efConstruction")}
    build_index(vectors, folder, factory=settings["factory"], widths=widths)


def _read_spec(spec: str, source: EntityIndex) -> Tuple[Dict[str, Any], Dict[str, int]]:
    """RETURNS (Tuple[Dict[str, Any], Dict[str, int]]): The settings of the back end that a specification asks
    for, and those of them that it names.
    """
    factory, _, named = spec.partition("@")
    pairs = [pair.split("=") for pair in named.split(",") if pair]
    widths = {key: int(value) for key, value in pairs}
    if factory == "default":
        factory = default_factory(*source.vectors.shape)
    return plan_backend(source.vectors.shape, factory=factory, widths=widths)[0], widths


@app.command(hidden=True)
def link(pipeline: str, queries: Path, indexes: List[Path], questions: List[Path] = typer.Option([])) -> None:
    """Link questions with several indexes; write the queries, print weak F1 by index."""
    nlp, found = load_pipeline(pipeline)
    linker = cast(IndexedLinker, found)
    examples = [example for path in questions for example in read_gold(path, nlp)]
    with nlp.select_pipes(disable=[linker.name]):
        for example, doc in zip(examples, nlp.pipe([x.predicted for x in examples]), strict=True):
            example.predicted = doc
    result = {}
    for path in indexes:
        index = EntityIndex.open(path)
        linker.set_index(index)
        asked = _link(linker, index, examples)
        result[str(path)] = round(linker.score(examples)["elq_weak_f"], 4)
    vectors, places = np.unique(np.concatenate([own for own, _ in asked]), axis=0, return_index=True)
    names = np.asarray([name for _, own in asked for name in own])[places]
    order = np.random.default_rng(0).permutation(len(vectors))
    np.savez(queries, vectors=vectors[order], names=names[order])
    typer.echo(json.dumps(result))


def _link(linker: Any, index: EntityIndex, examples: Sequence[Example]) -> List[Tuple[Array, List[str]]]:
    """Link processed docs anew.

    RETURNS (List[Tuple[Array, List[str]]]): What the index was asked for: vectors and names.
    """
    asked = []
    search = index.search

    def listen(queries: Array, k: int, **settings: Any) -> Tuple[Array, Array]:
        asked.append((queries, list(settings["names"]) or [""] * len(queries)))
        return search(queries, k, **settings)

    index.search = listen  # type: ignore[method-assign]
    for batch in minibatch(examples, 64):
        docs: List[Doc] = [example.predicted for example in batch]
        for doc in docs:
            doc.set_ents([])
        linker.set_annotations(docs, linker.predict(docs))
    index.search = search  # type: ignore[method-assign]
    return asked


@app.command(hidden=True)
def probe(folder: Path, queries: Path, truth: Path) -> None:
    """Print what one process measures of an index, with one thread."""
    faiss.omp_set_num_threads(1)
    loaded = np.load(queries)
    asked, names, expected = loaded["vectors"], loaded["names"][:PROBED].tolist(), np.load(truth)
    before, begin = resident(), time.perf_counter()
    index = EntityIndex.open(folder)
    index.search(asked[:1], K)
    load_seconds = time.perf_counter() - begin
    found = list(_search(index, asked[:PROBED], 1))
    for name, positions in zip(names, found, strict=True):
        index.match_names([name])
        for position in positions.tolist():
            index.entity(position)
    grown = {key: (value - before[key]) / MB for key, value in resident().items()}
    times = {size: _time(index, asked[:PROBED], size) for size in BATCHES}
    found += list(_search(index, asked[PROBED:], max(BATCHES)))
    hits = [np.isin(own, wanted).mean() for own, wanted in zip(found, expected, strict=True)]
    sizes = {role: entry["bytes"] / MB for role, entry in index.meta["files"].items()}
    figures = {
        "recall_at_10": round(float(np.mean(hits)), 4),
        "queries": len(found),
        "queries_per_second": round(1000 / times[1], 1),
        **{f"ms_batch_{size}": round(ms, 3) for size, ms in times.items()},
        "resident_mb": round(sum(grown.values()), 1),
        "anonymous_mb": round(grown["RssAnon"], 1),
        "mapped_mb": round(grown["RssFile"], 1),
        "share_of_vectors": round(sum(grown.values()) * MB / index.vectors.nbytes, 4),
        "disk_mb": round(sum(sizes.values()), 1),
        "search_mb": round(sizes.get("search.faiss", 0.0), 1),
        "load_seconds": round(load_seconds, 3),
    }
    typer.echo(json.dumps(figures))


def _search(index: EntityIndex, queries: Array, size: int) -> Array:
    """RETURNS (Array): (queries, 10) positions, found in batches of a size."""
    batches = [queries[begin : begin + size] for begin in range(0, len(queries), size)]
    return np.concatenate([np.zeros((0, K), dtype="int64"), *(index.search(x, K)[0] for x in batches)])


def _time(index: EntityIndex, queries: Array, size: int) -> float:
    """RETURNS (float): Milliseconds of CPU time per query, in the quickest round."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        _search(index, queries, size)
        rounds.append(1000 * (time.process_time() - begin) / len(queries))
    return min(rounds)


def _prepare(folder: Path, source: EntityIndex) -> Path:
    """RETURNS (Path): The folder, emptied if it is of other vectors."""
    stamp = folder / "stamp.json"
    if not stamp.exists() or srsly.read_json(stamp) != source.stamp:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        srsly.write_json(stamp, source.stamp)
    return folder


def _build(source: EntityIndex, spec: str, folder: Path) -> Path:
    """RETURNS (Path): The index of a specification, built in a process of its own if it is not there. What is
    only searched more widely than another has the same files.
    """
    path = folder / slug(spec)
    settings, _ = _read_spec(spec, source)
    built = {own: EntityIndex.open(own).meta["backend"] for own in _built(folder)}
    if built.get(path) == settings:
        return path
    like = next((own for own, found in built.items() if found["factory"] == settings["factory"]), None)
    if like is not None:
        figures = srsly.read_json(_beside(like, "build.json"))
        _run("build", str(like), str(path), spec)
    else:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
        _run("build", str(source.path), str(path), spec)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        minutes = (time.perf_counter() - begin) / 60
        figures = {"build_seconds": round(spent, 1), "build_minutes": round(minutes, 1)}
    srsly.write_json(_beside(path, "build.json"), figures)
    return path


def _built(folder: Path) -> List[Path]:
    """RETURNS (List[Path]): The indexes that are in a folder."""
    return [path for path in sorted(folder.iterdir()) if _beside(path, "build.json").exists()]


def _beside(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}.{name}")


def _run(*arguments: str) -> Any:
    """RETURNS (Any): What a command of this script printed, in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) if done.stdout.strip() else None


def _find_truth(source: EntityIndex, queries: Path, path: Path) -> Path:
    """RETURNS (Path): A file with the (queries, 10) positions of an exact search, made if it is older than
    the queries.
    """
    asked = np.load(queries)["vectors"]
    if not path.exists() or path.stat().st_mtime < queries.stat().st_mtime:
        best = [
            faiss.knn(asked, part, K, metric=faiss.METRIC_INNER_PRODUCT) for part in _chunks(source.vectors)
        ]
        similarities = np.concatenate([found[0] for found in best], axis=1)
        firsts = np.cumsum([0, *(len(part) for part in _chunks(source.vectors))])
        positions = [found[1] + first for found, first in zip(best, firsts, strict=False)]
        order = np.argsort(-similarities, axis=1)[:, :K]
        np.save(path, np.take_along_axis(np.concatenate(positions, axis=1), order, axis=1))
    return path


def _chunks(vectors: Array, size: int = 65536) -> Iterator[Array]:
    for begin in range(0, len(vectors), size):
        yield vectors[begin : begin + size]


def resident() -> Dict[str, int]:
    """RETURNS (Dict[str, int]): Bytes of this process that are resident: anonymous, and of mapped files."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {key[:-1]: int(rest[0]) * 1024 for key, *rest in lines if key in ("RssAnon:", "RssFile:")}


if __name__ == "__main__":
    app()

"""The index tables of docs/performance.json: `measure` compares back ends, each in a process of its own,
`cut` makes a smaller catalogue, `synthesize` a larger one, `share` shows that processes share the pages of an
index. `scripts/performance.py write` shows them.
"""

import json
import os
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
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from spacy_elq.catalogue import entity_to_dict, read_catalogue
from spacy_elq.index import EntityIndex, build_index, encode_catalogue
from spacy_elq.index.backend import default_factory, plan_backend
from spacy_elq.pipeline.base import IndexedLinker
from spacy_elq.types import Array, Entity

app = typer.Typer(help=__doc__, no_args_is_help=True)
TABLE = Path("docs/performance.json")
KEY = ("factory", "widths", "encoder", "entities", "width", "vectors")
K, PROBED = 10, 1000
MB = 1e6


@app.command()
def measure(
    vectors: Path = typer.Argument(..., help="What `spacy elq encode` wrote, `cut` or `synthesize`"),
    factory: List[str] = typer.Option(
        ...,
        "--factory",
        "-f",
        help="Factory string, `default`, or with settings: IVF256,SQ8@nprobe=64,rescore=50",
    ),
    work: Path = typer.Option(..., help="Folder for the indexes and what is found on the way"),
    pipeline: Optional[Path] = typer.Option(None, help="Trained pipeline, for queries and weak F1"),
    questions: List[Path] = typer.Option([], help="Questions with gold links (.spacy), for both"),
    queries: Optional[Path] = typer.Option(None, help="Queries of `synthesize`, instead of a pipeline"),
    encoder: Optional[Path] = typer.Option(
        None, help="What the encoder was made from: its name is in the table"
    ),
) -> None:
    """Measure every back end and put the rows into docs/performance.json in the place of earlier ones.

    What was built or found before in the work folder is not done again.
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
    for folder in folders:
        figures = _run("probe", str(folder), str(queries), str(truth))
        built = srsly.read_json(_beside(folder, "build.json"))
        kind = str(source.meta["encoder"].get("name", "")).startswith("synthetic")
        row = {"factory": EntityIndex.open(folder).meta["backend"]["factory"], "widths": _widths_of(folder)}
        row["encoder"] = encoder and encoder.name
        row |= {"entities": len(source), "width": source.width, "vectors": "synthetic" if kind else "real"}
        row |= {**figures, **built, "weak_f": weak.get(str(folder))}
        row["default"] = EntityIndex.open(folder).meta["backend"] == default
        _put("index", row, KEY)


@app.command()
def cut(
    vectors: Path = typer.Argument(..., help="What `spacy elq encode` wrote"),
    catalogue: Path = typer.Argument(..., help="A smaller catalogue: its ids are taken"),
    output: Path = typer.Argument(..., help="Folder for their vectors"),
    entities: int = typer.Option(0, help="Fill them up to so many with others of the larger one"),
) -> None:
    """Take the entities of a smaller catalogue, with their vectors, out of a larger one."""
    source = EntityIndex.open(vectors)
    positions = source.positions([entity.id for entity in read_catalogue(catalogue)])
    chosen = positions[positions >= 0]
    others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(source)), chosen))
    chosen = np.concatenate([chosen, others[: max(0, entities - len(chosen))]])
    output.mkdir(parents=True, exist_ok=True)
    srsly.write_jsonl(output / "entities.jsonl", (entity_to_dict(source.entity(int(i))) for i in chosen))
    encode_catalogue(output / "entities.jsonl", output, Known(source), reuse=vectors, progress=True)


class Known:
    """An encoder that has nothing to do: every entity has its vector already."""

    def __init__(self, index: EntityIndex) -> None:
        """Pass for what made the vectors of an index."""
        self.width = index.width
        self.fingerprint = index.stamp["encoder"]
        self.settings = {k: v for k, v in index.meta["encoder"].items() if k != "fingerprint"}

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """RAISES (NotImplementedError): Always."""
        raise NotImplementedError(f"{entities[0].id} has no vector")


@app.command()
def synthesize(
    vectors: Path = typer.Argument(..., help="Real vectors to be like"),
    queries: Path = typer.Argument(..., help="Real queries over them, queries.npz of `measure`"),
    output: Path = typer.Argument(
        ..., help="Folder for vectors and queries; work goes on where it was stopped"
    ),
    entities: int = typer.Option(5_903_527, help="How many"),
    width: int = typer.Option(1024, help="How wide"),
) -> None:
    """Make vectors and queries of another size that are like real ones.

    The real vectors are clustered, a hundred to a cluster. An entity is the mean of all, plus a cluster's
    centre, plus what tells it from the others there: both are drawn from normal distributions whose variances
    are those of the real centres and of the real differences along their main directions, the two curves
    stretched to the new width. Vectors of one length are given that length. There are as many entities to
    a cluster as in the real ones. A query is the vector of an entity turned away from it by an angle drawn
    from those between real queries and their best entities, into a direction drawn with the variances and
    the mean of the real ones. All of it is turned at random, so that no direction is an axis.
    """
    output.mkdir(parents=True, exist_ok=True)
    catalogue = output / "entities.jsonl"
    if not catalogue.exists():
        lines = ({"id": str(i), "title": f"Entity {i}"} for i in range(entities))
        srsly.write_jsonl(output / "new.jsonl", lines)
        (output / "new.jsonl").rename(catalogue)
    like = _study(EntityIndex.open(vectors), np.load(queries)["vectors"], output / "like.npz")
    encoder = Synthetic(like, entities, width)
    made = encode_catalogue(catalogue, output / "vectors", encoder, shard_size=16384, progress=True)
    asked = encoder.ask(made)
    names = [made.entity(int(i)).title for i in np.arange(len(asked)) % len(made)]
    np.savez(output / "queries.npz", vectors=asked, names=names)


class Synthetic:
    """An encoder that draws vectors at random, the same for the same entities every time."""

    def __init__(self, like: Dict[str, Array], entities: int, width: int) -> None:
        """Prepare the shape of the space.

        like (Dict[str, Array]): What `_study` found.
        """
        self.width = width
        self.settings = {"name": f"synthetic {entities}"}
        self.fingerprint = f"synthetic-{entities}-{width}"
        self._like = like
        rng = np.random.default_rng(0)
        self._turn = np.linalg.qr(rng.normal(size=(width, width)))[0].astype("float32")
        self._within = _stretch(like["within"], width)
        clusters = max(1, int(entities / like["cluster_size"]))
        centres = rng.standard_normal((clusters, width), dtype="float32") * _stretch(like["between"], width)
        self._centres = centres + _stretch(like["mean"], width)

    def encode(self, entities: List[Entity], *, batch_size: int) -> Array:
        """RETURNS (Array): (entities, width) float32."""
        rng = np.random.default_rng([1, int(entities[0].id)])
        own = rng.standard_normal((len(entities), self.width), dtype="float32") * self._within
        drawn = own + self._centres[rng.integers(len(self._centres), size=len(entities))]
        if self._like["length"] > 0:
            drawn *= self._like["length"] / np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn @ self._turn

    def ask(self, made: EntityIndex) -> Array:
        """RETURNS (Array): (queries, width) float32, as many as the real ones."""
        rng = np.random.default_rng(2)
        cosines = self._like["cosines"][:, None]
        chosen = np.sort(rng.choice(len(made), size=len(cosines), replace=len(made) < len(cosines)))
        towards = _unit(made.vectors[chosen])
        away = rng.standard_normal((len(cosines), self.width), dtype="float32")
        signs = rng.choice([-1, 1], size=self.width).astype("float32")
        away = away * _stretch(self._like["away"], self.width)
        away = (away + signs * _stretch(self._like["away_mean"], self.width)) @ self._turn
        away = _unit(away - (away * towards).sum(axis=1, keepdims=True) * towards)
        asked = cosines * towards + np.sqrt(1 - cosines**2) * away
        return (self._like["query_length"] * asked).astype("float32")


@app.command()
def share(
    index: Path = typer.Argument(..., help="An index"),
    queries: Path = typer.Argument(..., help="queries.npz of `measure` or `synthesize`"),
    pipeline: Optional[Path] = typer.Option(
        None, help="Trained pipeline, to look at nlp.pipe(n_process=2) too"
    ),
    questions: List[Path] = typer.Option([], help="Questions for it (.spacy)"),
) -> None:
    """Show what one process and what each of two has of the mapped files of an index, as the system counts
    it: resident, and resident divided by the number of processes that share a page.
    """
    for count in (1, 2):
        command = [sys.executable, __file__, "hold", str(index), str(queries)]
        pipes: Dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes = [subprocess.Popen(command, **pipes) for _ in range(count)]
        for process in processes:
            process.stdout.readline()  # type: ignore[union-attr]
        _put_shared(index, "processes of their own", [process.pid for process in processes])
        for process in processes:
            process.communicate(b"\n")
    if pipeline is not None:
        _share_pipe(index, pipeline, questions)


@app.command(hidden=True)
def build(vectors: Path, folder: Path, spec: str) -> None:
    """Build an index as a specification says."""
    settings, widths = _read_spec(spec, EntityIndex.open(vectors))
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
    from spacy_elq.evaluation.pipelines import read_gold

    nlp, linker = _load(pipeline)
    examples = [example for path in questions for example in read_gold(path, nlp, linker)]
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


def _load(pipeline: str) -> Tuple[Language, IndexedLinker]:
    from spacy_elq.evaluation.pipelines import load_pipeline

    nlp, linker = load_pipeline(pipeline)
    return nlp, cast(IndexedLinker, linker)


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
    before, begin = _memory(), time.perf_counter()
    index = EntityIndex.open(folder)
    index.search(asked[:1], K)
    load_seconds = time.perf_counter() - begin
    begin = time.process_time()
    found = [index.search(query[None], K)[0][0] for query in asked[:PROBED]]
    seconds = time.process_time() - begin
    for name, positions in zip(names, found, strict=True):
        index.match_names([name])
        for position in positions.tolist():
            index.entity(position)
    grown = {key: (value - before[key]) / MB for key, value in _memory().items()}
    found += list(index.search(asked[PROBED:], K)[0])
    hits = [np.isin(own, wanted).mean() for own, wanted in zip(found, expected, strict=True)]
    sizes = {role: entry["bytes"] / MB for role, entry in index.meta["files"].items()}
    figures = {
        "recall_at_10": round(float(np.mean(hits)), 4),
        "queries": len(found),
        "queries_per_second": round(len(found[:PROBED]) / seconds, 1),
        "resident_mb": round(sum(grown.values()), 1),
        "anonymous_mb": round(grown["RssAnon"], 1),
        "mapped_mb": round(grown["RssFile"], 1),
        "share_of_vectors": round(sum(grown.values()) * MB / index.vectors.nbytes, 4),
        "disk_mb": round(sum(sizes.values()), 1),
        "search_mb": round(sizes.get("search.faiss", 0.0), 1),
        "load_seconds": round(load_seconds, 3),
    }
    typer.echo(json.dumps(figures))


@app.command(hidden=True)
def hold(folder: Path, queries: Path) -> None:
    """Use an index, say so, and keep it until there is input."""
    index = EntityIndex.open(folder)
    loaded = np.load(queries)
    index.search(loaded["vectors"][:PROBED], K)
    index.match_names(loaded["names"][:PROBED].tolist())
    typer.echo("ready")
    sys.stdin.readline()


def _prepare(folder: Path, source: EntityIndex) -> Path:
    """RETURNS (Path): The folder, emptied if it is of other vectors."""
    stamp = folder / "stamp.json"
    if not stamp.exists() or srsly.read_json(stamp) != source.stamp:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        srsly.write_json(stamp, source.stamp)
    return folder


def _build(source: EntityIndex, spec: str, folder: Path) -> Path:
    """RETURNS (Path): The index of a specification, built in a process of its own if it is not there."""
    path = folder / "".join(c if c.isalnum() else "_" for c in spec)
    is_there = _beside(path, "build.json").exists()
    if not is_there or EntityIndex.open(path).meta["backend"] != _read_spec(spec, source)[0]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        _run("build", str(source.path), str(path), spec)
        seconds = {"build_seconds": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 1)}
        srsly.write_json(_beside(path, "build.json"), seconds)
    return path


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


def _study(index: EntityIndex, queries: Array, path: Path) -> Dict[str, Array]:
    """RETURNS (Dict[str, Array]): What `synthesize` takes over from real vectors and queries."""
    if path.exists():
        return dict(np.load(path))
    rng = np.random.default_rng(0)
    sample = np.array(index.vectors[np.sort(rng.permutation(len(index))[:100_000])])
    mean = sample.mean(axis=0)
    size = min(100, len(sample))
    kmeans = faiss.Kmeans(index.width, len(sample) // size, niter=10)
    kmeans.train(sample)
    owners = kmeans.index.search(sample, 1)[1][:, 0]
    directions = np.linalg.eigh(np.cov(sample.T))[1][:, ::-1].astype("float32")
    centres = np.asarray(kmeans.centroids)[owners]
    lengths = np.linalg.norm(sample, axis=1)
    best = _unit(index.vectors[_best_of(index, queries)])
    cosines = (_unit(queries) * best).sum(axis=1)
    away = _unit(_unit(queries) - cosines[:, None] * best) @ directions
    like = {
        "cluster_size": np.float32(len(index) / (len(sample) // size)),
        "between": ((centres - mean) @ directions).std(axis=0),
        "within": ((sample - centres) @ directions).std(axis=0),
        "mean": np.abs(mean @ directions),
        "length": np.float32(lengths.mean() if lengths.std() < 0.01 * lengths.mean() else 0.0),
        "cosines": cosines,
        "away": away.std(axis=0),
        "away_mean": np.abs(away.mean(axis=0)),
        "query_length": np.float32(np.linalg.norm(queries, axis=1).mean()),
    }
    np.savez(path, **like)
    return like


def _best_of(index: EntityIndex, queries: Array) -> Array:
    return faiss.knn(queries, np.array(index.vectors), 1, metric=faiss.METRIC_INNER_PRODUCT)[1][:, 0]


def _stretch(curve: Array, width: int) -> Array:
    """RETURNS (Array): (width,) a curve over directions, at another width, with the same sum of squares."""
    places = np.linspace(0, len(curve) - 1, width)
    stretched = np.interp(places, np.arange(len(curve)), curve)
    return (stretched * np.sqrt(np.square(curve).sum() / np.square(stretched).sum())).astype("float32")


def _unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _memory() -> Dict[str, int]:
    """RETURNS (Dict[str, int]): Bytes of this process that are resident: anonymous, and of mapped files."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {key[:-1]: int(rest[0]) * 1024 for key, *rest in lines if key in ("RssAnon:", "RssFile:")}


def _mapped(pid: int, folder: Path) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): MB of the files of a folder that a process has: "Rss" and "Pss"."""
    sizes = {"Rss:": 0, "Pss:": 0}
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            inside = str(folder.resolve()) in line
        elif inside and words[0] in sizes:
            sizes[words[0]] += int(words[1]) * 1024
    return {key[:-1]: value / MB for key, value in sizes.items()}


def _put_shared(index: Path, how: str, pids: Sequence[int]) -> None:
    sizes = [_mapped(pid, index) for pid in pids]
    row = {"how": how, "processes": len(pids), "entities": len(EntityIndex.open(index))}
    row |= {f"{key.lower()}_mb": round(float(np.mean([size[key] for size in sizes])), 3) for key in sizes[0]}
    _put("index_sharing", row, ("how", "processes", "entities"))


def _share_pipe(index: Path, pipeline: Path, questions: List[Path]) -> None:
    """Look at the workers of `nlp.pipe(n_process=2)` when they have done most of their work."""
    from spacy_elq.evaluation.pipelines import read_docs

    nlp, linker = _load(str(pipeline))
    linker.set_index(EntityIndex.open(index))
    texts = [doc.text for path in questions for doc in read_docs(path, nlp)]
    for i, _ in enumerate(nlp.pipe(texts, n_process=2, batch_size=16)):
        if i == int(0.9 * len(texts)):
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            mapping = [int(pid) for pid in children if _mapped(int(pid), index)["Rss"]]
            _put_shared(index, "nlp.pipe(n_process=2)", mapping)


def _widths_of(folder: Path) -> str:
    settings = EntityIndex.open(folder).meta["backend"]
    return ", ".join(f"{key} {value}" for key, value in settings.items() if key != "factory")


def _put(name: str, row: Dict[str, Any], key: Sequence[str]) -> None:
    """Write a row of a table, in the place of an earlier one of the same kind."""
    data = _read_table()
    rows = [old for old in data.get(name, []) if any(old[field] != row[field] for field in key)]
    data[name] = sorted([*rows, row], key=lambda r: [str(r[field]) for field in reversed(key)])
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf8")
    typer.echo(json.dumps(row, ensure_ascii=False))


def _read_table() -> Dict[str, Any]:
    return json.loads(TABLE.read_text(encoding="utf8")) if TABLE.is_file() else {}


if __name__ == "__main__":
    app()

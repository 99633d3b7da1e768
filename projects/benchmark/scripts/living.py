"""Measure what it costs that a catalogue changes, into `results/living.json`: each figure is a ratio of two
times that are measured alternately.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import faiss
import numpy as np
import typer
from backends import resident
from records import RESULTS, write_record

from spacy_elq.index import EntityIndex, copy_index
from spacy_elq.model.entity_encoder import open_encoder
from spacy_elq.types import Array, Encoder, Entity

app = typer.Typer(help=__doc__, no_args_is_help=True)
K, MB, MS = 10, 1e6, 1000.0
# queries of one call: a mention, and the mentions of 64 questions
SIZES = (1, 192)
CHANGED = (0.01, 0.02, 0.05, 0.1, 0.2)
# tags that are given at random, and the share of the entities that has them
TAGS = {"half": 0.5, "twentieth": 0.05, "thousandth": 0.001}
# queries are entities with so much noise, relative to the length of their vectors
_NOISE = 0.75
_ASKED = 1000


@dataclass(frozen=True)
class Subject:
    """What is measured.

    index (Path): An index.
    work (Path): Folder for copies.
    repeats (int): How often one query is asked, or one entity is added; more queries, more seldom.
    bulk (int): How many entities are added at once.
    encoder, queries, catalogue, old (Optional[Path]): See `measure`.
    """

    index: Path
    work: Path
    repeats: int
    bulk: int
    encoder: Optional[Path]
    queries: Optional[Path]
    catalogue: Optional[Path]
    old: Optional[Path]

    def copy(self, name: str) -> EntityIndex:
        """RETURNS (EntityIndex): A fresh copy of the index."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        source = EntityIndex.open(self.index)
        copy_index(source, folder)
        source.close()
        return EntityIndex.open(folder)

    def asked(self) -> Array:
        """RETURNS (Array): (queries, width) those of a pipeline, or entities with noise."""
        if self.queries is not None:
            return np.load(self.queries)["vectors"]
        index, draw = EntityIndex.open(self.index), np.random.default_rng(1)
        rows = np.sort(draw.choice(len(index), min(_ASKED, len(index)), replace=False))
        vectors = index.vectors_at(index.all_positions()[rows])
        noise = draw.standard_normal(vectors.shape, dtype="float32") / np.sqrt(vectors.shape[1])
        return draw.permutation(vectors + _NOISE * np.linalg.norm(vectors, axis=1, keepdims=True) * noise)

    def times(self, size: int) -> int:
        """RETURNS (int): How often a call with so many queries is measured."""
        return self.repeats if size == 1 else max(3, self.repeats // 20)


@app.command()
def measure(
    index: Path = typer.Argument(..., help="An index; copies of it are changed"),
    work: Path = typer.Option(..., help="Folder for the copies"),
    encoder: Optional[Path] = typer.Option(None, help="Its encoder, to measure how entities are added"),
    pipeline: Optional[Path] = typer.Option(None, help="Trained pipeline, for real queries"),
    questions: List[Path] = typer.Option([], help="Questions with gold links (.spacy), for the pipeline"),
    queries: Optional[Path] = typer.Option(None, help="Queries of scripts/backends.py, instead of both"),
    catalogue: Optional[Path] = typer.Option(None, help="entities.jsonl, to measure how an index is built"),
    old: str = typer.Option("", help="Folder of an older version of the package, to compare with"),
    repeats: int = typer.Option(200, min=1, help="How often each thing is measured"),
    bulk: int = typer.Option(10_000, min=5, help="How many entities are added at once"),
    part: List[str] = typer.Option([], help="Measure only this, and keep the other figures"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Measure, with one thread."""
    faiss.omp_set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    subject = Subject(index, work, repeats, bulk, encoder, queries, catalogue, Path(old) if old else None)
    if pipeline is not None:
        subject = replace(subject, queries=_make_queries(pipeline, questions, index, work / "queries.npz"))
    before = results / "living.json"
    record = json.loads(before.read_text(encoding="utf8")) if part and before.exists() else {}
    opened = EntityIndex.open(index)
    record |= {"entities": len(opened), "width": opened.width, "queries": _kind(subject)}
    opened.close()
    for name in part or list(PARTS):
        if (found := PARTS[name](subject)) is not None:
            record[name] = found
    write_record(results, "living", record)


def _make_queries(pipeline: Path, questions: List[Path], index: Path, path: Path) -> Path:
    asked = [f"--questions={question}" for question in questions]
    script = str(Path(__file__).with_name("backends.py"))
    command = [sys.executable, script, "link", str(pipeline), str(path), *asked, str(index)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return path


def _kind(subject: Subject) -> str:
    return "of a pipeline" if subject.queries is not None else "entities with noise"


# ---------------------------------------------------------------------- time


def time_in_turn(*calls: Callable[[int], Any], times: int) -> List[float]:
    """RETURNS (List[float]): Median milliseconds of calls made in turn, with the number of the turn."""
    seconds: List[List[float]] = [[] for _ in calls]
    for number in range(times):
        for own, call in zip(seconds, calls, strict=True):
            begin = time.perf_counter()
            call(number)
            own.append(time.perf_counter() - begin)
    return [MS * statistics.median(own) for own in seconds]


def _asker(index: EntityIndex, asked: Array, size: int, within: Any = None) -> Callable[[int], Any]:
    """RETURNS (Callable[[int], Any]): Searches for the next queries."""

    def ask(number: int) -> Tuple[Array, Array]:
        rows = np.arange(number * size, (number + 1) * size) % len(asked)
        return index.search(asked[rows], K, within=within)

    return ask


def _compare_searches(subject: Subject, plain: EntityIndex, other: EntityIndex, within: Any = None) -> List:
    """RETURNS (List): For each number of queries, the times of two searches, and their ratio."""
    rows = []
    for size in SIZES:
        asks = [_asker(plain, subject.asked(), size), _asker(other, subject.asked(), size, within)]
        time_in_turn(*asks, times=3)
        plain_ms, other_ms = time_in_turn(*asks, times=subject.times(size))
        times = {"plain_ms": round(plain_ms, 3), "ms": round(other_ms, 3)}
        rows.append({"queries": size, **times, "ratio": round(other_ms / plain_ms, 3)})
    return rows


# ---------------------------------------------------------------------- adding


def _open_encoder(subject: Subject) -> Optional[Encoder]:
    if subject.encoder is None:
        return None
    index = EntityIndex.open(subject.index)
    return open_encoder(index.meta["encoder"], index.path, name=str(subject.encoder))


def _make_new(index: EntityIndex, count: int) -> List[Entity]:
    """RETURNS (List[Entity]): Entities of other ids, with the texts of some that are there."""
    chosen = np.random.default_rng(2).choice(index.all_positions(), count)
    return [replace(index.entity(int(row)), id=f"new-{i}") for i, row in enumerate(chosen)]


def measure_adding_one(subject: Subject) -> Optional[Dict[str, float]]:
    """RETURNS (Optional[Dict[str, float]]): Milliseconds to encode an entity, and to add it."""
    encoder = _open_encoder(subject)
    if encoder is None:
        return None
    index = subject.copy("one")
    count = min(subject.repeats, 300)
    entities = _make_new(index, count)
    encoder.encode(entities[:5], batch_size=1)
    encode_ms, add_ms = time_in_turn(
        lambda i: encoder.encode([entities[i]], batch_size=64),
        lambda i: index.add([entities[i]], encoder),
        times=count,
    )
    limit = 1.5 * encode_ms + 20
    figures = {"encode_ms": encode_ms, "add_ms": add_ms, "limit_ms": limit, "ratio": add_ms / encode_ms}
    return {key: round(value, 3) for key, value in figures.items()}


def measure_adding_many(subject: Subject) -> Optional[Dict[str, float]]:
    """RETURNS (Optional[Dict[str, float]]): Entities/s, encoded alone and added."""
    encoder = _open_encoder(subject)
    if encoder is None:
        return None
    index = subject.copy("many")
    entities = _make_new(index, subject.bulk)
    parts = [part.tolist() for part in np.array_split(np.arange(subject.bulk), 5)]
    encode_ms, add_ms = time_in_turn(
        lambda i: encoder.encode([entities[j] for j in parts[i]], batch_size=64),
        lambda i: index.add([entities[j] for j in parts[i]], encoder),
        times=len(parts),
    )
    size = len(parts[0]) * MS
    return {
        "entities": subject.bulk,
        "encoded_per_second": round(size / encode_ms, 1),
        "added_per_second": round(size / add_ms, 1),
        "ratio": round(encode_ms / add_ms, 3),
    }


# ---------------------------------------------------------------------- searching


def measure_changes(subject: Subject) -> List[Dict[str, Any]]:
    """RETURNS (List[Dict[str, Any]]): Searches with changes that are not folded in, beside those without."""
    plain, changed = EntityIndex.open(subject.index), subject.copy("changed")
    rows, done = [], 0
    for share in CHANGED:
        target = int(share * len(plain))
        _change(changed, target - done, seed=done)
        done = target
        compared = _compare_searches(subject, plain, changed)
        rows += [{"share": share, "changes": changed.changes, **row} for row in compared]
    return rows


def _change(index: EntityIndex, count: int, *, seed: int) -> None:
    """Replace entities and add others, half of each, and remove a tenth as many."""
    draw = np.random.default_rng(seed)
    with index.reading():
        chosen = draw.choice(index.all_positions(), count + count // 10, replace=False)
        entities = index._database.get_all(chosen.tolist())
        vectors = index.vectors_at(chosen[:count])
    noise = draw.standard_normal(vectors.shape, dtype="float32") / np.sqrt(vectors.shape[1])
    vectors = vectors + 0.3 * np.linalg.norm(vectors, axis=1, keepdims=True) * noise
    written = [
        replace(entity, id=f"new-{seed}-{i}") if i % 2 else entity
        for i, entity in enumerate(entities[:count])
    ]
    # below `EntityIndex.add`, which would encode them, and fold them in
    index._database.add(written, vectors)
    index._database.remove([entity.id for entity in entities[count:]])


def measure_restricted(subject: Subject) -> List[Dict[str, Any]]:
    """RETURNS (List[Dict[str, Any]]): Searches of a part of the entities, beside those of all."""
    tagged = subject.copy("tagged")
    positions = tagged.all_positions()
    draw = np.random.default_rng(3)
    members = {
        tag: np.sort(draw.choice(positions, max(K, int(share * len(positions))), replace=False))
        for tag, share in TAGS.items()
    }
    with tagged._database.writing() as connection:
        for tag, own in members.items():
            pairs = [(f"benchmark-{tag}", position) for position in own.tolist()]
            connection.executemany("INSERT INTO tags VALUES (?, ?)", pairs)
    tagged.close()
    rows = []
    for tag, share in TAGS.items():
        within = {"tags": [f"benchmark-{tag}"]}
        recall = _measure_recall(tagged, subject.asked(), members[tag], within)
        compared = _compare_searches(subject, tagged, tagged, within)
        for row in compared:
            first = _time_first(tagged.path, subject.asked()[: row["queries"]], within)
            rows.append({"share": share, "recall_at_10": recall, **row, "first_ms": first})
    return rows


def _measure_recall(index: EntityIndex, asked: Array, members: Array, within: Any) -> float:
    vectors = index.vectors_at(members)
    best = faiss.knn(asked.astype("float32"), vectors, K, metric=faiss.METRIC_INNER_PRODUCT)[1]
    found, _ = index.search(asked, K, within=within)
    hits = [np.isin(members[own], row).mean() for own, row in zip(best, found, strict=True)]
    return round(float(np.mean(hits)), 4)


def _time_first(folder: Path, asked: Array, within: Any, times: int = 5) -> float:
    """RETURNS (float): Median milliseconds of the first restricted search of an index that is in use."""
    seconds = []
    for _ in range(times):
        index = EntityIndex.open(folder)
        index.search(asked, K)
        begin = time.perf_counter()
        index.search(asked, K, within=within)
        seconds.append(time.perf_counter() - begin)
        index.close()
    return round(MS * statistics.median(seconds), 3)


# ---------------------------------------------------------------------- opening, memory, building


def measure_opening(subject: Subject) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Milliseconds to open an index, as it is and with 1 % changes, and to open
    it and search.
    """
    changed, asked = _copy_changed(subject, "opening"), subject.asked()[:1]

    def open_only(_: int) -> None:
        EntityIndex.open(subject.index).close()

    def open_changed(_: int) -> None:
        EntityIndex.open(changed).close()

    def open_and_search(_: int) -> None:
        index = EntityIndex.open(subject.index)
        index.search(asked, K)
        index.close()

    calls = {"open_ms": open_only, "open_changed_ms": open_changed, "open_and_search_ms": open_and_search}
    time_in_turn(*calls.values(), times=1)
    times = time_in_turn(*calls.values(), times=20)
    return {name: round(value, 2) for name, value in zip(calls, times, strict=True)}


def _copy_changed(subject: Subject, name: str) -> Path:
    """RETURNS (Path): A copy of the index with 1 % changes."""
    changed = subject.copy(name)
    _change(changed, len(changed) // 100, seed=7)
    changed.close()
    return changed.path


def measure_memory(subject: Subject) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): MB that a process grows by when it uses an index, as it is and with 1 %
    changes.
    """
    changed = _copy_changed(subject, "memory")
    asked = subject.work / "asked.npy"
    np.save(asked, subject.asked())
    return {
        name: _run("hold", str(folder), str(asked))
        for name, folder in (("plain_mb", subject.index), ("changed_mb", changed))
    }


@app.command(hidden=True)
def hold(folder: Path, queries: Path) -> None:
    """Print how many MB this process has grown by after 1,000 searches and look-ups."""
    faiss.omp_set_num_threads(1)
    asked = np.load(queries)
    before = sum(resident().values())
    index = EntityIndex.open(folder)
    for number in range(_ASKED):
        positions, _ = index.search(asked[[number % len(asked)]], K)
        index.match_names([head[1] for head in index.heads(positions[0])])
    typer.echo(json.dumps(round((sum(resident().values()) - before) / MB, 1)))


def _run(*arguments: str) -> Any:
    """RETURNS (Any): What a command of this script printed, in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure_building(subject: Subject) -> Optional[Dict[str, Any]]:
    """RETURNS (Optional[Dict[str, Any]]): Seconds to build an index of a catalogue with an encoder that costs
    nothing, with this version and an older one.
    """
    if subject.catalogue is None:
        return None
    width = EntityIndex.open(subject.index).width
    new = _time_build(subject, width, None)
    if subject.old is None:
        return {"new": new}
    old = _time_build(subject, width, subject.old)
    totals = [own["encode_seconds"] + own["index_seconds"] for own in (new, old)]
    return {"new": new, "old": old, "ratio": round(totals[0] / totals[1], 3)}


def _time_build(subject: Subject, width: int, package: Optional[Path]) -> Dict[str, float]:
    folder = subject.work / "build"
    shutil.rmtree(folder, ignore_errors=True)
    script = str(Path(__file__).with_name("build_time.py"))
    environment = dict(os.environ)
    if package is not None:
        environment["PYTHONPATH"] = str(package.absolute())
    command = [sys.executable, script, str(subject.catalogue), str(folder), f"--width={width}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    shutil.rmtree(folder)
    return json.loads(done.stdout)


PARTS: Dict[str, Callable[[Subject], Any]] = {
    "opening": measure_opening,
    "memory": measure_memory,
    "adding_one": measure_adding_one,
    "adding_many": measure_adding_many,
    "changes": measure_changes,
    "restricted": measure_restricted,
    "building": measure_building,
}


if __name__ == "__main__":
    app()

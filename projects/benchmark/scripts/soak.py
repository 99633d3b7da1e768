"""Change and search an index in several processes that are killed at random; prove that nothing is lost and
nothing wrong is found. Writes `results/soak.json`.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
import traceback
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import typer
from records import RESULTS, write_record
from stub import StubEncoder, write_catalogue

from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.evaluation import load_pipeline
from spacy_elq.index import EntityIndex, build_index, check_index, copy_index, encode_catalogue
from spacy_elq.types import Array, Encoder, Entity

K = 10
# what workers count, also those that are killed
COUNTED = ("changes", "compactions", "searches", "scans", "checks", "copies", "links")
# a worker that reports more than this many errors is not started again
_MOST_ERRORS = 20
_BUSY = "E163"
_PRIOR = Prior(name_weight=1.0, popularity_weight=0.1)
fork = multiprocessing.get_context("fork")


class Wrong(AssertionError):
    """A reader has seen what it must not see."""


@dataclass(frozen=True)
class World:
    """What all processes know.

    work (Path): The folder; the index and the journals are in it.
    writers, groups (int): How many there are. Writer `w` owns the groups `g` with `g % writers == w`.
    pipeline (Optional[Path]): A pipeline whose encoder makes the vectors; None for the stub.
    counts (Any): Shared memory, `COUNTED` for all workers together.
    stop (Any): Shared memory, whether to come to an end.
    """

    work: Path
    writers: int
    groups: int
    pipeline: Optional[Path]
    counts: Any
    stop: Any

    @property
    def index(self) -> Path:
        """RETURNS (Path): The folder of the index."""
        return self.work / "index"

    def count(self, what: str) -> None:
        """Count something that a worker did."""
        self.counts[COUNTED.index(what)] += 1

    def open_encoder(self) -> Encoder:
        """RETURNS (Encoder): The encoder of the index."""
        if self.pipeline is None:
            return StubEncoder()
        return load_pipeline(str(self.pipeline))[1]._require_encoder()  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- groups


def make_group(group: int, generation: int) -> List[Entity]:
    """RETURNS (List[Entity]): The entities of a group. They are always written together, and each of them
    says which generation it is of.
    """
    return [
        Entity(
            id=id_,
            title=f"thing {group} {member} of {generation}",
            description=f"generation {generation} of group {group}",
            aliases=(f"alias {group} {member}",),
            label=f"LABEL{group % 7}",
            tags=(f"group-{group}", f"generation-{generation}"),
            popularity=float(generation),
        )
        for member, id_ in enumerate(group_ids(group))
    ]


def group_ids(group: int) -> List[str]:
    """RETURNS (List[str]): The ids of the two to four entities of a group."""
    return [f"{group}-{member}" for member in range(2 + group % 3)]


def find_group(entity_id: str, title: str) -> Tuple[int, int]:
    """RETURNS (Tuple[int, int]): The group of an entity, and its generation."""
    return int(entity_id.split("-")[0]), int(title.rsplit(" ", 1)[1])


class Journal:
    """What the writers wanted to do, and what they know to be done. Each line is either a change, written
    before the call, or what became of it, written when the call had returned.

    floor (Dict[int, Tuple[int, bool]]): Of each group, the last generation known to be done, and whether it
        exists or was removed.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """Paths (Sequence[Path]): One for each writer."""
        self._paths = list(paths)
        self._read = [0] * len(self._paths)
        self._open: List[Dict[str, Any]] = [{} for _ in self._paths]
        self._changes: Dict[int, Dict[int, bool]] = defaultdict(dict)
        self.floor: Dict[int, Tuple[int, bool]] = {}
        self.last: List[int] = [0] * len(self._paths)
        self.retired: List[int] = []

    def follow(self) -> "Journal":
        """Read what is new. RETURNS (Journal): This journal."""
        for number, path in enumerate(self._paths):
            if not path.exists():
                continue
            with path.open("rb") as file_:
                file_.seek(self._read[number])
                data = file_.read()
            whole = data.rfind(b"\n") + 1
            self._read[number] += whole
            for line in data[:whole].splitlines():
                self._apply(number, json.loads(line))
        return self

    def _apply(self, writer: int, event: Dict[str, Any]) -> None:
        if "groups" in event:
            self._open[writer] = event
            for group, generation in event["groups"]:
                self._changes[group][generation] = event["adds"]
                self.last[writer] = max(self.last[writer], generation)
            return
        change, self._open[writer] = self._open[writer], {}
        for group, generation in change["groups"]:
            if event["done"]:
                self.floor[group] = (generation, change["adds"])
                if change.get("retires"):
                    self.retired.append(group)
            else:
                del self._changes[group][generation]

    def unsettled(self, writer: int) -> Dict[str, Any]:
        """RETURNS (Dict[str, Any]): The change of which it is not known whether it is done, if any."""
        return self._open[writer]

    def check(self, before: Dict[int, Tuple[int, bool]], seen: Dict[int, Optional[int]]) -> None:
        """Check that what a reader saw was a state between one that was known to be done before it read, and
        what writers had begun when it was done.

        before (Dict[int, Tuple[int, bool]]): The floor before.
        seen (Dict[int, Optional[int]]): Of each group, the generation seen, or None.
        """
        for group, generation in seen.items():
            least, exists = before.get(group, (-1, False))
            later = {number: adds for number, adds in self._changes[group].items() if number > least}
            if generation is None:
                is_right = not exists or not all(later.values())
            else:
                is_right = (generation, True) == (least, exists) or later.get(generation, False)
            if not is_right:
                known = f"known to be done: {(least, exists)}, begun since: {later}"
                raise Wrong(f"group {group} was seen at generation {generation}; {known}")


def journals(world: World) -> Journal:
    """RETURNS (Journal): The journals of all writers."""
    return Journal([world.work / f"journal-{number}.jsonl" for number in range(world.writers)])


# ---------------------------------------------------------------------- writers


class Writer:
    """Adds, replaces and removes groups of its own, and compacts."""

    def __init__(self, world: World, number: int) -> None:
        """Settle first what a writer before this one has begun."""
        self._world, self._number = world, number
        self._path = world.work / f"journal-{number}.jsonl"
        self._index = EntityIndex.open(world.index)
        self._encoder = world.open_encoder()
        self._journal = journals(world).follow()
        self._random = random.Random()
        self._drop_half_a_line()
        if self._journal.unsettled(number):
            self._note({"done": was_done(self._index, self._journal.unsettled(number))})
        self._journal.follow()

    def step(self) -> None:
        """Do something."""
        draw = self._random.random()
        if draw < 0.02:
            self._compact()
        elif draw < 0.25:
            self._change(adds=False, retires=draw < 0.05)
        else:
            self._change(adds=True)

    def _change(self, *, adds: bool, retires: bool = False) -> None:
        own = range(self._number, self._world.groups, self._world.writers)
        usable = [group for group in own if group not in self._journal.retired]
        if len(usable) < 50:
            adds, retires = True, False
        groups = self._random.sample(usable, self._random.randint(1, 5))
        first = self._journal.last[self._number] + 1
        pairs = [(group, first + i) for i, group in enumerate(groups)]
        self._note({"groups": pairs, "adds": adds, "retires": retires})
        if adds:
            added = [entity for group, generation in pairs for entity in make_group(group, generation)]
            self._index.add(added, self._encoder)
        else:
            self._index.remove([id_ for group in groups for id_ in group_ids(group)])
        self._note({"done": True})
        self._journal.follow()
        self._world.count("changes")

    def _compact(self) -> None:
        try:
            self._index.compact(force=self._random.random() < 0.2)
            self._world.count("compactions")
        except ELQError as err:
            if _BUSY not in str(err):
                raise

    def _note(self, event: Dict[str, Any]) -> None:
        with self._path.open("ab", buffering=0) as file_:
            file_.write(json.dumps(event).encode("utf8") + b"\n")
            os.fsync(file_.fileno())

    def _drop_half_a_line(self) -> None:
        if self._path.exists():
            data = self._path.read_bytes()
            os.truncate(self._path, data.rfind(b"\n") + 1)


def was_done(index: EntityIndex, change: Dict[str, Any]) -> bool:
    """RETURNS (bool): Whether a change of a killed writer is done. All of it must be, or nothing."""
    done = set()
    with index.reading():
        for group, generation in change["groups"]:
            seen = see_group(index, group)
            done.add(seen == generation if change["adds"] else seen is None)
            if change["adds"] and seen != generation and (seen or 0) > generation:
                raise Wrong(f"group {group} is at generation {seen}, after {generation}")
    if change["adds"] and len(done) > 1:
        raise Wrong(f"{change} was done by half")
    # a group may have been absent before it was removed
    return done == {True}


# ---------------------------------------------------------------------- readers


class Reader:
    """Searches, and checks that all it sees is one state, and one that can be."""

    def __init__(self, world: World, number: int) -> None:
        """Open the index."""
        self._world, self._number = world, number
        self._index = EntityIndex.open(world.index)
        self._encoder = world.open_encoder()
        self._journal = journals(world).follow()
        self._random = random.Random()
        self._version = (0, -1)

    def step(self) -> None:
        """Look at something."""
        draw = self._random.random()
        if draw < 0.005:
            self._check_live()
        elif draw < 0.01:
            self._copy_live()
        elif draw < 0.03:
            self._observe(self._scan, "scans")
        else:
            self._observe(self._search, "searches")

    def _observe(self, look: Callable[[], Dict[int, Optional[int]]], what: str) -> None:
        before = dict(self._journal.follow().floor)
        with self._index.reading() as view:
            version = view.counters[:2]
            if version[0] == self._version[0] and version < self._version:
                raise Wrong(f"the index went back from {self._version} to {version}")
            self._version = version
            seen = look()
        self._journal.follow().check(before, seen)
        self._world.count(what)

    def _search(self) -> Dict[int, Optional[int]]:
        groups = self._random.sample(range(self._world.groups), 4)
        seen = {group: see_group(self._index, group) for group in groups}
        wanted = [(group, number) for group, number in seen.items() if number is not None]
        entities = [make_group(group, number)[0] for group, number in wanted]
        queries = np.random.default_rng().standard_normal((4, self._index.width))
        if entities:
            queries = np.concatenate([self._encoder.encode(entities, batch_size=64), queries])
        names = [entity.title for entity in entities] + ["alias 3 1"] * 4
        prior = self._random.choice([Prior(), _PRIOR])
        positions, similarities = self._index.search(queries, K, names=names, prior=prior)
        if (positions < 0).any():
            raise Wrong(f"only {positions} were found")
        vectors = see_vectors(self._index, positions, self._encoder)
        if prior == Prior():
            expected = np.einsum("qw,qkw->qk", queries, vectors)
            np.testing.assert_allclose(similarities, expected, rtol=1e-4, atol=1e-4)
        for (group, _), own in zip(wanted, positions.tolist(), strict=False):
            self._look_up(group, own[0])
        for id_, title, _ in self._index.heads(np.unique(positions)):
            group, generation = find_group(id_, title)
            if seen.setdefault(group, generation) != generation:
                raise Wrong(f"{id_} is of generation {generation}, others of {seen[group]}")
        return {group: see_group(self._index, group) for group in seen} | seen

    def _look_up(self, group: int, best: int) -> None:
        """Check the ways to find a group that exists: by its vector, its name and its tag."""
        ids = group_ids(group)
        expected = self._index.positions(ids)
        # vectors of a transformer differ in length: another one may have the larger inner product
        if best != expected[0] and isinstance(self._encoder, StubEncoder):
            raise Wrong(f"the best for the vector of {ids[0]} is position {best}, not {expected[0]}")
        _, named, _ = self._index.match_names([f"alias {group} 0"])
        if named.tolist() != expected[:1].tolist():
            raise Wrong(f"the name of {ids[0]} finds {named}, not {expected[0]}")
        query = np.zeros((1, self._index.width), dtype="float32")
        found, _ = self._index.search(query, K, within={"tags": [f"group-{group}"]})
        if sorted(found[found >= 0].tolist()) != sorted(expected.tolist()):
            raise Wrong(f"the tag of group {group} finds {found}, not {expected}")

    def _scan(self) -> Dict[int, Optional[int]]:
        """RETURNS (Dict[int, Optional[int]]): All groups."""
        seen = see_all(self._index)
        positions = self._index.all_positions()
        see_vectors(self._index, positions[:: self._random.randint(1, 20)], self._encoder)
        return {group: seen.get(group) for group in range(self._world.groups)}

    def _check_live(self) -> None:
        if found := check_index(self._world.index):
            raise Wrong(f"check_index of an index that is in use: {found}")
        self._world.count("checks")

    def _copy_live(self) -> None:
        folder = self._world.work / f"copy-{self._number}"
        shutil.rmtree(folder, ignore_errors=True)
        before = dict(self._journal.follow().floor)
        copy_index(self._index, folder)
        if found := check_index(folder):
            raise Wrong(f"check_index of a copy: {found}")
        with EntityIndex.open(folder).reading():
            seen = see_all(EntityIndex.open(folder))
        self._journal.follow().check(before, {g: seen.get(g) for g in range(self._world.groups)})
        self._world.count("copies")


class LinkingReader(Reader):
    """Links texts with a pipeline, and checks its links."""

    def __init__(self, world: World, number: int) -> None:
        """Load the pipeline."""
        super().__init__(world, number)
        self._nlp, linker = load_pipeline(str(world.pipeline))
        linker.set_index(self._index)  # type: ignore[attr-defined]

    def step(self) -> None:
        """Link a few texts, or look at something else."""
        if self._random.random() < 0.5:
            super().step()
            return
        before = dict(self._journal.follow().floor)
        groups = self._random.sample(range(self._world.groups), 4)
        texts = [f"where is thing {group} 0 of {before.get(group, (0,))[0]} now" for group in groups]
        seen: Dict[int, Optional[int]] = {}
        for doc in self._nlp.pipe(texts):
            for ent in doc.ents:
                for other in ent._.elq_alternatives or []:
                    group, generation = find_group(other["id"], other["title"])
                    if seen.setdefault(group, generation) != generation:
                        raise Wrong(f"links of one batch have generations {seen[group]} and {generation}")
        self._journal.follow().check(before, seen)
        self._world.count("links")


def see_group(index: EntityIndex, group: int) -> Optional[int]:
    """RETURNS (Optional[int]): The generation of a group, or None if it does not exist.
    RAISES (Wrong): If a part of it does.
    """
    positions = index.positions(group_ids(group))
    if (positions < 0).all():
        return None
    if (positions < 0).any():
        raise Wrong(f"half of group {group} is there: {positions}")
    entities = [index.entity(position) for position in positions.tolist()]
    generation = find_group(entities[0].id, entities[0].title)[1]
    if entities != make_group(group, generation):
        raise Wrong(f"group {group} has entities of several generations: {entities}")
    return generation


def see_vectors(index: EntityIndex, positions: Array, encoder: Encoder) -> Array:
    """RETURNS (Array): The vectors at positions.
    RAISES (Wrong): If they are not those of the entities there.
    """
    vectors = index.vectors_at(positions)
    entities = [index.entity(position) for position in positions.ravel().tolist()]
    expected = encoder.encode(entities, batch_size=64).reshape(vectors.shape)
    # those of a transformer depend a little on the batch
    if not np.allclose(vectors, expected, atol=0 if isinstance(encoder, StubEncoder) else 1e-3):
        raise Wrong(f"the vectors of {[entity.id for entity in entities]} are those of others")
    return vectors


def see_all(index: EntityIndex) -> Dict[int, int]:
    """RETURNS (Dict[int, int]): The generation of every group that exists.
    RAISES (Wrong): If a part of one does.
    """
    found: Dict[int, List[Entity]] = defaultdict(list)
    with index.reading() as view:
        for entity in index:
            found[int(entity.id.split("-")[0])].append(entity)
        total = sum(map(len, found.values()))
        if total != len(index) or total != view.counters.entities:
            raise Wrong(f"{total} entities were read, {len(index)} counted, {view.counters} stored")
    seen = {}
    for group, entities in found.items():
        seen[group] = find_group(entities[0].id, entities[0].title)[1]
        if sorted(entities, key=lambda entity: entity.id) != make_group(group, seen[group]):
            raise Wrong(f"group {group} is not whole, or of several generations: {entities}")
    return seen


# ---------------------------------------------------------------------- the run


def make_world(work: Path, *, writers: int, groups: int, pipeline: Optional[Path], factory: str) -> World:
    """RETURNS (World): A folder with an index in which three of four groups exist."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    counts, stop = RawArray("q", len(COUNTED)), RawArray("b", 1)
    world = World(work.absolute(), writers, groups, pipeline and pipeline.absolute(), counts, stop)
    first = [group for group in range(groups) if group % 4]
    for writer in range(writers):
        own = [[group, 0] for group in first if group % writers == writer]
        lines = [json.dumps(event) + "\n" for event in ({"groups": own, "adds": True}, {"done": True})]
        (work / f"journal-{writer}.jsonl").write_text("".join(lines), encoding="utf8")
    in_fork(lambda: build_first(world, first, factory))
    return world


def build_first(world: World, groups: Sequence[int], factory: str) -> None:
    """Build an index of groups at generation 0."""
    entities = [entity for group in groups for entity in make_group(group, 0)]
    catalogue = write_catalogue(world.work / "entities.jsonl", entities)
    encode_catalogue(catalogue, world.work / "vectors", world.open_encoder())
    build_index(world.work / "vectors", world.index, factory=factory)


def in_fork(work: Callable[[], object]) -> None:
    """Run something in a process of its own: this one must not have used threads when it forks."""
    process = fork.Process(target=work)
    process.start()
    process.join()
    if process.exitcode:
        raise typer.Exit(1)


def run_worker(world: World, make: Callable[[World, int], Any], number: int) -> None:
    """Work until the end, or until killed; write what goes wrong to a file."""
    try:
        worker = make(world, number)
        while not world.stop[0]:
            worker.step()
    except Exception:
        path = world.work / "errors" / f"{make.__name__}-{number}-{time.time_ns()}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(traceback.format_exc(), encoding="utf8")
        os._exit(1)


class Workers:
    """Processes that are started again whenever they end."""

    def __init__(self, world: World, kinds: Sequence[Callable[[World, int], Any]]) -> None:
        """Kinds (Sequence[Callable]): What each of them runs."""
        self._world, self._kinds = world, kinds
        self._processes: List[BaseProcess] = [self._start(number) for number in range(len(kinds))]
        self.kills = 0

    def _start(self, number: int) -> BaseProcess:
        process = fork.Process(target=run_worker, args=(self._world, self._kinds[number], number))
        process.start()
        return process

    def kill(self, number: int) -> None:
        """Kill one, and start it again."""
        pid = self._processes[number].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self._processes[number].join()
        self.kills += self._processes[number].exitcode == -signal.SIGKILL
        self._processes[number] = self._start(number)

    def restart_failed(self) -> None:
        """Start those again that have ended because of an error."""
        for number, process in enumerate(self._processes):
            if not process.is_alive():
                self._processes[number] = self._start(number)

    def finish(self) -> None:
        """Let all of them come to an end."""
        self._world.stop[0] = 1
        for process in self._processes:
            process.join()


def disturb(workers: Workers, world: World, *, seconds: float, pause: float) -> Dict[str, Any]:
    """Kill a worker every now and then.

    pause (float): Seconds between two kills, on average.
    RETURNS (Dict[str, Any]): How large the log of the database became.
    """
    end = time.monotonic() + seconds
    log, largest = world.index / "entities.db-wal", 0
    while time.monotonic() < end and len(read_errors(world)) < _MOST_ERRORS:
        time.sleep(random.expovariate(1 / pause))
        workers.kill(random.randrange(len(workers._kinds)))
        workers.restart_failed()
        largest = max(largest, log.stat().st_size if log.exists() else 0)
    return {"largest_log_mb": round(largest / 1e6, 2)}


def read_errors(world: World) -> List[str]:
    """RETURNS (List[str]): What went wrong in workers."""
    paths = sorted((world.work / "errors").glob("*.txt"))
    return [path.read_text(encoding="utf8") for path in paths]


@contextmanager
def noting(errors: List[str]) -> Iterator[None]:
    """Add what goes wrong to a list."""
    try:
        yield
    except Exception:
        errors.append(traceback.format_exc())


def verify(world: World, factory: str) -> List[str]:
    """RETURNS (List[str]): What is wrong at the end."""
    errors: List[str] = []
    journal = journals(world).follow()
    index, encoder = EntityIndex.open(world.index), world.open_encoder()
    with noting(errors):
        for writer in range(world.writers):
            if change := journal.unsettled(writer):
                journal._apply(writer, {"done": was_done(index, change)})
        expected = {group: number for group, (number, exists) in journal.floor.items() if exists}
        if see_all(index) != expected:
            raise Wrong("the index has not what was acknowledged")
        entities = [entity for group, number in expected.items() for entity in make_group(group, number)]
        catalogue = write_catalogue(world.work / "expected.jsonl", entities)
        encode_catalogue(catalogue, world.work / "fresh-vectors", encoder)
        fresh = build_index(world.work / "fresh-vectors", world.work / "fresh", factory=factory)
        compare(index, fresh)
        index.compact(force=True)
        compare(index, fresh)
    with noting(errors):
        if found := check_index(world.index):
            raise Wrong(f"check_index: {found}")
        kinds = sorted(path.suffix for path in world.index.iterdir() if path.name[0] != ".")
        if [kind for kind in kinds if kind not in (".db-shm", ".db-wal")] != [".db", ".faiss", ".npy"]:
            raise Wrong(f"files were left: {sorted(world.index.iterdir())}")
    return errors


def compare(index: EntityIndex, fresh: EntityIndex) -> None:
    """Compare the content of two indexes, and what they find."""
    ids = sorted(entity.id for entity in fresh)
    found, expected = ({entity.id: entity for entity in x} for x in (index, fresh))
    if found != expected:
        raise Wrong("the entities are not those of an index built from scratch")
    np.testing.assert_allclose(
        index.vectors_at(index.positions(ids)), fresh.vectors_at(fresh.positions(ids)), atol=1e-3
    )
    queries = np.random.default_rng(0).standard_normal((200, fresh.width)).astype("float32")
    texts = [expected[id_].aliases[0] for id_ in ids[:200]]
    for prior, within in ((Prior(), None), (_PRIOR, None), (Prior(), {"labels": ["LABEL1"]})):
        answers = []
        for one in (index, fresh):
            positions, similarities = one.search(queries, K, names=texts, prior=prior, within=within)
            answers.append(([[row[0] for row in one.heads(own)] for own in positions], similarities))
        np.testing.assert_allclose(answers[0][1], answers[1][1], rtol=1e-3, atol=1e-3)
        if np.mean(np.asarray(answers[0][0]) == np.asarray(answers[1][0])) < 0.999:
            raise Wrong("a search finds others than one in an index built from scratch")


def main(
    work: Path = typer.Argument(..., help="Folder to work in; what is in it is removed"),
    minutes: float = typer.Option(10.0, help="How long"),
    writers: int = typer.Option(2, min=1, help="Processes that add, replace, remove and compact"),
    readers: int = typer.Option(4, min=1, help="Processes that search, or link"),
    groups: int = typer.Option(1500, min=200, help="Groups of two to four entities"),
    pause: float = typer.Option(0.5, help="Seconds between two kills, on average"),
    factory: str = typer.Option("SQ8", help="Factory string of the back end"),
    pipeline: Optional[Path] = typer.Option(
        None, help="Link with this pipeline, too, and encode with its encoder"
    ),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Change, search and kill."""
    world = make_world(work, writers=writers, groups=groups, pipeline=pipeline, factory=factory)
    reader = Reader if pipeline is None else LinkingReader
    workers = Workers(world, [Writer] * writers + [reader] * readers)
    log = disturb(workers, world, seconds=60 * minutes, pause=pause)
    workers.finish()
    errors = read_errors(world) + verify(world, factory)
    counted = dict(zip(COUNTED, world.counts, strict=True))
    record = {
        "minutes": minutes,
        "writers": writers,
        "readers": readers,
        "pipeline": pipeline and pipeline.name,
        "entities": len(EntityIndex.open(world.index)),
        "kills": workers.kills,
        **counted,
        **log,
        "errors": len(errors),
    }
    write_record(results, "soak" if pipeline is None else "soak-pipeline", record)
    for error in errors:
        typer.echo(error, err=True)
    raise typer.Exit(bool(errors))


if __name__ == "__main__":
    typer.run(main)

"""Flip bits in the files of an index: `check_index` must find them, or nothing may change. Writes
`results/flips.json`.
"""

import multiprocessing
import os
import random
import shutil
import signal
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import numpy as np
import typer
from records import RESULTS, write_record
from stub import StubEncoder, make_entities, write_catalogue, write_encoder

from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, check_index, encode_catalogue, register_encoder
from spacy_elq.index.database import DATABASE
from spacy_elq.index.files import link_or_copy

# a process that reads damaged files may crash: each trial has one of its own
fork = multiprocessing.get_context("fork")
# what can become of a flip; those that are not found and not harmless are missed
OUTCOMES = ("found", "harmless", "missed")
Flip = Tuple[str, int, int]


def main(
    work: Path = typer.Argument(..., help="Folder to work in; what is in it is removed"),
    trials: int = typer.Option(1000, help="Bits to flip, one at a time"),
    many: int = typer.Option(10, help="Trials with 100 bits at once"),
    entities: int = typer.Option(2000, help="Entities of the index"),
    only: str = typer.Option("", help="Only files whose names begin like this"),
    seed: int = typer.Option(0, help="Of the random numbers"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Flip bits at random places, as many in each file."""
    shutil.rmtree(work, ignore_errors=True)
    run_forked(make_index, work.absolute(), entities)
    source, sound = work.absolute() / "index", work.absolute() / "sound"
    # whoever opens an index moves what is in its log to the database: answers come from a copy
    copy_index(source, sound, ())
    names = sorted(path.relative_to(source).as_posix() for path in list_files(source))
    names = [name for name in names if name.startswith(only)]
    draw = random.Random(seed)
    single = [[draw_flip(draw, source, draw.choice(names))] for _ in range(trials)]
    several = [[draw_flip(draw, source, draw.choice(names)) for _ in range(100)] for _ in range(many)]
    counts: Dict[str, Counter[str]] = defaultdict(Counter)
    missed = []
    for flips in [*single, *several]:
        outcome = run_trial(source, work.absolute() / "trial", flips, sound)
        counts["100 at once" if len(flips) > 1 else kind_of(flips[0][0])].update(outcome)
        if outcome["missed"]:
            missed.append({"flips": flips[:5], **outcome})
    rows = [{"file": kind, **{key: own[key] for key in sorted(own)}} for kind, own in sorted(counts.items())]
    write_record(results, "flips", {"trials": trials, "entities": entities, "files": rows, "missed": missed})
    raise typer.Exit(bool(missed))


def make_index(work: Path, count: int) -> None:
    """Make an index with a back end, changes of all kinds, an encoder inside, and a log with the last
    changes: this process is killed while somebody reads.
    """
    encoder = StubEncoder()
    entities = make_entities(count)
    write_catalogue(work / "entities.jsonl", entities)
    encode_catalogue(work / "entities.jsonl", work / "vectors", encoder)
    index = build_index(work / "vectors", work / "index", factory="SQ8")
    index.remove([entity.id for entity in entities[: count // 100]])
    index.compact()
    index.add(make_entities(count // 50, first=count - count // 100), encoder)
    # ids that look like numbers, and names beyond ASCII
    index.add(make_entities(count // 100, first=2 * count, prefix=""), encoder)
    index.remove([entity.id for entity in entities[-count // 200 :]])
    write_encoder(work / "index" / "encoder")
    register_encoder(work / "index")
    with EntityIndex.open(work / "index").reading():
        for number in range(3):
            index.add(make_entities(count // 100, first=(3 + number) * count), encoder)
        os.kill(os.getpid(), signal.SIGKILL)


def list_files(folder: Path) -> List[Path]:
    """RETURNS (List[Path]): The files of an index that hold something."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]


def kind_of(name: str) -> str:
    """RETURNS (str): What a file of an index is, without its number."""
    has_number = "-" in name and "/" not in name and not name.startswith(DATABASE)
    return name.split("-")[0] + Path(name).suffix if has_number else name


def draw_flip(draw: random.Random, folder: Path, name: str) -> Flip:
    """RETURNS (Flip): A file, a place in it and a bit."""
    return name, draw.randrange((folder / name).stat().st_size), draw.randrange(8)


def copy_index(source: Path, folder: Path, changed: Iterable[str]) -> None:
    """Copy an index that nobody has open, with its log.

    changed (Iterable[str]): Files that will be changed, and so must not be the same as in the other folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for path in list_files(source):
        name = path.relative_to(source)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        # SQLite does not like a database with two names
        if name.as_posix() in changed or path.name.startswith(DATABASE):
            shutil.copyfile(path, folder / name)
        else:
            link_or_copy(path, folder / name)


def run_trial(source: Path, folder: Path, flips: Sequence[Flip], sound: Path) -> Dict[str, int]:
    """Flip bits in a copy of an index.

    sound (Path): Another copy, which may be opened.
    RETURNS (Dict[str, int]): What became of the flips: one of `OUTCOMES`, and whether opening it was refused,
        raised something else, or crashed.
    """
    copy_index(source, folder, {name for name, _, _ in flips})
    for file, place, bit in flips:
        with (folder / file).open("r+b") as file_:
            file_.seek(place)
            byte = file_.read(1)[0]
            file_.seek(place)
            file_.write(bytes([byte ^ (1 << bit)]))
    checked, used = fork.RawArray("c", 16), fork.RawArray("c", 16)
    run_forked(_check, folder, checked)
    run_forked(_use, folder, sound, used)
    use = used.value.decode() or "crashed"
    if checked.value == b"found":
        outcome = "found"
    else:
        outcome = "harmless" if checked.value == b"nothing" and use == "same" else "missed"
    return {key: int(key == outcome) for key in OUTCOMES} | ({} if use == "same" else {use: 1})


def run_forked(function: Any, *arguments: Any) -> None:
    """Run a function in a process of its own, and wait for it."""
    process = fork.Process(target=function, args=arguments)
    process.start()
    process.join()


def _check(folder: Path, result: Any) -> None:
    """Find out whether `check_index` finds something; if it raises, nothing is written."""
    result.value = b"found" if check_index(folder) else b"nothing"


def _use(folder: Path, sound: Path, result: Any) -> None:
    """Use an index, and the one that it is a copy of: "refused" if it cannot be opened, "raised" if another
    error is raised than ours, "error" for ours later on, "same" and "other" for its answers.
    """
    index = None
    try:
        index = EntityIndex.open(folder)
        found = answer(index)
        result.value = b"same" if found == answer(EntityIndex.open(sound)) else b"other"
    except ELQError:
        result.value = b"refused" if index is None else b"error"
    except Exception:
        result.value = b"raised"


def answer(index: EntityIndex) -> List[Any]:
    """RETURNS (List[Any]): All that an index holds, and what it finds."""
    entities = list(index)
    queries = np.random.default_rng(0).standard_normal((20, index.width)).astype("float32")
    ids = [entity.id for entity in entities]
    names = [entity.title for entity in entities[::10]]
    answers: List[Any] = [entities, len(index), index.stamp, index.changes, index.vectors.tobytes()]
    answers += [index.positions([*ids, "E0", "unknown"]).tolist(), index.are_names([*names, "none"]).tolist()]
    answers += [array.tolist() for array in index.match_names([*names, "alias 7", "ALIAS-3", "none"])]
    prior = Prior(name_weight=1.0, popularity_weight=0.5)
    for within in (None, {"tags": ["tag-3"]}, {"labels": ["LABEL2"]}, {"ids": ids[:50]}):
        for own in (Prior(), prior):
            found = index.search(queries, 10, names=names[:20], prior=own, within=within)
            answers += [array.tolist() for array in found]
    return answers


if __name__ == "__main__":
    typer.run(main)

"""Kill the commands that write, at random moments; nothing may be broken. Writes `results/kills.json`."""

import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import typer
from records import RESULTS, read_records, write_record
from stub import make_entities, write_catalogue, write_encoder

from spacy_elq.errors import ELQError
from spacy_elq.index import Database, EntityIndex, build_index, check_index, encode_catalogue
from spacy_elq.index.encode import PARTIAL
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.types import Array

# of the vectors of a shard that was done: they must be kept as they are
_MARK = 12345.0
# shards of `spacy elq encode`
_SHARD = 2048


class Broken(AssertionError):
    """A kill has broken something."""


@dataclass(frozen=True)
class Trial:
    """A command that is killed.

    arguments (List[str]): Behind `spacy elq`; the folder that it changes is `target`.
    prepare (Callable): Makes the folder as it is before.
    is_new (Callable): Whether a folder is as it is after the command; raises if it is neither that nor as
        before.
    """

    arguments: List[str]
    target: Path
    prepare: Callable[[], None]
    is_new: Callable[[], bool]


def main(
    work: Path = typer.Argument(..., help="Folder to work in; what is in it is removed"),
    kills: int = typer.Option(50, help="Kills per command"),
    entities: int = typer.Option(8000, help="Entities of the catalogue"),
    command: List[str] = typer.Option([], help="Only these of the commands; the figures of others stay"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Kill `encode`, `index`, `add` and `compact` at random moments of their work."""
    shutil.rmtree(work, ignore_errors=True)
    trials = make_trials(work.absolute(), entities)
    own: Dict[str, Dict[str, Any]] = {}
    for name in command or list(trials):
        own[name] = run_trials(name, trials[name], kills)
        before = [row for rows in read_records(results, "kills") for row in rows] if command else []
        known = {**{row["command"]: row for row in before}, **own}
        write_record(results, "kills", [known[name] for name in trials if name in known])
    raise typer.Exit(any(row["errors"] for row in own.values()))


# ---------------------------------------------------------------------- what is killed


def make_trials(work: Path, count: int) -> Dict[str, Trial]:
    """RETURNS (Dict[str, Trial]): The commands, by name; encoder, catalogues and indexes are made."""
    encoder_path = work / "encoder"
    write_encoder(encoder_path)
    encoder = EntityEncoder(str(encoder_path), max_length=48)
    small, large, more = (
        make_entities(count // 4),
        make_entities(count),
        make_entities(1000, first=count - 500),
    )
    paths = {name: work / f"{name}.jsonl" for name in ("small", "large", "more")}
    for name, entities in (("small", small), ("large", large), ("more", more)):
        write_catalogue(paths[name], entities)
    for name in ("small", "large"):
        encode_catalogue(paths[name], work / f"{name}-vectors", encoder)
        build_index(work / f"{name}-vectors", work / f"{name}-index", factory="HNSW16")
    changed = EntityIndex.open(shutil.copytree(work / "large-index", work / "changed-index"))
    changed.add(more, encoder)
    changed.remove([entity.id for entity in small[:100]])
    changed.close()
    target = work / "target"
    encode = ["encode", str(paths["large"]), str(target), "-e", str(encoder_path), "-L", "48"]
    index = ["index", str(work / "large-vectors"), str(target), "-f", "HNSW16"]
    whole = sorted(entity.id for entity in large)
    both = sorted({entity.id for entity in [*large, *more]})
    contents = {"small": sorted(entity.id for entity in small), "large": whole, "both": both}

    def from_folder(folder: Path) -> Callable[[], None]:
        return lambda: _copy(folder, target)

    def by_ids(before: str, after: str) -> Callable[[], bool]:
        return lambda: _compare_ids(target, contents[before], contents[after])

    is_encoded = by_ids("small", "large")
    return {
        "encode": Trial(encode, target, from_folder(work / "small-vectors"), is_encoded),
        "encode-2": Trial([*encode, "-p", "2"], target, from_folder(work / "small-vectors"), is_encoded),
        "index": Trial(index, target, from_folder(work / "small-index"), by_ids("small", "large")),
        "add": Trial(
            ["add", str(target), str(paths["more"])],
            target,
            from_folder(work / "large-index"),
            by_ids("large", "both"),
        ),
        "compact": Trial(
            ["compact", str(target)],
            target,
            from_folder(work / "changed-index"),
            lambda: _compare_content(target, EntityIndex.open(work / "changed-index")),
        ),
    }


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def _compare_ids(folder: Path, before: List[str], after: List[str]) -> bool:
    index = EntityIndex.open(folder)
    found = sorted(entity.id for entity in index)
    index.close()
    if found not in (before, after):
        raise Broken(f"there are {len(found)} entities, neither {len(before)} nor {len(after)}")
    return found == after


def _compare_content(folder: Path, expected: EntityIndex) -> bool:
    """RETURNS (bool): Whether there are no changes left. The entities and vectors must be the same."""
    index = EntityIndex.open(folder)
    found = {entity.id: entity for entity in index}
    if found != {entity.id: entity for entity in expected}:
        raise Broken("there are other entities than before")
    ids = list(found)
    np.testing.assert_array_equal(
        index.vectors_at(index.positions(ids)), expected.vectors_at(expected.positions(ids))
    )
    changes = index.changes
    index.close()
    return changes == 0


# ---------------------------------------------------------------------- kills


def run_trials(name: str, trial: Trial, kills: int) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What became of a command that was killed many times. A run that ends before
    it is killed counts as tried, not as killed; the next moments are then earlier.
    """
    trial.prepare()
    seconds = run_whole(trial)
    row: Dict[str, Any] = {"command": name, "seconds": round(seconds, 2), "tried": 0, "kills": 0}
    row |= {"old": 0, "new": 0, "shards_kept": 0, "errors": []}
    while row["kills"] < kills and len(row["errors"]) < kills:
        row["tried"] += 1
        moment = seconds * random.random()
        try:
            was_killed, state, kept = kill_once(trial, moment)
            row["kills"] += was_killed
            row[state] += was_killed
            row["shards_kept"] += kept
            if not was_killed:
                seconds = moment
        except (AssertionError, ELQError, subprocess.CalledProcessError) as err:
            problem = getattr(err, "stderr", None) or str(err)
            row["errors"].append(f"killed after {moment:.2f} s: {problem}")
            typer.echo(row["errors"][-1], err=True)
        typer.echo(f"{name}: {row['kills']} of {kills} killed, {len(row['errors'])} errors", err=True)
    return row


def kill_once(trial: Trial, moment: float) -> Tuple[bool, str, int]:
    """RETURNS (Tuple[bool, str, int]): Whether the command was killed before its end, the state that it left,
    "old" or "new", and how many shards it had encoded.
    """
    trial.prepare()
    process = start(trial)
    try:
        wait_for_work(process, trial)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        state = "new" if examine(trial) else "old"
        marked = mark_shards(trial.target / PARTIAL)
        run_whole(trial)
    finally:
        # a process that it has started may live on
        kill_group(process)
    if not examine(trial):
        raise Broken("the command ran again and changed nothing")
    compare_marks(trial.target, marked)
    check_leftovers(trial.target)
    return process.returncode == -signal.SIGKILL, state, len(marked)


def start(trial: Trial) -> "subprocess.Popen[str]":
    """RETURNS (subprocess.Popen[str]): The command, with a process group of its own."""
    command = [sys.executable, "-m", "spacy", "elq", *trial.arguments]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def kill_group(process: "subprocess.Popen[str]") -> None:
    """Kill what a command has started."""
    subprocess.run(["kill", "-9", "--", f"-{process.pid}"], stderr=subprocess.DEVNULL, check=False)


def wait_for_work(process: "subprocess.Popen[str]", trial: Trial) -> None:
    """Wait until a command touches the folder: what it does before cannot break anything."""
    before = _names(trial.target)
    while process.poll() is None and _names(trial.target) == before:
        time.sleep(0.002)


def _names(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def run_whole(trial: Trial) -> float:
    """RETURNS (float): How many seconds a command works, from when it touches the folder to its end."""
    command = [sys.executable, "-m", "spacy", "elq", *trial.arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for_work(process, trial)
    begin = time.monotonic()
    _, errors = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=errors[-2000:])
    return time.monotonic() - begin


def examine(trial: Trial) -> bool:
    """RETURNS (bool): Whether the folder is as it is after the command.
    RAISES (Broken): If it is damaged.
    """
    if found := check_index(trial.target):
        raise Broken(f"check_index: {found}")
    return trial.is_new()


def mark_shards(partial: Path) -> List[int]:
    """Overwrite the vectors of shards that are done, so that a second encoding would be seen.

    RETURNS (List[int]): Where those shards begin.
    """
    vectors = _open_partial(partial)
    if vectors is None:
        return []
    database = Database.open(partial / "entities.db")
    shards = database.shards()
    database.close()
    for begin in shards:
        vectors[begin : begin + _SHARD] = _MARK
    return shards


def _open_partial(partial: Path) -> Optional[Array]:
    paths = [partial / "entities.db", partial / "vectors.npy"]
    if not all(path.exists() for path in paths) or not paths[1].stat().st_size:
        return None
    try:
        return np.lib.format.open_memmap(paths[1], mode="r+")
    except ValueError:
        return None  # not begun yet


def compare_marks(folder: Path, shards: List[int]) -> None:
    """Check that the shards that were done were not encoded again, and all others were."""
    if not (folder / PARTIAL).exists() and shards:
        vectors = EntityIndex.open(folder).vectors
        kept = np.flatnonzero((vectors == _MARK).all(axis=1)[::_SHARD]) * _SHARD
        if kept.tolist() != sorted(shards):
            raise Broken(f"the shards {shards} were done, but {kept} were kept")


def check_leftovers(folder: Path) -> None:
    """Check that there are no files of an unfinished command."""
    database = [".lock", "entities.db", "entities.db-shm", "entities.db-wal"]
    others = [name for name in _names(folder) if name not in database]
    kinds = sorted(Path(name).suffix for name in others)
    if kinds not in ([".npy"], [".faiss", ".npy"]):
        raise Broken(f"files were left: {others}")


if __name__ == "__main__":
    typer.run(main)

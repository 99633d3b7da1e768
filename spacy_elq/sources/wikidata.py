"""A catalogue from a JSON dump of Wikidata, read as a stream.

A dump is a JSON array with one item per line. It is read once for the classes (if subclasses count) and once
for the entities. Both readings can be interrupted: what they have found so far, and how many lines they have
read, is in a folder beside the output. A compressed stream cannot be entered in the middle, so the lines that
were read are decompressed again, but not parsed.
"""

import bz2
import gzip
import json
import os
import time
import warnings
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from ..errors import ELQError, Errors, Warnings
from ..files import parse_json
from .items import SUBCLASS_OF, Classes, ItemConverter, WikidataSettings, item_values
from .output import Report, to_line

ENTITIES, SUBCLASSES, SETTINGS = "entities.jsonl", "subclasses.bin", "settings.json"
# the file by which the folder of a run is known to be ours, and the one that keeps other processes away
MARKER, LOCK = ".spacy-elq", ".lock"
_STATE, _NEW = ".state", ".new"
_MARK = (
    "An interrupted run of `spacy elq catalogue`: the same command continues it, and removes this folder.\n"
)
_OPEN: Dict[str, Callable[[Any], Any]] = {".bz2": bz2.open, ".gz": gzip.open}
# what is counted: entities with a description, and without
_FULL, _BARE = "full", "bare"
# how often the state of a reading is saved, and how often one looks whether that is due
_SECONDS, _LINES = 10.0, 1000


def build_from_wikidata(
    dump: Path,
    output: Path,
    *,
    settings: WikidataSettings = WikidataSettings(),  # noqa: B008  (frozen)
    restart: bool = False,
    progress: bool = False,
) -> Report:
    """Make a catalogue of a dump, or continue an interrupted run.

    dump (Path): JSON, plain or compressed (.bz2, .gz).
    output (Path): The catalogue. `OUTPUT.partial` is the folder of what is not finished, which one process
        works in at a time.
    settings (WikidataSettings): Which items to take.
    restart (bool): Whether to forget the entities of an interrupted run. The classes are kept, if complete.
    RETURNS (Report): What was written and left out.
    """
    output = Path(os.path.realpath(output))  # a link stays, and the work is beside what it points to
    if output.exists() and not output.is_file():
        raise ELQError(Errors.E187.format(path=output))
    work = output.with_name(f"{output.name}.partial")
    with _working(work):
        _prepare(work, settings, restart=restart)
        classes = Classes()
        if settings.subclasses:
            reading = Reading(work / SUBCLASSES, dump)
            reading.run(_find_superclasses, desc="Classes", progress=progress)
            classes = Classes(np.fromfile(work / SUBCLASSES, dtype="int64").reshape(-1, 2))
        reading = Reading(work / ENTITIES, dump)
        convert = partial(_convert_line, settings=settings, converter=ItemConverter(settings, classes))
        reading.run(convert, desc="Entities", progress=progress)
        report = _report(reading.state.counts)
        if report.entities:
            os.replace(work / ENTITIES, output)
        _remove(work)
    if not report.entities:
        reasons = [f"{count} items left out by their {reason}" for reason, count in report.left_out.items()]
        aside = f" ({', '.join(reasons)})" if reasons else ""
        raise ELQError(Errors.E133.format(path=dump, aside=aside))
    return report


@contextmanager
def _working(work: Path) -> Iterator[None]:
    """Make the folder of a run, or go on in that of an interrupted one, and keep other processes from it.

    RAISES (ELQError): If there is a folder that is none of ours, or another process works there.
    """
    work.mkdir(parents=True, exist_ok=True)
    if not {MARKER, LOCK}.issuperset(path.name for path in work.iterdir()) and not (work / MARKER).is_file():
        raise ELQError(Errors.E185.format(work=work, marker=MARKER))
    try:
        with FileLock(work / LOCK, timeout=0):
            (work / MARKER).write_text(_MARK, encoding="utf8")
            yield
    except Timeout:
        raise ELQError(Errors.E186.format(work=work)) from None


def _remove(work: Path) -> None:
    """Remove our files, and the folder if it has no others."""
    for path in [*_files(work, ENTITIES, SUBCLASSES), work / SETTINGS, work / LOCK, work / MARKER]:
        path.unlink(missing_ok=True)
    with suppress(OSError):
        work.rmdir()


def _files(work: Path, *results: str) -> List[Path]:
    """RETURNS (List[Path]): The files of readings with these results."""
    return [work / f"{name}{suffix}" for name in results for suffix in ("", _STATE, f"{_STATE}{_NEW}")]


def _prepare(work: Path, settings: WikidataSettings, *, restart: bool) -> None:
    """Check that what is in the folder of a run can be continued, and note the settings.

    restart (bool): Whether to remove what is there, but for the classes if they are complete.
    """
    given = json.loads(json.dumps(asdict(settings)))
    if restart:
        done = [] if _has_classes(work) else [SUBCLASSES]
        for path in _files(work, ENTITIES, *done):
            path.unlink(missing_ok=True)
    elif (work / SETTINGS).exists():
        before = _read_settings(work / SETTINGS)
        changed = [f"{key} {before.get(key)!r}" for key in given if before.get(key) != given[key]]
        if changed:
            problem = f"with other settings ({', '.join(changed)})"
            raise ELQError(Errors.E132.format(work=work, problem=problem))
    _write(work / SETTINGS, given)


def _has_classes(work: Path) -> bool:
    """RETURNS (bool): Whether the classes of an interrupted run are complete."""
    try:
        return _read_state(work / SUBCLASSES).size >= 0
    except ELQError:
        return False


def _read_settings(path: Path) -> Dict[str, Any]:
    try:
        settings = parse_json(path.read_text(encoding="utf8"))
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise _damaged(path)
    return settings


def _write(path: Path, value: Any) -> None:
    """Write JSON to a file that is there as a whole, or as it was."""
    new = path.with_name(f"{path.name}{_NEW}")
    new.write_text(json.dumps(value), encoding="utf8")
    os.replace(new, path)


def _damaged(path: Path) -> ELQError:
    return ELQError(Errors.E132.format(work=path.parent, problem=f"whose `{path.name}` is damaged"))


def _report(counts: Mapping[str, int]) -> Report:
    left_out = {key: count for key, count in counts.items() if key not in (_FULL, _BARE, "")}
    return Report(counts.get(_FULL, 0) + counts.get(_BARE, 0), counts.get(_BARE, 0), left_out)


# ---------------------------------------------------------------------- what becomes of a line


def _find_superclasses(line: bytes) -> Tuple[bytes, str]:
    """RETURNS (Tuple[bytes, str]): The pairs of an item and a class above it."""
    if f'"{SUBCLASS_OF}"'.encode() not in line:
        return b"", ""
    item = _parse(line)
    if item is None:
        return b"", ""
    pairs = [(int(item["id"][1:]), parent) for parent in item_values(item, SUBCLASS_OF)]
    return np.asarray(pairs, dtype="int64").tobytes(), ""


def _convert_line(line: bytes, *, settings: WikidataSettings, converter: ItemConverter) -> Tuple[bytes, str]:
    """RETURNS (Tuple[bytes, str]): A line of the catalogue and what to count it as, or why there is none."""
    # every sitelink has this key: those that cannot have enough are not parsed
    if len(line) > 3 and line.count(b'"site"') < settings.min_sitelinks:
        return b"", "sitelinks"
    item = _parse(line)
    if item is None:
        return b"", ""
    entity = converter.convert(item)
    if isinstance(entity, str):
        return b"", entity
    return to_line(entity), _FULL if entity.description else _BARE


def _parse(line: bytes) -> Optional[Dict[str, Any]]:
    """RETURNS (Optional[Dict[str, Any]]): The item of a line, None for brackets and what is no item."""
    text = line.strip().rstrip(b",")
    if text in (b"", b"[", b"]"):
        return None
    item = json.loads(text)
    if not isinstance(item, dict):
        raise ValueError("expected one JSON object")
    return item if item.get("type") == "item" and "redirect" not in item else None


# ---------------------------------------------------------------------- reading a dump


class State(NamedTuple):
    """How far a reading has come.

    lines (int): How many lines it has read.
    checksum (int): That of these lines, to recognize the dump again.
    bytes (int): How long its results are.
    counts (Dict[str, int]): What they are, and how many items were left out, by reason.
    size (int): That of the dump, if all of it was read.
    """

    lines: int = 0
    checksum: int = 0
    bytes: int = 0
    counts: Dict[str, int] = {}
    size: int = -1


class Reading:
    """One reading of a dump, whose results are appended to a file, and which can be continued."""

    def __init__(self, results: Path, dump: Path) -> None:
        """Look how far it has come.

        results (Path): The file of the results; the state is beside it.
        dump (Path): The dump.
        """
        self._results = results
        self._dump = dump
        self.state = _read_state(results)

    def run(self, convert: Callable[[bytes], Tuple[bytes, str]], *, desc: str, progress: bool) -> None:
        """Read what is left of the dump.

        convert (Callable[[bytes], Tuple[bytes, str]]): What to write for a line, and what to count it as.
        RAISES (ELQError): With the line, for what is not a dump, or not the dump of the interrupted reading.
        """
        if self.state.size == self._dump.stat().st_size:
            return
        if self.state.size >= 0:  # finished, with another dump
            self.state = State()
        with self._results.open("r+b" if self._results.exists() else "wb") as file_:
            file_.truncate(self.state.bytes)
            file_.seek(self.state.bytes)
            try:
                self._read(file_, convert, desc=desc, progress=progress)
            finally:
                self._save(file_)

    def _read(self, file_: IO[bytes], convert: Callable[..., Any], *, desc: str, progress: bool) -> None:
        counts = Counter(self.state.counts)
        length, saved = self.state.bytes, time.monotonic()
        last = b""
        for number, checksum, line in self._new_lines(desc, progress=progress):
            try:
                data, kind = convert(line)
            except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as err:
                raise self._error(number, f"not an item of Wikidata ({type(err).__name__}: {err})") from None
            file_.write(data)
            length += len(data)
            counts[kind] += 1
            last = line.strip() or last
            # in one step, wherever the reading is interrupted
            self.state = State(number, checksum, length, counts)
            if number % _LINES == 0 and time.monotonic() - saved > _SECONDS:
                self._save(file_)
                saved = time.monotonic()
        if last not in (b"]", b"") and self._is_array():
            warnings.warn(Warnings.W008.format(path=self._dump, line=self.state.lines), stacklevel=4)
        self.state = self.state._replace(size=self._dump.stat().st_size)

    def _new_lines(self, desc: str, *, progress: bool) -> Iterator[Tuple[int, int, bytes]]:
        """YIELDS (Tuple[int, int, bytes]): Number of a line that was not read before, checksum of all lines
        up to it, and the line.
        """
        number = checksum = 0
        done = self.state
        for number, line in self._lines(desc, progress=progress):
            checksum = zlib.crc32(line, checksum)
            if number > done.lines:
                yield number, checksum, line
            elif number == done.lines and checksum != done.checksum:
                break
        if number < done.lines or (number == done.lines and checksum != done.checksum):
            problem = f"over another dump than {self._dump}, whose first {done.lines} lines differ"
            raise ELQError(Errors.E132.format(work=self._results.parent, problem=problem))

    def _lines(self, desc: str, *, progress: bool) -> Iterator[Tuple[int, bytes]]:
        """YIELDS (Tuple[int, bytes]): The lines and their numbers."""
        number, size = 0, self._dump.stat().st_size
        bar = tqdm(total=size, desc=desc, unit="B", unit_scale=True, disable=not progress, mininterval=1.0)
        with self._dump.open("rb") as raw, bar:
            try:
                for number, line in enumerate(_decompress(raw, self._dump), 1):
                    yield number, line
                    if number % _LINES == 0:
                        bar.update(raw.tell() - bar.n)
            except (EOFError, OSError, zlib.error) as err:
                raise self._error(number + 1, f"the compressed data is damaged ({err})") from None
            bar.update(raw.tell() - bar.n)

    def _is_array(self) -> bool:
        with self._dump.open("rb") as raw:
            return next(iter(_decompress(raw, self._dump)), b"").strip() == b"["

    def _save(self, file_: IO[bytes]) -> None:
        """Write the state of what is safely on disk."""
        file_.flush()
        os.fsync(file_.fileno())
        _write(_state_path(self._results), self.state)

    def _error(self, line: int, problem: str) -> ELQError:
        work = self._results.parent
        return ELQError(Errors.E130.format(path=self._dump, line=line, problem=problem, work=work))


def _decompress(raw: IO[bytes], path: Path) -> Iterator[bytes]:
    """RETURNS (Iterator[bytes]): The lines of a file that may be compressed."""
    opener = _OPEN.get(path.suffix.lower())
    return iter(raw if opener is None else opener(raw))


def _state_path(results: Path) -> Path:
    return results.with_name(f"{results.name}{_STATE}")


def _read_state(results: Path) -> State:
    """RETURNS (State): That of the results, or of a reading that has not begun.

    RAISES (ELQError): If it is damaged, or the results are shorter than it says.
    """
    place = _state_path(results)
    if not (results.exists() and place.exists()):
        return State()
    try:
        values = parse_json(place.read_text(encoding="utf8"))
    except ValueError:
        values = None
    if not _is_state(values) or results.stat().st_size < values[2]:
        raise _damaged(place)
    return State(*values)


def _is_state(values: Any) -> bool:
    """RETURNS (bool): Whether values from a file are those of a state."""
    if not isinstance(values, list) or len(values) != len(State._fields):
        return False
    lines, checksum, length, counts, size = values
    numbers = [lines, checksum, length, size, *(counts.values() if isinstance(counts, dict) else [None])]
    return all(isinstance(number, int) for number in numbers) and min(lines, length) >= 0

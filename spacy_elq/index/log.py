"""SQLite's log of a database, as it is on the disk (https://sqlite.org/fileformat.html#walformat). SQLite
reads it up to the first damage and forgets the rest without a word: whoever wants to know has to look before.

The log is a header and frames, each with a page of the database. The last frame of a transaction has a mark.
Frames have the salts of the header; those with others are left from an earlier log. The sums of a frame cover
its page, what the frame says about it, and all frames before.
"""

import struct
import time
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from ..types import Array

# magic number, format, bytes of a page, number of the log, salts, sums
_HEADER = struct.Struct(">4IQ2I")
_MAGIC, _SUMMED = 0x377F0682, 24
# number of the page, pages of the database after a commit, or 0, salts, sums
_FRAME = np.dtype([("page", ">u4"), ("commit", ">u4"), ("salts", ">u8"), ("sums", ">u4", 2)])
# what SQLite keeps about a log in another file, twice: the committed frames, salts, sums and others
_NOTE = struct.Struct("=12x4xI4x8x8s2I")
_NOTE_SUMMED = 40
_FRAMES_AT_ONCE = 256
# a log with damage is looked at again, so many times, after so many seconds
_LOOKS, _LOOK_AGAIN = 10, 0.1
Sums = Tuple[int, int]


class _Header(NamedTuple):
    """What a log begins with.

    order (str): In which order bytes are summed, "<" or ">".
    """

    order: str
    page: int
    salts: int
    sums: Sums


def check_log(path: Path) -> Optional[str]:
    """Look for damage in a log that makes SQLite forget what was committed. Other processes may use the
    database meanwhile: damage counts if it is seen twice, at the same place of the same log.

    What was not committed is worth nothing: a process that was killed leaves such frames, and perhaps one
    whose page was not written any more. How many frames were committed is in the file beside the log, which
    a killed process leaves, too. Without that file, the last transaction of a process that was killed just
    before its commit cannot be told from one that was damaged after it, and is reported; and a log that ends
    too early is not seen.

    RETURNS (Optional[str]): What is wrong; None if nothing is, or there is no log.
    """
    seen = None
    for _ in range(_LOOKS):
        found = _find_damage(path)
        if found is None:
            return None
        if found == seen:
            return found[1]
        seen = found
        time.sleep(_LOOK_AGAIN)
    return None


def _find_damage(path: Path) -> Optional[Tuple[int, str]]:
    """RETURNS (Optional[Tuple[int, str]]): What tells a log from others, and what is wrong with it."""
    if not path.is_file() or path.stat().st_size <= _HEADER.size:
        return None
    with path.open("rb") as file_:
        header = _read_header(file_.read(_HEADER.size))
        if header is None:
            return 0, "has a damaged header: all changes in it are lost"
        whole, is_commit_behind = _follow(file_, header)
    committed = _read_committed(path, header)
    is_lost = is_commit_behind if committed is None else whole < committed
    return (
        (header.salts, f"is damaged from frame {whole + 1} on: the changes there are lost")
        if is_lost
        else None
    )


def _read_header(data: bytes) -> Optional[_Header]:
    """RETURNS (Optional[_Header]): What a log begins with, or None if it is damaged."""
    magic, _, page, _, salts, *sums = _HEADER.unpack(data)
    order = ">" if magic & 1 else "<"
    words = np.frombuffer(data[:_SUMMED], f"{order}u4")
    is_whole = magic & ~1 == _MAGIC and _add((0, 0), _weigh(words), len(words)) == tuple(sums)
    return _Header(order, page, salts, (sums[0], sums[1])) if is_whole else None


def _follow(file_: BinaryIO, header: _Header) -> Tuple[int, bool]:
    """RETURNS (Tuple[int, bool]): How many frames are whole, from the first one on, and whether a transaction
    of this log was committed behind them.
    """
    sums, whole, is_broken = header.sums, 0, False
    for about, words in _read_frames(file_, header):
        own = about["salts"] == header.salts
        if not is_broken:
            parts, stored = _weigh(words).tolist(), about["sums"].tolist()
            for i, part in enumerate(parts):
                sums = _add(sums, part, words.shape[1])
                fits = list(sums) == stored[i]
                is_broken = not (fits and own[i])
                if is_broken:
                    own[i] |= fits  # what is damaged are its salts
                    own[:i] = False
                    break
                whole += 1
        if is_broken and (own & (about["commit"] > 0)).any():
            return whole, True
    return whole, False


def _read_frames(file_: BinaryIO, header: _Header) -> Iterator[Tuple[Array, Array]]:
    """YIELDS (Tuple[Array, Array]): (frames,) what frames say about their pages, and (frames, words) what
    their sums cover. One that is not complete does not count.
    """
    size, said = _FRAME.itemsize + header.page, _FRAME.itemsize
    while len(data := file_.read(size * _FRAMES_AT_ONCE)) >= size:
        rows = np.frombuffer(data, "uint8", len(data) // size * size).reshape(-1, size)
        summed = np.concatenate([rows[:, :8], rows[:, said:]], axis=1)
        yield rows[:, :said].copy().view(_FRAME)[:, 0], summed.view(f"{header.order}u4")


def _read_committed(path: Path, header: _Header) -> Optional[int]:
    """RETURNS (Optional[int]): How many frames of a log were committed, if the file beside it says so."""
    beside = path.with_name(path.name.replace("-wal", "-shm"))
    data = beside.read_bytes()[: 2 * _NOTE.size] if beside.is_file() else b""
    note = data[: _NOTE.size]
    if len(data) < 2 * _NOTE.size or note != data[_NOTE.size :]:
        return None
    committed, salts, *sums = _NOTE.unpack(note)
    words = np.frombuffer(note[:_NOTE_SUMMED], "u4")
    is_whole = _add((0, 0), _weigh(words), len(words)) == tuple(sums)
    return committed if is_whole and int.from_bytes(salts, "big") == header.salts else None


@lru_cache(maxsize=8)
def _fibonacci(count: int) -> Array:
    """RETURNS (Array): (count + 2,) Fibonacci numbers, the last 32 bits of each."""
    numbers = [0, 1]
    while len(numbers) < count + 2:
        numbers.append((numbers[-1] + numbers[-2]) % 2**32)
    return np.asarray(numbers, dtype="uint32")


def _weigh(words: Array) -> Array:
    """Sum words as SQLite does, from sums of 0 on: for each pair, it adds the first word and the second sum
    to the first sum, then the second word and the first sum to the second sum. So a word counts as often as
    the Fibonacci number says that is as far from the first one as the word is from the last.

    words (Array): (..., words) 4 bytes each, an even number of words.
    RETURNS (Array): (..., 2) uint32.
    """
    count = words.shape[-1]
    numbers = _fibonacci(count)
    weights = np.stack([numbers[:count][::-1], numbers[1 : count + 1][::-1]], axis=1)
    return words.astype("uint32") @ weights


def _add(before: Sums, part: Array, count: int) -> Sums:
    """RETURNS (Sums): Sums that go on from those before.

    part (Array): (2,) what `_weigh` returned for the words.
    count (int): How many words.
    """
    less, own, more = _fibonacci(count)[count - 1 : count + 2].tolist()
    first = int(part[0]) + less * before[0] + own * before[1]
    second = int(part[1]) + own * before[0] + more * before[1]
    return first % 2**32, second % 2**32

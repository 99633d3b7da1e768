"""Encode a catalogue with workers that may be anywhere, from and to any file system."""

import io
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from ..errors import ELQError, Errors
from ..index import EntityIndex, encode_catalogue
from ..index.database import DATABASE, Database
from ..index.encode import PARTIAL, Shards
from ..types import Array, Encoder, Entity
from .parts import Parts, check_visible, digest, fetched, is_url, part_name, upload
from .work import Run, workers

MakeEncoder = Callable[[], Encoder]


class Shard(NamedTuple):
    """The entities of a shard that are to be encoded.

    number (int): Where the shard begins.
    rows (Array): (entities,) their rows in the shard.
    entities (List[Entity]): The entities.
    """

    number: int
    rows: Array
    entities: List[Entity]


class Encoded(NamedTuple):
    """What became of a catalogue."""

    entities: int
    width: int


def encode_parts(
    catalogue: Union[str, Path],
    output: Union[str, Path],
    make_encoder: MakeEncoder,
    *,
    ray: Optional[str] = None,
    n_process: Optional[int] = None,
    batch_size: int = 64,
    shard_size: int = 2048,
    reuse: Union[str, Path, None] = None,
    progress: bool = False,
) -> Encoded:
    """Encode every entity of a catalogue, here or on Ray, from and to any file system. The shards, and what
    they become, are those of `encode_catalogue`.

    catalogue (Union[str, Path]): entities.jsonl, local or a URL of fsspec.
    output (Union[str, Path]): Folder for the vectors, local or a URL. With Ray, all machines see it.
    make_encoder (MakeEncoder): Makes the entity encoder, here and in each worker; can be pickled.
    ray (Optional[str]): The address of a Ray cluster, see `connected`; None to encode on this machine.
    n_process (Optional[int]): Processes or, with Ray, actors; by default 1 or, with Ray, one per CPU.
    batch_size, shard_size, reuse, progress: See `encode_catalogue`.
    RETURNS (Encoded): How many vectors there are, and their width.
    """
    output = str(output)
    encoder = make_encoder()
    settings: Any = {"batch_size": batch_size, "shard_size": shard_size, "reuse": reuse, "progress": progress}
    with fetched(str(catalogue)) as path:
        if ray is None and not is_url(output):
            return _count(encode_catalogue(path, output, encoder, n_process=n_process or 1, **settings))
        with workers(ray, n_process, output=output) as run:
            if not is_url(output):
                parts = Parts(str(Path(output).absolute() / PARTIAL))
                spread = _Spread(parts, run, make_encoder, encoder, batch_size=batch_size)
                return _count(encode_catalogue(path, output, encoder, spread=spread, **settings))
            return _encode_remote(path, output.rstrip("/"), make_encoder, encoder, run, settings)


def _encode_remote(
    catalogue: Path, output: str, make_encoder: MakeEncoder, encoder: Encoder, run: Run, settings: Any
) -> Encoded:
    """Encode to another file system. A database is written in place, which that cannot do: it is made here,
    while the shards are there, and uploaded in the end.
    """
    parts = Parts(f"{output}/{PARTIAL}")
    with tempfile.TemporaryDirectory(prefix="spacy-elq-") as folder:
        spread = _Spread(parts, run, make_encoder, encoder, batch_size=settings["batch_size"], are_kept=True)
        index = encode_catalogue(catalogue, folder, encoder, spread=spread, **settings)
        index.close()
        _forget_place(Path(folder) / DATABASE)
        upload(Path(folder), output, last=DATABASE)
        parts.drop()
        return _count(index)


def _forget_place(path: Path) -> None:
    """Forget where the encoder is from the folder of a database that is moved to another machine."""
    database = Database.open(path)
    stamp = database.get_meta("encoder")
    database.set_meta(encoder={key: value for key, value in stamp.items() if key != "paths"})
    database.close()


def _count(index: EntityIndex) -> Encoded:
    return Encoded(len(index), index.width)


class _Spread:
    """Gives the missing shards to workers, and takes the vectors from the parts that they write."""

    def __init__(
        self,
        parts: Parts,
        run: Run,
        make_encoder: MakeEncoder,
        encoder: Encoder,
        *,
        batch_size: int,
        are_kept: bool = False,
    ) -> None:
        self._parts = parts
        self._run = run
        self._make_encoder = make_encoder
        self._encoder = encoder
        self._batch_size = batch_size
        self._are_kept = are_kept

    def __call__(self, shards: Shards, missing: List[int]) -> Iterator[int]:
        """YIELDS (int): Where the shard begins whose vectors came last."""
        stamp = self._stamp(shards)
        self._parts.claim()
        there = self._parts.names()
        begins = []
        for begin in missing:
            name = part_name(begin, stamp, "npz")
            if name in there and self._adopt(shards, begin, name):
                yield from self._done(begin, name)
            else:
                begins.append(begin)
        make_worker = _MakeShardEncoder(
            self._make_encoder, self._encoder, self._parts, stamp, self._batch_size
        )
        jobs = (Shard(begin, *shards.take(begin)) for begin in begins)
        for begin in self._run(make_worker, jobs) if begins else ():
            name = part_name(begin, stamp, "npz")
            if not self._adopt(shards, begin, name):
                problem = "it is not what a worker has written"
                raise ELQError(Errors.E227.format(path=f"{self._parts.url}/{name}", problem=problem))
            yield from self._done(begin, name)

    def _stamp(self, shards: Shards) -> str:
        """RETURNS (str): What the shards are made of, wherever the files of the encoder are."""
        catalogue, encoder, work = shards.plan
        return digest(catalogue, encoder["fingerprint"], work)

    def _adopt(self, shards: Shards, begin: int, name: str) -> bool:
        """Take the vectors of a part. RETURNS (bool): Whether it has all that the shard needs."""
        found = from_npz(self._parts.read(name))
        wanted = shards.take(begin)[0]
        if found is None or not np.array_equal(found[0], wanted):
            return False
        if found[1].shape != (len(wanted), self._encoder.width):
            return False
        shards.put(begin, *found)
        return True

    def _done(self, begin: int, name: str) -> Iterator[int]:
        """Remove a part when its vectors are noted elsewhere."""
        yield begin
        if not self._are_kept:
            self._parts.remove([name])


class _MakeShardEncoder:
    """Makes a `ShardEncoder` where the work is done."""

    def __init__(
        self, make_encoder: MakeEncoder, encoder: Encoder, parts: Parts, stamp: str, batch_size: int
    ) -> None:
        self._make_encoder = make_encoder
        self._fingerprint = encoder.fingerprint
        name = str(encoder.settings.get("name", ""))
        self._places = [name] if Path(name).is_absolute() else []
        self._rest = (parts, stamp, batch_size)

    def __call__(self) -> "ShardEncoder":
        """RETURNS (ShardEncoder): With an encoder that gives the same vectors.
        RAISES (ELQError): If its files, or the output, are not visible here, or there is another encoder.
        """
        check_visible(*self._places)
        self._rest[0].check()
        encoder = self._make_encoder()
        if encoder.fingerprint != self._fingerprint:
            found = f"fingerprint {encoder.fingerprint} on a worker, {self._fingerprint} expected"
            raise ELQError(Errors.E224.format(problem=f"it has another entity encoder: {found}"))
        return ShardEncoder(encoder, *self._rest)


class ShardEncoder:
    """Encodes shards and writes each as a part."""

    def __init__(self, encoder: Encoder, parts: Parts, stamp: str, batch_size: int) -> None:
        """Nothing is encoded yet."""
        self._encoder = encoder
        self._parts = parts
        self._stamp = stamp
        self._batch_size = batch_size

    def __call__(self, shard: Shard) -> int:
        """Encode a shard. RETURNS (int): Where it begins."""
        vectors = self._encoder.encode(shard.entities, batch_size=self._batch_size)
        self._parts.write(part_name(shard.number, self._stamp, "npz"), to_npz(shard.rows, vectors))
        return shard.number


def to_npz(rows: Array, vectors: Array) -> bytes:
    """RETURNS (bytes): A file with vectors and their rows in the shard."""
    buffer = io.BytesIO()
    np.savez(buffer, rows=rows, vectors=vectors)
    return buffer.getvalue()


def from_npz(data: bytes) -> Optional[Tuple[Array, Array]]:
    """RETURNS (Optional[Tuple[Array, Array]]): The rows and vectors of `to_npz`; None if it is damaged."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file_:
            return file_["rows"], file_["vectors"]
    except Exception:  # zipfile, zlib and NumPy raise anything on damaged files
        return None

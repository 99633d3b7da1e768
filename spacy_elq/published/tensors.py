"""Files that `torch.save` wrote, as memory-mapped arrays: nothing in them is executed, and nothing is loaded
before it is used. torch maps the zip files of today; the stream of torch before 1.6, which it can only load
as a whole, is read here.
"""

import math
import mmap
import pickle
import re
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, List, Tuple, Union

import numpy as np
import torch

from ..errors import ELQError, Errors
from ..types import Array

_ZIP = b"PK\x03\x04"
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_DTYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}
Tensors = Union[Array, Dict[str, Array]]


@dataclass(frozen=True)
class _Storage:
    """Numbers of a file by the name they have there."""

    key: str
    dtype: np.dtype
    count: int

    @property
    def bytes(self) -> int:
        """RETURNS (int): The room that they take."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class _Tensor:
    """A part of a storage: the numbers from `offset` on, a stride apart along each dimension."""

    storage: _Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that every number of it is in the storage: none of this can be trusted."""
        steps = (self.offset, *self.shape, *self.strides)
        if not all(type(step) is int and step >= 0 for step in steps) or len(self.shape) != len(self.strides):
            raise pickle.UnpicklingError(f"a tensor of shape {self.shape} and strides {self.strides}")
        size = math.prod(self.shape)
        last = self.offset + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        # a stride of 0 can make a tensor of any size
        if size and (last >= self.storage.count or size > self.storage.count):
            where = f"shape {self.shape}, strides {self.strides} and offset {self.offset}"
            problem = f"a tensor of {where} in a storage of {self.storage.count} numbers"
            raise pickle.UnpicklingError(problem)


def read_tensors(path: Path) -> Tensors:
    """Open a file of `torch.save` that holds a tensor, or a dict of tensors such as a checkpoint.

    path (Path): The file.
    RETURNS (Tensors): Memory-mapped arrays.
    RAISES (ELQError): If it holds anything else, or is truncated.
    """
    if not path.is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected a file that torch.save wrote."))
    try:
        found = _read_zip(path) if _is_zip(path) else _read_stream(path)
    except (pickle.UnpicklingError, EOFError, KeyError, IndexError, struct.error, zipfile.BadZipFile) as err:
        problem = str(err) or type(err).__name__
        raise ELQError(Errors.E049.format(path=path, problem=problem)) from None
    except (AttributeError, TypeError, ValueError, RuntimeError, OSError, ImportError) as err:
        problem = f"not a torch file ({str(err).splitlines()[0] if str(err) else type(err).__name__})"
        raise ELQError(Errors.E049.format(path=path, problem=problem)) from None
    if isinstance(found, np.ndarray):
        return found
    if isinstance(found, dict) and all(isinstance(value, np.ndarray) for value in found.values()):
        return {str(key): value for key, value in found.items()}
    raise ELQError(Errors.E049.format(path=path, problem="it holds something else than tensors"))


def read_matrix(path: Path) -> Array:
    """RETURNS (Array): (rows, width) float32, all that a file of `torch.save` holds, memory-mapped."""
    matrix = read_tensors(path)
    if isinstance(matrix, dict) or matrix.ndim != 2 or matrix.dtype != np.float32:
        raise ELQError(Errors.E049.format(path=path, problem="it holds something else than a float32 matrix"))
    return matrix


def _is_zip(path: Path) -> bool:
    if zipfile.is_zipfile(path):
        return True
    with path.open("rb") as file_:
        if file_.read(4) == _ZIP:
            raise pickle.UnpicklingError("it is truncated (a zip file without its end)")
    return False


def _read_zip(path: Path) -> Any:
    """RETURNS (Any): What was saved, with arrays for tensors."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
    if not any(record.filename.endswith("/data.pkl") for record in records):
        raise pickle.UnpicklingError("no data.pkl in it")
    # torch would map them as they are
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise pickle.UnpicklingError("compressed numbers, which torch does not write")
    try:
        found = _load(path)  # torch checks that tensors lie inside their storages
    except pickle.UnpicklingError as err:
        # torch's message recommends to execute the file
        refused = re.search(r"GLOBAL (\S+)", str(err))
        problem = (
            f"{refused[1]} in it, which is no tensor" if refused else "something in it that is no tensor"
        )
        raise pickle.UnpicklingError(problem) from None
    return _to_arrays(found)


def _load(path: Path) -> Any:
    """RETURNS (Any): What was saved, with tensors that are mapped."""
    try:
        return torch.load(path, mmap=True, weights_only=True, map_location="cpu")
    except RuntimeError as err:
        if "unable to mmap" not in str(err):
            raise
    # a private mapping, the default, must fit into memory, for it might be written to; these never are
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        return torch.load(path, mmap=True, weights_only=True, map_location="cpu")


def _to_arrays(value: Any) -> Any:
    """RETURNS (Any): A read-only array for a tensor, a dict of them for a dict, other things as they are."""
    if isinstance(value, dict):
        return {key: _to_arrays(item) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    count = value.untyped_storage().nbytes() // value.element_size()
    if value.numel() > count:  # with a stride of 0
        raise pickle.UnpicklingError(
            f"a tensor of shape {tuple(value.shape)} in a storage of {count} numbers"
        )
    array = value.detach().numpy()
    array.flags.writeable = False
    return array


def _read_stream(path: Path) -> Any:
    """RETURNS (Any): As `_read_zip`, for the layout before torch 1.6."""
    with path.open("rb") as file_:
        if _Unpickler(file_).load() != _MAGIC or _Unpickler(file_).load() != _PROTOCOL:
            raise pickle.UnpicklingError("not a file of torch.save")
        _Unpickler(file_).load()  # the machine it was written on
        unpickler = _Unpickler(file_)
        found, keys = unpickler.load(), _Unpickler(file_).load()
        offsets = _find_storages(file_, [unpickler.storages[key] for key in keys])
    if isinstance(found, dict):
        return {key: _map(path, value, offsets) for key, value in found.items()}
    return _map(path, found, offsets)


def _find_storages(file_: BinaryIO, storages: List[_Storage]) -> Dict[str, int]:
    """RETURNS (Dict[str, int]): Where the numbers of each storage begin, one after the other from here on."""
    at, size = file_.tell(), Path(file_.name).stat().st_size
    offsets: Dict[str, int] = {}
    for storage in storages:
        offsets[storage.key] = at + 8  # the count stands before the numbers
        end = offsets[storage.key] + storage.bytes
        if end > size:
            raise pickle.UnpicklingError(f"it is truncated ({size} of {end} bytes)")
        file_.seek(at)
        (count,) = struct.unpack("<q", file_.read(8))
        if count != storage.count:
            raise pickle.UnpicklingError(f"a storage of {count} numbers where {storage.count} were announced")
        at = end
    return offsets


class _Unpickler(pickle.Unpickler):
    """Makes descriptions of tensors; anything else in the file is refused."""

    def __init__(self, file_: BinaryIO) -> None:
        super().__init__(file_, encoding="utf-8")
        self.storages: Dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """RETURNS (Any): What stands for a class or function that is named in the file."""
        allowed: Dict[Tuple[str, str], Callable] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
        }
        if (module, name) in allowed:
            return allowed[module, name]
        if module == "torch" and name in _DTYPES:
            return np.dtype(_DTYPES[name])
        raise pickle.UnpicklingError(f"{module}.{name} in it, which is no tensor")

    def persistent_load(self, saved_id: Any) -> _Storage:
        """RETURNS (_Storage): What a tensor is a part of."""
        if not isinstance(saved_id, tuple) or saved_id[0] != "storage":
            raise pickle.UnpicklingError("something in it that is no tensor")
        _, dtype, key, _, count = saved_id[:5]
        if not isinstance(dtype, np.dtype) or type(count) is not int or count < 0:
            raise pickle.UnpicklingError("something in it that is no storage")
        storage = _Storage(str(key), dtype, count)
        if self.storages.setdefault(storage.key, storage) != storage:
            raise pickle.UnpicklingError("two storages of one name")
        return storage


def _rebuild_tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _map(path: Path, tensor: Any, offsets: Dict[str, int]) -> Any:
    """RETURNS (Any): A read-only array for a tensor, other things as they are."""
    if not isinstance(tensor, _Tensor):
        return tensor
    storage = tensor.storage
    if not math.prod(tensor.shape):
        return np.zeros(tensor.shape, dtype=storage.dtype)
    begin = offsets[storage.key]
    numbers: Array = np.memmap(path, dtype=storage.dtype, mode="r", offset=begin, shape=(storage.count,))
    strides = tuple(stride * storage.dtype.itemsize for stride in tensor.strides)
    return np.lib.stride_tricks.as_strided(numbers[tensor.offset :], tensor.shape, strides, writeable=False)

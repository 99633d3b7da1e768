import io
import mmap
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.storage import TypedStorage

from spacy_elq.errors import ELQError
from spacy_elq.published.tensors import read_matrix, read_tensors

both_layouts = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "stream"])


def save(value, path, is_zip):
    torch.save(value, path, _use_new_zipfile_serialization=is_zip)
    return path


@both_layouts
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "int32", "uint8", "bool"])
def test_a_tensor_comes_back_as_a_mapped_array(tmp_path, is_zip, dtype):
    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    found = read_tensors(save(tensor, tmp_path / "x.t7", is_zip))
    assert found.dtype == np.dtype(dtype)
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, tensor.numpy())


@both_layouts
def test_a_checkpoint_comes_back_by_its_keys(tmp_path, is_zip):
    weight = torch.randn(3, 4)
    state = OrderedDict(a=weight, b=torch.nn.Parameter(torch.randn(5)), part=weight[1], turned=weight.T)
    found = read_tensors(save(state, tmp_path / "x.bin", is_zip))
    assert list(found) == ["a", "b", "part", "turned"]
    for key, value in state.items():
        np.testing.assert_array_equal(found[key], value.detach().numpy())


@both_layouts
def test_an_empty_tensor_is_empty(tmp_path, is_zip):
    assert read_tensors(save(torch.zeros(0, 4), tmp_path / "x.t7", is_zip)).shape == (0, 4)


def test_numbers_are_not_loaded_before_they_are_used(tmp_path):
    path = save(torch.zeros(1 << 20), tmp_path / "x.t7", True)
    found = read_tensors(path)
    with path.open("r+b") as file_:
        data = file_.read()
        file_.seek(data.index(bytes(64), len(data) // 2))
        file_.write(np.ones(1, dtype="float32").tobytes())
    assert found.sum() > 0


@dataclass
class Evil:
    function: Callable
    argument: str

    def __reduce__(self):
        return self.function, (self.argument,)


@both_layouts
@pytest.mark.parametrize("function", [print, os.mkdir, eval])
def test_what_is_no_tensor_is_refused_and_not_executed(tmp_path, monkeypatch, capsys, is_zip, function):
    monkeypatch.chdir(tmp_path)
    path = save({"a": Evil(function, "executed")}, tmp_path / "x.bin", is_zip)
    with pytest.raises(ELQError, match=rf"E049.*x\.bin.*\b{function.__name__} in it, which is no tensor"):
        read_tensors(path)
    assert capsys.readouterr().out == ""
    assert os.listdir() == ["x.bin"]


@both_layouts
@pytest.mark.parametrize("value", [[torch.zeros(2)], {"a": 3}, "text"], ids=["list", "number", "text"])
def test_other_values_are_refused(tmp_path, is_zip, value):
    with pytest.raises(ELQError, match="it holds something else than tensors"):
        read_tensors(save(value, tmp_path / "x.bin", is_zip))


@pytest.mark.parametrize(
    "value", [{"a": torch.zeros(2, 2)}, torch.zeros(2), torch.zeros(2, 2, dtype=torch.float64)]
)
def test_other_tensors_are_no_matrix(tmp_path, value):
    with pytest.raises(ELQError, match="it holds something else than a float32 matrix"):
        read_matrix(save(value, tmp_path / "x.t7", True))


def test_a_truncated_zip_is_an_error_that_says_so(tmp_path):
    path = save(torch.zeros(1000), tmp_path / "x.t7", True)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ELQError, match=r"it is truncated \(a zip file without its end\).*fetch it again"):
        read_tensors(path)


def test_a_truncated_stream_is_an_error_with_both_sizes(tmp_path):
    path = save(torch.zeros(1000), tmp_path / "x.t7", False)
    data = path.read_bytes()
    path.write_bytes(data[:-400])
    with pytest.raises(ELQError, match=rf"truncated \({len(data) - 400} of {len(data)} bytes\)"):
        read_tensors(path)


@pytest.mark.parametrize("cut", [0.05, 0.5, 0.99])
@both_layouts
def test_no_truncated_file_is_taken_for_a_whole_one(tmp_path, is_zip, cut):
    path = save({"a": torch.zeros(1000), "b": torch.zeros(10)}, tmp_path / "x.bin", is_zip)
    data = path.read_bytes()
    path.write_bytes(data[: int(cut * len(data))])
    with pytest.raises(ELQError, match="E049"):
        read_tensors(path)


@pytest.mark.parametrize(
    "data",
    [b"", b"# a text", pickle.dumps([1, 2]), pickle.dumps(3) * 2, b"PK\x03\x04"],
    ids=["empty", "text", "pickle", "two pickles", "zip head"],
)
def test_other_files_are_refused(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ELQError, match="E049"):
        read_tensors(tmp_path / "x")


def test_a_zip_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(ELQError, match=r"no data.pkl in it"):
        read_tensors(tmp_path / "x.zip")


def test_compressed_numbers_are_refused(tmp_path):
    buffer = io.BytesIO()
    torch.save(torch.zeros(3), buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(tmp_path / "x", "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    with pytest.raises(ELQError, match="compressed numbers"):
        read_tensors(tmp_path / "x")


def test_a_file_larger_than_memory_is_mapped_all_the_same(tmp_path, monkeypatch):
    path, load, options = save(torch.arange(3.0), tmp_path / "x.t7", True), torch.load, []

    def load_if_shared(*args, **kwargs):
        options.append(torch.serialization.get_default_mmap_options())
        if options[-1] != mmap.MAP_SHARED:
            raise RuntimeError(f"unable to mmap 99 bytes from file <{path}>: Cannot allocate memory (12)")
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", load_if_shared)
    np.testing.assert_array_equal(read_tensors(path), [0, 1, 2])
    assert options == [mmap.MAP_PRIVATE, mmap.MAP_SHARED]
    assert torch.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE


@pytest.mark.parametrize(
    "value",
    [torch.zeros(2, dtype=torch.bfloat16), torch.eye(2).to_sparse()],
    ids=["bfloat16", "sparse"],
)
@both_layouts
def test_tensors_that_numpy_does_not_have_are_refused(tmp_path, is_zip, value):
    with pytest.raises(ELQError, match="E049"):
        read_tensors(save(value, tmp_path / "x.t7", is_zip))


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ELQError, match=r"E022.*missing"):
        read_tensors(tmp_path / "missing")


@dataclass
class View:
    """A tensor over a storage, of any shape, strides and offset."""

    storage: TypedStorage
    offset: int
    shape: tuple
    strides: tuple

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (
            self.storage,
            self.offset,
            self.shape,
            self.strides,
            False,
            OrderedDict(),
        )


def storage_of(*numbers):
    tensor = torch.tensor(numbers)
    return TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True)


steps = st.one_of(
    st.integers(-3, 14), st.integers(-(2**70), 2**70), st.sampled_from([2**31, 2**32, 2**62, 2**63])
)


@both_layouts
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dimensions=st.lists(st.tuples(steps, steps), max_size=4), offset=steps)
@example(dimensions=[(2, -1)], offset=0)
@example(dimensions=[(2, 1)], offset=-1)
@example(dimensions=[(2, 1)], offset=11)
@example(dimensions=[(2**40, 0)], offset=0)
@example(dimensions=[(2**32, 2**32)], offset=0)
@example(dimensions=[(2**33, 2**31), (3, 1)], offset=5)
@example(dimensions=[(3, 4), (4, 1)], offset=0)
@example(dimensions=[(0, 1)], offset=100)
def test_a_tensor_lies_inside_its_storage_or_is_refused(tmp_path, is_zip, dimensions, offset):
    shape, strides = (tuple(x[i] for x in dimensions) for i in (0, 1))
    path = tmp_path / "x.t7"
    # between two others, whose numbers must not be read
    views = [View(storage_of(*[-1.0] * 50), 0, (50,), (1,)) for _ in range(2)]
    views.insert(1, View(storage_of(*map(float, range(12))), offset, shape, strides))
    save(dict(zip("abc", views, strict=True)), path, is_zip)
    try:
        found = read_tensors(path)["b"]
    except ELQError as err:
        assert "E049" in str(err)  # noqa: PT017
        return
    assert found.shape == shape
    assert found.size <= 12
    places = np.ndindex(shape) if found.size else []
    expected = [offset + sum(i * n for i, n in zip(place, strides, strict=True)) for place in places]
    assert found.ravel().tolist() == expected
    assert all(0 <= number < 12 for number in expected)


@both_layouts
def test_a_tensor_that_fits_is_read(tmp_path, is_zip):
    view = View(storage_of(*map(float, range(12))), 1, (2, 3), (5, 2))
    assert read_tensors(save(view, tmp_path / "x", is_zip)).tolist() == [[1, 3, 5], [6, 8, 10]]


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((2.0,), (1,)), (("2",), (1,)), ((2,), (True,)), ((2,), ()), ((2,), (1, 1)), ((None,), (1,))],
)
def test_sizes_that_are_none(tmp_path, shape, strides):
    with pytest.raises(ELQError, match="E049"):
        read_tensors(save(View(storage_of(1.0, 2.0), 0, shape, strides), tmp_path / "x", False))


def test_the_count_of_a_storage_is_what_the_file_says(tmp_path):
    path = save(torch.arange(7.0), tmp_path / "x", False)
    data = path.read_bytes()
    place = data.index((7).to_bytes(8, "little") + bytes(4))
    path.write_bytes(data[:place] + (6).to_bytes(8, "little") + data[place + 8 :])
    with pytest.raises(ELQError, match="a storage of 6 numbers where 7 were announced"):
        read_tensors(path)


@dataclass
class Stored:
    """What the pickle of a stream says of a storage."""

    saved_id: object


class StreamPickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.saved_id if isinstance(value, Stored) else None


def write_stream(path, value, keys):
    """Write a file in the layout before torch 1.6 by hand."""
    with path.open("wb") as file_:
        for part in (0x1950A86A20F9469CFC6C, 1001, {}):
            pickle.dump(part, file_, protocol=2)
        StreamPickler(file_, protocol=2).dump(value)
        pickle.dump(keys, file_, protocol=2)
        for _ in keys:
            file_.write((3).to_bytes(8, "little") + bytes(12))
    return path


@pytest.mark.parametrize(
    ("saved_ids", "problem"),
    [
        ([("storage", torch.FloatStorage, "0", "cpu", 3)], None),
        ([("storage", torch.FloatStorage, "0", "cpu", -3)], "no storage"),
        ([("storage", torch.FloatStorage, "0", "cpu", 3.0)], "no storage"),
        ([("storage", torch.FloatStorage, "0", "cpu", 2**62)], "truncated"),
        ([("storage", "O", "0", "cpu", 3)], "no storage"),
        ([("storage", torch.FloatStorage, "0")], "E049"),
        ([("module", torch.FloatStorage, "0", "cpu", 3)], "no tensor"),
        ([("storage", torch.FloatStorage, "1", "cpu", 3)], "E049"),
        (
            [("storage", torch.FloatStorage, "0", "cpu", 3), ("storage", torch.DoubleStorage, "0", "cpu", 3)],
            "two storages of one name",
        ),
    ],
)
def test_what_a_stream_says_of_its_storages_is_checked(tmp_path, saved_ids, problem):
    views = {str(i): View(Stored(saved_id), 0, (3,), (1,)) for i, saved_id in enumerate(saved_ids)}
    path = write_stream(tmp_path / "x", views, ["0"])
    if problem is None:
        assert read_tensors(path)["0"].tolist() == [0, 0, 0]
    else:
        with pytest.raises(ELQError, match=problem):
            read_tensors(path)


def test_a_tensor_of_something_else(tmp_path):
    with pytest.raises(ELQError, match="a tensor without a storage"):
        read_tensors(write_stream(tmp_path / "x", View("text", 0, (3,), (1,)), []))

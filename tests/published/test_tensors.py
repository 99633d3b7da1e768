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

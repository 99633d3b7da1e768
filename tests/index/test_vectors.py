import os

import numpy as np
import pytest

from spacy_elq.errors import ELQError
from spacy_elq.index.vectors import Vectors, write_vectors


@pytest.fixture(params=["float32", "float16"])
def path(quick_path, request):
    chunks = np.arange(12, dtype="float32").reshape(2, 2, 3)
    write_vectors(quick_path / "vectors.npy", (4, 3), chunks, dtype=request.param)
    return quick_path / "vectors.npy"


def test_vectors_are_stored_as_asked(path, request):
    dtype = request.node.callspec.params["path"]
    assert np.load(path).dtype == Vectors(path).array.dtype == dtype
    assert Vectors(path).array.nbytes == 12 * np.dtype(dtype).itemsize


@pytest.mark.parametrize("can_read_at_a_place", [True, False])
def test_vectors_are_taken_by_row(path, monkeypatch, can_read_at_a_place):
    if not can_read_at_a_place:
        monkeypatch.delattr(os, "pread")
    vectors = Vectors(path)
    path.unlink()
    assert vectors.take(np.asarray([2, 0, 2])).tolist() == [[6, 7, 8], [0, 1, 2], [6, 7, 8]]
    assert vectors.take(np.asarray([1])).dtype == "float32"
    assert vectors.take(np.asarray([[1, 3]])).tolist() == [[[3, 4, 5], [9, 10, 11]]]
    assert vectors.take(np.zeros((0, 2), dtype="int64")).shape == (0, 2, 3)
    assert vectors.take(np.asarray([-1, 1]))[1].tolist() == [3, 4, 5]
    np.testing.assert_array_equal(vectors.array, np.arange(12).reshape(4, 3))
    assert type(vectors.array) is np.ndarray


def test_what_is_taken_is_read_from_the_file_not_through_the_mapping(path):
    vectors = Vectors(path)
    vectors.array = np.full_like(vectors.array, np.nan)
    assert vectors.take(np.asarray([1])).tolist() == [[3, 4, 5]]


def test_the_file_is_closed_when_the_vectors_are_not_used_any_more(path):
    vectors = Vectors(path)
    number = vectors._file
    os.fstat(number)
    del vectors
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, dtype="float32"),
        np.zeros((2, 3), dtype="float64"),
        np.zeros((2, 3), dtype=">f4"),
        np.asfortranarray(np.zeros((2, 3), dtype="float32")),
        np.asarray([{}], dtype=object),
    ],
    ids=["one dimension", "double", "big-endian", "by column", "objects"],
)
def test_other_arrays_are_damage(path, array):
    np.save(path, array)
    with pytest.raises(ELQError, match=r"E031.*vectors\.npy does not begin as a file of vectors does"):
        Vectors(path)


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 zip", b"\x80\x04pickle", b"\x93NUMPY\x01\x00", b"x" * 999]
)
def test_other_files_are_damage(path, data):
    path.write_bytes(data)
    with pytest.raises(ELQError, match="E031"):
        Vectors(path)


def test_whatever_becomes_of_the_header_is_damage_or_harmless(path):
    """Every byte of it, in a few ways: numpy parses it as Python, which fails in many ways."""
    data = path.read_bytes()
    expected = Vectors(path).array.copy()
    for place in range(128):
        for byte in (0, 0x22, 0x28, 0x29, 0x2C, 0x39, 0x5C, data[place] ^ 1, data[place] ^ 0x80):
            path.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
            try:
                found = Vectors(path).array
            except ELQError:
                continue
            assert found.dtype in ("float32", "float16")
            assert found.ndim == 2
            if found.shape == expected.shape:
                np.testing.assert_array_equal(found, expected)


def test_a_missing_file_is_for_the_caller(path):
    path.unlink()
    with pytest.raises(FileNotFoundError):
        Vectors(path)

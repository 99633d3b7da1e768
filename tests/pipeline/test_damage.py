"""Files of a pipeline that were cut or changed: an error with a path, never a traceback of a parser."""

import random
import re
import shutil

import pytest
import spacy
from conftest import run_spacy

from spacy_elq.errors import ELQError
from spacy_elq.evaluation.pipelines import load_pipeline


def cut(data):
    return data[: len(data) // 2]


def flip(data):
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def flip_start(data):
    return bytes([data[0] ^ 0xFF]) + data[1:]


DAMAGES = {
    "empty": lambda data: b"",
    "cut": cut,
    "flip": flip,
    "flip_start": flip_start,
    "noise": lambda data: random.Random(0).randbytes(len(data)),
    "other json": lambda data: b"[1, 2]",
    "deep json": lambda data: b"[" * 100_000,
}
FILES = [
    "config.cfg",
    "meta.json",
    "tokenizer",
    "vocab/strings.json",
    "vocab/vectors",
    "vocab/lookups.bin",
    "elq_linker/model",
    "elq_linker/index.json",
]


@pytest.fixture
def damage(train_once, tmp_path):
    """Makes a copy of a pipeline with one file damaged."""

    def make(file, how):
        path = tmp_path / "pipeline"
        shutil.copytree(train_once("tok2vec"), path)
        # its index is found by its absolute path
        (path / file).write_bytes(DAMAGES[how]((path / file).read_bytes()))
        return path

    return make


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_our_commands_say_which_pipeline_is_damaged(damage, file, how):
    path = damage(file, how)
    try:
        load_pipeline(str(path))
    except ELQError as err:
        assert str(path) in str(err)  # noqa: PT017
        assert re.match(r"\[spacy-elq E\d{3}\] ", str(err))  # noqa: PT017
    except OSError as err:
        assert str(path) in str(err.filename)  # noqa: PT017
    else:
        # nobody can tell: texts and numbers may have any value, and no file of spaCy's has a checksum
        assert how.startswith("flip") or file.startswith(("vocab", "meta", "tokenizer"))


@pytest.mark.parametrize("how", ["empty", "cut", "flip_start", "noise", "other json", "deep json"])
@pytest.mark.parametrize("file", ["model", "index.json"])
def test_our_own_files_say_so_with_spacy_load_too(damage, file, how):
    path = damage(f"elq_linker/{file}", how)
    with pytest.raises(ELQError, match=rf"E144\] .*elq_linker/{file} cannot be read: \w+"):
        spacy.load(path)


@pytest.mark.parametrize(
    "record",
    [
        '{"paths": 5, "stamp": {}}',
        '{"paths": [5], "stamp": {"encoder": ""}}',
        '{"stamp": {}}',
        '{"paths": [], "stamp": {}}',
    ],
)
def test_a_record_without_a_place(train_once, tmp_path, record):
    shutil.copytree(train_once("tok2vec"), tmp_path / "pipeline")
    (tmp_path / "pipeline" / "elq_linker" / "index.json").write_text(record)
    with pytest.raises(ELQError, match=r"E144.*elq_linker/index\.json"):
        spacy.load(tmp_path / "pipeline")


def test_a_file_that_is_gone(train_once, tmp_path):
    shutil.copytree(train_once("tok2vec"), tmp_path / "pipeline")
    (tmp_path / "pipeline" / "elq_linker" / "model").unlink()
    done = run_spacy("elq", "link", tmp_path / "pipeline", stdin="x")
    assert done.returncode == 1
    assert re.search(r"elq_linker/model: No such file or directory", done.stderr)
    assert "Traceback" not in done.stderr


def test_damaged_bytes(train_once):
    nlp = spacy.load(train_once("tok2vec"))
    linker = nlp.get_pipe("elq_linker")
    data = linker.to_bytes()
    linker.from_bytes(data)
    place = data.index(b'"stamp"')
    with pytest.raises(ELQError, match=r"E144.*elq_linker/index cannot be read"):
        linker.from_bytes(data[:place] + b"X" + data[place + 1 :])
    place = data.index(b"nodes")
    with pytest.raises(ELQError, match=r"E144.*elq_linker/model cannot be read"):
        linker.from_bytes(data[:place] + b"X" + data[place + 1 :])


@pytest.mark.parametrize("how", ["empty", "cut", "flip_start", "other json", "deep json"])
def test_a_dictionary_that_is_not_named(make_tagme, tmp_path, how):
    make_tagme().to_disk(tmp_path / "pipeline")
    path = tmp_path / "pipeline" / "elq_tagme" / "dictionary"
    path.write_bytes(DAMAGES[how](path.read_bytes()))
    with pytest.raises(ELQError, match=r"E144.*elq_tagme/dictionary cannot be read"):
        spacy.load(tmp_path / "pipeline")

import json

import numpy as np
import pytest

from spacy_elq.errors import ELQError
from spacy_elq.model.recipe import KNOWN, RECIPE, Recipe, read_recipe, write_recipe

FULL = Recipe(
    pooling="cls", max_length=7, aliases=True, ent_token="é", norm=2.5, int8=True, fingerprint="f", sha256="s"
)


def read(folder, content):
    (folder / RECIPE).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_recipe(str(folder))


@pytest.mark.parametrize("recipe", [Recipe(), FULL, *KNOWN.values()])
def test_what_is_written_is_read(recipe, tmp_path):
    write_recipe(tmp_path, recipe)
    assert read_recipe(str(tmp_path)) == recipe


def test_the_file_has_the_settings_and_of_int8_only_what_is_set(tmp_path):
    write_recipe(tmp_path, Recipe(norm=4.0))
    expected = {"pooling": "mean", "max_length": 128, "aliases": False, "ent_token": None, "norm": 4.0}
    assert json.loads((tmp_path / RECIPE).read_text(encoding="utf8")) == expected


def test_folder_without_the_file_has_the_defaults(tmp_path):
    assert read_recipe(str(tmp_path)) == Recipe()


def test_a_setting_that_the_file_leaves_out_has_its_default(tmp_path):
    assert read(tmp_path, {"norm": 3}) == Recipe(norm=3)


@pytest.mark.parametrize("name", KNOWN)
def test_known_models_of_the_hub_have_theirs(name):
    assert read_recipe(name) == KNOWN[name]
    assert KNOWN[name].norm > 0


def test_unknown_model_of_the_hub_has_the_defaults():
    assert read_recipe("some/encoder") == Recipe()


def test_folder_that_is_called_like_a_known_model_is_a_folder(tmp_path, monkeypatch):
    name = next(iter(KNOWN))
    (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert read_recipe(name) == Recipe()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        ([], "not a JSON object"),
        ({"norm": 1.0, "polling": "cls"}, "unknown settings polling; known are pooling, max_length,"),
        ({"pooling": "max"}, "`pooling` is 'max', expected 'mean' or 'cls'"),
        ({"max_length": "128"}, "`max_length` is '128', expected a whole number"),
        ({"max_length": True}, "`max_length` is True"),
        ({"max_length": 1.5}, "`max_length` is 1.5"),
        ({"aliases": 1}, "`aliases` is 1, expected true or false"),
        ({"ent_token": 2}, "`ent_token` is 2, expected a word piece"),
        ({"norm": "4"}, "`norm` is '4', expected a number, at least 0"),
        ({"norm": True}, "`norm` is True"),
        ({"norm": -1}, "`norm` is -1"),
        (b'{"norm": NaN}', "`norm` is nan"),
        (b'{"norm": Infinity}', "`norm` is inf"),
        ({"int8": "yes"}, "`int8` is 'yes', expected true or false"),
        ({"fingerprint": 1, "sha256": "s"}, "`fingerprint` is 1, expected text"),
        ({"fingerprint": "f", "sha256": 1}, "`sha256` is 1, expected text"),
        ({"fingerprint": "f"}, "belong together"),
        ({"sha256": "s"}, "belong together"),
    ],
)
def test_damaged_file_is_an_error_that_names_it(content, problem, tmp_path):
    with pytest.raises(ELQError, match="E150") as error:
        read(tmp_path, content)
    assert str(tmp_path / RECIPE) in str(error.value)
    assert problem in str(error.value)


def test_numbers_are_of_one_type(tmp_path):
    for recipe in (
        read(tmp_path, {"norm": 4}),
        Recipe().updated(norm=np.float32(4), max_length=np.int64(128)),
    ):
        write_recipe(tmp_path, recipe)
        assert '"norm": 4.0' in (tmp_path / RECIPE).read_text(encoding="utf8")


def test_what_is_given_replaces_what_was_saved_and_none_does_not():
    given = {"pooling": None, "aliases": False, "norm": 0.0, "max_length": 9}
    updated = FULL.updated(**given)
    assert (updated.pooling, updated.aliases, updated.norm, updated.max_length) == ("cls", False, 0.0, 9)


@pytest.mark.parametrize(("setting", "value"), [("norm", -1.0), ("aliases", "yes"), ("max_length", 7.5)])
def test_what_is_given_is_checked(setting, value):
    with pytest.raises(ELQError, match=f"E002.*`{setting}` of 'encode' is {value!r}"):
        Recipe().updated(**{setting: value})

from pathlib import Path

import pytest
from spacy.util import load_config_from_str

from spacy_elq.errors import ELQError
from spacy_elq.pipeline import configs
from spacy_elq.pipeline.configs import describe_configs, find_configs, read_config

FOLDER = Path(__file__).parent.parent.parent / "configs"


def test_checkout_has_the_configs_beside_the_package():
    assert find_configs() == {path.stem: path for path in FOLDER.glob("*.cfg")}
    assert "elq" in find_configs()


def test_installed_package_has_them_inside(tmp_path, monkeypatch):
    monkeypatch.setattr(configs, "_PACKAGE", tmp_path / "spacy_elq")
    for folder in ("configs", "spacy_elq/configs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "own.cfg").write_text(f"# {folder}\n", encoding="utf8")
    assert find_configs() == {"own": tmp_path / "spacy_elq" / "configs" / "own.cfg"}


@pytest.mark.parametrize("name", find_configs())
def test_config_is_given_as_it_is(name):
    assert read_config(name) == (FOLDER / f"{name}.cfg").read_text(encoding="utf8")


def test_paths_are_set_and_nothing_else_changes():
    paths = {"index": r"C:\my\index", "encoder": 'a "b"'}
    text = read_config("elq", paths)
    assert {**load_config_from_str(text)["paths"]}.items() >= paths.items()
    changed = [
        new for new, old in zip(text.splitlines(), read_config("elq").splitlines(), strict=True) if new != old
    ]
    assert len(changed) == 2
    assert text.startswith("# ")


def test_unknown_path_lists_the_known():
    with pytest.raises(
        ELQError, match="'elq' has no path 'entities' to set, expected one of: train, dev, index"
    ):
        read_config("elq", {"entities": "x"})


@pytest.mark.parametrize(("name", "problem"), [("eql", "There is no training config 'eql'"), ("", "Which")])
def test_unknown_name_lists_the_known(name, problem):
    with pytest.raises(ELQError, match=problem) as caught:
        read_config(name)
    for known in find_configs():
        assert f"\n  {known} " in str(caught.value)


def test_description_is_the_first_sentence():
    lines = dict(line.split(maxsplit=1) for line in describe_configs().splitlines())
    assert set(lines) == set(find_configs())
    assert lines["elq"].endswith(".")

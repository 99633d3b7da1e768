import ast
import configparser
import importlib
import re
import subprocess
import sys
from collections import Counter
from importlib.metadata import distribution
from pathlib import Path

import pytest
import spacy
from spacy.util import registry
from typer.main import get_command

import spacy_elq
from spacy_elq.cli import app

ROOT = Path(__file__).parent.parent
# what is called by its bare name and not as spacy-elq.Name.vN
BARE = {"spacy_factories", "spacy_cli"}
SNAKE_CASE = {"spacy_scorers", "spacy_callbacks", "spacy_augmenters"}


def read_setup_cfg():
    """RETURNS: Group, name and object reference of every line of [options.entry_points]."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str
    parser.read(ROOT / "setup.cfg", encoding="utf8")
    lines = [
        (group, *(part.strip() for part in line.split("=", 1)))
        for group, value in parser["options.entry_points"].items()
        for line in value.strip().splitlines()
    ]
    assert lines
    return lines


ENTRY_POINTS = read_setup_cfg()
IDS = [name for _, name, _ in ENTRY_POINTS]


@pytest.mark.parametrize(("group", "name", "reference"), ENTRY_POINTS, ids=IDS)
def test_entry_point_is_found_in_the_registry(group, name, reference):
    module, _, attribute = reference.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if group == "spacy_displacy_colors":
        assert isinstance(target, dict)
        return
    found = getattr(registry, group.removeprefix("spacy_")).get(name)
    assert found is target
    assert callable(found)


@pytest.mark.parametrize(("group", "name"), [x[:2] for x in ENTRY_POINTS if x[0] not in BARE], ids=str)
def test_name_has_package_and_version(group, name):
    middle = "[a-z_]+" if group in SNAKE_CASE else "[A-Z][A-Za-z0-9]+"
    assert re.fullmatch(rf"spacy-elq\.{middle}\.v\d+", name)


@pytest.mark.parametrize("name", sorted(get_command(app).commands))
def test_no_two_options_of_a_command_have_the_same_flag(name):
    options = get_command(app).commands[name].params
    flags = [flag for option in options for flag in (*option.opts, *option.secondary_opts)]
    assert len(set(flags)) == len(flags)


def test_names_are_unique():
    assert len(set(IDS)) == len(IDS)


def test_installed_package_has_the_same_entry_points():
    """If this fails alone, setup.cfg has changed since the package was installed: install it again."""
    installed = {(point.group, point.name, point.value) for point in distribution("spacy-elq").entry_points}
    assert installed == set(ENTRY_POINTS)


def test_component_is_there_without_importing_the_package():
    script = (
        "import sys, spacy\n"
        "assert not any(name.startswith('spacy_elq') for name in sys.modules)\n"
        "nlp = spacy.blank('en')\n"
        "nlp.add_pipe('elq_linker')\n"
        "assert type(nlp.get_pipe('elq_linker')).__name__ == 'ELQLinker'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_config_of_0_1_is_accepted_before_a_component_is_imported():
    script = (
        "import spacy\n"
        "nlp = spacy.blank('en')\n"
        "nlp.add_pipe('elq_tagme', config={'threshold': 0.5})\n"
        "assert nlp.get_pipe('elq_tagme').decoder.threshold == 0.5\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "W004" in done.stderr


def test_factory_says_what_it_assigns():
    meta = spacy.blank("en").get_factory_meta("elq_linker")
    assert "doc.ents" in meta.assigns
    assert "token.ent_kb_id" in meta.assigns


def test_nothing_is_registered_by_decorator_but_the_factories():
    found = [
        (path.relative_to(ROOT / "spacy_elq").as_posix(), ast.unparse(decorator.func))
        for path in sorted((ROOT / "spacy_elq").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8")))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        and re.search(r"registry|Language\.(factory|component)|\.register\b", ast.unparse(decorator.func))
    ]
    homes = {"baselines/factories.py": 4, "pipeline/factories.py": 3}
    assert Counter(found) == {(name, "Language.factory"): count for name, count in homes.items()}


@pytest.mark.parametrize("name", [name for name in spacy_elq.__all__ if name != "__version__"])
def test_front_door_of_the_package(name):
    found = getattr(spacy_elq, name)
    assert callable(found)
    assert found.__name__ == name
    assert name in dir(spacy_elq)


def test_front_door_has_nothing_else():
    with pytest.raises(AttributeError, match="no attribute 'Linker'"):
        spacy_elq.Linker  # noqa: B018

"""The reference pages are what `scripts/reference.py` makes of the code, which documents everything."""

import importlib.util
import inspect
import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Optional

import pytest
import spacy

from spacy_elq.core.negatives import HardNegatives
from spacy_elq.errors import ELQError
from spacy_elq.pipeline.settings import update_settings

ROOT = Path(__file__).parent.parent


def load_script():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load_script()


def test_pages_are_up_to_date():
    stale = reference.find_stale()
    assert stale == [], f"Stale: {', '.join(stale)}. Type: {reference.COMMAND}"


def test_everything_registered_is_documented():
    problems = reference.find_problems()
    assert problems == [], "Document these, then type: " + reference.COMMAND


def test_settings_page_has_every_registered_name_once():
    text = reference.settings_page()
    headings = re.findall(r"(?m)^#+ `(.+)`$", text)
    groups = ["factories", *reference.REGISTRIES]
    names = [name for group in groups for name in reference.read_entry_points(group)]
    assert sorted(headings) == sorted(names)


def test_every_group_of_setup_cfg_is_on_the_page():
    text = (ROOT / "setup.cfg").read_text(encoding="utf8")
    groups = set(re.findall(r"(?m)^spacy_(\w+) =$", text))
    assert groups == {"factories", "cli", *reference.REGISTRIES}


def test_commands_page_has_every_command_and_option():
    text = reference.commands_page()
    assert "init_config" not in text  # by the name that is typed
    for name, command in reference.elq_commands().items():
        section = text.split(f"## `{name}`\n")[1].split("\n## ")[0]
        assert f"python -m spacy elq {name}" in section
        for parameter in command.params:
            for flag in [flag for flag in parameter.opts if flag.startswith("-")]:
                assert f"`{flag}`" in section


@pytest.mark.parametrize("page", ["settings_page", "commands_page"])
def test_links_lead_to_headings_of_the_page(page):
    text = getattr(reference, page)()
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    anchors = {re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    links = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert links
    assert links <= anchors


def test_tables_have_as_many_cells_in_every_row():
    for text in reference.pages().values():
        for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(widths) == 1, table


def test_code_of_the_settings_page_does_what_the_page_says(trained_path, tmp_path):
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", reference.HOW_TO_SET)
    names = {}
    for block in blocks:
        exec(block.replace("models/elq", str(trained_path)), names)
    assert names["blank"].get_pipe("elq_linker").decoder.candidates == 20
    nlp, linker = names["nlp"], names["linker"]
    assert (linker.threshold, linker.existing_ents) == (0.5, "keep")
    linker.temperature = 3.0  # by hand: not saved
    nlp.to_disk(tmp_path / "saved")
    saved = spacy.load(tmp_path / "saved").get_pipe("elq_linker")
    assert (saved.threshold, saved.existing_ents, saved.temperature) == (0.5, "keep", 1.0)
    with pytest.raises(FrozenInstanceError):
        linker.decoder.threshold = 0.4
    with pytest.raises(ELQError, match=r"E077.*negatives\.hard"):
        update_settings(nlp, "elq_linker", {"negatives.hard": 20})
    linker.negatives = HardNegatives(hard=20)


# ---------------------------------------------------------------------- reading docstrings


def example(one: int, two: Optional[str] = None, three: bool = False):
    """Do something
    with a number.

    Another paragraph.

    one (int): A number,
        on two lines.
    two, three (str): Others.
    RETURNS (int): A result
        that is left out.
    """


def test_docstring_is_taken_apart():
    docs = reference.read_docs(example)
    assert docs.text == "Do something with a number.\n\nAnother paragraph."
    assert docs.parameters == {
        "one": ("int", "A number, on two lines."),
        "two": ("str", "Others."),
        "three": ("str", "Others."),
    }


def test_parameters_have_the_defaults_of_the_signature_or_those_given():
    rows = reference.read_parameters(example)
    assert [row.default for row in rows] == ["required", "`null`", "`false`"]
    rows = reference.read_parameters(example, {"one": 3, "two": "x"}, skip=["three"])
    assert [row.default for row in rows] == ["`3`", '`"x"`']


def undocumented(one: int, two: int):
    """Do something.

    one (int): A number.
    """


def bare(one: int):
    pass


def outdated(one: int):
    """Do something.

    one (int): A number.
    gone (int): No longer there.
    """


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (example, ["x: `two` is documented as str", "x: `three` is documented as str"]),
        (undocumented, ["x: no docstring for `two`"]),
        (bare, ["x: no docstring", "x: no docstring for `one`"]),
        (outdated, ["x: has no parameter `gone`"]),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_is_missing_or_wrong_is_found(target, expected):
    problems = list(reference._check("x", target, reference.read_parameters(target)))
    assert len(problems) == len(expected)
    assert all(p.startswith(e) for p, e in zip(problems, expected, strict=True))


def test_default_of_a_component_names_the_registered_function_and_what_differs():
    default = {"@misc": "spacy-elq.Decoder.v1", "threshold": 0.05}
    assert reference.show_default(default) == (
        "[`spacy-elq.Decoder.v1`](#spacy-elqdecoderv1) with `threshold = 0.05`"
    )
    assert reference.show_default({"@architectures": "spacy.HashEmbedCNN.v2", "width": 96}) == (
        "`spacy.HashEmbedCNN.v2`"
    )


def test_text_is_no_markup_but_code_is_code():
    assert reference.escape("a [b](c) *d* <e> `[f]*`") == r"a \[b\](c) \*d\* \<e> `[f]*`"
    assert reference.table(["x"], [["a | b"]]).endswith("| a \\| b |\n")


def test_stale_page_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "pages", lambda: {tmp_path / "docs" / "a.md": "new"})
    assert reference.find_stale() == [str(Path("docs/a.md"))]
    reference.write()
    assert reference.find_stale() == []
    (tmp_path / "docs" / "a.md").write_text("old", encoding="utf8")
    assert reference.find_stale() == [str(Path("docs/a.md"))]


def test_doc_of_the_script_names_its_commands():
    assert "`write`" in inspect.getdoc(reference)

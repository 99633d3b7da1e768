"""`soundness.py` and its page, on the tiny world."""

import json
from pathlib import Path

import pytest
import soundness
import soundness_page
from conftest import ENTITIES
from spacy.tokens import DocBin
from typer.testing import CliRunner

DOMAIN = [
    {"id": "P1", "title": "Paris", "description": "A lamp."},
    {"id": "P2", "title": "New York City", "description": "A chair."},
]
QUESTIONS = "how old is [paris](E1)\nhow big is [new york city](E5)\nhow old is a chair\n"


@pytest.fixture(scope="module")
def made(trained_path, gold_docs, tmp_path_factory):
    """The folder of the results of both commands, and the page."""
    folder = tmp_path_factory.mktemp("soundness")
    for domain in soundness.DOMAINS:
        (folder / "assets" / domain).mkdir(parents=True)
        lines = "".join(json.dumps(entity) + "\n" for entity in DOMAIN)
        (folder / "assets" / domain / "entities.jsonl").write_text(lines, encoding="utf8")
        (folder / "assets" / domain / "questions.txt").write_text("price of [paris](P1)\n", encoding="utf8")
    for name, text in (("nothing", "hello there\nok\n"), ("questions", QUESTIONS)):
        (folder / "assets" / name).mkdir()
        (folder / "assets" / name / "test.txt").write_text(text, encoding="utf8")
    own = "".join(json.dumps(entity) + "\n" for entity in ENTITIES)
    (folder / "assets" / "entities.jsonl").write_text(own, encoding="utf8")
    DocBin(docs=gold_docs, store_user_data=True).to_disk(folder / "set.spacy")
    results = ["--results", str(folder / "results")]
    places = ["--assets", str(folder / "assets"), *results]
    own_places = ["--own", str(folder / "assets"), "--work", str(folder / "work")]
    for command in (
        ["catalogues", str(trained_path), "readme", *places, *own_places],
        ["questions", str(trained_path), "set", str(folder / "set.spacy"), *places],
        ["questions", str(trained_path), "questions-set", str(folder / "set.spacy"), *places],
    ):
        done = CliRunner().invoke(soundness.app, command)
        assert done.exit_code == 0, done.output
    soundness_page.main(folder / "page.md", folder / "page.svg", results=folder / "results")
    return folder


def read(made, name):
    return json.loads((made / "results" / f"soundness-{name}.json").read_text(encoding="utf8"))


def test_all_is_measured(made):
    record = read(made, "readme")
    assert (record["questions"], record["texts"]) == (3, 2)
    assert record["own"]["f"] > 0.5
    assert record["own"]["links"] > 0
    assert set(record["domains"]) == set(soundness.DOMAINS)
    shop = record["domains"]["shop"]
    assert (shop["entities"], shop["names"]) == (2, 2)
    assert 0.0 <= shop["templates"] <= 1.0
    assert set(record["left_out"]) == {"wrong", "absent", "f"}
    assert read(made, "set")["f"] == pytest.approx(1.0)


def test_the_page_has_the_figures(made):
    page = (made / "page.md").read_text(encoding="utf8")
    assert "$" not in page
    assert f"| today | {read(made, 'readme')['own']['f']:.3f}".rstrip("0").rstrip(".") in page
    assert "| shop | today |" in page
    rows = [line for line in page.splitlines() if "| set | 1 |" in line]
    assert [row.split("|")[1].strip() for row in rows] == [
        "WebQSP_EL",
        "the same and texts that name nothing",
    ]
    assert (made / "page.svg").read_text(encoding="utf8").startswith("<?xml")


def test_page_of_the_repository_is_current(tmp_path):
    docs = Path(__file__).parents[3] / "docs"
    results = Path(__file__).parents[1] / "results"
    soundness_page.main(tmp_path / "page.md", tmp_path / "page.svg", results=results)
    assert (tmp_path / "page.md").read_text(encoding="utf8") == (docs / "soundness.md").read_text(
        encoding="utf8"
    )

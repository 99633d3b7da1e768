import json
import shutil

import pytest
import spacy
from spacy.kb import InMemoryLookupKB
from spacy.vocab import Vocab

from spacy_elq.catalogue import read_catalogue
from spacy_elq.errors import ELQError
from spacy_elq.sources import build_catalogue, guess_format, read_spacy_kb
from spacy_elq.sources.knowledge_base import KBSettings
from spacy_elq.types import Entity


def fill(kb):
    kb.add_entity("Q1", freq=3.0, entity_vector=[1, 0, 0])
    kb.add_entity("Q2", freq=-2.5, entity_vector=[0, 1, 0])
    kb.add_entity("Q3", freq=0.5, entity_vector=[0, 0, 1])
    kb.add_alias("Paris", ["Q1", "Q2"], [0.75, 0.25])
    kb.add_alias("Ville de Paris", ["Q1"], [0.75])
    kb.add_alias("City of Light", ["Q1"], [0.5])
    kb.add_alias("Paris, Texas", ["Q2"], [1.0])
    return kb


@pytest.fixture
def kb_path(tmp_path):
    fill(InMemoryLookupKB(Vocab(), 3)).to_disk(tmp_path / "kb")
    return tmp_path / "kb"


def test_most_probable_alias_is_the_title_and_frequency_the_popularity(kb_path):
    assert list(read_spacy_kb(kb_path)) == [
        Entity("Q1", "Ville de Paris", aliases=("Paris", "City of Light"), popularity=3.0),
        Entity("Q2", "Paris, Texas", aliases=("Paris",)),
        # no alias
        Entity("Q3", "Q3", popularity=0.5),
    ]


def test_entities_that_were_set_at_once_and_a_kb_inside_of_a_pipeline(tmp_path):
    nlp = spacy.blank("en")
    kb = InMemoryLookupKB(nlp.vocab, 2)
    kb.set_entities(["Q1", "Q2"], [1, 2], [[1, 2], [3, 4]])
    kb.add_alias("x", ["Q2"], [0.5])
    nlp.add_pipe("entity_linker").set_kb(lambda vocab: kb)
    nlp.to_disk(tmp_path / "pipeline", exclude=["vocab"])
    found = list(read_spacy_kb(tmp_path / "pipeline" / "entity_linker" / "kb"))
    assert found == [Entity("Q1", "Q1", popularity=1.0), Entity("Q2", "x", popularity=2.0)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "d.jsonl",
            '{"id": "Q1", "title": "Paris", "description": "A city."}\n\n{"id": "Q2", "description": "b"}\n',
        ),
        ("d.tsv", "id\tdescription\ttitle\tother\nQ1\tA city.\tParis\tx\nQ2\tb\t\tx\n"),
        ("d.csv", "id,title,description\nQ1,Paris,A city.\nQ2,,b\n"),
    ],
)
def test_descriptions_and_titles_of_a_file(kb_path, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf8")
    first, second, third = read_spacy_kb(kb_path, settings=KBSettings(tmp_path / name))
    assert first == Entity("Q1", "Paris", "A city.", ("Ville de Paris", "City of Light"), popularity=3.0)
    assert (second.title, second.description) == ("Paris, Texas", "b")
    assert (third.title, third.description) == ("Q3", "")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("d.txt", "x", r"E042.*jsonl, csv, tsv"),
        ("d.jsonl", '{"id": "Q1"}\n{', r"E020.*line 2: not valid JSON"),
        ("d.jsonl", "[" * 100000, r"E020.*line 1: not valid JSON"),
        ("d.jsonl", "[1]", r"E020.*line 1: expected a JSON object"),
        ("d.jsonl", '{"title": "x"}', r"E020.*line 1: `id` must be a string"),
        ("d.jsonl", '{"id": "Q1", "description": 5}', r"E020.*line 1: `description` must be a string"),
        ("d.csv", "key,title\nQ1,x\n", r"E134.*'id'.*Its columns: 'key', 'title'"),
    ],
)
def test_what_is_no_file_of_descriptions(kb_path, tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf8")
    with pytest.raises(ELQError, match=message):
        list(read_spacy_kb(kb_path, settings=KBSettings(tmp_path / name)))


def test_missing_descriptions(kb_path, tmp_path):
    with pytest.raises(ELQError, match="E022"):
        list(read_spacy_kb(kb_path, settings=KBSettings(tmp_path / "d.jsonl")))


@pytest.mark.parametrize("name", ["contents", "strings.json"])
def test_a_folder_without_its_files(kb_path, name):
    (kb_path / name).unlink()
    with pytest.raises(ELQError, match=rf"E135.*it has no `{name}`.*PIPELINE/entity_linker/kb"):
        list(read_spacy_kb(kb_path))


def test_contents_that_are_cut_anywhere(kb_path):
    contents = kb_path / "contents"
    data = contents.read_bytes()
    for length in range(len(data)):
        contents.write_bytes(data[:length])
        with pytest.raises(ELQError, match=r"E135.*it is damaged"):
            list(read_spacy_kb(kb_path))


def test_contents_that_are_something_else(kb_path):
    (kb_path / "contents").write_bytes(b"\xff" * 100)
    with pytest.raises(ELQError, match=r"E135.*it is damaged"):
        list(read_spacy_kb(kb_path))


@pytest.mark.parametrize("text", ['["Q1", "Paris"]', "{"])
def test_strings_of_another_kb(kb_path, text):
    (kb_path / "strings.json").write_text(text, encoding="utf8")
    with pytest.raises(ELQError, match="E135"):
        list(read_spacy_kb(kb_path))


@pytest.mark.parametrize("name", ["kb/contents", "kb/strings.json", "both.csv"])
def test_what_is_read_is_not_replaced(kb_path, tmp_path, name):
    (tmp_path / "both.csv").write_text("id,title\nQ1,Paris\n")
    before = (tmp_path / name).read_bytes()
    with pytest.raises(ELQError, match=f"E045.*{name}"):
        build_catalogue(kb_path, tmp_path / name, settings={"descriptions": str(tmp_path / "both.csv")})
    assert (tmp_path / name).read_bytes() == before


def test_kb_to_catalogue(kb_path, tmp_path):
    assert guess_format(kb_path) == "spacy-kb"
    (tmp_path / "d.jsonl").write_text(json.dumps({"id": "Q3", "title": "Three", "description": "x"}))
    output = tmp_path / "entities.jsonl"
    report = build_catalogue(kb_path, output, settings={"descriptions": tmp_path / "d.jsonl"})
    assert (report.entities, report.bare) == (3, 2)
    assert [entity.title for entity in read_catalogue(output)] == ["Ville de Paris", "Paris, Texas", "Three"]
    shutil.rmtree(kb_path)
    InMemoryLookupKB(Vocab(), 3).to_disk(kb_path)
    with pytest.raises(ELQError, match="E133"):
        build_catalogue(kb_path, output)

import json
from collections import Counter
from random import Random

import pytest
import spacy
from conftest import ENTITIES
from spacy.cli import app
from typer.testing import CliRunner

from spacy_elq.catalogue import entity_from_dict
from spacy_elq.corpora import Report, questions_to_docs, read_questions
from spacy_elq.corpora.generate import (
    GeneratedReport,
    Hints,
    Names,
    find_mentions,
    generate_questions,
    write_questions,
)
from spacy_elq.corpora.templates import Templates, read_templates
from spacy_elq.errors import ELQError
from spacy_elq.names import normalize_name, typed_names
from spacy_elq.types import Entity

WORLD = [entity_from_dict(record) for record in ENTITIES]
SIMPLE = Templates(
    single={"general": ["what is {}"]}, several={"general": ["{} or {}", "{}, {} and {}"]}, none=["hello"]
)


def make(entities=WORLD, templates=None, **settings):
    return list(generate_questions(lambda: iter(entities), templates or read_templates(), **settings))


def names_of(entities):
    names = Names(entities)
    return names, Hints(entities, names)


def mentions_of(entities, number=0):
    return [(x.text, x.kind, list(x.hints)) for x in find_mentions(entities[number], *names_of(entities))]


def typed(question):
    return [question.text[span.start : span.end] for span in question.spans]


# Names


@pytest.mark.parametrize(
    ("title", "aliases", "names"),
    [
        ("Paris", ["City of Light"], ["Paris", "City of Light"]),
        ("Paris, Texas", ["paris"], ["Paris, Texas", "Paris"]),
        ("Mercury (planet)", ["the Mercury"], ["Mercury"]),
        ("(planet)", [], ["(planet)"]),
        ("New  York\tCity", ["NYC", "nyc"], ["New York City", "NYC"]),
    ],
)
def test_names_as_people_type_them(title, aliases, names):
    assert typed_names(Entity("E", title, aliases=tuple(aliases))) == names


def test_names_of_the_title_are_plain_and_aliases_nicknames():
    entities = [Entity("E1", "Paris", aliases=("Paname", "Lutetia [old]", "!?"))]
    assert mentions_of(entities) == [("Paris", "plain", []), ("Paname", "nickname", [])]


def test_a_shared_name_comes_with_words_that_tell_it_apart():
    entities = [
        Entity("E1", "Georgia (country)", "A country on the Black Sea with old churches."),
        Entity("E2", "Georgia (U.S. state)", "A state with old farms and Atlanta, on no sea."),
        Entity("E3", "Atlanta", "A city."),
    ]
    # "old" and "sea" are in both, "Atlanta" is a name, function words say nothing
    assert mentions_of(entities) == [("Georgia", "ambiguous", ["country", "black", "churches"])]
    assert mentions_of(entities, 1) == [("Georgia", "ambiguous", ["state", "farms"])]


def test_a_hint_does_not_make_another_name():
    entities = [
        Entity("E1", "Jaguar", "Cars from England."),
        Entity("E2", "Jaguar", "Cat."),
        Entity("E3", "Jaguar Cars", "Maker."),
    ]
    assert mentions_of(entities) == [("Jaguar", "ambiguous", ["england"])]


def test_a_shared_name_that_nothing_tells_apart_is_not_used():
    twins = [Entity("E1", "Trail", "A tent.", aliases=("T1",)), Entity("E2", "Trail", "A tent.")]
    assert mentions_of(twins) == [("T1", "nickname", [])]
    report = GeneratedReport()
    assert {span.id for question in make(twins, report=report) for span in question.spans} == {"E1"}
    assert (report.entities, report.nameless) == (1, 1)


def test_a_catalogue_without_a_name_of_its_own_is_an_error():
    with pytest.raises(ELQError, match=r"E181.*2 entities"):
        make([Entity("E1", "Trail"), Entity("E2", "Trail")])


def test_names_that_occur_in_a_text():
    names = Names([Entity("E1", "The Who"), Entity("E2", "Boiled Egg")])
    assert names.occur_in("how long for a boiled egg")
    assert not names.occur_in("who boiled an egg")


# Questions


def test_every_entity_has_questions_and_every_name_its_turn():
    questions = make(per_entity=6)
    counts = Counter(span.id for question in questions for span in question.spans)
    assert set(counts) == {entity.id for entity in WORLD}
    assert min(counts.values()) >= 5
    found = {normalize_name(name) for question in questions for name in typed(question)}
    assert {"paris texas", "city of light", "mercury", "shaq", "new york city"} <= found


def test_all_kinds_are_made():
    report = GeneratedReport()
    questions = make(per_entity=12, report=report)
    assert set(report.kinds) == {"plain", "nickname", "ambiguous", "typo", "several", "none"}
    assert report.kinds == Counter(question.kind for question in questions)
    assert report.kinds["none"] == round((report.kinds.total() - report.kinds["none"]) / 10)
    assert all(len(question.spans) >= 2 for question in questions if question.kind == "several")
    assert not any(question.spans for question in questions if question.kind == "none")
    texts = [question.text for question in questions if question.kind != "none"]
    assert 0.5 < sum(text.islower() for text in texts) / len(texts) < 0.9
    assert any(typed(question) == [question.text] for question in questions)


def test_questions_about_an_entity_differ():
    entities = [Entity("E1", "Paris")]
    texts = [question.text for question in make(entities, SIMPLE, per_entity=50)]
    assert len(set(texts)) == len(texts) < 50
    assert {"what is paris", "What is Paris", "paris", "Paris", "hello"} <= set(texts)


def test_a_typo_is_never_a_name():
    entities = [Entity("E1", "Rover"), *(Entity(f"E{i}", f"R{c}ver") for i, c in enumerate("abcdefg", 2))]
    names = Names(entities)
    for question in make(entities, SIMPLE, per_entity=40):
        if question.kind == "typo":
            assert not names.has(typed(question)[0])


def test_a_shared_name_is_followed_by_a_hint():
    for question in make(per_entity=12):
        for span in question.spans:
            if normalize_name(question.text[span.start : span.end]) in ("georgia", "mercury"):
                word = question.text[span.end :].split()[0].strip(",?")
                entity = next(entity for entity in WORLD if entity.id == span.id)
                assert word in normalize_name(f"{entity.title} {entity.description}")


def test_names_are_no_texts_without_an_entity():
    templates = Templates(single={"general": ["what is {}"]}, none=["hello"], fillers=["paris", "it"])
    none = {question.text for question in make(templates=templates, per_entity=8) if question.kind == "none"}
    assert none == {"hello", "what is it"}


def test_without_templates_for_a_label_names_stand_alone():
    questions = make([Entity("E1", "Paris", label="GPE")], Templates(single={"person": ["who is {}"]}))
    assert {question.text.lower() for question in questions if question.kind == "plain"} == {"paris"}


def test_the_first_entity_has_no_other_to_be_named_with():
    assert "several" not in {question.kind for question in make(WORLD[:1], per_entity=30)}


def test_the_seed_decides():
    random = Random(1)
    first = make(seed=1)
    random.random()
    assert make(seed=1) == first != make(seed=2)


@pytest.mark.parametrize("count", [0, 1.5])
def test_the_number_of_questions_is_checked(count):
    with pytest.raises(ELQError, match=r"E002.*per_entity.*at least 1"):
        make(per_entity=count)


# The command


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "entities.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in ENTITIES), encoding="utf8")
    return path


def invoke(*args):
    return CliRunner().invoke(app, ["elq", "questions", *map(str, args)])


def said(result):
    """RETURNS: What a command printed, on one line."""
    return " ".join(result.output.split())


@pytest.mark.parametrize(("name", "format"), [("questions.txt", "marked"), ("questions.jsonl", "jsonl")])
def test_what_is_written_can_be_converted(catalogue, tmp_path, name, format):
    result = invoke(catalogue, tmp_path / name, "--per-entity", 5)
    assert result.exit_code == 0, result.output
    questions = list(read_questions(tmp_path / name, format=format))
    assert f"{len(questions)} questions about 10 entities" in said(result)
    assert f"Next: python -m spacy elq convert {tmp_path / name}" in result.output
    expected = make(per_entity=5)
    key = lambda question: (question.kind, question.text)  # noqa: E731
    assert sorted(questions, key=key) == sorted(expected, key=key)
    report = Report()
    assert len(list(questions_to_docs(questions, spacy.blank("en"), report))) == len(expected)
    assert report.misfits == 0


def test_own_templates_and_seed(catalogue, tmp_path):
    (tmp_path / "mine.txt").write_text("zzz {} zzz\n", encoding="utf8")
    texts = []
    for seed in (1, 1, 2):
        output = tmp_path / "out.txt"
        result = invoke(catalogue, output, "--templates", tmp_path / "mine.txt", "--seed", seed, "-n", 2)
        assert result.exit_code == 0, result.output
        texts.append(output.read_text(encoding="utf8"))
    assert texts[0] == texts[1] != texts[2]
    assert "zzz [jaguar](e9) zzz" in texts[0].lower()
    assert "none" not in texts[0]


def test_ids_that_marked_text_cannot_hold_are_counted(tmp_path):
    path = tmp_path / "entities.jsonl"
    path.write_text('{"id": "Paris_(Texas)", "title": "Paris"}\n{"id": "E2", "title": "Rome"}\n')
    report = write_questions(path, tmp_path / "q.txt", per_entity=1)
    assert report.left_out == 1
    result = invoke(path, tmp_path / "q.txt", "-n", 1)
    assert "1 questions about 2 entities" in said(result)
    assert "1 questions left out" in said(result)
    assert write_questions(path, tmp_path / "q.jsonl", per_entity=1).left_out == 0


def test_entities_without_questions_are_counted(tmp_path):
    path = tmp_path / "entities.jsonl"
    path.write_text('{"id": "1", "title": "?"}\n{"id": "2", "title": "Rome"}\n')
    assert "1 entities have no questions" in said(invoke(path, tmp_path / "q.txt"))


@pytest.mark.parametrize("name", ["q.spacy", "q.json", "q.jsonl.gz", "q"])
def test_other_formats_are_refused(catalogue, tmp_path, name):
    result = invoke(catalogue, tmp_path / name)
    assert result.exit_code == 1
    assert "E042" in result.output
    assert not (tmp_path / name).exists()


def test_nothing_is_written_over_an_input(catalogue, tmp_path):
    (tmp_path / "mine.txt").write_text("what is {}\n")
    for output in (catalogue, tmp_path / "mine.txt"):
        before = output.read_text()
        result = invoke(catalogue, output, "--templates", tmp_path / "mine.txt")
        assert "E045" in result.output
        assert output.read_text() == before


def test_an_invalid_catalogue_leaves_the_output(tmp_path):
    (tmp_path / "entities.jsonl").write_text('{"id": "1", "title": "Rome"}\n{"id": "1", "title": "Bonn"}\n')
    (tmp_path / "q.txt").write_text("old")
    result = invoke(tmp_path / "entities.jsonl", tmp_path / "q.txt")
    assert result.exit_code == 1
    assert "entities.jsonl, line 2" in result.output
    assert (tmp_path / "q.txt").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entities.jsonl", "q.txt"]

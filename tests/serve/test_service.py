"""`serve.service`: what the server does, without HTTP."""

import shutil

import pytest
import spacy
from conftest import links_of

from spacy_elq.errors import ELQError
from spacy_elq.serve.service import Answer, Ask, LinkService

PARIS, NEW_YORK = "what is the capital of france near paris", "how big is new york city"


@pytest.fixture(scope="module")
def service(trained_path):
    return LinkService.load(str(trained_path))


def ids(answer):
    return [link["id"] for link in answer.links]


def test_links_are_those_of_the_pipeline(service, gold_docs, trained_path):
    nlp = spacy.load(trained_path)
    answers = service.link([Ask(doc.text) for doc in gold_docs])
    for doc, answer in zip(gold_docs, answers, strict=True):
        found = [(link["start"], link["end"], link["id"]) for link in answer.links]
        assert found == links_of(nlp(doc.text))
        assert [len(link["alternatives"]) for link in answer.links] == [3] * len(found)


def test_each_text_has_its_own_options(service):
    answers = service.link(
        [
            Ask(PARIS, alternatives=1),
            Ask(PARIS, threshold=1.0),
            Ask(PARIS, within={"ids": ["E2"]}),
            Ask(NEW_YORK),
            Ask(PARIS, threshold=0.0, within={"labels": ["nothing"]}),
        ]
    )
    assert [ids(answer) for answer in answers] == [["E1"], [], ["E2"], ["E5"], []]
    assert len(answers[0].links[0]["alternatives"]) == 1
    # nothing is left of it
    assert service.linker.decoder.threshold == 0.2


def test_a_lower_threshold_gives_more_links(service):
    few, many = service.link([Ask("one two three"), Ask("one two three", threshold=0.0)])
    assert len(many.links) > len(few.links)


def test_a_poisoned_text_fails_alone(service, monkeypatch):
    linker, predict = service.linker, type(service.linker).predict

    def fail(self, docs):
        if any("poison" in doc.text for doc in docs):
            raise RuntimeError("what the text was")
        return predict(self, docs)

    monkeypatch.setattr(type(linker), "predict", fail)
    answers = service.link([Ask(PARIS), Ask("poison"), Ask(NEW_YORK)])
    assert [ids(answers[0]), ids(answers[2])] == [["E1"], ["E5"]]
    # the kind of error, not its message, which may have the text in it
    assert answers[1] == Answer(None, "RuntimeError")


def test_an_empty_text_has_no_links(service):
    assert service.link([Ask(""), Ask(" \n"), Ask("😀")]) == [Answer([]), Answer([]), Answer([])]


def test_candidates_of_a_mention_that_cuts_tokens(service):
    start = NEW_YORK.index("york")
    place, found = service.candidates(Ask(NEW_YORK, alternatives=2), start + 1, start + 6)
    assert NEW_YORK[slice(*place)] == "york city"
    assert next(candidate["id"] for candidate in found) == "E5"
    assert len(found) == 2
    assert service.candidates(Ask(NEW_YORK, within={"ids": ["E3"]}), start, start + 4)[1][0]["id"] == "E3"


@pytest.mark.parametrize(("start", "end"), [(5, 5), (7, 3), (90, 99)])
def test_a_mention_that_is_not_there(service, start, end):
    with pytest.raises(ELQError, match="E203"):
        service.candidates(Ask(NEW_YORK), start, end)


def test_explanations_have_characters(service):
    found = service.explain(Ask(NEW_YORK, threshold=0.9))
    (link,) = [mention for mention in found if mention["is_link"]]
    assert NEW_YORK[link["start"] : link["end"]] == link["text"] == "new york city"
    assert link["threshold"] == 0.9
    assert link["candidates"][0]["label"] == "ENTITY"


def test_a_linker_without_explanations_and_without_a_catalogue():
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("entity_linker")
    service = LinkService(nlp, linker)
    for what in (service.explain, service.candidates):
        with pytest.raises((ELQError, TypeError)):
            what(Ask("x"))
    with pytest.raises(ELQError, match="entity index"):
        service.find_entities("x", within=None, limit=1)
    (answer,) = service.link([Ask("x", threshold=0.5)])
    assert "a threshold" in answer.error
    assert service.describe()["entities"] is None


def test_the_catalogue(service):
    assert service.get_entity("E1")["title"] == "Paris"
    assert service.get_entity("E99") is None
    assert [e["id"] for e in service.find_entities("paris", within=None, limit=1)] == ["E1"]
    assert [e["id"] for e in service.find_entities("paris", within={"ids": ["E2"]}, limit=9)] == ["E2"]
    entities, positions = service.look_up(["E1", "E99"])
    assert list(entities) == list(positions) == ["E1"]


def test_changes_are_linked_to_at_once(trained_path, index, tmp_path):
    copied = shutil.copytree(index.path, tmp_path / "index")
    nlp = spacy.load(trained_path, config={"components.elq_linker.index_path": str(copied)})
    service = LinkService(nlp, nlp.get_pipe("elq_linker"))
    before = service.describe()
    assert before["labels"] == ["GPE"]
    paris = {**service.get_entity("E1"), "label": "CITY"}
    records = [paris, {"id": "N1", "title": "Boxing glove", "label": "NEW"}]
    assert service.put_entities(records) == {"added": 1, "replaced": 1, "entities": 11}
    after = service.describe()
    assert {"CITY", "NEW"} < set(after["labels"])
    assert after["changes"] > before["changes"]
    assert service.link([Ask(PARIS)])[0].links[0]["label"] == "CITY"
    assert service.remove_entities(["N1", "E1", "?"]) == {"removed": 2, "entities": 9}
    assert "E1" not in ids(service.link([Ask(PARIS)])[0])

"""spaCy's own `entity_linker`, and the protocol of spacy-llm, over an index."""

import json
import pickle
import random
import shutil
from typing import Protocol, runtime_checkable

import numpy as np
import pytest
import spacy
from conftest import train
from spacy.tokens import Doc, SpanGroup
from spacy.training import Example
from spacy.util import load_model_from_config
from spacy.vocab import Vocab
from thinc.api import Config, fix_random_seed

from spacy_elq.baselines.spacy_kb import KBLinker
from spacy_elq.errors import ELQError
from spacy_elq.evaluation.pipelines import find_linker
from spacy_elq.index import EntityIndex, build_index, encode_catalogue
from spacy_elq.pipeline.knowledge_base import IndexKnowledgeBase, build_index_candidates, build_index_kb

POPULAR = {"E3": 99, "E4": 299, "E9": 3}


@pytest.fixture(scope="module")
def popular(catalogue_path, entity_encoder, tmp_path_factory):
    """The index of the ten entities, some of them popular."""
    folder = tmp_path_factory.mktemp("popular")
    records = [json.loads(line) for line in catalogue_path.read_text(encoding="utf8").splitlines()]
    lines = [json.dumps({**record, "popularity": POPULAR.get(record["id"], 0)}) for record in records]
    (folder / "entities.jsonl").write_text("\n".join(lines), encoding="utf8")
    encode_catalogue(folder / "entities.jsonl", folder / "vectors", entity_encoder)
    return build_index(folder / "vectors", folder / "index")


@pytest.fixture
def kb(popular):
    return IndexKnowledgeBase(Vocab(), popular)


def spans_of(*texts):
    """Spans of one doc, with a word between them."""
    words = [word for text in texts for word in [*text.split(), "-"]]
    doc, at, spans = Doc(Vocab(), words=words), 0, []
    for text in texts:
        spans.append(doc[at : at + len(text.split())])
        at += len(text.split()) + 1
    return spans


def found(candidates):
    return [(candidate.entity_, round(candidate.prior_prob, 4)) for candidate in candidates]


def test_candidates_have_the_name_and_share_the_popularity(kb, popular):
    (span,) = spans_of("The MERCURY")
    candidates = kb.get_candidates(span)
    assert found(candidates) == [("E4", 0.75), ("E3", 0.25)]
    assert [c.alias_ for c in candidates] == ["The MERCURY"] * 2
    np.testing.assert_allclose([c.entity_freq for c in candidates], [299, 99], rtol=1e-5)
    np.testing.assert_allclose([c.entity_vector for c in candidates], popular.vectors[[3, 2]], rtol=1e-6)


def test_a_batch_in_its_order(kb):
    spans = spans_of("nothing", "jaguar", "shaq", "jaguar cars", "paris")
    expected = [[], [("E9", 1.0)], [("E8", 1.0)], [("E10", 1.0)], [("E1", 0.5), ("E2", 0.5)]]
    assert [found(own) for own in kb.get_candidates_batch(spans)] == expected
    group = SpanGroup(spans[0].doc, spans=spans)
    assert [found(own) for own in kb.get_candidates_batch(group)] == expected
    assert kb.get_candidates_batch([]) == []


def test_a_similar_spelling_is_half_as_probable(kb):
    assert found(kb.get_candidates(spans_of("gorgia")[0])) == [("E6", 0.25), ("E7", 0.25)]


def test_the_most_popular_candidates_are_kept(popular):
    kb = IndexKnowledgeBase(Vocab(), popular, candidates=1)
    batch = kb.get_candidates_batch(spans_of("mercury", "paris"))
    assert [found(own) for own in batch] == [[("E4", 0.75)], [("E1", 0.5)]]


def test_vectors_by_id(kb, popular):
    assert kb.entity_vector_length == popular.width == len(kb.get_vector("E1"))
    vectors = kb.get_vectors(["E3", "nobody", "E1"])
    np.testing.assert_allclose(vectors, [popular.vectors[2], np.zeros(popular.width), popular.vectors[0]])
    assert kb.get_vectors([]) == []


def test_the_index_is_saved_as_its_path(kb, popular, tmp_path):
    kb.candidates = 7
    kb.to_disk(tmp_path / "kb")
    assert [path.name for path in (tmp_path / "kb").iterdir()] == ["index.json"]
    empty = build_index_kb()
    copies = [
        empty(Vocab(), 64).from_disk(tmp_path / "kb"),
        empty(Vocab(), 64).from_bytes(kb.to_bytes()),
        pickle.loads(pickle.dumps(kb)),
    ]
    assert len(pickle.dumps(kb)) < 100_000
    for copy in copies:
        assert copy.index.path == popular.path
        assert (copy.candidates, copy.entity_vector_length, len(copy)) == (7, popular.width, 10)
        assert found(copy.get_candidates(spans_of("mercury")[0])) == [("E4", 0.75), ("E3", 0.25)]


def test_both_folders_can_be_moved_together(popular, tmp_path):
    (tmp_path / "a").mkdir()
    shutil.copytree(popular.path, tmp_path / "a" / "index")
    IndexKnowledgeBase(Vocab(), EntityIndex.open(tmp_path / "a" / "index")).to_disk(tmp_path / "a" / "kb")
    (tmp_path / "a").rename(tmp_path / "b")
    opened = build_index_kb()(Vocab(), 64).from_disk(tmp_path / "b" / "kb")
    assert opened.index.path == (tmp_path / "b" / "index").resolve()
    shutil.rmtree(tmp_path / "b" / "index")
    with pytest.raises(ELQError, match=r"E138.*b/index"):
        build_index_kb()(Vocab(), 64).from_disk(tmp_path / "b" / "kb")


def test_an_index_of_another_width_is_refused(kb, tmp_path):
    kb.to_disk(tmp_path / "kb")
    record = json.loads((tmp_path / "kb" / "index.json").read_text())
    (tmp_path / "kb" / "index.json").write_text(json.dumps({**record, "width": 300}))
    with pytest.raises(ELQError, match=r"E139.*width 48.*width 300"):
        build_index_kb()(Vocab(), 64).from_disk(tmp_path / "kb")


def test_without_an_index_it_is_empty_and_says_so(tmp_path):
    empty = build_index_kb()(Vocab(), 64)
    assert (empty.is_empty(), empty.entity_vector_length) == (True, 64)
    with pytest.raises(ELQError, match=r"E137.*spacy-elq\.IndexKB\.v1"):
        empty.get_candidates(spans_of("paris")[0])
    empty.to_disk(tmp_path / "kb")
    again = build_index_kb()(Vocab(), 1).from_disk(tmp_path / "kb")
    assert (again.is_empty(), again.entity_vector_length) == (True, 64)
    assert pickle.loads(pickle.dumps(empty)).is_empty()


CONFIG = """
[nlp]
lang = "en"
pipeline = ["sentencizer", "entity_linker"]

[components]

[components.sentencizer]
factory = "sentencizer"

[components.entity_linker]
factory = "entity_linker"
incl_prior = false

[components.entity_linker.generate_empty_kb]
@misc = "spacy-elq.IndexKB.v1"

[initialize]

[initialize.components]

[initialize.components.entity_linker]

[initialize.components.entity_linker.kb_loader]
@misc = "spacy-elq.IndexKB.v1"
path = "{index}"
"""


def test_entity_linker_learns_is_saved_and_loaded(index, gold_docs, tmp_path):
    fix_random_seed(0)
    nlp = load_model_from_config(Config().from_str(CONFIG.format(index=index.path)), auto_fill=True)
    # the context decides: these names are ambiguous
    hard = [doc for doc in gold_docs if len(doc.ents) == 1 and doc.ents[0].text in ("mercury", "georgia")]
    assert len(hard) == 4
    hard = [Doc(nlp.vocab).from_bytes(doc.to_bytes()) for doc in hard]
    nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in hard])
    assert isinstance(nlp.get_pipe("entity_linker").kb, IndexKnowledgeBase)
    losses = train(nlp, hard, steps=40, learn_rate=0.01)
    assert losses[-1] < losses[0]

    def links(pipeline):
        random.seed(0)  # spaCy shuffles candidates
        plain = [pipeline.make_doc(doc.text) for doc in hard]
        for doc, gold in zip(plain, hard, strict=True):
            doc.set_ents([doc.char_span(e.start_char, e.end_char, label="X") for e in gold.ents])
        return [ent.kb_id_ for doc in pipeline.pipe(plain) for ent in doc.ents]

    assert links(nlp) == [ent.kb_id_ for doc in hard for ent in doc.ents]
    nlp.to_disk(tmp_path / "pipeline")
    loaded = spacy.load(tmp_path / "pipeline")
    assert loaded.get_pipe("entity_linker").kb.index.path == index.path
    assert links(loaded) == links(nlp)
    assert loaded.evaluate([Example(loaded.make_doc(doc.text), doc) for doc in hard])["nel_micro_f"] == 1.0
    # the commands see the titles of the index
    seen = find_linker(loaded, "pipeline")
    assert isinstance(seen, KBLinker)
    assert (len(seen.index), seen.index.entity(0).title) == (10, "Paris")


@runtime_checkable
class CandidateSelector(Protocol):
    """What spacy-llm 0.7 asks of a candidate selector. Of its results it reads `id` and `description`."""

    def __call__(self, mentions): ...

    def get_entity_description(self, entity_id): ...


def test_candidates_for_a_language_model(popular):
    select = build_index_candidates(popular.path, candidates=1)
    assert isinstance(select, CandidateSelector)
    mentions = spans_of("mercury", "nothing", "jaguar cars")
    candidates = select(mentions)
    assert [[(c.id, c.description) for c in own] for own in candidates] == [
        [("E4", "Mercury (element): A liquid metal.")],
        [("NIL", "This entity doesn't have a description.")],
        [("E10", "Jaguar Cars: Maker of cars.")],
    ]
    assert [len(own) for own in build_index_candidates(popular.path)(mentions)] == [2, 1, 1]
    assert select.get_entity_description("E3") == "Mercury (planet): The planet nearest to the sun."
    assert select.get_entity_description("nobody") == "This entity doesn't have a description."
    # what was used is pickled, too
    assert len(pickle.loads(pickle.dumps(select))(mentions)) == 3

"""spaCy's own `ner` and `entity_linker` over a dictionary of anchors and an index."""

import json

import numpy as np
import pytest
import spacy
from spacy.tokens import DocBin
from spacy.vocab import Vocab

from spacy_elq.baselines.spacy_kb import KBLinker, build_kb_loader, find_candidates, reduce_width
from spacy_elq.errors import ELQError
from spacy_elq.evaluation.metrics import evaluate
from spacy_elq.evaluation.pipelines import find_linker
from spacy_elq.evaluation.speed import bench


def test_names_have_the_candidates_and_priors_of_the_dictionary(anchors, index):
    kb = build_kb_loader(anchors.path, index.path, width=8)(Vocab())
    assert (kb.get_size_entities(), kb.entity_vector_length) == (10, 8)
    doc = spacy.blank("en")("is the MERCURY hot")
    found = {c.entity_: round(c.prior_prob, 4) for c in find_candidates(kb, doc[1:3])}
    # the titles "Mercury (planet)" and "Mercury (element)" count as a link each
    assert found == {"E3": round(4 / 6, 4), "E4": round(2 / 6, 4)}
    assert list(find_candidates(kb, doc[3:4])) == []


def test_few_candidates_are_the_most_common(anchors, index):
    kb = build_kb_loader(anchors.path, index.path, candidates=1)(Vocab())
    doc = spacy.blank("en")("mercury")
    assert [c.entity_ for c in find_candidates(kb, doc[:])] == ["E3"]


def test_another_catalogue_is_refused(dictionary, index):
    with pytest.raises(ELQError, match="E080"):
        build_kb_loader(dictionary.path, index.path)(Vocab())


def test_reduced_vectors_keep_their_distances():
    random = np.random.default_rng(0)
    flat = random.normal(size=(50, 3)) @ random.normal(size=(3, 12)) + 5.0
    reduced = reduce_width(flat, 4)
    assert reduced.shape == (50, 4)
    distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (flat, reduced)]
    np.testing.assert_allclose(*distances, atol=1e-4)
    assert reduce_width(flat, 20)[:, 12:].any() == np.False_


def test_given_mentions_are_linked_even_if_they_overlap(own_path):
    nlp = spacy.load(own_path)
    linker = find_linker(nlp, "pipeline")
    assert isinstance(linker, KBLinker)
    # nobody is called "in"
    doc = nlp("mercury in paris, texas")
    links = linker.link_spans([doc], [[doc[2:3], doc[2:5], doc[0:1], doc[1:2]]])[0]
    assert [(x.start, x.end) for x in links] == [(2, 3), (2, 5), (0, 1)]
    assert {a.id for a in links[2].alternatives} == {"E3", "E4"}
    assert all(link.entity_id == link.alternatives[0].id for link in links)
    assert links[1].entity_id == "E2"
    with pytest.raises(ELQError, match="E180"):
        linker.link_spans(doc, [doc[2:3]])


def test_evaluate_and_bench_take_the_pipeline(own_path, gold_docs, tmp_path):
    DocBin(docs=gold_docs).to_disk(tmp_path / "gold.spacy")
    evaluate(str(own_path), tmp_path / "gold.spacy", tmp_path / "metrics.json")
    metrics = json.loads((tmp_path / "metrics.json").read_text(encoding="utf8"))
    assert metrics["entities"] == 10
    assert metrics["threshold"] is None
    assert metrics["mentions"]["f"] > metrics["weak"]["f"] > 0.3
    # of the typos, neither is a name
    assert 0.8 < metrics["candidates_recall"] < 1.0
    # what was found and has no candidate is no link
    assert not any(error["found"] == "NIL" for error in metrics["errors"]["extra"])
    figures = bench(str(own_path), tmp_path / "gold.spacy", [1], repeats=1)
    # the sentences; `ner` is compiled
    assert figures["runs"][0]["seconds"]["encoder"] > 0

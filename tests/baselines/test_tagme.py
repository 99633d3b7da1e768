import json
import shutil

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import load_config
from tagme_world import ET, PS, PV, VS, build

from spacy_elq.baselines.tagme import component as module
from spacy_elq.baselines.tagme.component import ELQTagme, choose, coherence, collect_votes, is_whole
from spacy_elq.errors import ELQError
from spacy_elq.pipeline.settings import update_settings

TEXT = "is mercury closer to the Sun than venus?"


def links_of(doc):
    return [(ent.text, ent.kb_id_) for ent in doc.ents]


def scores_of(doc):
    return {ent.text: ent._.elq_score for ent in doc.ents}


# ---------------------------------------------------------------------- by hand, see tagme_world


def test_one_spot_goes_by_commonness_and_has_no_coherence(make_tagme):
    doc = make_tagme()("what is mercury")
    assert links_of(doc) == [("mercury", "P")]
    # (link probability 0.5 + coherence 0) / 2
    assert scores_of(doc) == {"mercury": 0.25}


def test_votes_overrule_commonness(make_tagme):
    doc = make_tagme()("is mercury in a thermometer")
    # P is more common than E (0.6 to 0.4), but the thermometer votes for E
    assert links_of(doc) == [("mercury", "E"), ("thermometer", "T")]
    # (0.5 + 2/3) / 2 and (0.25 + 2/3) / 2
    assert scores_of(doc) == pytest.approx({"mercury": (0.5 + ET) / 2, "thermometer": (0.25 + ET) / 2})


def test_coherence_is_the_mean_over_the_other_entities(make_tagme):
    scores = scores_of(make_tagme()(TEXT))
    assert scores["mercury"] == pytest.approx((0.5 + (PS + PV) / 2) / 2)
    assert scores["Sun"] == pytest.approx((0.5 + (PS + VS) / 2) / 2)
    assert scores["venus"] == pytest.approx((0.5 + (PV + VS) / 2) / 2)


def test_an_entity_that_is_named_twice_counts_once(make_tagme):
    scores = [ent._.elq_score for ent in make_tagme()("venus venus mercury").ents]
    assert scores == pytest.approx([(0.5 + PV) / 2] * 3)


def test_votes(dictionary):
    # mercury: P 0.6, E 0.4; venus: V 1.0; sun: S 1.0
    votes = collect_votes(
        np.asarray([0, 0, 0]),
        np.asarray([2, 1, 1]),
        np.asarray([0, 1, 2, 3]),
        np.asarray([0.6, 0.4, 1.0, 1.0]),
        relatedness=dictionary.relatedness,
    )
    # V and S for P, none for E; the mean of P's and E's for V, and S; the same for S
    expected = [PV + PS, 0.0, PV * 0.6 / 2 + VS, PS * 0.6 / 2 + VS]
    np.testing.assert_allclose(votes, expected)


def test_about_the_most_votes_is_enough_for_the_most_common():
    votes, sizes = np.asarray([0.70, 0.9, 1.0, 0.0, 0.0]), np.asarray([3, 2])
    assert choose(votes, sizes, margin=0.3).tolist() == [0, 3]
    assert choose(votes, sizes, margin=0.2).tolist() == [1, 3]
    assert choose(votes, sizes, margin=0.0).tolist() == [2, 3]


def test_the_margin_is_a_setting(make_tagme):
    # E has all the votes, P none: only a margin of 1 takes that for about the same
    assert links_of(make_tagme(vote_margin=0.99)("mercury thermometer"))[0] == ("mercury", "E")
    assert links_of(make_tagme(vote_margin=1.0)("mercury thermometer"))[0] == ("mercury", "P")


def test_a_spot_within_a_longer_one_that_is_more_of_a_link_is_dropped(make_tagme):
    # venus flytrap has link probability 1, venus 0.5; it would vote for mercury, the planet
    doc = make_tagme(threshold=0.01)("mercury in a thermometer in a venus flytrap")
    assert links_of(doc) == [("mercury", "E"), ("thermometer", "T"), ("venus flytrap", "F")]


def test_a_spot_within_a_longer_one_that_is_less_of_a_link_stays(make_tagme):
    # sun records has 0.25, sun 0.5: of the two the better one becomes the entity
    assert links_of(make_tagme(threshold=0.01)("sun records")) == [("sun", "S")]


# ---------------------------------------------------------------------- settings


def test_threshold(make_tagme):
    # 0.25 and, without anything related, (0.25 + 0) / 2
    assert len(make_tagme(threshold=0.25)("mercury").ents) == 1
    assert len(make_tagme(threshold=0.26)("mercury").ents) == 0


def test_the_best_link_of_a_text_can_have_a_lower_threshold(make_tagme):
    text = "quicksilver or sun records or thermometer"
    assert links_of(make_tagme(threshold=0.9)(text)) == []
    assert links_of(make_tagme(threshold=0.9, first_threshold=0.1)(text)) == [("quicksilver", "E")]


def test_spots_that_are_hardly_ever_links_are_not_even_heard(make_tagme):
    text = "is mercury in a thermometer"
    assert links_of(make_tagme(min_link_probability=0.25)(text))[0] == ("mercury", "E")
    assert links_of(make_tagme(min_link_probability=0.26)(text)) == [("mercury", "P")]


def test_rare_senses_are_not_even_candidates(make_tagme):
    assert links_of(make_tagme(min_commonness=0.5)("mercury thermometer"))[0] == ("mercury", "P")
    assert links_of(make_tagme(candidates=1)("mercury thermometer"))[0] == ("mercury", "P")


def test_longest_mention_is_in_words(make_tagme):
    assert links_of(make_tagme(max_length=1)("venus flytrap")) == [("venus", "V")]


def test_label_is_the_entitys_or_the_setting(make_tagme):
    assert [ent.label_ for ent in make_tagme(label="X")("mercury venus").ents] == ["X", "LOC"]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("overwrite", [("is", ""), ("venus", "V")]),
        ("keep", [("is", ""), ("venus big", "")]),
        ("replace", [("venus", "V")]),
    ],
)
def test_entities_of_earlier_components(make_tagme, how, expected):
    nlp = make_tagme(existing_ents=how)
    doc = nlp.make_doc("is venus big")
    doc.ents = [Span(doc, 0, 1, "OTHER"), Span(doc, 1, 3, "OTHER")]
    assert links_of(nlp.get_pipe("elq_tagme")(doc)) == expected


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("threshold", 1.1),
        ("first_threshold", -0.3),
        ("max_length", 0),
        ("min_link_probability", 1.1),
        ("min_commonness", -0.1),
        ("vote_margin", 2.0),
        ("candidates", 0),
        ("existing_ents", "x"),
    ],
)
def test_settings_are_checked(make_tagme, setting, value):
    with pytest.raises(ELQError, match=f"E002.*`{setting}` of '(elq_tagme|decoder)'"):
        make_tagme(**{"threshold": 0.2, setting: value})


# ---------------------------------------------------------------------- in a pipeline


def test_score_and_alternatives_are_plain_and_where_those_of_elq_linker_are(make_tagme):
    ent = make_tagme()("mercury thermometer").ents[0]
    assert ent._.elq_title == "Mercury (element)"
    assert ent._.elq_alternatives == [
        {"id": "E", "title": "Mercury (element)", "label": "ENTITY", "score": 0.4},
        {"id": "P", "title": "Mercury (planet)", "label": "ENTITY", "score": 0.6},
    ]
    assert json.dumps(ent._.elq_score)
    copy = Doc(ent.doc.vocab).from_bytes(ent.doc.to_bytes())
    assert copy.ents[0]._.elq_alternatives == ent._.elq_alternatives


@pytest.mark.parametrize("n_process", [1, 2])
def test_a_stream_gives_what_single_texts_give(make_tagme, n_process):
    nlp = make_tagme()
    texts = [TEXT, "", "thermometer of mercury", "nothing", "venus flytrap", "mercury"] * 3
    docs = list(nlp.pipe(texts, batch_size=4, n_process=n_process))
    assert [doc.text for doc in docs] == texts
    expected = [nlp(text) for text in texts]
    assert [links_of(doc) for doc in docs] == [links_of(doc) for doc in expected]
    assert [scores_of(doc) for doc in docs] == [pytest.approx(scores_of(doc)) for doc in expected]
    assert sum(len(doc.ents) for doc in docs) == 3 * 7


def test_nothing_to_link(make_tagme):
    linker = make_tagme().get_pipe("elq_tagme")
    assert linker.predict([]) == []
    assert linker.link_spans([], []) == []


def test_given_spans_of_another_shape(make_tagme):
    nlp = make_tagme()
    doc = nlp("the mercury")
    with pytest.raises(ELQError, match="E180"):
        nlp.get_pipe("elq_tagme").link_spans(doc, [doc[1:2]])


def test_errors_go_to_the_error_handler(make_tagme, monkeypatch):
    nlp = make_tagme()
    monkeypatch.setattr(ELQTagme, "predict", lambda self, docs: 1 / 0)
    failed = []
    nlp.set_error_handler(lambda name, proc, docs, err: failed.append((name, len(docs))))
    assert list(nlp.pipe(["a", "b"])) == []
    assert failed == [("elq_tagme", 2)]


def test_far_away_spots_have_no_say(make_tagme, monkeypatch):
    text = "mercury sun thermometer"
    assert links_of(make_tagme()(text))[0] == ("mercury", "P")
    monkeypatch.setattr(module, "_WINDOW", 1)
    near = make_tagme()("mercury thermometer sun")
    assert links_of(near)[0] == ("mercury", "E")
    # the thermometer is not related to the sun, and has no say about mercury
    assert scores_of(make_tagme(threshold=0.1)(text))["thermometer"] == 0.125


def test_scores(make_tagme):
    nlp = make_tagme()
    gold = nlp.make_doc("is mercury in a venus flytrap")
    gold.ents = [Span(gold, 1, 2, "X", kb_id="E"), Span(gold, 4, 6, "X", kb_id="F")]
    scores = nlp.evaluate([Example(nlp.make_doc(gold.text), gold)])
    # the planet is found, and the flytrap; given the mentions, nothing votes for the element
    assert (scores["elq_weak_f"], scores["elq_mentions_f"], scores["elq_links_f"]) == (0.5, 1.0, 0.5)
    assert ELQTagme(scorer=None).score([]) == {}


def test_given_mentions_are_linked_by_commonness_and_votes(make_tagme):
    nlp = make_tagme()
    docs = [nlp.make_doc(text) for text in ("mercury thermometer", "the mercury", "jupiter")]
    # a mention that the spotter would not take, none, and one that is no name
    spans = [[docs[0][1:2], docs[0][0:1]], [docs[1][0:2]], [docs[2][0:1]]]
    links = nlp.get_pipe("elq_tagme").link_spans(docs, spans)
    found = [[(link.start, link.end, link.entity_id, link.score) for link in own] for own in links]
    assert found == [[(1, 2, "T", 1.0), (0, 1, "E", 0.4)], [(0, 2, "P", 0.6)], []]
    assert [a.id for a in links[0][1].alternatives] == ["E", "P"]


def test_gold_mentions_vote_for_each_other(make_tagme):
    nlp = make_tagme()
    gold = nlp.make_doc("mercury in a thermometer in jupiter")
    gold.ents = [Span(gold, i, i + 1, "X", kb_id=id_) for i, id_ in ((0, "E"), (3, "T"), (5, "J"))]
    links = nlp.get_pipe("elq_tagme").link_gold([Example(nlp.make_doc(gold.text), gold)])
    assert links == [[(0, 7, "E"), (13, 24, "T")]]


# ---------------------------------------------------------------------- on disk


def test_without_a_dictionary_it_says_so():
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_tagme")
    with pytest.raises(ELQError, match=r"E070.*'elq_tagme' has no dictionary.*spacy elq dictionary"):
        nlp("text")


def test_a_dictionary_that_is_not_there(make_tagme, tmp_path):
    with pytest.raises(ELQError, match=r"E071.*nowhere"):
        make_tagme(dictionary=str(tmp_path / "nowhere"))("text")


@pytest.fixture
def project(world, tmp_path):
    """A folder with a dictionary and a pipeline that points to it."""
    build(world, tmp_path / "project" / "dictionary")
    nlp = spacy.blank("en")
    path = str(tmp_path / "project" / "dictionary")
    nlp.add_pipe("elq_tagme", config={"dictionary": path, "decoder": {"threshold": 0.1}})
    nlp.to_disk(tmp_path / "project" / "pipeline")
    return tmp_path / "project"


def test_saved_and_loaded_it_links_the_same(project, make_tagme):
    nlp = spacy.load(project / "pipeline")
    assert nlp.get_pipe("elq_tagme").threshold == 0.1
    assert scores_of(nlp(TEXT)) == scores_of(make_tagme()(TEXT))


def test_settings_that_were_changed_are_saved(project):
    nlp = spacy.load(project / "pipeline")
    update_settings(nlp, "elq_tagme", {"decoder.threshold": 0.99})
    nlp.to_disk(project / "other")
    assert links_of(spacy.load(project / "other")(TEXT)) == []


def test_pipeline_and_dictionary_can_be_moved_together(project, tmp_path):
    project.rename(tmp_path / "elsewhere")
    assert len(spacy.load(tmp_path / "elsewhere" / "pipeline")(TEXT).ents) == 3


def test_the_pipeline_can_be_moved_alone(project, tmp_path):
    (project / "pipeline").rename(tmp_path / "pipeline")
    assert len(spacy.load(tmp_path / "pipeline")(TEXT).ents) == 3


def test_a_dictionary_that_is_gone(project):
    shutil.rmtree(project / "dictionary")
    with pytest.raises(ELQError, match=r"E074.*dictionary.*components\.elq_tagme\.dictionary"):
        spacy.load(project / "pipeline")


def test_another_dictionary_in_its_place_is_refused_unless_it_is_named(project, world, tmp_path):
    lines = (world / "entities.jsonl").read_text(encoding="utf8").splitlines(keepends=True)
    (tmp_path / "entities.jsonl").write_text("".join(lines[:-1]), encoding="utf8")
    (tmp_path / "anchors.tsv").write_text((world / "anchors.tsv").read_text(encoding="utf8"), encoding="utf8")
    build(tmp_path, project / "dictionary", sentences=[])
    with pytest.raises(ELQError, match=r"E076.*'count': 6.*'count': 7"):
        spacy.load(project / "pipeline")
    (project / "dictionary").rename(project / "new")
    config = {"components.elq_tagme.dictionary": str(project / "new")}
    nlp = spacy.load(project / "pipeline", config=config)
    # without sentences every name is a link
    assert scores_of(nlp("mercury")) == {"mercury": 0.5}
    nlp.to_disk(project / "pipeline")
    project.rename(tmp_path / "elsewhere")
    assert scores_of(spacy.load(tmp_path / "elsewhere" / "pipeline")("mercury")) == {"mercury": 0.5}


def test_a_dictionary_that_is_set_later_is_opened_when_the_pipeline_is_loaded(project, dictionary):
    nlp = spacy.load(project / "pipeline")
    assert nlp(TEXT).ents
    update_settings(nlp, "elq_tagme", {"dictionary": str(dictionary.path)})
    nlp.to_disk(project / "pipeline")
    assert spacy.load(project / "pipeline").get_pipe("elq_tagme").index.path == dictionary.path


def test_a_dictionary_that_is_named_must_be_there(project):
    config = {"components.elq_tagme.dictionary": str(project / "nowhere")}
    with pytest.raises(ELQError, match=r"E071.*nowhere"):
        spacy.load(project / "pipeline", config=config)("text")


def test_a_pipeline_without_dictionary_can_be_saved(tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_tagme")
    nlp.to_disk(tmp_path / "pipeline")
    with pytest.raises(ELQError, match="E070"):
        spacy.load(tmp_path / "pipeline")("text")


def test_config_has_all_settings(project):
    config = load_config(project / "pipeline" / "config.cfg")["components"]["elq_tagme"]
    assert config["scorer"] == {"@scorers": "spacy-elq.linker_scorer.v1", "spans_key": "sc"}
    assert set(config) == {*ELQTagme().settings, "factory", "scorer"}


def test_bytes(project, make_tagme):
    nlp = spacy.load(project / "pipeline")
    other = spacy.blank("en")
    config = {"dictionary": str(project / "dictionary"), "decoder": {"threshold": 0.1}}
    other.add_pipe("elq_tagme", config=config)
    other.from_bytes(nlp.to_bytes())
    assert scores_of(other(TEXT)) == scores_of(make_tagme()(TEXT))
    shutil.rmtree(project / "dictionary")
    with pytest.raises(ELQError, match="E074"):
        other.from_bytes(nlp.to_bytes())
    other.from_bytes(nlp.to_bytes(exclude=["elq_tagme"]))


# ---------------------------------------------------------------------- arithmetic against plain loops


@st.composite
def spots(draw):
    """Docs, candidates and a symmetric relatedness of five entities."""
    docs = sorted(draw(st.lists(st.integers(0, 2), max_size=6)))
    sizes = draw(st.lists(st.integers(1, 3), min_size=len(docs), max_size=len(docs)))
    shares = st.floats(0.0, 1.0)
    candidates = [draw(st.lists(st.tuples(st.integers(0, 4), shares), min_size=n, max_size=n)) for n in sizes]
    matrix = np.asarray(draw(st.lists(shares, min_size=25, max_size=25))).reshape(5, 5)
    return docs, candidates, (matrix + matrix.T) / 2


@given(spots())
def test_votes_are_what_a_plain_loop_counts(given):
    docs, candidates, related = given
    expected = [
        sum(
            sum(related[entity, e] * share for e, share in candidates[j]) / len(candidates[j])
            for j in range(len(docs))
            if j != i and docs[j] == docs[i]
        )
        for i in range(len(docs))
        for entity, _ in candidates[i]
    ]
    flat = np.asarray([c for own in candidates for c in own]).reshape(-1, 2)
    votes = collect_votes(
        np.asarray(docs, dtype="int64"),
        np.asarray([len(own) for own in candidates], dtype="int64"),
        flat[:, 0].astype("int64"),
        flat[:, 1],
        relatedness=lambda a, b: related[a, b],
    )
    np.testing.assert_allclose(votes, expected, atol=1e-12)


@given(spots())
def test_coherence_is_what_a_plain_loop_gives(given):
    docs, candidates, related = given
    entities = [own[0][0] for own in candidates]
    expected = []
    for doc, entity in zip(docs, entities, strict=True):
        others = {e for d, e in zip(docs, entities, strict=True) if d == doc} - {entity}
        expected.append(np.mean([related[entity, e] for e in others]) if others else 0.0)
    arrays = (np.asarray(values, dtype="int64") for values in (docs, entities))
    np.testing.assert_allclose(coherence(*arrays, lambda a, b: related[a, b]), expected, atol=1e-12)


ranges_of_tokens = st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda x: (x[0], x[0] + x[1]))


@given(st.dictionaries(ranges_of_tokens, st.sampled_from([0.1, 0.5, 0.9]), max_size=12))
def test_parts_are_what_a_plain_loop_finds(probabilities):
    spans = sorted(probabilities)
    expected = [
        not any(
            b != a and b[0] <= a[0] and a[1] <= b[1] and probabilities[b] >= probabilities[a] for b in spans
        )
        for a in spans
    ]
    array = np.asarray(spans, dtype="int64").reshape(-1, 2)
    assert is_whole(array, np.asarray([probabilities[span] for span in spans])).tolist() == expected

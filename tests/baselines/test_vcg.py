import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import spacy
import srsly
from conftest import change, links_of, train
from spacy.tokens import Span
from spacy.training import Example
from spacy.util import load_config
from vcg_world import WIDTH, build_world, write_relations

from spacy_elq.baselines.vcg.component import ELQVcg, match_gold
from spacy_elq.baselines.vcg.mentions import Ngrams
from spacy_elq.errors import ELQError
from spacy_elq.pipeline.gold import Gold
from spacy_elq.pipeline.settings import update_settings

# no entity has such a name, nor one with these words
UNFINDABLE = {"trains to nyc", "weather in pariss", "gorgia peach farms"}
QUESTION = "is paris older than new york city"


def examples_of(nlp, docs):
    return [Example(nlp.make_doc(doc.text), doc) for doc in docs]


@pytest.fixture(scope="module")
def vcg(vcg_path):
    """The trained pipeline. Do not change it: load a copy."""
    return spacy.load(vcg_path)


@pytest.fixture
def loaded(vcg_path):
    return spacy.load(vcg_path)


# ---------------------------------------------------------------------- links


def test_overfits_questions_to_exact_links(vcg, gold_docs):
    for doc in gold_docs:
        assert links_of(vcg(doc.text)) == ([] if doc.text in UNFINDABLE else links_of(doc))


def test_batches_and_processes_give_the_same(vcg, gold_docs):
    texts = [doc.text for doc in gold_docs] + [""]
    alone = [links_of(vcg(text)) for text in texts]
    assert [links_of(doc) for doc in vcg.pipe(texts, batch_size=4)] == alone
    assert [links_of(doc) for doc in vcg.pipe(texts, batch_size=4, n_process=2)] == alone


def test_score_and_alternatives(vcg):
    ents = vcg("where do jaguar cats sleep").ents
    assert [(ent.kb_id_, ent._.elq_title, ent.label_) for ent in ents] == [("E9", "Jaguar", "ENTITY")]
    assert 0.5 <= ents[0]._.elq_score <= 1.0
    (first, second) = ents[0]._.elq_alternatives
    assert (first["id"], second["id"]) == ("E9", "E10")
    assert first["score"] + second["score"] == pytest.approx(1.0)
    assert first["score"] > second["score"]
    assert json.dumps(ents[0]._.elq_alternatives)


def test_labels_are_those_of_the_catalogue(vcg):
    assert [ent.label_ for ent in vcg(QUESTION).ents] == ["GPE", "ENTITY"]


def test_threshold(loaded):
    scores = sorted(ent._.elq_score for ent in loaded(QUESTION).ents)
    assert len(scores) == 2
    change(loaded.get_pipe("elq_vcg"), threshold=1.0)
    assert len(loaded(QUESTION).ents) < 2


def test_given_mentions(vcg):
    docs = [vcg.make_doc("the jaguar and georgia"), vcg.make_doc("berlin"), vcg.make_doc("")]
    spans = [[docs[0][3:4], docs[0][0:2]], [docs[1][0:1]], []]
    links = vcg.get_pipe("elq_vcg").link_spans(docs, spans)
    assert [[(link.start, link.end) for link in own] for own in links] == [[(3, 4), (0, 2)], [], []]
    for link in links[0]:
        assert link.score == link.alternatives[0].score
        assert sum(x.score for x in link.alternatives) == pytest.approx(1.0)
    assert {x.id for x in links[0][1].alternatives} == {"E9", "E10"}


def test_nothing_to_link(vcg):
    linker = vcg.get_pipe("elq_vcg")
    assert linker.predict([]) == []
    assert linker.predict([vcg.make_doc(""), vcg.make_doc("who")]) == [[], []]
    assert linker.link_spans([], []) == []
    doc = vcg.make_doc("berlin")
    assert linker.link_spans([doc], [[doc[0:1]]]) == [[]]


def test_given_spans_of_another_shape(vcg):
    doc = vcg.make_doc("paris")
    with pytest.raises(ELQError, match="E180"):
        vcg.get_pipe("elq_vcg").link_spans(doc, [doc[0:1]])


def test_entities_of_earlier_components(loaded):
    change(loaded.get_pipe("elq_vcg"), existing_ents="keep")
    doc = loaded.make_doc(QUESTION)
    doc.ents = [Span(doc, 1, 3, "OTHER")]
    linked = loaded.get_pipe("elq_vcg")(doc)
    assert [(ent.text, ent.kb_id_) for ent in linked.ents] == [("paris older", ""), ("new york city", "E5")]


def test_scores(vcg, gold_docs):
    scores = vcg.evaluate(examples_of(vcg, gold_docs[:4]))
    assert scores["elq_weak_f"] == scores["elq_links_f"] == 1.0
    assert ELQVcg(vcg.vocab, vcg.get_pipe("elq_vcg").model, scorer=None).score([]) == {}


# ---------------------------------------------------------------------- gold


def gold_of(*mentions, complete=True):
    spans = np.asarray([mention[:2] for mention in mentions], dtype="int64").reshape(-1, 2)
    positions = np.asarray([mention[2] for mention in mentions], dtype="int64")
    return Gold(spans, positions, 0, ["x"] * len(mentions), np.asarray([complete]))


NGRAMS = Ngrams(
    spans=np.asarray([(0, 1), (0, 2), (3, 4), (5, 6)]),
    docs=np.zeros(4, dtype="int64"),
    sizes=np.asarray([2, 3, 1, 1]),
    entities=np.asarray([7, 5, 5, 8, 5, 5, 9]),
)


def test_ngrams_that_overlap_with_gold_and_have_its_entity_are_right():
    targets, is_known, reached = match_gold(NGRAMS, gold_of((1, 3, 5), (5, 6, 4)), count=10)
    # the first does not overlap, the last has another entity; the first of two equal candidates is right
    assert targets.tolist() == [-1, 2, -1, -1]
    assert is_known.all()
    assert reached.tolist() == [True, False]


def test_unknown_entities_are_negatives():
    targets, _, reached = match_gold(NGRAMS, gold_of((0, 1, -1)), count=10)
    assert targets.tolist() == [-1] * 4
    assert reached.tolist() == [False]


def test_what_is_not_marked_may_be_a_mention():
    _, is_known, _ = match_gold(NGRAMS, gold_of((1, 2, 5), complete=False), count=10)
    assert is_known.tolist() == [False, True, False, False]


def test_no_gold():
    targets, is_known, reached = match_gold(NGRAMS, gold_of(), count=10)
    assert (targets.tolist(), is_known.all(), len(reached)) == ([-1] * 4, True, 0)


# ---------------------------------------------------------------------- training


def test_loss_falls_and_negatives_come_in_slowly(make_vcg, gold_docs):
    nlp = make_vcg(gold_docs)
    linker = nlp.get_pipe("elq_vcg")
    examples = examples_of(nlp, gold_docs)
    docs = [example.predicted for example in examples]
    ngrams = linker._find(docs, block=False)
    output = linker._score(docs, ngrams)
    before, (d_logits, d_scores) = linker.get_loss(examples, (ngrams, output))
    negatives = d_logits > 0
    assert d_logits.shape == output[0].shape
    assert d_scores.shape == output[1].shape
    assert 0 < negatives.sum() < len(negatives)
    linker._updates = linker.ramp
    after, (ramped, _) = linker.get_loss(examples, (ngrams, output))
    assert after > before
    np.testing.assert_allclose(ramped[negatives], d_logits[negatives] * (1 + np.exp(5)), rtol=1e-6)
    np.testing.assert_array_equal(ramped[~negatives], d_logits[~negatives])
    linker._updates = 0
    history = train(nlp, gold_docs, steps=12, learn_rate=0.003)
    assert history[-1] < history[0]
    assert linker._updates == 12


def test_a_trained_model_goes_on_with_all_negatives(loaded):
    linker = loaded.get_pipe("elq_vcg")
    assert linker._updates == linker.ramp


def test_texts_without_ngrams_teach_nothing(loaded):
    losses = loaded.get_pipe("elq_vcg").update([Example(loaded.make_doc("who"), loaded.make_doc("who"))])
    assert losses == {"elq_vcg": 0.0}


def test_update_without_an_optimizer_changes_nothing(make_vcg, gold_docs):
    nlp = make_vcg(gold_docs)
    before = nlp.get_pipe("elq_vcg").model.to_bytes()
    losses = nlp.get_pipe("elq_vcg").update(examples_of(nlp, gold_docs[:3]), drop=0.1)
    assert losses["elq_vcg"] > 0
    assert nlp.get_pipe("elq_vcg").model.to_bytes() == before


def test_gold_that_no_name_leads_to_is_told(make_vcg, gold_docs):
    with pytest.warns(UserWarning, match=r"W012.*Of 3 gold mentions, only 1"):
        make_vcg([doc for doc in gold_docs if doc.text in {*list(UNFINDABLE)[:2], gold_docs[0].text}])


def test_relations_can_be_given_when_training_begins(relations, gold_docs, tmp_path):
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("elq_vcg", config={"model": {"width": WIDTH}})
    linker.initialize(lambda: examples_of(nlp, gold_docs), nlp=nlp, relations=str(relations.path))
    assert linker.index.path == relations.path
    nlp.to_disk(tmp_path / "pipeline")
    assert spacy.load(tmp_path / "pipeline").get_pipe("elq_vcg").index.path == relations.path


def test_what_is_not_supported(vcg):
    linker = vcg.get_pipe("elq_vcg")
    with pytest.raises(ELQError, match="E008"):
        linker.add_label("X")
    with pytest.raises(ELQError, match="E007"):
        linker.rehearse([])


# ---------------------------------------------------------------------- on disk


def test_without_relations_it_says_so():
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_vcg")
    with pytest.raises(ELQError, match=r"E212.*'elq_vcg' has no relations.*spacy elq relations"):
        nlp("text")


def test_relations_of_another_width(relations):
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_vcg", config={"relations": str(relations.path)})
    with pytest.raises(ELQError, match=f"E219.*width {WIDTH}.*takes width 50"):
        nlp("text")


@pytest.fixture
def project(relations, vcg_path, tmp_path):
    """A folder with relations and a pipeline that points to them."""
    folder = tmp_path / "project"
    shutil.copytree(relations.path, folder / "relations")
    nlp = spacy.load(vcg_path, config={"components.elq_vcg.relations": str(folder / "relations")})
    nlp.to_disk(folder / "pipeline")
    return folder


def test_bytes(vcg, relations):
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_vcg", config={"relations": str(relations.path), "model": {"width": WIDTH}})
    nlp.from_bytes(vcg.to_bytes())
    assert links_of(nlp(QUESTION)) == links_of(vcg(QUESTION))


def test_pipeline_and_relations_can_be_moved_together(project, vcg, tmp_path):
    project.rename(tmp_path / "elsewhere")
    nlp = spacy.load(tmp_path / "elsewhere" / "pipeline")
    assert links_of(nlp(QUESTION)) == links_of(vcg(QUESTION))


def test_relations_that_are_gone(project):
    shutil.rmtree(project / "relations")
    with pytest.raises(ELQError, match=r"E217.*relations.*components\.elq_vcg\.relations"):
        spacy.load(project / "pipeline")


def test_other_relations_are_refused(project, index, tmp_path):
    build_world(write_relations(tmp_path), index.path, tmp_path / "other", links=None)
    config = {"components.elq_vcg.relations": str(tmp_path / "other")}
    with pytest.raises(ELQError, match=r"E218.*'triples': 4.*'triples': 7"):
        spacy.load(project / "pipeline", config=config)(QUESTION)
    # training begins anew
    nlp = spacy.load(project / "pipeline", config=config)
    nlp.initialize(lambda: [Example(nlp.make_doc("paris"), nlp.make_doc("paris"))])
    assert nlp.get_pipe("elq_vcg").index.stamp["triples"] == 4


def test_relations_that_are_set_later_are_opened_when_the_pipeline_is_loaded(project, relations):
    nlp = spacy.load(project / "pipeline")
    update_settings(nlp, "elq_vcg", {"relations": str(relations.path)})
    nlp.to_disk(project / "pipeline")
    nlp = spacy.load(project / "pipeline")
    assert nlp(QUESTION).ents
    assert nlp.get_pipe("elq_vcg").index.path == relations.path


def test_a_component_without_relations_can_be_saved(tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_vcg")
    nlp.to_disk(tmp_path / "pipeline")
    assert srsly.read_json(tmp_path / "pipeline" / "elq_vcg" / "relations.json") == {}
    assert spacy.load(tmp_path / "pipeline").pipe_names == ["elq_vcg"]


@pytest.mark.parametrize("text", ["[]x", '{"given": null}'])
def test_a_damaged_record(project, text):
    (project / "pipeline" / "elq_vcg" / "relations.json").write_text(text, encoding="utf8")
    with pytest.raises(ELQError, match=r"E144.*relations.json cannot be read"):
        spacy.load(project / "pipeline")


def test_a_damaged_model(project):
    (project / "pipeline" / "elq_vcg" / "model").write_bytes(b"no")
    with pytest.raises(ELQError, match=r"E144.*elq_vcg/model cannot be read"):
        spacy.load(project / "pipeline")


def test_settings_set_by_hand_are_not_saved(loaded, tmp_path):
    change(loaded.get_pipe("elq_vcg"), margin=0.1)
    with pytest.warns(UserWarning, match="W006.*margin"):
        loaded.to_disk(tmp_path / "pipeline")


def test_defaults_are_those_of_the_config():
    path = Path(__file__).parents[2] / "configs" / "elq_vcg.cfg"
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_vcg")
    own, default = load_config(path)["components"]["elq_vcg"], nlp.get_pipe_config("elq_vcg")
    for key in ("relations", "negative_weight", "ramp", "margin"):
        assert own[key] == default[key]
    assert own["decoder"].items() <= {**vars(nlp.get_pipe("elq_vcg").decoder), **default["decoder"]}.items()

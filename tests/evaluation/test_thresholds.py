import shutil

import numpy as np
import pytest
import spacy
from conftest import run_spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.cli import app
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.util import load_config
from spacy.vocab import Vocab
from typer.testing import CliRunner

from spacy_elq.core.calibration import calibration_error
from spacy_elq.errors import ELQError
from spacy_elq.evaluation import thresholds
from spacy_elq.evaluation.thresholds import (
    LOWEST,
    choose_thresholds,
    choose_two,
    judge_links,
    threshold_curve,
)
from spacy_elq.index import build_index
from spacy_elq.pipeline.scorer import count_links


def save(docs, path):
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


@pytest.fixture(scope="module")
def gold_path(gold_docs, tmp_path_factory):
    """The twenty questions with wrong gold in every fifth, so that no threshold is perfect."""
    docs = [Doc(doc.vocab).from_bytes(doc.to_bytes()) for doc in gold_docs]
    for doc in docs[::5]:
        wrong = [Span(doc, s.start, s.end, label="X", kb_id="E3") for s in doc.spans["gold_links"]]
        doc.spans["gold_links"] = wrong
    return save(docs, tmp_path_factory.mktemp("threshold") / "gold.spacy")


@pytest.fixture(scope="module")
def rerun(trained_path, gold_path):
    """Gives examples and their weak score after a real run of the pipeline at a threshold."""
    nlp = spacy.load(trained_path)
    gold = list(DocBin().from_disk(gold_path).get_docs(nlp.vocab))

    def run(value):
        nlp.get_pipe("elq_linker").threshold = value
        examples = [Example(nlp(doc.text), doc) for doc in gold]
        return examples, count_links(examples)["weak"]

    return run


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch):
    monkeypatch.setattr(thresholds, "ENOUGH", 1)


def test_help():
    result = CliRunner().invoke(app, ["elq", "threshold", "--help"])
    assert result.exit_code == 0
    assert "Calibrate a pipeline on development questions" in " ".join(result.output.split())


def test_command_prints_a_table_and_saves_to_output(trained_path, gold_path, tmp_path):
    before = (trained_path / "config.cfg").read_bytes()
    target = tmp_path / "new" / "chosen"
    done = run_spacy("elq", "threshold", trained_path, gold_path, "-o", target)
    assert done.returncode == 0, done.stderr
    chosen = spacy.load(target).get_pipe("elq_linker").threshold
    output = " ".join(done.stdout.split())
    assert "threshold P R F" in output
    assert f"Threshold {chosen:.4f} (was 0.2000): precision" in output
    assert f"saved to {target}" in output
    assert (trained_path / "config.cfg").read_bytes() == before
    assert [path.name for path in target.parent.iterdir()] == ["chosen"]


def test_chosen_threshold_has_the_best_weak_f1(trained_path, gold_path, rerun, tmp_path):
    result = choose_thresholds(str(trained_path), gold_path, output=tmp_path / "chosen", calibrate=False)
    assert (result["first_threshold"], result["slope"], result["bias"]) == (None, 1.0, 0.0)
    assert rerun(result["threshold"])[1].fscore == pytest.approx(result["f"])
    others = [rerun(value)[1].fscore for value in np.geomspace(LOWEST, 0.9999, 25)]
    assert result["f"] == pytest.approx(max(others))
    assert min(others) < result["f"] < 1.0


def test_curve_agrees_with_real_runs(rerun):
    examples, _ = rerun(LOWEST)
    curve = threshold_curve(examples)
    values = [row["threshold"] for row in curve]
    assert values == sorted(values)
    assert len(curve) > 20
    for row in curve:
        score = rerun(row["threshold"])[1]
        assert (row["p"], row["r"], row["f"]) == pytest.approx((score.precision, score.recall, score.fscore))


def test_curve_without_any_link(gold_docs):
    nothing = [Example(Doc(doc.vocab, words=[t.text for t in doc]), doc) for doc in gold_docs]
    assert threshold_curve(nothing) == []


def curve_of(gold, scores):
    """The curve of one doc with links of one entity: token ranges of gold, and of links with scores."""
    reference, found = (Doc(spacy.blank("en").vocab, words=list("abcd")) for _ in range(2))
    reference.spans["gold_links"] = [Span(reference, *place, label="X", kb_id="E1") for place in gold]
    found.ents = [Span(found, *place, label="X", kb_id="E1") for place in scores]
    for ent in found.ents:
        ent._.elq_score = scores[ent.start, ent.end]
    return threshold_curve([Example(found, reference)])


def test_links_with_the_same_score_come_and_go_together():
    rows = curve_of([(0, 1)], {(0, 1): 0.5, (1, 2): 0.5, (2, 3): 0.9})
    assert [row["p"] for row in rows] == pytest.approx([1 / 3, 0.0])
    assert 0.001 < rows[0]["threshold"] < 0.5 < rows[1]["threshold"] < 0.9


def test_curve_matches_the_best_links_first():
    """The best link overlaps with both gold links, the others with one each."""
    rows = curve_of([(0, 2), (2, 4)], {(1, 3): 0.9, (3, 4): 0.5, (0, 1): 0.3})
    assert [row["p"] for row in rows] == pytest.approx([2 / 3, 1.0, 1.0])


def test_the_best_link_gets_a_threshold_of_its_own(trained_path, gold_docs, tmp_path):
    """Gold without the second best link of a question, which one threshold cannot tell from best ones."""
    nlp = spacy.load(trained_path)
    docs = [Doc(doc.vocab).from_bytes(doc.to_bytes()) for doc in gold_docs]
    for doc in docs:
        best = sorted(nlp(doc.text).ents, key=lambda ent: -ent._.elq_score)[:1]
        doc.spans["gold_links"] = [s for s in doc.spans["gold_links"] if s.text in [x.text for x in best]]
    data = save(docs, tmp_path / "gold.spacy")
    one = choose_thresholds(str(trained_path), data, output=tmp_path / "one")
    command = ["elq", "threshold", str(trained_path), str(data), "-o", str(tmp_path / "two")]
    output = " ".join(CliRunner().invoke(app, [*command, "--first"]).output.split())
    tuned = spacy.load(tmp_path / "two")
    decoder = tuned.get_pipe("elq_linker").decoder
    assert f"{decoder.threshold:.4f}, {decoder.first_threshold:.4f} for the best link of a text" in output
    in_config = tuned.config["components"]["elq_linker"]["decoder"]["first_threshold"]
    assert in_config == pytest.approx(decoder.first_threshold)
    score = count_links([Example(tuned(doc.text), doc) for doc in docs])["weak"].fscore
    assert f"weak F1 {score:.4f}" in output
    assert score > one["f"]
    CliRunner().invoke(app, command)
    assert spacy.load(tmp_path / "two").get_pipe("elq_linker").first_threshold is None


def docs_of(docs):
    """Examples of docs, each a list of (score, is right) of links of one token."""
    examples, vocab = [], Vocab()
    for links in docs:
        reference, found = (Doc(vocab, words=[f"w{i}" for i in range(len(links) + 1)]) for _ in range(2))
        right = [i for i, (_, is_right) in enumerate(links) if is_right]
        reference.spans["gold_links"] = [Span(reference, i, i + 1, label="X", kb_id="E1") for i in right]
        found.ents = [Span(found, i, i + 1, label="X", kb_id="E1") for i in range(len(links))]
        for ent, (score, _) in zip(found.ents, links, strict=True):
            ent._.elq_score = score
        examples.append(Example(found, reference))
    return examples


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.4, 0.8]), st.booleans()), max_size=3), max_size=6
    )
)
def test_two_thresholds_are_found_as_by_trying_all(docs):
    docs = [*docs, [(0.8, True)]]
    best = 0.0
    for first in (0.05, 0.15, 0.3, 0.6, 0.9):
        for other in (0.05, 0.15, 0.3, 0.6, 0.9):
            kept = [
                is_right
                for links in docs
                for i, (score, is_right) in enumerate(sorted(links, key=lambda link: -link[0]))
                if score >= (other if i else first)
            ]
            n_gold = sum(is_right for links in docs for _, is_right in links)
            best = max(best, 2 * sum(kept) / (len(kept) + n_gold))
    row = choose_two(docs_of(docs))
    assert row["f"] == pytest.approx(best) or (row["f"] == 0.0 and row["first_threshold"] > row["threshold"])


def test_two_thresholds_only_where_they_are_better_than_one():
    """The best links are wrong below 0.5, the others right down to 0.1: that is no pair to offer."""
    docs = [[(0.8, True), (0.2, True)], [(0.4, False), (0.2, True)], [(0.4, False)]]
    assert choose_two(docs_of(docs))["f"] == 0.0
    missed = docs_of([[(0.3, False)]])
    missed[0].reference.spans["gold_links"] = [Span(missed[0].reference, 1, 2, label="X", kb_id="E1")]
    assert choose_two(missed)["f"] == 0.0


def test_rows_to_look_at_are_sorted_and_have_the_best(trained_path, gold_path, tmp_path):
    result = choose_thresholds(str(trained_path), gold_path, output=tmp_path / "chosen")
    values = [row["threshold"] for row in result["shown"]]
    assert values == sorted(values)
    assert result["threshold"] in values
    assert len(values) <= 9
    assert result["before"] == 0.2


def test_without_output_the_pipeline_itself_changes(trained_path, gold_path, tmp_path):
    path = shutil.copytree(trained_path, tmp_path / "elq")
    result = choose_thresholds(str(path), gold_path)
    assert result["output"] == str(path)
    assert result["threshold"] != 0.2
    assert spacy.load(path).get_pipe("elq_linker").threshold == pytest.approx(result["threshold"])
    assert [child.name for child in tmp_path.iterdir()] == ["elq"]


def test_config_of_the_saved_pipeline_has_the_threshold(trained_path, gold_path, tmp_path):
    result = choose_thresholds(str(trained_path), gold_path, output=tmp_path / "chosen")
    config = load_config(tmp_path / "chosen" / "config.cfg")
    assert config["components"]["elq_linker"]["decoder"]["threshold"] == pytest.approx(result["threshold"])


def test_another_index_takes_the_place_of_the_old_one(trained_path, gold_path, vectors_path, tmp_path):
    other = build_index(vectors_path, tmp_path / "other", factory="HNSW8")
    choose_thresholds(str(trained_path), gold_path, output=tmp_path / "new", index_path=other.path)
    nlp = spacy.load(tmp_path / "new")
    assert nlp.get_pipe("elq_linker").index.path == other.path
    assert [ent.kb_id_ for ent in nlp("how big is new york city").ents] == ["E5"]
    moved = spacy.load(trained_path, config={"components.elq_linker.index_path": str(vectors_path)})
    moved.to_disk(tmp_path / "moved")
    choose_thresholds(str(tmp_path / "moved"), gold_path, index_path=other.path)
    assert spacy.load(tmp_path / "moved").get_pipe("elq_linker").index.path == other.path


def test_without_any_link_there_is_no_threshold_to_choose(trained_path, tmp_path):
    # no mention can be found in blanks
    doc = spacy.blank("en")("   ")
    doc.spans["gold_links"] = [Span(doc, 0, 1, label="X", kb_id="E1")]
    data = save([doc], tmp_path / "gold.spacy")
    with pytest.raises(ELQError, match=r"E043.*spacy elq recall"):
        choose_thresholds(str(trained_path), data, output=tmp_path / "chosen")
    assert not (tmp_path / "chosen").exists()


def test_missing_data(trained_path, tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.spacy"):
        choose_thresholds(str(trained_path), tmp_path / "no.spacy", output=tmp_path / "chosen")
    assert not (tmp_path / "chosen").exists()


def test_data_without_gold(trained_path, tmp_path):
    data = save([spacy.blank("en")("is paris old")], tmp_path / "bare.spacy")
    with pytest.raises(ELQError, match=r"E041.*bare\.spacy"):
        choose_thresholds(str(trained_path), data, output=tmp_path / "chosen")


def test_pipeline_without_linker(gold_path, tmp_path):
    spacy.blank("en").to_disk(tmp_path / "other")
    result = CliRunner().invoke(app, ["elq", "threshold", str(tmp_path / "other"), str(gold_path)])
    assert result.exit_code == 1
    assert "E009" in result.output
    assert "components: none" in " ".join(result.output.split())


def run_chosen(path, gold_path):
    nlp = spacy.load(path)
    gold = DocBin().from_disk(gold_path).get_docs(nlp.vocab)
    return [Example(nlp(doc.text), doc) for doc in gold]


def test_calibration_changes_scores_but_not_links(trained_path, gold_path, tmp_path):
    raw = choose_thresholds(str(trained_path), gold_path, output=tmp_path / "raw", calibrate=False)
    fitted = choose_thresholds(str(trained_path), gold_path, output=tmp_path / "fitted")
    assert fitted["slope"] != 1.0
    assert fitted["f"] == raw["f"]
    pairs = [run_chosen(tmp_path / name, gold_path) for name in ("raw", "fitted")]
    links = [[[(e.text, e.kb_id_) for e in x.predicted.ents] for x in examples] for examples in pairs]
    assert links[0] == links[1]
    errors = []
    for examples in pairs:
        scores, right = zip(*(link for example in examples for link in judge_links(example)), strict=True)
        errors.append(calibration_error(np.asarray(scores), np.asarray(right)))
    assert errors[1] < errors[0]


def test_questions_about_the_same_entities_count_as_one(trained_path, gold_path):
    found = run_chosen(trained_path, gold_path)
    examples = list({str(sorted(e.kb_id_ for e in x.reference.ents)): x for x in found}.values())
    named = next(x for x in examples if len(x.reference.ents) and judge_links(x))
    assert thresholds._fit([*examples, named, named]) == pytest.approx(thresholds._fit(examples))
    # one that names nothing has no other like it, even with the same text
    reference = named.reference.copy()
    reference.spans["gold_links"], reference.ents = [], []
    nothing = Example(named.predicted, reference)
    once, twice = ([*examples, *[nothing] * count] for count in (1, 2))
    assert thresholds._fit(once) != pytest.approx(thresholds._fit(twice))


def test_a_precision_is_reached_with_the_most_recall(trained_path, gold_path, tmp_path):
    result = choose_thresholds(str(trained_path), gold_path, output=tmp_path / "chosen", target_precision=0.9)
    rows = threshold_curve(run_chosen(tmp_path / "chosen", gold_path))
    score = count_links(run_chosen(tmp_path / "chosen", gold_path))["weak"]
    assert score.precision == pytest.approx(result["p"])
    assert score.precision >= 0.9
    assert score.recall == pytest.approx(result["r"])
    assert all(row["r"] <= result["r"] for row in rows if row["p"] >= 0.9)
    best = choose_thresholds(str(trained_path), gold_path, output=tmp_path / "best")
    assert best["p"] < 0.9


def test_a_precision_out_of_reach_is_said(trained_path, gold_path, tmp_path):
    docs = list(DocBin().from_disk(gold_path).get_docs(Vocab()))
    for doc in docs:
        doc.spans["gold_links"] = [Span(doc, 0, 1, label="X", kb_id="E3")]
    data = save(docs, tmp_path / "wrong.spacy")
    done = run_spacy("elq", "threshold", trained_path, data, "-o", tmp_path / "x", "-P", "0.99")
    assert "No threshold reaches a precision of 0.99" in " ".join(done.stdout.split())


def test_with_too_few_questions_all_stays_as_it_is(trained_path, gold_path, tmp_path, monkeypatch):
    monkeypatch.setattr(thresholds, "ENOUGH", 50)
    before = spacy.load(trained_path).get_pipe("elq_linker").settings
    with pytest.warns(UserWarning, match=r"W011.*22 gold links.*50 are needed"):
        done = run_spacy("elq", "threshold", trained_path, gold_path, "-o", tmp_path / "same")
    assert "Threshold 0.2000 as before" in " ".join(done.stdout.split())
    assert spacy.load(tmp_path / "same").get_pipe("elq_linker").settings == before


def test_scores_of_tagme_are_not_calibrated(make_tagme, gold_path, tmp_path):
    make_tagme().to_disk(tmp_path / "tagme")
    result = choose_thresholds(str(tmp_path / "tagme"), gold_path)
    assert (result["slope"], result["bias"]) == (1.0, 0.0)

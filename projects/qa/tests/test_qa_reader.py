"""The reader: its loss, its spans, training that is interrupted, readings that are kept."""

import itertools
import json
import math
import shutil

import numpy as np
import pytest
import torch
from elq_qa import training
from elq_qa.answers import find_spans, has_answer, tokenize
from elq_qa.reader import Reader, Reading, best_span, joint_loss, mark_gold
from elq_qa.reading import Readings, exact_matches, find_answers, make_stamp, read_all
from elq_qa.report import write_exact, write_losses
from elq_qa.retrieve import Setting
from elq_qa.runs import Run, System, read_runs, retrieve_all
from elq_qa.training import Group, read_squad, supervise, train
from elq_qa.types import QAError
from hypothesis import given, settings
from hypothesis import strategies as st
from qa_world import QUESTIONS, make_world

TEXTS = {
    "where is rome": ("Rome\nRome is the capital of Italy.", "Italy"),
    "what color is the sky": ("Sky\nThe sky is blue.", "blue"),
    "who built it": ("House\nJohn Smith built the house.", "John Smith"),
}


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=30)
def test_the_best_span_is_that_of_a_plain_loop(pieces, longest, seed):
    scores = torch.randn(pieces, 2, generator=torch.Generator().manual_seed(seed))
    spans = [(i, j) for i, j in itertools.product(range(pieces), repeat=2) if 0 <= j - i < longest]
    i, j = max(spans, key=lambda span: float(scores[span[0], 0] + scores[span[1], 1]))
    start, end, score = best_span(scores, longest=longest)
    assert (start, end) == (i, j)
    assert score == pytest.approx(float(scores[i, 0] + scores[j, 1]))


def test_all_passages_of_a_question_compete_with_no_answer():
    scores = torch.tensor(
        [[[1.0, 0.5], [-torch.inf, -torch.inf]], [[0.3, 0.2], [2.0, -1.0]], [[3.0, 1.0], [0.0, 0.0]]]
    )
    gold = torch.zeros(3, 2, 2, dtype=torch.bool)
    gold[1, 1, 0] = gold[0, 0, 1] = gold[1, 0, 1] = True
    found = float(joint_loss(scores, gold, torch.tensor([0, 0, 1])))
    starts, ends = (
        (math.exp(1.0), math.exp(0.3), math.exp(2.0), 1),
        (math.exp(0.5), math.exp(0.2), math.exp(-1), 1),
    )
    first = -math.log(starts[2] / sum(starts)) - math.log((ends[0] + ends[1]) / sum(ends))
    # the second question has no answer in its passage
    second = math.log(math.exp(3) + 2) + math.log(math.exp(1) + 2)
    assert found == pytest.approx((first + second) / 2, rel=1e-6)


def test_the_gradient_of_the_loss_is_that_of_finite_differences():
    scores = torch.randn(3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores[1, 2:] = -torch.inf
    gold = torch.zeros(3, 4, 2, dtype=torch.bool)
    # one gold piece is outside of its passage, where it does not count
    gold[0, 1] = gold[1, 0] = gold[1, 3] = True
    groups, step = torch.tensor([0, 0, 1]), 1e-6
    scores.requires_grad_()
    joint_loss(scores, gold, groups).backward()
    for place in itertools.product(range(3), range(4), range(2)):
        if not torch.isfinite(scores[place]):
            assert scores.grad[place] == 0
            continue
        moved = [scores.detach().clone() for _ in range(2)]
        moved[0][place] += step
        moved[1][place] -= step
        high, low = (float(joint_loss(x, gold, groups)) for x in moved)
        assert float(scores.grad[place]) == pytest.approx((high - low) / (2 * step), abs=1e-6)


@given(st.text(alphabet="ab é'.", max_size=30), st.text(alphabet="ab é'.", max_size=4))
def test_an_answer_has_spans_where_it_is(text, answer):
    spans = list(find_spans(text, [answer]))
    assert bool(spans) == has_answer(tokenize(text), [tokenize(answer)])
    assert {tokenize(text[start:end]) for start, end in spans} <= {tokenize(answer)}


def make_groups():
    return [
        Group(question, (text, "Other\nNothing is here."), (tuple(find_spans(text, [answer])), ()))
        for question, (text, answer) in TEXTS.items()
    ] + [Group("who knows", ("Sun\nThe Sun is hot.",), ((),))]


@pytest.fixture(scope="module")
def trained(encoder_path, tmp_path_factory):
    """A reader that knows four questions by heart."""
    folder = tmp_path_factory.mktemp("reader")
    losses = train(
        Reader(str(encoder_path)), make_groups(), folder, steps=80, batch_size=4, rate=1e-3, frozen=0
    )
    assert losses[-1] < 0.3 < losses[0]
    return folder


def test_a_reader_learns_answers_and_that_there_is_none(trained):
    reader = Reader(str(trained))
    pairs = [(question, text) for question, (text, _) in TEXTS.items()]
    found = reader.read([*pairs, ("who knows", "Sun\nThe Sun is hot.")], batch_size=3)
    for (_, text), (_, answer), reading in zip(pairs, TEXTS.values(), found, strict=False):
        assert text[reading.start : reading.end] == answer
        assert reading.score > 0
    assert found[3].score < 0


def test_questions_and_passages_of_any_length_are_read(trained):
    pairs = [("where " * 200, "Rome"), ("where", "Rome " * 200), ("where", "")]
    *found, nothing = Reader(str(trained)).read(pairs)
    assert all(reading.end > 0 for reading in found)
    assert nothing == Reading(0, 0, -1e9)


def test_gold_that_is_cut_off_is_not_there(trained, monkeypatch):
    monkeypatch.setattr("elq_qa.reader.MAX_LENGTH", 12)
    _, encoded = Reader(str(trained))(["where"], ["Rome is the capital of a country that is far away"])
    gold = mark_gold(encoded, [[(0, 4), (41, 49)]])
    assert gold.sum(1).tolist() == [[1, 1]]


def test_an_interrupted_training_goes_on(encoder_path, tmp_path, monkeypatch):
    def run(folder, steps=8):
        # dropout is drawn anew after an interruption
        reader = Reader(str(encoder_path))
        reader.encoder.eval()
        monkeypatch.setattr(reader, "train", lambda mode=True: reader)
        return train(
            reader, make_groups(), folder, steps=steps, batch_size=3, rate=1e-3, frozen=1, save_every=2
        )

    torch.manual_seed(0)
    expected = run(tmp_path / "a")
    update, calls = training._update, []

    def fail(*args):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return update(*args)

    monkeypatch.setattr(training, "_update", fail)
    torch.manual_seed(0)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b")
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    assert run(tmp_path / "b") == pytest.approx(expected, abs=1e-4)
    # five, the one that failed, and the four from the last state on
    assert len(calls) == 10
    # another training begins from the start
    run(tmp_path / "c", steps=6)
    assert len(calls) == 16
    assert not list((tmp_path / "b").glob("state*"))


def test_frozen_layers_stay_as_they_are(encoder_path, tmp_path):
    reader = Reader(str(encoder_path))
    before = {name: value.clone() for name, value in reader.encoder.named_parameters()}
    train(reader, make_groups(), tmp_path, steps=2, batch_size=4, rate=1e-3, frozen=1)
    changed = {
        name for name, value in reader.encoder.named_parameters() if not torch.equal(value, before[name])
    }
    assert not [name for name in changed if name.startswith(("embeddings", "encoder.layer.0."))]
    assert [name for name in changed if name.startswith("encoder.layer.1.")]


def test_what_is_no_encoder_is_named(tmp_path):
    with pytest.raises(QAError, match="fetch-encoder"):
        Reader(str(tmp_path))
    with pytest.raises(QAError, match="python -m elq_qa train"):
        make_stamp(tmp_path, [])


def test_supervision_takes_the_best_passage_with_an_answer(tmp_path):
    world = make_world(tmp_path)
    passages = np.full((4, 80), -1, dtype="int32")
    passages[0, :6] = [0, 1, 2, 3, 4, 5]
    run = Run(passages, np.asarray([1, 80, 20, 80], dtype="int16"))
    (group,) = supervise(QUESTIONS, run, world.passages)
    assert group.question == QUESTIONS[0].text
    assert group.texts[0] == world.passages[1].full
    assert len(set(group.texts)) == 3
    text = group.texts[0]
    assert [text[start:end] for start, end in group.spans[0]] == ["88 days"]
    assert group.spans[1:] == ((), ())


def test_squad_has_its_title_in_front(tmp_path):
    qas = [
        {"question": "where", "answers": [{"start": 8, "text": "here"}, {"start": 8, "text": "here"}]},
        {"question": "why", "answers": []},
    ]
    path = tmp_path / "squad.jsonl"
    path.write_text(json.dumps({"title": "A_B", "context": "They're here.", "qas": qas}) + "\n")
    first, second = read_squad(path)
    assert first.texts[0][slice(*first.spans[0][0])] == "here"
    assert len(first.spans[0]) == 1
    assert second == ("why", ("A B\nThey're here.",), ((),))


class Counter:
    """Reads as a reader does, and counts."""

    def __init__(self, reader, *, fail_at=-1):
        self.reader, self.calls, self.fail_at = reader, 0, fail_at

    def read(self, pairs):
        self.calls += 1
        if self.calls == self.fail_at:
            raise KeyboardInterrupt
        return self.reader.read(pairs)


def test_what_was_read_is_kept_and_shared(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("elq_qa.reading._CHUNK", 4)
    world = make_world(tmp_path)
    links = {"q1": [{"id": "god"}]}
    systems = [System(Setting("tagme", 0, "claims"), links), System(Setting(), {})]
    runs = retrieve_all(world, QUESTIONS, systems, tmp_path / "runs" / "webquestions_test")
    reader, path = Counter(Reader(str(trained)), fail_at=2), tmp_path / "readings" / "a.db"
    readings = Readings(path, make_stamp(trained, world.passages))
    with pytest.raises(KeyboardInterrupt):
        read_all(reader, QUESTIONS, runs.values(), world.passages, readings, count=5)
    both = zip(*(run.passages[:, :5].tolist() for run in runs.values()), strict=True)
    whole = sum(len({*a, *b} - {-1}) for a, b in both)
    assert read_all(reader, QUESTIONS, runs.values(), world.passages, readings, count=5) == whole - 4
    assert read_all(reader, QUESTIONS, runs.values(), world.passages, readings, count=5) == 0
    again = Readings(path, make_stamp(trained, world.passages))
    own = again.of("q1")
    best = max(own, key=lambda i: own[i].score)
    answers = find_answers(QUESTIONS, runs["bm25"], world.passages, again, count=5)
    assert answers[3] == ""
    if best in runs["bm25"].passages[1, :5]:
        assert answers[1] == world.passages[best].full[own[best].start : own[best].end]
    assert not Readings(path, "another reader").of("q1")


def test_the_best_score_is_the_answer(tmp_path):
    world = make_world(tmp_path)
    readings = Readings(tmp_path / "a.db", "x")
    # from "Rome\nRome is the capital of Italy.", "Italy\n..." and a passage that was cut off
    keys = [("q1", 6), ("q1", 7), ("q1", 3)]
    readings.add(keys, [Reading(0, 4, 1.0), Reading(0, 5, 2.0), Reading(0, 0, 9.0)])
    passages = np.full((4, 80), -1, dtype="int32")
    passages[1, :3] = [6, 3, 7]
    run = Run(passages, np.full(4, 80))
    for count, expected in ((3, "Italy"), (2, "Rome"), (0, "")):
        answers = find_answers(QUESTIONS, run, world.passages, readings, count=count)
        assert answers == ["", expected, "", ""]
        assert exact_matches(QUESTIONS, answers).tolist() == [False, count == 3, False, False]
    runs = {"bm25": run, "gold-boost": run}
    write_exact("webquestions_test", QUESTIONS, runs, world.passages, readings, tmp_path, count=3)
    row = json.loads((tmp_path / "exact" / "webquestions_test.json").read_text())
    assert row["passages"] == 3
    assert row["all"]["exact"]["bm25"][0] == 0.25
    assert row["gold"]["exact"]["gold-boost"][0] == 0.5
    assert [x["difference"] for x in row["gold"]["differences"]] == [0.0]


def test_runs_of_too_few_questions_are_named(tmp_path):
    with pytest.raises(QAError, match="any system"):
        read_runs(tmp_path, 1)
    (tmp_path / "bm25").mkdir()
    np.savez(tmp_path / "bm25" / "000000.npz", passages=np.zeros((2, 80)), firsts=np.zeros(2))
    assert len(read_runs(tmp_path, 1)["bm25"].firsts) == 1
    with pytest.raises(QAError, match="bm25"):
        read_runs(tmp_path, 3)


def test_losses_are_written(tmp_path):
    write_losses([3.0, *[2.0] * 18, 1.0], 7, tmp_path)
    row = json.loads((tmp_path / "training.json").read_text())
    assert row == {"questions": 7, "steps": 20, "first_loss": 2.5, "last_loss": 1.5}

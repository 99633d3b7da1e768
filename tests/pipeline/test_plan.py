"""Training fits the number of questions: enough steps for few, not too many for many."""

import pytest
import spacy
from spacy.tokens import DocBin

from spacy_elq.errors import ELQError
from spacy_elq.pipeline.plan import TrainingPlan, count_batches

RATE = {"@schedules": "warmup_linear.v1", "initial_rate": 0.1, "warmup_steps": 0, "total_steps": 0}


def fit(per_epoch, *, plan=None, rate=RATE, **given):
    training = {"max_epochs": 0, "max_steps": 0, "eval_frequency": 0, "optimizer": {"learn_rate": rate}}
    return (plan or TrainingPlan()).fit({**training, **given}, lambda: per_epoch)


def numbers(steps, every, warmup):
    result = {"max_epochs": 0, "max_steps": steps, "eval_frequency": every}
    return {**result, "total_steps": steps, "warmup_steps": warmup}


@pytest.mark.parametrize(
    ("per_epoch", "expected"),
    [
        (1, numbers(102, 17, 10)),  # 30 questions
        (2, numbers(102, 17, 10)),
        (28, numbers(168, 28, 17)),  # 890
        (38, numbers(228, 38, 23)),  # 1,200
        (938, numbers(3000, 500, 300)),  # 30,000
        (5000, numbers(5004, 834, 500)),  # one epoch at least
    ],
)
def test_steps_fit_the_data(per_epoch, expected):
    assert fit(per_epoch) == expected


@pytest.mark.parametrize("per_epoch", [*range(1, 60), 938, 9999])
def test_training_ends_after_the_warm_up_and_the_end_is_evaluated(per_epoch):
    found = fit(per_epoch)
    assert found["warmup_steps"] < found["max_steps"] / 5
    assert found["max_steps"] % found["eval_frequency"] == 0
    assert found["max_steps"] // found["eval_frequency"] in (5, 6)
    assert found["total_steps"] == found["max_steps"]


def test_numbers_that_are_given_are_kept():
    assert fit(28, max_steps=500) == numbers(500, 83, 50)
    assert fit(28, max_steps=3) == numbers(3, 1, 0)
    assert fit(28, max_epochs=3) == numbers(84, 14, 8)
    assert fit(1, max_epochs=3) == numbers(3, 1, 0)
    assert fit(28, eval_frequency=50) == numbers(200, 50, 20)
    assert fit(28, max_steps=100, eval_frequency=30) == numbers(100, 30, 10)
    assert fit(28, rate={**RATE, "warmup_steps": 5}) == numbers(168, 28, 5)


@pytest.mark.parametrize("rate", [0.001, "${some.variable}", {"@schedules": "constant.v1"}])
def test_other_learning_rates_are_left_alone(rate):
    assert fit(28, rate=rate) == {"max_epochs": 0, "max_steps": 168, "eval_frequency": 28}


@pytest.mark.parametrize(
    "length", [{"max_epochs": 4}, {"max_steps": 300}, {"max_epochs": -1, "max_steps": 9}]
)
def test_complete_numbers_are_left_alone_without_counting(length):
    rate = {**RATE, "warmup_steps": 30, "total_steps": 300}
    assert fit(None, rate=rate, eval_frequency=75, **length) == {}


def test_streamed_corpus_needs_a_number_of_steps():
    with pytest.raises(ELQError, match="E172"):
        fit(28, max_epochs=-1)
    assert fit(None, max_epochs=-1, max_steps=60) == {**numbers(60, 10, 6), "max_epochs": -1}


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"least_steps": 0}, {"most_steps": 1.5}, {"warmup": 1.0}, {"evaluations": 0}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(ELQError, match=f"E002.*{next(iter(wrong))}"):
        TrainingPlan(**wrong)


def test_batches_are_counted_and_the_config_gets_the_numbers(gold_docs, tmp_path):
    DocBin(docs=gold_docs).to_disk(tmp_path / "train.spacy")
    nlp = spacy.blank("en")
    for name in ("train", "dev"):
        nlp.config["corpora"][name]["path"] = str(tmp_path / "train.spacy")
    batcher = {"@batchers": "spacy.batch_by_sequence.v1", "size": "${system.size}"}
    nlp.config["system"]["size"] = 6
    training = {"max_epochs": 0, "max_steps": 0, "eval_frequency": 0, "batcher": batcher}
    nlp.config["training"].update(training)
    nlp.config["training"]["optimizer"]["learn_rate"] = dict(RATE)
    assert count_batches(nlp) == 4  # of twenty questions
    assert TrainingPlan(epochs=30)(nlp) is nlp
    found = nlp.config["training"]
    assert {key: found[key] for key in training if key != "batcher"} == {
        "max_epochs": 0,
        "max_steps": 120,
        "eval_frequency": 20,
    }
    assert found["optimizer"]["learn_rate"] == {**RATE, "warmup_steps": 12, "total_steps": 120}

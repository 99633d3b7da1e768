import io

import pytest
import spacy

from spacy_elq.pipeline.logger import ConsoleLogger


def log(results, **settings):
    """RETURNS (str): What is printed for these scores, one evaluation per step."""
    nlp = spacy.blank("en")
    training = {"max_steps": 8, "eval_frequency": 2, "score_weights": {"elq_weak_f": 1.0}}
    nlp.config["training"] = {**training, **settings.pop("training", {})}
    stdout = io.StringIO()
    log_step, finish = ConsoleLogger(**settings)(nlp, stdout, stdout)
    for count, score in enumerate(results):
        checkpoints = [(score, step) for step, score in enumerate(results[: count + 1])]
        info = {"epoch": 0, "step": count, "losses": {}, "other_scores": {"elq_weak_f": score}}
        log_step({**info, "score": score, "checkpoints": checkpoints})
        log_step(None)
    finish()
    return stdout.getvalue()


@pytest.mark.parametrize(
    ("results", "warns"),
    [
        ([0.5, 0.4, 0.3], True),
        ([0.5], True),
        ([0.5, 0.4, 0.5], False),  # the last of the best is saved
        ([0.4, 0.5, 0.3], False),
        ([], False),  # interrupted before the first
    ],
)
def test_warns_if_step_0_is_the_best(results, warns):
    assert ("W010" in log(results)) == warns


def test_number_of_steps_is_printed():
    assert "8 steps, evaluated every 2" in log([0.1])
    assert "steps" not in log([], console_output=False)
    assert "evaluated every" not in log([], training={"max_steps": 0})


def test_log_goes_to_a_file_as_with_spacys_logger(tmp_path):
    log([0.1, 0.2], output_file=tmp_path / "log.jsonl")
    assert len((tmp_path / "log.jsonl").read_text(encoding="utf8").splitlines()) == 2

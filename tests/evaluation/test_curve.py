"""The training curve of the report: what is read from spaCy's log, and what is drawn."""

import math
import xml.etree.ElementTree as ElementTree
from io import StringIO

import pytest
import spacy
import srsly
from hypothesis import given
from hypothesis import strategies as st
from spacy.util import registry

from spacy_elq.errors import ELQError
from spacy_elq.evaluation.chart import ticks
from spacy_elq.evaluation.curve import Evaluation, draw_training, read_log


def evaluation(step, loss=1.0, f=50.0, **others):
    losses = {"transformer": 7.0, "elq_linker": loss, **others}
    return Evaluation(step, losses, {"elq_weak_f": f}, f / 100)


def parse(html):
    """RETURNS: The charts, and the points of each of their lines."""
    charts = ElementTree.fromstring(html).findall("svg")
    lines = [
        [[tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in lines]
        for lines in (chart.findall("polyline") for chart in charts)
    ]
    return charts, lines


def hints(chart):
    return [title.text for title in chart.iter("title")]


def test_log_of_spacys_logger_is_read(tmp_path):
    """The contract with `spacy.ConsoleLogger.v3`: names, and scores in percent."""
    path = tmp_path / "new" / "log.jsonl"
    setup = registry.get("loggers", "spacy.ConsoleLogger.v3")(console_output=False, output_file=path)
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_linker")
    nlp.config["training"] = {"max_steps": 0, "eval_frequency": 1, "score_weights": {"elq_weak_f": 1.0}}
    log_step, finalize = setup(nlp, StringIO(), StringIO())
    for step in (0, 28):
        info = {"epoch": 0, "step": step, "losses": {"elq_linker": 2.5}, "score": 0.5}
        log_step({**info, "other_scores": {"elq_weak_f": 0.5}})
    finalize()
    log = read_log(path)
    assert [(e.step, e.losses, e.score) for e in log] == [
        (step, {"elq_linker": 2.5}, 0.5) for step in (0, 28)
    ]
    assert [e.scores["elq_weak_f"] for e in log] == [50.0, 50.0]


def test_missing_log_names_the_command(tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.jsonl.*spacy train CONFIG --paths\.log"):
        read_log(tmp_path / "no.jsonl")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "no evaluations"),
        ("not json", "not the log of a training"),
        ("[1]", "not the log of a training"),
        ('{"step": 1}', "not the log of a training"),
        ('{"step": 1, "losses": {"x": "y"}, "scores": {}, "score": 1}', "not the log of a training"),
        ('{"step": 1, "losses": [], "scores": {}, "score": 1}', "not the log of a training"),
    ],
)
def test_a_file_that_is_no_log_is_refused(tmp_path, content, problem):
    path = tmp_path / "log.jsonl"
    path.write_text(content, encoding="utf8")
    with pytest.raises(ELQError, match=f"E023.*{problem}"):
        read_log(path)


def test_loss_is_that_of_a_step():
    """spaCy sums the losses since the evaluation before; the first one has seen a single batch."""
    (loss, _), _ = parse(draw_training([evaluation(0, 3.0), evaluation(10, 20.0), evaluation(20, 10.0)]))
    assert hints(loss) == ["elq_linker, step 0: 3", "elq_linker, step 10: 2", "elq_linker, step 20: 1"]


def test_a_training_that_goes_on_from_a_later_step_counts_from_there():
    (loss, _), _ = parse(draw_training([evaluation(100, 3.0), evaluation(110, 20.0)]))
    assert hints(loss) == ["elq_linker, step 100: 3", "elq_linker, step 110: 2"]


def test_upstream_components_are_left_out_unless_there_is_nothing_else():
    _, (loss, _) = parse(draw_training([evaluation(0), evaluation(1)]))
    assert len(loss) == 1
    alone = [Evaluation(0, {"tok2vec": 1.0}, {}, 0.1)]
    (chart, _), _ = parse(draw_training(alone))
    assert hints(chart) == ["tok2vec, step 0: 1"]


def test_lines_of_several_components_are_named_and_escaped():
    name = "<b>'\"&"
    html = draw_training([evaluation(0, **{name: 2.0}), evaluation(1, **{name: 1.0})])
    assert "<b>" not in html
    (loss, score), (lines, _) = parse(html)
    assert len(lines) == 2
    assert {"elq_linker", name} <= {text.text for text in loss.iter("text")}
    assert "elq_linker" not in {text.text for text in score.iter("text")}


def test_score_is_weak_f1_and_the_best_step_is_marked():
    log = [evaluation(0, f=20.0), evaluation(10, f=80.0), evaluation(20, f=60.0)]
    (_, chart), (_, (line,)) = parse(draw_training(log))
    assert chart.get("aria-label") == "Weak F1 on development questions: 0.800 at step 10"
    dots = [(float(dot.get("cx")), float(dot.get("cy")), dot.get("r")) for dot in chart.iter("circle")]
    assert [dot[:2] for dot in dots] == line
    assert [dot[2] for dot in dots] == ["2.5", "5", "2.5"]
    # upwards is better, to the right is later, in equal steps
    assert line[1][1] < line[2][1] < line[0][1]
    assert line[1][0] - line[0][0] == pytest.approx(line[2][0] - line[1][0], abs=0.2)


def test_without_weak_f1_the_score_of_the_training_is_drawn():
    log = [Evaluation(step, {"elq_pairs": 1.0}, {"elq_pairs_acc": 70.0}, 0.7) for step in (0, 5)]
    (_, chart), _ = parse(draw_training(log))
    assert hints(chart) == ["Score, step 0: 0.7", "Score, step 5: 0.7"]


def test_one_evaluation_without_any_loss_is_drawn():
    (_, _), (loss, score) = parse(draw_training([Evaluation(0, {}, {"elq_weak_f": 0.0}, 0.0)]))
    assert loss == []
    assert len(score[0]) == 1


def test_loss_that_is_no_number_is_left_out():
    (loss, _), _ = parse(
        draw_training([evaluation(0, math.nan), evaluation(1, math.inf), evaluation(2, 1.0)])
    )
    assert hints(loss) == ["elq_linker, step 2: 1"]


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1e9), st.floats(0, 100)), min_size=1, max_size=9)
)
def test_every_point_is_inside_of_its_chart(rows):
    log = [evaluation(step, loss, f) for step, loss, f in rows]
    charts, lines = parse(draw_training(log))
    for chart, chart_lines in zip(charts, lines, strict=True):
        width, height = map(float, chart.get("viewBox").split()[2:])
        for x, y in [point for line in chart_lines for point in line]:
            assert 0 <= x <= width
            assert 0 <= y <= height


@given(st.floats(0, 1e12), st.integers(1, 9))
def test_ticks_are_few_and_reach_the_end(high, most):
    found = ticks(0.0, high, most)
    assert found[0] == 0.0
    assert found[-1] >= high * (1 - 1e-6)
    assert 2 <= len(found) <= most + 1


@pytest.mark.parametrize(
    ("high", "expected"),
    [(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (168, [0, 50, 100, 150, 200]), (7, [0, 2, 4, 6, 8])],
)
def test_ticks_are_round(high, expected):
    assert ticks(0.0, high) == pytest.approx(expected)


def test_jsonl_is_what_srsly_reads(tmp_path):
    path = tmp_path / "log.jsonl"
    srsly.write_jsonl(path, [evaluation(3)._asdict()])
    assert read_log(path) == [evaluation(3)]

"""The reliability diagram and the risk-coverage curve of the report."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_elq.evaluation.confidence import draw_confidence


def parse(links):
    return ElementTree.fromstring(draw_confidence(links)).findall("svg")


def box(rect):
    return [float(rect.get(name)) for name in ("x", "y", "width", "height")]


def test_bars_end_at_the_share_of_right_links():
    diagram, _ = parse([(0.95, True), (0.95, False), (0.05, False), (0.55, True)])
    low, middle, high = map(box, diagram.iter("rect"))
    assert low[0] < middle[0] < high[0]
    assert low[3] == 0
    assert high[3] == pytest.approx(middle[3] / 2, abs=0.1)
    assert high[1] + high[3] == pytest.approx(middle[1] + middle[3], abs=0.1)
    error = (2 * 0.45 + 0.05 + 0.45) / 4
    assert diagram.get("aria-label") == f"Share of right links by score; calibration error {error:.3f}"
    (guide,) = [line for line in diagram.iter("line") if line.get("class") == "guide"]
    # from the lower left to the upper right
    assert float(guide.get("x1")) < float(guide.get("x2"))
    assert float(guide.get("y2")) == pytest.approx(middle[1], abs=0.1)
    assert [text.text for text in diagram.iter("title")][2] == (
        "0.9 to 1: 2 links, mean score 0.950, 0.500 right"
    )


def test_risk_is_that_of_the_best_links():
    _, curve = parse([(0.9, True), (0.8, True), (0.5, False), (0.4, False)])
    assert curve.get("aria-label") == "Share of wrong links by coverage; 0.500 of all"
    assert [text.text for text in curve.iter("title")][-1] == (
        "threshold 0.400: 1.000 of the links kept, 0.500 of them wrong"
    )
    (line,) = curve.findall("polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
    # further to the right is more links, upwards is more of them wrong
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[0][1] == points[1][1] > points[2][1] > points[3][1]
    assert not [line for line in curve.iter("line") if line.get("class") == "guide"]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_everything_is_inside_of_its_chart(links):
    for chart in parse(links):
        width, height = map(float, chart.get("viewBox").split()[2:])
        for x, y, w, h in map(box, chart.iter("rect")):
            assert 0 <= x < x + w <= width
            assert 0 <= y <= y + h <= height
        for dot in chart.iter("circle"):
            assert 0 <= float(dot.get("cx")) <= width
            assert 0 <= float(dot.get("cy")) <= height

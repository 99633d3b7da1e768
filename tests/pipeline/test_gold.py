import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_elq.corpora.gold import COMPLETE, GOLD_KEY, gold_spans
from spacy_elq.pipeline.gold import align_span, collect_gold

VOCAB = spacy.blank("en").vocab


def make_doc(words, spaces=None, *, ents=(), group=None, key=GOLD_KEY):
    """`words` as text is split at blanks; `ents` and `group` are (start, end, id) in tokens."""
    doc = Doc(VOCAB, words=words.split() if isinstance(words, str) else words, spaces=spaces)
    doc.ents = [Span(doc, s, e, label="ENTITY", kb_id=id_) for s, e, id_ in ents]
    if group is not None:
        doc.spans[key] = [Span(doc, s, e, label="ENTITY", kb_id=id_) for s, e, id_ in group]
    return doc


def triples(spans):
    return [(span.start, span.end, span.kb_id_) for span in spans]


def find_positions(ids):
    return np.asarray([{"E1": 0, "E2": 1}.get(id_, -1) for id_ in ids])


def test_the_span_group_is_preferred_to_ents():
    doc = make_doc("is paris big", ents=[(0, 1, "E9")], group=[(1, 2, "E1")])
    assert triples(gold_spans(doc)) == [(1, 2, "E1")]


def test_an_empty_group_says_that_there_are_no_links():
    assert gold_spans(make_doc("is paris big", ents=[(1, 2, "E1")], group=[])) == []


def test_ents_are_gold_where_there_is_no_group():
    doc = make_doc("is paris big", ents=[(1, 2, "E1")])
    assert triples(gold_spans(doc)) == [(1, 2, "E1")]


@pytest.mark.parametrize("where", ["ents", "group"])
def test_entities_without_kb_id_are_not_gold(where):
    doc = make_doc("paris and rome", **{where: [(0, 1, ""), (2, 3, "E2")]})
    assert triples(gold_spans(doc)) == [(2, 3, "E2")]


def test_overlapping_gold_is_kept():
    reference = make_doc("new york city hall", group=[(0, 3, "E1"), (0, 4, "E2"), (0, 3, "E2")])
    gold = collect_gold([Example(make_doc("new york city hall"), reference)], find_positions)
    assert gold.spans.tolist() == [[0, 3], [0, 4], [0, 3]]
    assert gold.positions.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["new", " york", "-", "based"], (0, 2)),
        (["n", "e", "w", " york", "-based"], (0, 4)),
        (["new york", "-", "based"], (0, 1)),
        (["new york-based"], None),
        (["new", " york-", "based"], None),
        (["new", " yor", "k-", "based"], None),
    ],
    ids=["same", "finer", "coarser", "one token", "coarser at the end", "shifted"],
)
def test_a_mention_fits_only_the_very_same_characters(words, expected):
    reference = make_doc(["new", "york", "-", "based"], [True, False, False, False], group=[(0, 2, "E1")])
    predicted = make_doc(words, [False] * len(words))
    assert predicted.text == reference.text
    example = Example(predicted, reference)
    assert align_span(example, reference.spans[GOLD_KEY][0]) == expected
    gold = collect_gold([example], find_positions)
    assert gold.misfits == (expected is None)
    assert gold.spans.tolist() == ([] if expected is None else [list(expected)])


def test_a_misfit_at_the_start_is_not_shifted_either():
    reference = make_doc(["pre", "-", "paris"], [False] * 3, group=[(2, 3, "E1")])
    gold = collect_gold([Example(make_doc(["pre", "-paris"], [False] * 2), reference)], find_positions)
    assert (gold.misfits, gold.ids) == (1, [])


def test_a_mention_of_blanks_alone_fits_nothing():
    reference = make_doc(["paris", " ", "rome"], [True, False, False], group=[(1, 2, "E1"), (2, 3, "E2")])
    gold = collect_gold([Example(make_doc("paris rome"), reference)], find_positions)
    assert (gold.misfits, gold.ids) == (1, ["E2"])


def test_spans_are_counted_over_the_tokens_of_the_predicted_batch():
    finer = Example(
        make_doc(["new", "york", "-", "based"], [True, False, False, False]),
        make_doc(["new", "york-based"], [True, False], group=[(1, 2, "E1"), (0, 1, "E1")]),
    )
    empty = Example(make_doc(""), make_doc(""))
    without = Example(make_doc("what time"), make_doc("what time"))
    last = Example(make_doc("is rome big"), make_doc("is rome big", ents=[(1, 2, "E2")]))
    gold = collect_gold([finer, empty, without, last], find_positions)
    assert gold.spans.tolist() == [[1, 4], [0, 1], [7, 8]]
    assert gold.ids == ["E1", "E1", "E2"]
    assert gold.positions.tolist() == [0, 0, 1]


def test_unknown_entities_have_no_position_in_the_index(index):
    reference = make_doc("paris or atlantis", group=[(0, 1, "E1"), (2, 3, "E404")])
    gold = collect_gold([Example(make_doc("paris or atlantis"), reference)], index.positions)
    assert gold.positions.tolist() == [0, -1]
    assert gold.ids == ["E1", "E404"]


def test_a_batch_without_gold_asks_for_no_positions():
    gold = collect_gold([Example(make_doc("what time"), make_doc("what time"))], pytest.fail)
    assert gold.spans.shape == (0, 2)
    assert gold.positions.shape == (0,)
    assert gold.positions.dtype == np.int64
    assert gold.misfits == 0
    assert gold.complete.tolist() == [True]


def test_docs_say_whether_every_mention_is_marked():
    partly, fully, silent = (make_doc("is paris big", ents=[(1, 2, "E1")]) for _ in range(3))
    partly.user_data[COMPLETE] = False
    fully.user_data[COMPLETE] = True
    examples = [Example(make_doc("is paris big"), doc) for doc in (silent, partly, fully, make_doc(""))]
    gold = collect_gold(examples, find_positions)
    assert gold.complete.tolist() == [True, False, True, True]
    assert gold.complete.dtype == bool


def test_an_empty_batch_is_complete():
    gold = collect_gold([], find_positions)
    assert gold.complete.shape == (0,)
    assert gold.complete.all()

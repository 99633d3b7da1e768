import pytest
import spacy

from spacy_elq.corpora import Question, QuestionSpan, Report, questions_to_docs
from spacy_elq.corpora.gold import COMPLETE, GOLD_KEY, LOST

NLP = spacy.blank("en")


def convert(*questions, **settings):
    report = Report()
    return list(questions_to_docs(questions, NLP, report, **settings)), report


def question(text, *mentions, **fields):
    """`mentions` are (text, id); the text must occur in the question."""
    spans = [QuestionSpan(text.index(x), text.index(x) + len(x), id_) for x, id_ in mentions]
    return Question(text, spans, **fields)


def links(spans):
    return [(span.text, span.kb_id_, span.label_) for span in spans]


def test_gold_links_stand_in_the_group_and_in_ents():
    docs, report = convert(question("is Paris near new york", ("Paris", "E1"), ("new york", "E5")))
    expected = [("Paris", "E1", "ENTITY"), ("new york", "E5", "ENTITY")]
    assert docs[0].text == "is Paris near new york"
    assert links(docs[0].spans[GOLD_KEY]) == links(docs[0].ents) == expected
    assert (report.questions, report.mentions, report.misfits, report.overlapping) == (1, 2, 0, 0)


def test_the_label_is_a_setting():
    docs, _ = convert(question("is Paris big", ("Paris", "E1")), label="GPE")
    assert links(docs[0].ents) == links(docs[0].spans[GOLD_KEY]) == [("Paris", "E1", "GPE")]


def test_a_question_without_links_has_an_empty_group():
    docs, report = convert(question("what time is it"))
    assert GOLD_KEY in docs[0].spans
    assert len(docs[0].spans[GOLD_KEY]) == len(docs[0].ents) == 0
    assert (report.questions, report.mentions) == (1, 0)


def test_overlapping_links_are_all_in_the_group_and_the_longest_in_ents():
    docs, report = convert(question("new york city hall", ("new york", "E1"), ("new york city", "E5")))
    assert [span.kb_id_ for span in docs[0].spans[GOLD_KEY]] == ["E1", "E5"]
    assert [span.kb_id_ for span in docs[0].ents] == ["E5"]
    assert (report.mentions, report.overlapping, report.misfits) == (2, 1, 0)


def test_a_mention_that_does_not_fit_the_tokens_is_dropped_and_shown():
    docs, report = convert(question("hotels in parisian style", ("paris", "E1"), ("style", "E2")))
    assert [span.kb_id_ for span in docs[0].spans[GOLD_KEY]] == ["E2"]
    assert (report.mentions, report.misfits) == (1, 1)
    assert report.examples == ["'paris' in 'hotels in parisian style'"]


def test_five_examples_are_shown_and_all_are_counted():
    docs, report = convert(*(question(f"number x{i}y", (f"x{i}", "E1")) for i in range(7)))
    assert len(docs) == report.questions == report.misfits == 7
    assert report.examples == [f"'x{i}' in 'number x{i}y'" for i in range(5)]


def test_the_kind_stays_with_the_doc_and_is_counted():
    docs, report = convert(question("a", kind="typo"), question("b", kind="typo"), question("c"))
    assert [doc.user_data.get("kind") for doc in docs] == ["typo", "typo", None]
    assert "kind" not in docs[2].user_data
    assert report.kinds == {"typo": 2, "": 1}


def test_a_doc_remembers_how_many_of_its_links_were_lost():
    docs, report = convert(
        question("hotels in parisian style", ("paris", "E1"), ("sty", "E2"), ("hotels", "E3")),
        question("is Paris big", ("Paris", "E1")),
    )
    assert docs[0].user_data[LOST] == report.misfits == 2
    assert LOST not in docs[1].user_data


def test_a_doc_remembers_that_not_every_mention_is_marked():
    docs, report = convert(
        question("is Paris big", ("Paris", "E1"), complete=False),
        question("is Paris big", ("Paris", "E1")),
        question("is Rome big", complete=False),
    )
    assert [doc.user_data.get(COMPLETE) for doc in docs] == [False, None, False]
    assert COMPLETE not in docs[1].user_data
    assert report.incomplete == 2


def test_docs_come_as_a_stream_and_the_report_grows_with_it():
    def endless():
        while True:
            yield question("is Paris big", ("Paris", "E1"))

    report = Report()
    docs = questions_to_docs(endless(), NLP, report)
    next(docs)
    next(docs)
    assert (report.questions, report.mentions) == (2, 2)


def test_a_report_goes_on_over_several_files():
    report = Report()
    for _ in range(2):
        list(questions_to_docs([question("is Paris big", ("Paris", "E1"))], NLP, report))
    assert (report.questions, report.mentions) == (2, 2)


@pytest.mark.parametrize("text", ["où est Zürich", "😀 Zürich", "e\u0301t\u00e9 Zürich"])
def test_offsets_are_characters(text):
    docs, report = convert(question(text, ("Zürich", "E1")))
    assert links(docs[0].ents) == [("Zürich", "E1", "ENTITY")]
    assert report.misfits == 0


def test_an_empty_text_is_an_empty_doc():
    docs, _ = convert(question(""))
    assert len(docs[0]) == 0


def test_what_a_doc_remembers_survives_the_way_through_a_docbin():
    docs, _ = convert(question("hotels in parisian style", ("paris", "E1"), complete=False))
    data = spacy.tokens.DocBin(docs=docs, store_user_data=True).to_bytes()
    (doc,) = spacy.tokens.DocBin().from_bytes(data).get_docs(NLP.vocab)
    assert (doc.user_data[COMPLETE], doc.user_data[LOST]) == (False, 1)


def test_links_survive_the_way_through_a_docbin(gold_docs):
    data = spacy.tokens.DocBin(docs=gold_docs, store_user_data=True).to_bytes()
    docs = list(spacy.tokens.DocBin().from_bytes(data).get_docs(NLP.vocab))
    for doc, gold in zip(docs, gold_docs, strict=True):
        assert links(doc.spans[GOLD_KEY]) == links(gold.spans[GOLD_KEY])
        assert doc.user_data["kind"] == gold.user_data["kind"]

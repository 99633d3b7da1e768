import pytest
import spacy

from spacy_elq.errors import ELQError
from spacy_elq.pipeline.batch import check_spans


@pytest.fixture(scope="module")
def doc():
    doc = spacy.blank("en")("how tall is shaq")
    doc.spans["group"] = [doc[3:4]]
    return doc


def test_lists_of_spans_for_each_doc_pass(doc):
    check_spans([], [])
    check_spans([doc], [[doc[3:4], doc[2:4]]])
    check_spans((doc, doc), [[], doc.ents])
    check_spans([doc], [doc.spans["group"]])


@pytest.mark.parametrize(
    ("choose", "found"),
    [
        (lambda doc: (doc, [doc[3:4]]), r"Doc and list of 1 \(Span\)"),
        (lambda doc: (doc, [[doc[3:4]]]), r"Doc and list of 1 \(list of 1 \(Span\)\)"),
        (lambda doc: ([doc], doc[3:4]), r"list of 1 \(Doc\) and Span"),
        (lambda doc: ([doc], [doc[3:4]]), r"list of 1 \(Doc\) and list of 1 \(Span\)"),
        (lambda doc: ([doc], [[doc[3]]]), r"and list of 1 \(list of 1 \(Token\)\)"),
        (lambda doc: ([doc], [[doc[3:4], (0, 1)]]), r"list of 2 \(Span, tuple of 2 \(int\)\)"),
        (lambda doc: ([doc], []), r"list of 1 \(Doc\) and empty list"),
        (lambda doc: ([doc, doc], [[]]), r"list of 2 \(Doc\) and list of 1 \(empty list\)"),
        (lambda doc: (["how tall"], [[]]), r"list of 1 \(str\)"),
        (lambda doc: ("how tall", []), r"got str and empty list"),
        (lambda doc: ([doc], None), r"list of 1 \(Doc\) and NoneType"),
        (lambda doc: (iter([doc]), [[]]), r"list_iterator and"),
        (lambda doc: ([doc[:2].as_doc()], [[doc[3:4]]]), r"tokens 3 to 4 for doc 0, which has 2"),
    ],
)
def test_other_shapes_are_named(doc, choose, found):
    with pytest.raises(ELQError, match=f"E180.*{found}.*expected a list of docs") as error:
        check_spans(*choose(doc))
    assert "linker.link_spans([doc], [[doc[3:4]]])" in str(error.value)

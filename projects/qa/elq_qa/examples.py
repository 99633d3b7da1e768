"""Questions of our own: where links help BM25, and where they hurt."""

from typing import Dict, List, Sequence

from spacy.language import Language

from .links import links_of
from .retrieve import Retriever, Setting
from .runs import COUNT, find_first
from .systems import BOOST
from .types import Question, Row


def show_examples(
    nlp: Language, retriever: Retriever, questions: Sequence[Question], *, boost: float = BOOST
) -> List[Row]:
    """Find the first passage with an answer, with and without links.

    nlp (Language): A pipeline that sets `doc.ents`.
    boost (float): What the passages of linked entities rise by.
    RETURNS (List[Row]): For each question: `links`, the place of that passage `without` and `with` links,
        from 1 on, None if no passage has an answer, and `kind`: "helps", "hurts", or "same".
    """
    rows = []
    for question, doc in zip(questions, nlp.pipe(x.text for x in questions), strict=True):
        view, links = retriever.view(question.text, articles=0), links_of(doc)
        ids = [link["id"] for link in links]
        places: Dict[str, int] = {}
        for name, setting in (("without", Setting()), ("with", Setting("doc", boost=boost))):
            found = retriever.retrieve(view, ids, setting, count=COUNT)
            places[name] = find_first(retriever.passages, question, found) + 1
        change = places["with"] - places["without"]
        rows.append(
            {
                "question": question.text,
                "links": ", ".join(f"{link['mention']} = {link['id']}" for link in links),
                **{name: place if place <= COUNT else None for name, place in places.items()},
                "kind": "helps" if change < 0 else "hurts" if change else "same",
            }
        )
    return rows

"""Count a question set, and how many of its links the catalogue has (Table 1)."""

from pathlib import Path
from typing import List

import spacy
import typer
from runs import RESULTS, write_run

from spacy_elq.corpora.gold import LOST, gold_spans
from spacy_elq.evaluation import read_docs
from spacy_elq.index import EntityIndex


def main(
    corpus: Path = typer.Argument(..., help="Question set (.spacy), or a folder of them"),
    index_path: Path = typer.Argument(..., help="Index of the catalogue"),
    name: str = typer.Argument(..., help="Name of the question set"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Count questions, gold links and entities."""
    index, nlp = EntityIndex.open(index_path), spacy.blank("en")
    questions = lost = 0
    ids: List[str] = []
    for path in sorted(corpus.rglob("*.spacy")) if corpus.is_dir() else [corpus]:
        for doc in read_docs(path, nlp):
            questions += 1
            lost += int(doc.user_data.get(LOST, 0))
            ids += [span.kb_id_ for span in gold_spans(doc)]
    described = [bool(index.entity(int(p)).description) for p in index.positions(ids) if p >= 0]
    counts = {"name": name, "questions": questions, "links": len(ids) + lost, "lost": lost}
    counts |= {"entities": len(set(ids)), "known": len(described), "described": sum(described)}
    write_run(results, "data", name, counts)


if __name__ == "__main__":
    typer.run(main)

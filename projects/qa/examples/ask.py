"""Answer questions from passages: linked entities raise the passages that are about them, a reader finds the
answer. Try it with and without `--boost 0`.

    python examples/ask.py models/elq work "what currency do they use in iceland" --reader work/reader
"""

import sys
from pathlib import Path
from typing import List, Optional

import spacy
import typer

sys.path.insert(0, str(Path(__file__).parents[1]))


def main(
    pipeline: str = typer.Argument(..., help="Any pipeline that sets doc.ents"),
    work: Path = typer.Argument(..., help="Folder with the passages"),
    questions: List[str] = typer.Argument(..., help="Questions"),
    reader: Optional[Path] = typer.Option(None, help="Trained reader; without one, passages are shown"),
    count: int = typer.Option(5, help="Passages per question"),
    boost: float = typer.Option(4.0, help="What the score of passages of linked entities rises by"),
) -> None:
    """Link each question, retrieve its passages and answer it."""
    import elq_qa.component  # noqa: F401  (adds the factory)
    from elq_qa.reader import Reader
    from elq_qa.types import Passage

    nlp = spacy.load(pipeline)
    nlp.add_pipe("elq_passages", config={"work": str(work), "count": count, "boost": boost}, last=True)
    answerer = Reader(str(reader)) if reader else None
    for doc in nlp.pipe(questions):
        links = ", ".join(f"{ent.text} = {ent.kb_id_}" for ent in doc.ents if ent.kb_id_) or "no links"
        typer.echo(f"{doc.text} ({links})")
        texts = [Passage(x["entity"], x["title"], x["text"]).full for x in doc._.passages]
        if answerer and texts:
            found = answerer.read([(doc.text, text) for text in texts])
            best = max(range(len(texts)), key=lambda i: found[i].score)
            answer = texts[best][found[best].start : found[best].end]
            typer.echo(f"  {answer} ({doc._.passages[best]['title']}, {found[best].score:.1f})")
        for passage in doc._.passages:
            typer.echo(f"  {passage['score']:6.2f}  {passage['title']}: {passage['text'][:80]}")


if __name__ == "__main__":
    typer.run(main)

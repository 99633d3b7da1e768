"""Link the same questions with FAISS and with Milvus, into `results/milvus.json`: links and scores must be
equal, unless one of them found other candidates.
"""

from pathlib import Path
from typing import Any, Dict, List, Tuple
from unittest.mock import patch

import spacy
import typer
from records import RESULTS, write_record
from spacy.language import Language

from spacy_elq.evaluation import read_docs
from spacy_elq.index import EntityIndex, build_index

# two scores are equal if they differ by less: the last bits depend on how many candidates are scored at once
_EQUAL = 1e-4
Links = List[Tuple[int, int, str, float]]


def main(
    pipeline: Path = typer.Argument(..., help="Pipeline with an index of FAISS"),
    questions: Path = typer.Argument(..., help="Questions (.spacy), a file or a folder"),
    uri: str = typer.Argument(..., help="Where Milvus is, or a path that ends in .db for Milvus Lite"),
    work: Path = typer.Option(Path("work/milvus"), help="Folder for the index with Milvus"),
    factory: str = typer.Option("HNSW", help="The index of Milvus"),
    limit: int = typer.Option(1000, min=1, help="How many questions"),
    timeout: float = typer.Option(60.0, help="Seconds that Milvus has for one answer"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Compare the links; ends with exit code 1 if some differ although both found the same candidates."""
    nlp = spacy.load(pipeline)
    linker: Any = nlp.get_pipe("elq_linker")
    texts = [doc.text for doc in read_docs(questions, nlp)][:limit]
    faiss = EntityIndex.open(linker.index.path)
    remote = build_index(
        faiss.path, work / "index", backend="milvus", uri=uri, factory=factory, timeout=timeout, progress=True
    )
    expected, found = (link_all(nlp, index, texts) for index in (faiss, remote))
    differing = [i for i in range(len(texts)) if not are_equal(expected[i], found[i])]
    limited = [i for i in differing if differ_in_candidates(nlp, faiss, remote, texts[i])]
    record: Dict[str, Any] = {
        "pipeline": pipeline.name,
        "entities": len(faiss),
        "questions": len(texts),
        "links": sum(map(len, expected)),
        "faiss": faiss.meta["backend"]["factory"],
        "milvus": factory,
        "identical": len(texts) - len(differing),
        "other_candidates": len(limited),
        "unexplained": [texts[i] for i in differing if i not in limited],
    }
    remote.close()
    write_record(results, "milvus", record)
    raise typer.Exit(bool(record["unexplained"]))


def link_all(nlp: Language, index: EntityIndex, texts: List[str]) -> List[Links]:
    """RETURNS (List[Links]): The links of each question with an index."""
    linker: Any = nlp.get_pipe("elq_linker")
    linker.set_index(index)
    return [
        [(ent.start, ent.end, ent.kb_id_, ent._.elq_score) for ent in doc.ents] for doc in nlp.pipe(texts)
    ]


def are_equal(a: Links, b: Links) -> bool:
    """RETURNS (bool): Whether links are the same, with the same scores."""
    same = [x[:3] for x in a] == [x[:3] for x in b]
    return same and all(abs(x[3] - y[3]) < _EQUAL for x, y in zip(a, b, strict=True))


def differ_in_candidates(nlp: Language, faiss: EntityIndex, remote: EntityIndex, text: str) -> bool:
    """RETURNS (bool): Whether one of two indexes finds candidates for a question that the other misses."""
    return candidates(nlp, faiss, text) != candidates(nlp, remote, text)


def candidates(nlp: Language, index: EntityIndex, text: str) -> List[List[str]]:
    """RETURNS (List[List[str]]): The ids that an index finds for each mention of a question."""
    found: List[List[str]] = []
    search = index.search

    def watched(*args: Any, **kwargs: Any) -> Any:
        positions, similarities = search(*args, **kwargs)
        for row in positions:
            found.append(sorted(head[0] for head in index.heads(row[row >= 0])))
        return positions, similarities

    with patch.object(index, "search", watched):
        link_all(nlp, index, [text])
    return found


if __name__ == "__main__":
    typer.run(main)

"""The commands of `project.yml`: parse, call, print."""

from pathlib import Path
from typing import List

import typer

app = typer.Typer(help=__doc__, no_args_is_help=True)
WORK = typer.Option(Path("work"), help="Folder of all that is made")


@app.command()
def passages(
    catalogue: Path = typer.Argument(..., help="The catalogue, entities.jsonl"),
    articles: List[Path] = typer.Argument(..., help="Articles: JSONL with id and text"),
    merges: Path = typer.Option(..., help="Ids that went, and those that stay"),
    work: Path = WORK,
) -> None:
    """Split articles into passages, behind the openings of the catalogue."""
    from .data import read_articles, read_merges, read_records
    from .passages import build_passages

    texts = read_articles(articles, read_merges(merges))
    made = build_passages(read_records(catalogue), texts, work / "passages")
    typer.echo(f"{len(made):,} passages of {len(made.begins) - 1:,} entities")


@app.command()
def words(work: Path = WORK) -> None:
    """Number the words of the passages."""
    from .passages import Passages
    from .words import build_words

    build_words(Passages(work / "passages").texts(), work / "words")


@app.command()
def search(
    work: Path = WORK,
    k1: float = typer.Option(0.9, help="BM25's k1"),
    b: float = typer.Option(0.4, help="BM25's b"),
) -> None:
    """Index passages by BM25."""
    from .search import build_search
    from .words import Words

    build_search(Words(work / "words"), work / "search", k1=k1, b=b)


@app.command()
def articles(work: Path = WORK) -> None:
    """Index articles by TF-IDF."""
    from .passages import Passages
    from .tfidf import build_tfidf
    from .words import Words

    build_tfidf(Words(work / "words"), Passages(work / "passages").begins, work / "tfidf")


@app.command()
def graph(
    edges: Path = typer.Argument(..., help="Folder with kb.tsv.xz, links.tsv.gz and tables.tsv.gz"),
    work: Path = WORK,
) -> None:
    """Put the edges between entities into arrays."""
    from .graph import build_graph, read_edges
    from .passages import Passages

    made = Passages(work / "passages")
    build_graph(read_edges(edges, made), len(made.begins) - 1, work / "graph")

"""The commands of `project.yml`: parse, call, print."""

from pathlib import Path
from typing import List

import typer

app = typer.Typer(help=__doc__, no_args_is_help=True)
WORK = typer.Option(Path("work"), help="Folder of all that is made")
RESULTS = typer.Option(Path("results"), help="Folder of the result files")


@app.command()
def passages(
    catalogue: Path = typer.Argument(..., help="The catalogue, entities.jsonl"),
    articles: List[Path] = typer.Argument(..., help="Articles: JSONL with id and text"),
    merges: Path = typer.Option(..., help="Ids that went, and those that stay"),
    work: Path = WORK,
    results: Path = RESULTS,
) -> None:
    """Split articles into passages, behind the openings of the catalogue."""
    from .data import read_articles, read_merges, read_records
    from .passages import build_passages
    from .report import write_result

    texts = read_articles(articles, read_merges(merges))
    made = build_passages(read_records(catalogue), texts, work / "passages")
    known = {"passages": len(made), "entities": len(made.begins) - 1}
    counts = {**known, "articles": sum(map(len, texts.values()))}
    write_result(results / "data" / "passages.json", counts)
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
    results: Path = RESULTS,
) -> None:
    """Put the edges between entities into arrays."""
    from .graph import SOURCES, build_graph, read_edges
    from .passages import Passages
    from .report import write_result

    made = Passages(work / "passages")
    found = list(read_edges(edges, made))
    build_graph(found, len(made.begins) - 1, work / "graph")
    write_result(results / "data" / "graph.json", dict(zip(SOURCES, map(len, found), strict=True)))


@app.command()
def gold(
    name: str = typer.Argument(..., help="Name of the question set"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
    results: Path = RESULTS,
) -> None:
    """Write the gold entities of a question set as the links of a linker."""
    from .data import read_gold, read_questions
    from .links import write_gold
    from .report import write_result

    questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
    write_gold(questions, read_gold(data / "questions"), work / "links" / name / "gold.jsonl")
    trained = read_gold(data / "questions", "webqsp_el_train")
    counts = {"questions": len(questions), "trained": sum(x.gold in trained for x in questions)}
    write_result(results / "data" / f"{name}.json", counts)


@app.command()
def link(
    pipeline: str = typer.Argument(..., help="Any pipeline that sets doc.ents"),
    linker: str = typer.Argument(..., help="Its name in the tables"),
    names: List[str] = typer.Argument(..., help="Names of question sets"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
) -> None:
    """Link question sets."""
    import spacy

    from .data import read_questions
    from .links import link_questions, stamp_pipeline

    nlp, stamp = spacy.load(pipeline), stamp_pipeline(pipeline)
    for name in names:
        questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
        link_questions(nlp, questions, work / "links" / name / f"{linker}.jsonl", stamp=stamp)


@app.command()
def retrieve(
    names: List[str] = typer.Argument(..., help="Names of question sets"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
    results: Path = RESULTS,
) -> None:
    """Retrieve passages with all systems whose links are there, and measure answer recall."""
    from .data import read_questions
    from .report import write_recall
    from .retrieve import open_retriever
    from .runs import retrieve_all
    from .systems import find_systems

    retriever = open_retriever(work)
    for name in names:
        questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
        runs = retrieve_all(
            retriever, questions, find_systems(name, work / "links" / name), work / "runs" / name
        )
        write_recall(name, questions, runs, results)


@app.command()
def tagme(
    dictionary: Path = typer.Argument(..., help="Made by python -m spacy elq dictionary"),
    pipeline: Path = typer.Argument(..., help="Folder of the pipeline"),
    threshold: float = typer.Option(0.1, help="Least score of a link"),
) -> None:
    """Make a pipeline with TAGME."""
    import spacy

    nlp = spacy.blank("en")
    # link probabilities below 0.1, the least of TAGME's second version, cost time
    config = {"dictionary": str(dictionary.absolute()), "min_link_probability": 0.1}
    nlp.add_pipe("elq_tagme", config={**config, "decoder": {"threshold": threshold}})
    nlp.to_disk(pipeline)


@app.command()
def engine(
    library: str = typer.Argument(..., help="bm25s or tantivy"),
    name: str = typer.Argument("webquestions_dev", help="Name of the question set"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
    results: Path = RESULTS,
) -> None:
    """Measure a search library on the passages: time, size, questions/s, answer recall."""
    from .data import read_questions
    from .engines import measure
    from .passages import Passages
    from .report import write_result

    questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
    row = measure(library, Passages(work / "passages"), questions, work / "engines" / library)
    write_result(results / "engines" / f"{library}.json", {"set": name, **row})


@app.command()
def train(
    encoder: str = typer.Argument(..., help="Folder of the encoder"),
    names: List[str] = typer.Argument(..., help="Names of question sets"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
    steps: int = typer.Option(500, help="Batches"),
    batch_size: int = typer.Option(8, help="Questions in a batch"),
    threads: int = typer.Option(2, help="Threads"),
) -> None:
    """Train the reader on distant supervision by BM25, and on SQuAD's development set. Resumable."""
    import torch

    from .data import read_questions
    from .reader import Reader
    from .report import write_losses
    from .retrieve import open_retriever
    from .runs import System, retrieve_all
    from .systems import Setting
    from .training import read_squad, supervise, train

    torch.set_num_threads(threads)
    retriever = open_retriever(work)
    groups = list(read_squad(data / "qa" / "reader" / "squad_dev.jsonl.gz"))
    for name in names:
        questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
        runs = retrieve_all(retriever, questions, [System(Setting(), {})], work / "runs" / name)
        groups += supervise(questions, runs["bm25"], retriever.passages)
    losses = train(Reader(encoder), groups, work / "reader", steps=steps, batch_size=batch_size)
    write_losses(losses, len(groups), work / "reader")


@app.command()
def read(
    names: List[str] = typer.Argument(..., help="Names of question sets"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
    results: Path = RESULTS,
    count: int = typer.Option(10, help="Passages of each system that are read"),
    limit: int = typer.Option(0, help="Read only so many questions of a set, from the first on; 0 for all"),
    threads: int = typer.Option(2, help="Threads"),
) -> None:
    """Read the first passages of all systems that were run, and measure exact match. Resumable."""
    import torch

    from .data import read_questions
    from .passages import Passages
    from .reader import Reader
    from .reading import Readings, make_stamp, read_all
    from .report import write_exact
    from .runs import read_runs

    torch.set_num_threads(threads)
    made, folder = Passages(work / "passages"), work / "reader"
    reader = Reader(str(folder))
    for name in names:
        questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
        questions = questions[: limit or len(questions)]
        runs = read_runs(work / "runs" / name, len(questions))
        readings = Readings(work / "readings" / f"{name}.db", make_stamp(folder, made))
        read_all(reader, questions, runs.values(), made, readings, count=count)
        write_exact(name, questions, runs, made, readings, results, count=count)


@app.command()
def page(
    output: Path = typer.Argument(..., help="Page to write"),
    results: Path = RESULTS,
) -> None:
    """Write the page from the result files and page.md."""
    from .page import write_page

    write_page(output, results)


@app.command()
def choose_bm25(
    name: str = typer.Argument("webquestions_dev", help="Name of the question set"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
    results: Path = RESULTS,
) -> None:
    """Try BM25's parameters on the development set."""
    from .choices import try_bm25
    from .data import read_questions
    from .passages import Passages
    from .report import write_result
    from .words import Words

    questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
    pairs = [(0.6, 0.2), (0.9, 0.4), (1.2, 0.75)]
    made, words = Passages(work / "passages"), Words(work / "words")
    tried = try_bm25(words, made, questions, pairs, work / "choices")
    write_result(results / "choices" / "bm25.json", {"set": name, "tried": tried})


@app.command()
def choose_boost(
    linker: str = typer.Argument(..., help="A linker that has linked the question set"),
    name: str = typer.Argument("webquestions_dev", help="Name of the question set"),
    data: Path = typer.Option(..., help="Folder of the raw files"),
    work: Path = WORK,
    results: Path = RESULTS,
) -> None:
    """Try how much the passages of linked entities are raised, on the development set."""
    from .choices import try_boosts
    from .data import read_questions
    from .links import read_links
    from .report import write_result
    from .retrieve import open_retriever

    questions = read_questions(data / "qa" / "questions" / f"{name}.jsonl")
    links = read_links(work / "links" / name / f"{linker}.jsonl")
    tried = try_boosts(open_retriever(work), questions, linker, links, [1.0, 2.0, 4.0, 8.0, 16.0])
    write_result(results / "choices" / f"boost-{linker}.json", {"set": name, "tried": tried})


@app.command()
def examples(
    pipeline: str = typer.Argument(..., help="Any pipeline that sets doc.ents"),
    linker: str = typer.Argument(..., help="Its name in the tables"),
    questions: Path = typer.Argument(Path("assets/questions.jsonl"), help="Questions with answers"),
    work: Path = WORK,
    results: Path = RESULTS,
) -> None:
    """Show questions where links help BM25, and where they hurt."""
    import spacy

    from .data import read_questions
    from .examples import show_examples
    from .report import write_result
    from .retrieve import open_retriever

    rows = show_examples(spacy.load(pipeline), open_retriever(work), read_questions(questions))
    write_result(results / "examples" / f"{linker}.json", {"linker": linker, "questions": rows})

"""Measure how sound the links of a pipeline are: on catalogues that it never saw, on exact names, on texts
that name nothing, and whether its scores are probabilities. Writes `results/soundness-NAME.json`.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Set

import numpy as np
import typer
from records import RESULTS, write_record
from spacy.language import Language
from spacy.tokens import Doc, Span
from stub import write_catalogue

from spacy_elq import Entity, EntityIndex
from spacy_elq.catalogue import read_catalogue
from spacy_elq.core.calibration import calibration_error, reliability, risk_coverage
from spacy_elq.corpora.formats import read_marked
from spacy_elq.evaluation import load_pipeline, process, read_gold
from spacy_elq.evaluation.thresholds import judge_links
from spacy_elq.index import build_index, encode_catalogue
from spacy_elq.names import as_written, entity_names, normalize_name
from spacy_elq.pipeline.scorer import count_links, is_linked, is_weak_match, match, mention_of

app = typer.Typer(help=__doc__, no_args_is_help=True)
DOMAINS = ("shop", "offices", "films")
TEMPLATES = (
    "price of {}",
    "{} opening hours",
    "tell me about {}",
    "where can i find {} near me",
    "is {} any good?",
)
# a text for each thing that may stand around a name
AROUND = ("{} \U0001f600", '"{}"', "({})", "{}.", "{}?", "{} - cheap", "<b>{}</b>", "{}'s price", "is it {}?")
LEFT_OUT = 0.3
_ASSETS = typer.Option(Path("assets"), help="Catalogues and questions of other domains")
_RESULTS = typer.Option(RESULTS, help="Folder of the result files")


@dataclass(frozen=True)
class Asked:
    """A question and its gold links, as (start, end, id) in characters."""

    text: str
    gold: List[Any]


@dataclass(frozen=True)
class Subject:
    """What is measured.

    nlp (Language), linker (Any): A pipeline and its linker.
    work (Path): Folder for indexes.
    """

    nlp: Language
    linker: Any
    work: Path

    def use(self, name: str, entities: Sequence[Entity]) -> None:
        """Link to a small catalogue from now on."""
        encoder, folder = self.linker._require_encoder(), self.work / name
        folder.mkdir(parents=True, exist_ok=True)
        catalogue = write_catalogue(folder / "entities.jsonl", entities)
        encode_catalogue(catalogue, folder / "vectors", encoder)
        build_index(folder / "vectors", folder / "index")
        self.linker.set_index(EntityIndex.open(folder / "index"))

    def link(self, texts: Iterable[str]) -> List[Doc]:
        """RETURNS (List[Doc]): Linked docs."""
        return list(self.nlp.pipe(texts, batch_size=64))


@app.command()
def catalogues(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    name: str = typer.Argument(..., help="Name of the result file"),
    assets: Path = _ASSETS,
    own: Path = typer.Option(Path("../../assets"), help="The embedded catalogue and questions"),
    part: str = typer.Option("test", help="Which of the own questions and texts: dev or test"),
    work: Path = typer.Option(Path("work/soundness"), help="Folder for indexes"),
    results: Path = _RESULTS,
) -> None:
    """Link questions, names, and texts that name nothing, over catalogues that the pipeline never saw."""
    subject = Subject(*load_pipeline(pipeline), work)
    asked, nothing = (
        read_asked(folder / f"{part}.txt") for folder in (own / "questions", assets / "nothing")
    )
    record: Dict[str, Any] = {"pipeline": name, "part": part, "questions": len(asked), "texts": len(nothing)}
    record["own"] = {"f": weak_f(subject, asked), "nothing": links_per_100(subject, nothing)}
    record["own"] |= measure_scores(subject, asked)
    record["domains"] = {}
    for domain in DOMAINS:
        entities = list(read_catalogue(assets / domain / "entities.jsonl"))
        subject.use(domain, entities)
        record["domains"][domain] = {
            "entities": len(entities),
            "f": weak_f(subject, read_asked(assets / domain / "questions.txt")),
            "foreign": links_per_100(subject, asked),
            "nothing": links_per_100(subject, nothing),
            **measure_names(subject, entities),
        }
    record["left_out"] = measure_left_out(subject, asked, own / "entities.jsonl")
    write_record(results, f"soundness-{name}", record)


@app.command()
def questions(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    name: str = typer.Argument(..., help="Name of the result file"),
    data: Path = typer.Argument(..., help="Questions with gold links (.spacy)"),
    assets: Path = _ASSETS,
    results: Path = _RESULTS,
) -> None:
    """Link questions of a real set, and texts that name nothing, over the pipeline's own catalogue."""
    subject = Subject(*load_pipeline(pipeline), Path())
    examples = read_gold(data, subject.nlp)
    process(subject.nlp, examples, batch_size=64, desc="Link")
    links = [link for example in examples for link in judge_links(example)]
    record: Dict[str, Any] = {"pipeline": name, "set": data.stem, "questions": len(examples)}
    record["f"] = round(count_links(examples)["weak"].fscore, 4)
    record |= describe_scores(links)
    nothing = read_asked(assets / "nothing" / "test.txt")
    record |= {"texts": len(nothing), "nothing": links_per_100(subject, nothing)}
    write_record(results, f"soundness-{name}", record)


def read_asked(path: Path) -> List[Asked]:
    """RETURNS (List[Asked]): Marked questions."""
    return [Asked(q.text, [(s.start, s.end, s.id) for s in q.spans]) for q in read_marked(path)]


def linked(doc: Doc) -> List[Span]:
    """RETURNS (List[Span]): The entities that have a link."""
    return [ent for ent in doc.ents if is_linked(ent)]


def links_per_100(subject: Subject, asked: List[Asked]) -> float:
    """RETURNS (float): Links per 100 texts."""
    docs = subject.link(x.text for x in asked)
    return round(100 * sum(len(linked(doc)) for doc in docs) / len(docs), 2)


def weak_f(subject: Subject, asked: List[Asked]) -> float:
    """RETURNS (float): Weak F1."""
    rows = judge(subject, asked)
    found, gold, right = (sum(row[i] for row in rows) for i in range(3))
    return round(2 * right / max(found + gold, 1), 4)


def judge(subject: Subject, asked: List[Asked]) -> List[List[int]]:
    """RETURNS (List[List[int]]): For each question, the number of links, gold links and right links."""
    rows = []
    for doc, x in zip(subject.link(x.text for x in asked), asked, strict=True):
        own = [mention_of(ent) for ent in linked(doc)]
        rows.append([len(own), len(x.gold), len(match(x.gold, own, is_weak_match))])
    return rows


def measure_scores(subject: Subject, asked: List[Asked]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): How far scores are from the share of right links."""
    links = []
    for doc, x in zip(subject.link(x.text for x in asked), asked, strict=True):
        ents = linked(doc)
        pairs = match(x.gold, [mention_of(ent) for ent in ents], is_weak_match)
        right = {p for _, p in pairs}
        links += [(ent._.elq_score, i in right) for i, ent in enumerate(ents)]
    return describe_scores(links)


def describe_scores(links: Sequence[Any]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): Expected calibration error, reliability and risk of links (score, right)."""
    scores, right = (np.asarray([link[i] for link in links], dtype="float64") for i in range(2))
    bins = [{key: round(value, 4) for key, value in row.items()} for row in reliability(scores, right)]
    error = round(calibration_error(scores, right), 4)
    risk = [
        {key: round(row[key], 4) for key in ("coverage", "risk")} for row in risk_coverage(scores, right)[::4]
    ]
    return {"links": len(links), "calibration_error": error, "reliability": bins, "risk": risk}


def measure_names(subject: Subject, entities: List[Entity]) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): How often names are found, alone and in templates, and the mentions that
    end at the wrong character when something stands around a name.
    """
    bearers = {entity.id: entity_names(entity) for entity in entities}
    names = sorted({name for entity in entities for name in (entity.title, *entity.aliases)})
    return {
        "names": len(names),
        "alone": share_found(subject, names, ("{}",), bearers),
        "templates": share_found(subject, names, TEMPLATES, bearers),
        "bad_edges": count_bad_edges(subject, names),
    }


def share_found(
    subject: Subject, names: List[str], templates: Sequence[str], bearers: Dict[str, Set[str]]
) -> float:
    """RETURNS (float): How often an entity with the name is linked, over the whole name, in lower case."""
    wanted = [normalize_name(name) for name in names for _ in templates]
    docs = subject.link(template.format(name).lower() for name in names for template in templates)
    found = [
        any(normalize_name(ent.text) == name and name in bearers[ent.kb_id_] for ent in linked(doc))
        for doc, name in zip(docs, wanted, strict=True)
    ]
    return round(sum(found) / len(found), 4)


def count_bad_edges(subject: Subject, names: List[str]) -> int:
    """RETURNS (int): Mentions that have more or fewer characters at an end than a name, other than words."""
    known = {as_written(name) for name in names}
    docs = subject.link(around.format(name) for name in names for around in AROUND)
    texts = [as_written(ent.text) for doc in docs for ent in linked(doc)]
    return sum(1 for text in texts if text not in known and not (text[0].isalnum() and text[-1].isalnum()))


def measure_left_out(subject: Subject, asked: List[Asked], catalogue: Path) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): With 30 % of the entities left out, links to wrong entities per 100
    questions, those of them whose gold is left out, and weak F1 on what is there.
    """
    entities = list(read_catalogue(catalogue))
    kept = random.Random(0).sample(entities, round((1 - LEFT_OUT) * len(entities)))
    ids = {entity.id for entity in kept}
    subject.use("left_out", kept)
    rows = judge(subject, asked)
    absent = [not any(gold[2] in ids for gold in x.gold) and bool(x.gold) for x in asked]
    lost = [found for (found, _, _), is_absent in zip(rows, absent, strict=True) if is_absent]
    there = [Asked(x.text, [gold for gold in x.gold if gold[2] in ids]) for x in asked]
    return {
        "wrong": round(100 * sum(found - right for found, _, right in rows) / len(asked), 2),
        "absent": round(100 * sum(lost) / max(len(lost), 1), 2),
        "f": weak_f(subject, there),
    }


if __name__ == "__main__":
    app()

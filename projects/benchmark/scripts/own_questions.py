"""Measure what training on your own questions brings: a trained pipeline over the catalogue of another
domain, as it is, and fine-tuned on a few dozen questions, on questions made from the catalogue, and on both.
Writes `results/own-questions.json`.
"""

import json
from pathlib import Path
from typing import Any, Dict, List

import typer
from records import RESULTS, write_record
from soundness import Asked, Subject, judge, links_per_100, read_asked, weak_f
from spacy.cli.train import train
from split import split

from spacy_elq.catalogue import read_catalogue
from spacy_elq.corpora import Question
from spacy_elq.corpora.convert import convert
from spacy_elq.corpora.formats import read_marked, write_marked
from spacy_elq.corpora.generate import write_questions
from spacy_elq.evaluation import load_pipeline
from spacy_elq.evaluation.thresholds import choose_thresholds
from spacy_elq.pipeline.configs import read_config

DOMAINS = ("shop", "offices")
# how many of the questions train and choose the best step; the others are the test
TRAIN, DEV = 40, 15
# the questions for training and for development of each way to fine-tune
WAYS = {"own": ("train", "dev"), "made": ("made", "made_dev"), "both": ("both", "dev")}


def main(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    assets: Path = typer.Option(Path("assets"), help="Catalogues and questions of other domains"),
    others: Path = typer.Option(
        Path("../../assets/questions/test.txt"), help="Questions about things that no domain has"
    ),
    work: Path = typer.Option(Path("work/own-questions"), help="Folder for question sets and pipelines"),
    seed: int = typer.Option(0, help="Another seed gives another split"),
    steps: int = typer.Option(0, help="Training steps; 0: computed from the number of questions"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Fine-tune a pipeline in three ways for each domain, and link the test questions."""
    foreign = read_asked(others)
    record: Dict[str, Any] = {"seed": seed, "others": len(foreign), "domains": {}}
    for domain in DOMAINS:
        subject = Subject(*load_pipeline(pipeline), work)
        subject.use(domain, list(read_catalogue(assets / domain / "entities.jsonl")))
        counts = write_sets(assets / domain / "questions.txt", work / domain, seed)
        asked = read_asked(work / domain / "test.txt")
        row: Dict[str, Any] = {"questions": counts, "gold": sum(len(x.gold) for x in asked)}
        row["recall"] = {
            "made": weak_recall(subject, read_asked(work / domain / "made.txt")),
            "real": weak_recall(subject, read_asked(assets / domain / "questions.txt")),
        }
        row["as_is"] = measure(subject, asked, foreign)
        for way in WAYS:
            tuned = fine_tune(pipeline, work / domain, way, steps=steps)
            row[way] = measure(Subject(*load_pipeline(str(tuned)), work), asked, foreign)
            row[way]["step"] = best_step(work / domain / way / "log.jsonl")
        record["domains"][domain] = row
    write_record(results, "own-questions", record)


def write_sets(source: Path, folder: Path, seed: int) -> Dict[str, int]:
    """Write all question sets, as marked text and for `spacy train`: those of a split, those that
    `elq questions` makes of the catalogue, other ones for development, and made and own ones together.

    source (Path): Real questions.
    folder (Path): Has the catalogue.
    RETURNS (Dict[str, int]): How many questions each set has.
    """
    sets = split(list(read_marked(source)), seed, train=TRAIN, dev=DEV)
    sets["made"] = make_questions(folder, seed=seed, per_entity=4)
    seen = {question.text for question in sets["made"]}
    fresh = make_questions(folder, seed=seed + 1, per_entity=1)
    sets["made_dev"] = [question for question in fresh if question.text not in seen]
    sets["both"] = sets["train"] + sets["made"]
    for name, questions in sets.items():
        write_marked(questions, folder / f"{name}.txt")
        convert(folder / f"{name}.txt", folder / f"{name}.spacy")
    return {name: len(questions) for name, questions in sets.items()}


def make_questions(folder: Path, *, seed: int, per_entity: int) -> List[Question]:
    """RETURNS (List[Question]): What `elq questions` makes of the catalogue of a folder."""
    path = folder / "generated.txt"
    write_questions(folder / "entities.jsonl", path, per_entity=per_entity, seed=seed)
    return list(read_marked(path))


def fine_tune(pipeline: str, folder: Path, way: str, *, steps: int) -> Path:
    """Do what docs/questions.md says: `elq init-config finetune`, `spacy train` and, if there are real
    questions to choose it on, `elq threshold`.

    RETURNS (Path): The pipeline.
    """
    output, (training, dev) = folder / way, WAYS[way]
    output.mkdir(exist_ok=True)
    # spaCy's logger refuses a file that exists
    (output / "log.jsonl").unlink(missing_ok=True)
    paths = {"index": folder / "index", "log": output / "log.jsonl"}
    paths |= {"train": folder / f"{training}.spacy", "dev": folder / f"{dev}.spacy"}
    config = read_config("finetune", {"pipeline": pipeline, **{k: str(v) for k, v in paths.items()}})
    (output / "config.cfg").write_text(config, encoding="utf8")
    train(output / "config.cfg", output, overrides={"training.max_steps": steps} if steps else {})
    if dev != "dev":
        return output / "model-best"
    choose_thresholds(str(output / "model-best"), folder / "dev.spacy", output=output / "model")
    return output / "model"


def best_step(log: Path) -> int:
    """RETURNS (int): The step of `model-best`: of equal scores, the last is the best for spaCy."""
    rows = [json.loads(line) for line in log.read_text(encoding="utf8").splitlines()]
    return max((row["score"], row["step"]) for row in rows)[1]


def measure(subject: Subject, asked: List[Asked], foreign: List[Asked]) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): Weak F1, and links per 100 questions about other things."""
    return {"f": weak_f(subject, asked), "foreign": links_per_100(subject, foreign)}


def weak_recall(subject: Subject, asked: List[Asked]) -> float:
    """RETURNS (float): The share of gold links that are found."""
    rows = judge(subject, asked)
    return round(sum(row[2] for row in rows) / max(sum(row[1] for row in rows), 1), 4)


if __name__ == "__main__":
    typer.run(main)

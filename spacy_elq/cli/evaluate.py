"""`spacy elq evaluate`."""

import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

import srsly
import typer
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training import Example
from wasabi import msg

from ..corpora.base import KIND
from ..gold import gold_spans
from ..linker import ELQLinker
from ..scorer import count_links
from ._util import command, load_pipeline, process, read_docs, read_gold


@command("evaluate")
def evaluate_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Test questions with gold links (.spacy)"),
    output: Path = typer.Argument(
        ..., help="JSON file for the metrics; the linked docs go beside it (.linked.spacy)"
    ),
    train: Optional[Path] = typer.Option(
        None, "--train", "-t", help="Training questions (.spacy), to tell seen from unseen entities"
    ),
    batch_size: int = typer.Option(64, "--batch-size", "-b", help="Questions in one batch"),
) -> None:
    """Evaluate a pipeline on questions with gold links: weak and strong match, mentions only, links only,
    for entities that training saw or never saw, and for each kind of question.

    `spacy evaluate` gives the overall figures too; `spacy elq report` shows what this command wrote.
    """
    metrics = evaluate(pipeline, data_path, output, train=train, batch_size=batch_size)
    msg.good(f"{output}: weak F1 {metrics['weak']['f']:.4f} on {metrics['questions']} questions")


def evaluate(
    pipeline: str,
    data_path: Path,
    output: Path,
    *,
    train: Optional[Path] = None,
    batch_size: int = 64,
) -> Dict[str, Any]:
    """Evaluate and write metrics and linked docs.

    RETURNS (Dict[str, Any]): The metrics.
    """
    nlp, linker = load_pipeline(pipeline)
    examples = read_gold(data_path, nlp, linker)
    speed = _questions_per_second(nlp, examples, batch_size)
    process(nlp, examples, batch_size=batch_size, desc="Evaluate")
    metrics: Dict[str, Any] = _measure(examples, linker)
    if train is not None:
        key = linker.cfg["gold_key"]
        ids = {span.kb_id_ for doc in read_docs(train, nlp) for span in gold_spans(doc, key=key)}
        for name, group in _split(examples, ids, key).items():
            metrics[name] = _measure(group, linker)
    kinds = {kind: None for example in examples if (kind := _kind(example))}
    metrics["kinds"] = {
        kind: _measure([example for example in examples if _kind(example) == kind], linker) for kind in kinds
    }
    metrics["questions_per_second"] = speed
    metrics["threshold"] = linker.cfg["threshold"]
    metrics["gold_key"] = linker.cfg["gold_key"]
    output.parent.mkdir(parents=True, exist_ok=True)
    srsly.write_json(output, metrics)
    _save_predictions(examples, predictions_path(output))
    return metrics


def predictions_path(metrics_path: Path) -> Path:
    """RETURNS (Path): Where the linked docs are that belong to a file of metrics."""
    return metrics_path.with_suffix(".linked.spacy")


def _measure(examples: List[Example], linker: ELQLinker) -> Dict[str, Any]:
    counts = count_links(examples, links=linker.link_gold(examples), gold_key=linker.cfg["gold_key"])
    weak = counts["weak"]
    return {
        "questions": len(examples),
        "gold": weak.tp + weak.fn,
        "found": weak.tp + weak.fp,
        **{name: score.to_dict() for name, score in counts.items()},
    }


def _split(examples: List[Example], ids: Set[str], key: str) -> Dict[str, List[Example]]:
    """Unseen: questions with gold links of which training knew no entity. Seen: the others with gold
    links. Questions without gold links are in neither.
    """
    groups: Dict[str, List[Example]] = {"seen": [], "unseen": []}
    for example in examples:
        gold = {span.kb_id_ for span in gold_spans(example.reference, key=key)}
        if gold:
            groups["unseen" if gold.isdisjoint(ids) else "seen"].append(example)
    return groups


def _questions_per_second(nlp: Language, examples: List[Example], batch_size: int) -> float:
    texts = [example.text for example in examples]
    list(nlp.pipe(texts[:batch_size], batch_size=batch_size))
    begin = time.perf_counter()
    count = sum(1 for _ in nlp.pipe(texts, batch_size=batch_size))
    return count / (time.perf_counter() - begin)


def _kind(example: Example) -> str:
    return str(example.reference.user_data.get(KIND, ""))


def _save_predictions(examples: List[Example], path: Path) -> None:
    docs = DocBin(store_user_data=True)
    for example in examples:
        doc = example.predicted
        for key in [k for k in doc.user_data if "trf_data" in k]:
            del doc.user_data[key]
        docs.add(doc)
    docs.to_disk(path)

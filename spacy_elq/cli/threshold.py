"""`spacy elq threshold`."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import typer
from spacy.training import Example
from wasabi import msg

from ..errors import ELQError, Errors
from ..gold import LOST, gold_spans
from ..index import EntityIndex
from ..linker import ELQLinker
from ..scorer import is_weak_match, match, mention_of
from ._util import command, load_pipeline, process, read_gold, save_pipeline, set_setting

LOWEST = 0.001


@command("threshold")
def threshold_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Development questions with gold links (.spacy)"),
    output: Optional[Path] = typer.Option(
        None,
        "--output",
        "-o",
        help="Folder for the pipeline with its new threshold; by default the pipeline itself",
    ),
    index_path: Optional[Path] = typer.Option(
        None, "--index", "-i", help="Another index of the same encoder, for the pipeline to use from now on"
    ),
    batch_size: int = typer.Option(128, "--batch-size", "-b", help="Questions in one batch"),
) -> None:
    """Find the threshold with the best weak F1 on development questions, and write it into the pipeline.

    The threshold is the least joint probability of a mention and its entity. One pass over the data is
    enough to try them all. It belongs to the pipeline, to its index, to its number of candidates and to the
    kind of text: choose it anew when one of them changes.
    """
    result = threshold(pipeline, data_path, output=output, index_path=index_path, batch_size=batch_size)
    rows = [
        (f"{row['threshold']:.4f}", f"{row['p']:.4f}", f"{row['r']:.4f}", f"{row['f']:.4f}")
        for row in result["shown"]
    ]
    msg.table(rows, header=("threshold", "P", "R", "F"), divider=True, aligns=("r", "r", "r", "r"))
    msg.good(
        f"Threshold {result['threshold']:.4f} (was {result['before']:.4f}): weak F1 "
        f"{result['f']:.4f}, saved to {result['output']}"
    )


def threshold(
    pipeline: str,
    data_path: Path,
    *,
    output: Optional[Path] = None,
    index_path: Optional[Path] = None,
    batch_size: int = 128,
) -> Dict[str, Any]:
    """Choose a threshold and save the pipeline with it.

    index_path (Optional[Path]): An index to take the place of the one that the pipeline has.
    RETURNS (Dict[str, Any]): The threshold chosen and the one before, F1, and a few rows to look at.
    """
    nlp, linker = load_pipeline(pipeline)
    if index_path is not None:
        linker.set_index(EntityIndex.open(index_path))
        nlp.get_pipe_config(linker.name)["index_path"] = None
    examples = read_gold(data_path, nlp, linker)
    before = linker.cfg["threshold"]
    linker.cfg["threshold"] = LOWEST
    process(nlp, examples, batch_size=batch_size, desc="Link")
    curve = threshold_curve(examples, linker)
    if not curve:
        raise ELQError(Errors.E043.format(pipeline=pipeline, path=data_path, lowest=LOWEST))
    best = max(curve, key=lambda row: row["f"])
    set_setting(nlp, linker, "threshold", best["threshold"])
    target = output or nlp.path or Path(pipeline)
    save_pipeline(nlp, target)
    shown = sorted(curve, key=lambda row: abs(row["f"] - best["f"]))[:1]
    shown += [curve[i] for i in np.linspace(0, len(curve) - 1, 8).astype(int)]
    shown.sort(key=lambda row: row["threshold"])
    return {**best, "before": before, "output": str(target), "shown": shown}


def threshold_curve(examples: List[Example], linker: ELQLinker) -> List[Dict[str, float]]:
    """Weak precision, recall and F1 for every threshold that makes a difference.

    Greedy decoding goes from the best link down, so what a higher threshold gives is what a lower one
    gave, less the links below it.

    examples (List[Example]): Processed with the lowest threshold.
    RETURNS (List[Dict[str, float]]): Rows by ascending threshold, each between two scores; none if
        there are no links.
    """
    links: List[Tuple[float, bool]] = []
    n_gold = 0
    for example in examples:
        n_gold += len(gold_spans(example.reference, key=linker.cfg["gold_key"]))
        n_gold += int(example.reference.user_data.get(LOST, 0))
        links += _judge(example, linker)
    links.sort(key=lambda link: -link[0])
    scores = np.asarray([link[0] for link in links] + [LOWEST])
    right = np.cumsum([link[1] for link in links])
    counts = np.arange(1, len(links) + 1)
    rows = [
        {
            "threshold": float(np.sqrt(max(scores[i], LOWEST) * max(scores[i + 1], LOWEST))),
            "p": float(right[i] / counts[i]),
            "r": float(right[i] / n_gold),
            "f": float(2 * right[i] / (counts[i] + n_gold)),
        }
        for i in range(len(links))
        if scores[i] > scores[i + 1] or i == len(links) - 1
    ]
    return rows[::-1]


def _judge(example: Example, linker: ELQLinker) -> List[Tuple[float, bool]]:
    """RETURNS (List[Tuple[float, bool]]): Score of every link of a doc, and whether it is right. Where
    several links could be right for one gold link, it is the best of them.
    """
    gold = [mention_of(span) for span in gold_spans(example.reference, key=linker.cfg["gold_key"])]
    own = [ent for ent in example.predicted.ents if ent._.elq_score is not None]
    ents = sorted(own, key=lambda ent: -ent._.elq_score)
    pairs = match([mention_of(ent) for ent in ents], gold, is_weak_match)
    right = {p for p, _ in pairs}
    return [(ent._.elq_score, i in right) for i, ent in enumerate(ents)]

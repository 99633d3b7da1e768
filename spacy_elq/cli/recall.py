"""`spacy elq recall`."""

from pathlib import Path
from typing import Any, Dict, List, Optional

import srsly
import typer
from wasabi import msg

from ..corpora.gold import gold_spans
from ..pipeline.gold import align_span
from ._util import command, load_pipeline, process, read_gold, set_settings


@command("recall")
def recall_cli(
    pipeline: str = typer.Argument(..., help="Trained pipeline"),
    data_path: Path = typer.Argument(..., help="Questions with gold links (.spacy)"),
    k: List[int] = typer.Option(
        [1, 10, 50], "--k", "-k", help="Numbers of candidates; may be given several times"
    ),
    output: Optional[Path] = typer.Option(None, "--output", "-o", help="JSON file for the figures"),
    batch_size: int = typer.Option(128, "--batch-size", "-b", help="Questions in one batch"),
) -> None:
    """Recall@k of the candidates: how often the gold entity is among the k that are retrieved for a gold
    mention. It is the upper bound of what linking can reach; mention detection plays no part.
    """
    result = recall(pipeline, data_path, ks=k, batch_size=batch_size)
    rows = [(f"recall@{size}", f"{value:.4f}") for size, value in result["recall"].items()]
    msg.table(rows, header=("", f"of {result['in_index']} mentions"), divider=True)
    msg.text(
        f"{result['mentions']} gold mentions: {result['unknown']} have an entity that is not in the "
        f"index, {result['misfits']} do not fit the tokens; they are not counted above."
    )
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        srsly.write_json(output, result)
        msg.good(f"Saved to {output}")


def recall(pipeline: str, data_path: Path, *, ks: List[int], batch_size: int = 128) -> Dict[str, Any]:
    """Measure recall@k over the gold mentions whose entity is in the index.

    RETURNS (Dict[str, Any]): "recall" by k, and how many mentions were counted or left out.
    """
    nlp, linker = load_pipeline(pipeline)
    examples = read_gold(data_path, nlp, linker)
    for k in ks:
        set_settings(nlp, linker, candidates=k)  # checks each
    linker.cfg["candidates"] = max(ks)
    index, key = linker.index, linker.cfg["gold_key"]
    assert index is not None
    ranks: List[int] = []
    result: Dict[str, Any] = {"mentions": 0, "unknown": 0, "misfits": 0, "in_index": 0}
    with nlp.select_pipes(disable=[linker.name]):
        process(nlp, examples, batch_size=batch_size, desc="Recall")
    for example in examples:
        gold = gold_spans(example.reference, key=key)
        result["mentions"] += len(gold)
        known = [span for span in gold if index.positions([span.kb_id_])[0] >= 0]
        result["unknown"] += len(gold) - len(known)
        aligned = [(span, align_span(example, span)) for span in known]
        fitting = [(span, place) for span, place in aligned if place is not None]
        result["misfits"] += len(known) - len(fitting)
        spans = [example.predicted[place[0] : place[1]] for _, place in fitting]
        links = linker.link_spans([example.predicted], [spans])[0]
        found = {(link.start, link.end): [a.id for a in link.alternatives] for link in links}
        for span, place in fitting:
            ids = found.get(place, [])
            ranks.append(ids.index(span.kb_id_) if span.kb_id_ in ids else max(ks))
    result["in_index"] = len(ranks)
    result["recall"] = {str(k): sum(r < k for r in ranks) / max(len(ranks), 1) for k in sorted(ks)}
    return result

"""Recall@k of the candidates of gold mentions."""

from pathlib import Path
from typing import Any, Dict, List

from ..corpora.gold import gold_spans
from ..pipeline.gold import align_span
from ..pipeline.settings import update_settings
from .pipelines import load_pipeline, process, read_gold


def recall(pipeline: str, data_path: Path, *, ks: List[int], batch_size: int = 128) -> Dict[str, Any]:
    """Measure recall@k over the gold mentions whose entity is in the index.

    RETURNS (Dict[str, Any]): "recall" by k, and how many mentions were counted and left out.
    """
    nlp, linker = load_pipeline(pipeline)
    examples = read_gold(data_path, nlp)
    for k in sorted(ks):  # checks each
        update_settings(nlp, linker.name, {"decoder.candidates": k})
    index = linker.index
    assert index is not None
    ranks: List[int] = []
    result: Dict[str, Any] = {"mentions": 0, "unknown": 0, "misfits": 0, "in_index": 0}
    with nlp.select_pipes(disable=[linker.name]):
        process(nlp, examples, batch_size=batch_size, desc="Recall")
    for example in examples:
        gold = gold_spans(example.reference)
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

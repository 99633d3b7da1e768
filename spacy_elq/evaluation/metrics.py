"""The metrics of a pipeline on questions with gold links."""

import re
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

import srsly
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import minibatch

from ..corpora.base import KIND
from ..corpora.gold import gold_spans
from ..errors import ELQError, Errors
from ..files import check_output, replace_file
from ..pipeline.gold import align_span
from ..pipeline.scorer import count_links, find_errors, is_linked, mention_of
from ..pipeline.settings import update_settings
from ..types import Entities, Linker
from .pipelines import load_pipeline, process, read_docs, read_gold


def evaluate(
    pipeline: str,
    data_path: Path,
    output: Path,
    *,
    train: Optional[Path] = None,
    batch_size: int = 64,
    threshold: Optional[float] = None,
    explain: bool = False,
) -> Dict[str, Any]:
    """Evaluate and write metrics and linked docs.

    explain (bool): Whether to write the parts of all scores too, for the report page.
    RETURNS (Dict[str, Any]): The metrics.
    """
    for path in (output, predictions_path(output), explained_path(output)):
        check_output(path, data_path, *([train] if train else []))
    nlp, linker = load_pipeline(pipeline)
    if explain and not hasattr(linker, "explain"):
        raise ELQError(Errors.E190.format(name=linker.name))
    if threshold is not None:
        update_settings(nlp, linker.name, {"decoder.threshold": threshold, "decoder.first_threshold": None})
    examples = read_gold(data_path, nlp)
    speed = _questions_per_second(nlp, examples, batch_size)
    process(nlp, examples, batch_size=batch_size, desc="Evaluate")
    metrics: Dict[str, Any] = _measure(examples, linker)
    if train is not None:
        ids = {span.kb_id_ for doc in read_docs(train, nlp) for span in gold_spans(doc)}
        for name, group in _split(examples, ids).items():
            metrics[name] = _measure(group, linker)
    described = [example for example in examples if _is_described(example, linker)]
    if 0 < len(described) < len(examples):
        metrics["described"] = _measure(described, linker)
    kinds = {kind: None for example in examples if (kind := _kind(example))}
    metrics["kinds"] = {
        kind: _measure([example for example in examples if _kind(example) == kind], linker) for kind in kinds
    }
    metrics["candidates_recall"] = _candidates_recall(examples, linker, batch_size)
    metrics["errors"] = _describe_errors(examples, linker)
    metrics["entities"] = len(_index(linker))
    metrics["questions_per_second"] = speed
    metrics["threshold"] = getattr(linker, "threshold", None)
    metrics["first_threshold"] = getattr(linker, "first_threshold", None)
    # what an earlier evaluation explained is not of these links
    explained_path(output).unlink(missing_ok=True)
    if explain:  # while the docs still have the output of the encoder
        _save_explanations(examples, linker, explained_path(output))
    _save_predictions(examples, predictions_path(output))
    with replace_file(output) as new:
        srsly.write_json(new, metrics)
    return metrics


def predictions_path(metrics_path: Path) -> Path:
    """RETURNS (Path): The file with the linked docs of a metrics file."""
    return metrics_path.with_suffix(".linked.spacy")


def explained_path(metrics_path: Path) -> Path:
    """RETURNS (Path): The file that explains the links of a metrics file."""
    return metrics_path.with_suffix(".explained.jsonl")


def _save_explanations(examples: List[Example], linker: Any, path: Path) -> None:
    with replace_file(path) as new:
        srsly.write_jsonl(new, (_explain(linker, example.predicted) for example in examples))


def _explain(linker: Any, doc: Doc) -> Dict[str, Any]:
    mentions = [mention.to_dict() for mention in linker.explain(doc)]
    return {"text": doc.text, "threshold": linker.threshold, "mentions": mentions}


def _measure(examples: List[Example], linker: Linker) -> Dict[str, Any]:
    counts = count_links(examples, links=linker.link_gold(examples))
    weak = counts["weak"]
    return {
        "questions": len(examples),
        "gold": weak.tp + weak.fn,
        "found": weak.tp + weak.fp,
        **{name: score.to_dict() for name, score in counts.items()},
    }


def _split(examples: List[Example], ids: Set[str]) -> Dict[str, List[Example]]:
    """Unseen: questions none of whose gold entities occur in training. Seen: the others with gold links.
    Questions without gold links are in neither.
    """
    groups: Dict[str, List[Example]] = {"seen": [], "unseen": []}
    for example in examples:
        gold = {span.kb_id_ for span in gold_spans(example.reference)}
        if gold:
            groups["unseen" if gold.isdisjoint(ids) else "seen"].append(example)
    return groups


def _is_described(example: Example, linker: Linker) -> bool:
    """RETURNS (bool): Whether the index has every gold entity of a question, with a description."""
    index = _index(linker)
    ids = [span.kb_id_ for span in gold_spans(example.reference)]
    return all(p >= 0 and index.entity(int(p)).description for p in index.positions(ids))


def _candidates_recall(examples: List[Example], linker: Linker, batch_size: int) -> float:
    """RETURNS (float): How often gold is among the candidates of its mention, where the index has it."""
    index = _index(linker)
    found = total = 0
    for batch in minibatch(examples, batch_size):
        golds = [[(s, align_span(x, s)) for s in gold_spans(x.reference)] for x in batch]
        pairs = [[(s, r) for s, r in gold if r and index.positions([s.kb_id_])[0] >= 0] for gold in golds]
        docs = [example.predicted for example in batch]
        spans = [[doc[r[0] : r[1]] for _, r in own] for doc, own in zip(docs, pairs, strict=True)]
        total += sum(len(own) for own in pairs)
        for own, links in zip(pairs, linker.link_spans(docs, spans), strict=True):
            offered = {(x.start, x.end): {a.id for a in x.alternatives} for x in links}
            found += sum(s.kb_id_ in offered.get(r, ()) for s, r in own)
    return found / total if total else 0.0


def _describe_errors(examples: List[Example], linker: Linker) -> Dict[str, List[Dict[str, str]]]:
    """RETURNS (Dict[str, List[Dict[str, str]]]): Missed mentions, wrong entities (those whose titles contain
    each other apart: more or less specific ones) and extra mentions.
    """
    errors: Dict[str, List[Dict[str, str]]] = {"missed": [], "wrong": [], "specific": [], "extra": []}
    for example in examples:
        gold = [mention_of(s) for s in gold_spans(example.reference)]
        links = [mention_of(ent) for ent in example.predicted.ents if is_linked(ent)]
        for wanted, got in find_errors(gold, links):
            kind = "missed" if got is None else "extra" if wanted is None else "wrong"
            start, end, _ = wanted or got or (0, 0, "")
            titles = [_title(linker, link[2]) if link else "" for link in (wanted, got)]
            if kind == "wrong" and _is_nested(*titles):
                kind = "specific"
            record = {"text": example.text, "mention": example.text[start:end]}
            errors[kind].append({**record, "gold": titles[0], "found": titles[1]})
    return errors


def _title(linker: Linker, id_: str) -> str:
    index = _index(linker)
    position = int(index.positions([id_])[0])
    return index.entity(position).title if position >= 0 else id_


def _is_nested(a: str, b: str) -> bool:
    words_a, words_b = (set(re.findall(r"\w+", title.lower())) for title in (a, b))
    return words_a <= words_b or words_b <= words_a


def _index(linker: Linker) -> Entities:
    assert linker.index is not None  # a pipeline without one has failed before
    return linker.index


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
    with replace_file(path) as new:
        docs.to_disk(new)

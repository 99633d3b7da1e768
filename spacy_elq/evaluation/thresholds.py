"""Calibration and thresholds, from development questions."""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
from spacy.language import Language
from spacy.training import Example

from ..core.calibration import apply_calibration, fit_calibration
from ..corpora.gold import LOST, gold_spans
from ..errors import ELQError, Errors, Warnings
from ..files import check_folder
from ..index import EntityIndex
from ..pipeline.scorer import is_linked, is_weak_match, match, mention_of
from ..pipeline.settings import update_settings
from ..types import Array, Linker
from .pipelines import load_pipeline, process, read_gold, save_pipeline

LOWEST = 0.001
# fewer gold links say too little to choose anything by
ENOUGH = 50
_UNCALIBRATED = {"slope": 1.0, "bias": 0.0}
# what lets all links through, with their joint probabilities as scores
_OPEN = {"threshold": LOWEST, "first_threshold": None, **_UNCALIBRATED}


def choose_thresholds(
    pipeline: str,
    data_path: Path,
    *,
    output: Optional[Path] = None,
    index_path: Optional[Path] = None,
    first: bool = False,
    calibrate: bool = True,
    target_precision: Optional[float] = None,
    batch_size: int = 128,
) -> Dict[str, Any]:
    """Fit the calibration, choose thresholds, and save the pipeline with them. With too few questions, both
    stay as they are.

    index_path (Optional[Path]): An index to use instead of the pipeline's own.
    first (bool): Whether the best link of a doc may get a lower threshold.
    calibrate (bool): Whether to fit the calibration; otherwise scores are joint probabilities.
    target_precision (Optional[float]): The precision to reach with as many links as possible; by default,
        weak F1 is maximized.
    RETURNS (Dict[str, Any]): The settings chosen and the threshold before, precision, recall and F1, and a
        few rows to look at.
    """
    if output is not None:
        check_folder(output)
    nlp, linker = load_pipeline(pipeline)
    if index_path is not None:
        if not hasattr(linker, "set_index"):
            raise ELQError(Errors.E077.format(setting="index_path", name=linker.name))
        linker.set_index(EntityIndex.open(index_path))
        update_settings(nlp, linker.name, {"index_path": None})
    examples = read_gold(data_path, nlp)
    target = output or nlp.path or Path(pipeline)
    before = {name: getattr(linker, name, None) for name in _settings_of(linker)}
    if (count := _count_gold(examples)) < ENOUGH:
        warnings.warn(Warnings.W011.format(count=count, path=data_path, enough=ENOUGH), stacklevel=2)
        save_pipeline(nlp, target)
        return {**before, "before": before["threshold"], "output": str(target), "shown": []}
    _set(nlp, linker, {name: _OPEN[name] for name in before})
    process(nlp, examples, batch_size=batch_size, desc="Link")
    curve = threshold_curve(examples)
    if not curve:
        raise ELQError(Errors.E043.format(pipeline=pipeline, path=data_path, lowest=LOWEST))
    best = _choose(curve, target_precision)
    if first and target_precision is None:
        best = max(best, choose_two(examples), key=lambda row: row["f"])
    shown = [curve[i] for i in np.linspace(0, len(curve) - 1, 8).astype(int)]
    shown.append({name: best[name] for name in curve[0]})
    is_fitted = calibrate and "slope" in before
    chosen: Dict[str, Any] = {**best, **(_fit(examples) if is_fitted else _UNCALIBRATED)}
    for row in (chosen, *shown):
        _calibrate(row, slope=chosen["slope"], bias=chosen["bias"])
    _set(nlp, linker, {name: chosen[name] for name in before})
    save_pipeline(nlp, target)
    shown.sort(key=lambda row: row["threshold"])
    return {**chosen, "before": before["threshold"], "output": str(target), "shown": shown}


def _settings_of(linker: Linker) -> List[str]:
    """RETURNS (List[str]): What can be chosen for a linker: TAGME's scores cannot be calibrated."""
    without_effect = getattr(linker, "without_effect", {})
    return [name for name in _OPEN if f"decoder.{name}" not in without_effect]


def _choose(curve: List[Dict[str, float]], target_precision: Optional[float]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The row with the best F1, or the most recall at a precision. If none is as
    precise, the most precise.
    """
    if target_precision is None:
        best = max(curve, key=lambda row: row["f"])
    else:
        precise = [row for row in curve if row["p"] >= target_precision]
        best = max(precise, key=lambda row: row["r"]) if precise else max(curve, key=lambda row: row["p"])
    return {**best, "first_threshold": None}


def _fit(examples: List[Example]) -> Dict[str, float]:
    """RETURNS (Dict[str, float]): The calibration of docs that were processed without one. Questions about
    the same entities count as one: question sets have dozens about some.
    """
    judged = [judge_links(example) for example in examples]
    links = [link for own in judged for link in own]
    scores, right = (np.asarray(column, dtype="float64") for column in zip(*links, strict=True))
    keys = [_gold_key(example, place) for place, example in enumerate(examples)]
    sizes: Counter[Any] = Counter()
    for key, own in zip(keys, judged, strict=True):
        sizes[key] += len(own)
    weights = [1 / sizes[key] for key, own in zip(keys, judged, strict=True) for _ in own]
    slope, bias = fit_calibration(np.log(scores), right, weights=np.asarray(weights))
    return {"slope": slope, "bias": bias}


def _gold_key(example: Example, place: int) -> Any:
    """RETURNS (Any): Equal for questions about the same entities; one that names none is like no other."""
    return tuple(sorted(span.kb_id_ for span in gold_spans(example.reference))) or place


def _calibrate(row: Dict[str, Any], **calibration: float) -> None:
    """Turn the thresholds of a row, joint probabilities, into scores, in place."""
    for name in ("threshold", "first_threshold"):
        if row.get(name) is not None:
            row[name] = float(np.exp(apply_calibration(np.log(np.asarray(row[name])), **calibration)))


def _set(nlp: Language, linker: Linker, values: Dict[str, Any]) -> None:
    update_settings(nlp, linker.name, {f"decoder.{name}": value for name, value in values.items()})


def threshold_curve(examples: List[Example]) -> List[Dict[str, float]]:
    """Weak precision, recall and F1 for every threshold that makes a difference.

    Greedy decoding goes from the best link down, so what a higher threshold gives is what a lower one
    gave, less the links below it.

    examples (List[Example]): Processed with the lowest threshold.
    RETURNS (List[Dict[str, float]]): Rows by ascending threshold, each between two scores; none if
        there are no links.
    """
    n_gold = _count_gold(examples)
    counts, right, thresholds = _add_up([link for example in examples for link in judge_links(example)])
    columns = {"threshold": thresholds, "p": right / np.maximum(counts, 1), "r": right / n_gold}
    columns["f"] = 2 * right / (counts + n_gold)
    rows = [{name: float(values[i]) for name, values in columns.items()} for i in np.flatnonzero(counts)]
    return rows[::-1]


def choose_two(examples: List[Example]) -> Dict[str, float]:
    """The best weak F1 with one threshold for the best link of each doc and a higher one for the others.

    F1 is a ratio of sums to which each group adds its part. So for a given F1 the thresholds can be chosen
    apart: the most right links, less half of that F1 for every link. Repeated with the F1 that comes out
    until it grows no more, that is the best of all pairs.

    examples (List[Example]): Processed with the lowest threshold.
    RETURNS (Dict[str, float]): Thresholds, precision, recall and F1; F1 is 0 where the best pair has the
        higher threshold for the best link.
    """
    n_gold = _count_gold(examples)
    judged = [sorted(judge_links(example), key=lambda link: -link[0]) for example in examples]
    groups = [
        _add_up([link for links in judged for link in links[:1]]),
        _add_up([link for links in judged for link in links[1:]]),
    ]
    best = {"first_threshold": 1.0, "threshold": 1.0, "p": 0.0, "r": 0.0, "f": 0.0}
    while True:
        steps = [int(np.argmax(right - best["f"] / 2 * counts)) for counts, right, _ in groups]
        found, hits, (first, other) = (
            [float(group[i][step]) for group, step in zip(groups, steps, strict=True)] for i in range(3)
        )
        f = 2 * sum(hits) / (sum(found) + n_gold)
        if f <= best["f"]:
            return best if best["first_threshold"] <= best["threshold"] else {**best, "f": 0.0}
        best = {"first_threshold": first, "threshold": other, "r": sum(hits) / n_gold, "f": f}
        best["p"] = sum(hits) / sum(found)


def _add_up(links: List[Tuple[float, bool]]) -> Tuple[Array, Array, Array]:
    """RETURNS (Tuple[Array, Array, Array]): For every threshold that makes a difference, from above all
    scores down: how many links reach it, how many of them are right, and the threshold.
    """
    links = sorted(links, key=lambda link: -link[0])
    scores = np.asarray([1.0, *(max(link[0], LOWEST) for link in links), LOWEST])
    differ = np.append(scores[:-2] > scores[1:-1], True)
    right = np.cumsum([0, *(link[1] for link in links)])
    return np.flatnonzero(differ), right[differ], np.sqrt(scores[:-1] * scores[1:])[differ]


def _count_gold(examples: List[Example]) -> int:
    """RETURNS (int): Number of gold links, also of those that do not fit the tokens."""
    golds = [gold_spans(example.reference) for example in examples]
    return sum(map(len, golds)) + sum(int(e.reference.user_data.get(LOST, 0)) for e in examples)


def judge_links(example: Example) -> List[Tuple[float, bool]]:
    """RETURNS (List[Tuple[float, bool]]): Score of every link of a doc, and whether it is right. Where
    several links could be right for one gold link, it is the best of them.
    """
    gold = [mention_of(span) for span in gold_spans(example.reference)]
    own = [ent for ent in example.predicted.ents if is_linked(ent) and ent._.elq_score is not None]
    ents = sorted(own, key=lambda ent: -ent._.elq_score)
    pairs = match([mention_of(ent) for ent in ents], gold, is_weak_match)
    right = {p for p, _ in pairs}
    return [(ent._.elq_score, i in right) for i, ent in enumerate(ents)]

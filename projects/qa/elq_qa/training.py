"""Training data of the reader, by distant supervision, and the training, which can be interrupted and
resumed.
"""

import random
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import torch
from tqdm import tqdm

from .answers import find_spans
from .data import read_records
from .passages import Passages
from .reader import Reader, joint_loss, mark_gold, parameters_by_rate
from .runs import Run
from .types import Question

PER_QUESTION = 3
_STATE = "state.pt"


class Group(NamedTuple):
    """A question with passages to learn from.

    question (str): Its text.
    texts (Tuple[str, ...]): The passages.
    spans (Tuple[Tuple[Tuple[int, int], ...], ...]): The answers in each, in characters.
    """

    question: str
    texts: Tuple[str, ...]
    spans: Tuple[Tuple[Tuple[int, int], ...], ...]


def supervise(
    questions: Sequence[Question], run: Run, passages: Passages, *, seed: int = 0
) -> Iterator[Group]:
    """Find passages with an answer, and others, among those retrieved.

    questions (Sequence[Question]): The questions.
    run (Run): What was retrieved for them.
    seed (int): For the choice of passages.
    YIELDS (Group): For each question with an answer in its first 20 passages, the best passage with one and
        others at random.
    """
    draw = random.Random(seed)
    for question, found, first in zip(questions, run.passages, run.firsts, strict=True):
        if first < 20:
            others = [int(i) for rank, i in enumerate(found[:20]) if i >= 0 and rank != first]
            chosen = [int(found[first]), *draw.sample(others, min(PER_QUESTION - 1, len(others)))]
            texts = tuple(passages[i].full for i in chosen)
            spans = tuple(tuple(find_spans(text, question.answers)) for text in texts)
            yield Group(question.text, texts, spans)


def read_squad(path: Path) -> Iterator[Group]:
    """YIELDS (Group): The questions of SQuAD, each with its context, the title in front."""
    for record in read_records(path):
        front = f"{record['title'].replace('_', ' ')}\n"
        for qa in record["qas"]:
            spans = {
                (len(front) + x["start"], len(front) + x["start"] + len(x["text"])) for x in qa["answers"]
            }
            yield Group(qa["question"], (front + record["context"],), (tuple(sorted(spans)),))


def train(
    reader: Reader,
    groups: Iterable[Group],
    folder: Path,
    *,
    steps: int,
    batch_size: int = 8,
    rate: float = 3e-5,
    frozen: int = 2,
    save_every: int = 100,
    seed: int = 0,
) -> List[float]:
    """Train a reader and save it; an interrupted training of the same folder goes on.

    groups (Iterable[Group]): What to learn from, in any order.
    folder (Path): Gets the reader.
    steps (int): Batches; the learning rate rises for a tenth of them, then falls.
    batch_size (int): Questions in a batch.
    rate (float): The highest learning rate.
    frozen (int): Layers that stay as they are.
    save_every (int): Steps after which the state is saved.
    seed (int): For the order of questions.
    RETURNS (List[float]): The loss of each step.
    """
    torch.manual_seed(seed)
    reader.freeze(frozen)
    optimizer = torch.optim.AdamW(parameters_by_rate(reader, rate), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps), 1.0)
    )
    parts: Dict[str, Any] = {"reader": reader, "optimizer": optimizer, "schedule": schedule}
    groups = list(groups)
    stamp = [len(groups), steps, batch_size, rate, frozen, seed]
    losses = _resume(parts, stamp, folder)
    batches = _batches(groups, batch_size, seed)
    reader.train()
    for step in tqdm(range(steps), desc="Reader", unit=" steps"):
        batch = next(batches)
        if step < len(losses):
            continue
        losses.append(_update(reader, batch, optimizer))
        schedule.step()
        if len(losses) % save_every == 0 and len(losses) < steps:
            _save(parts, stamp, losses, folder)
    reader.eval()
    folder.mkdir(parents=True, exist_ok=True)
    reader.save(folder)
    (folder / _STATE).unlink(missing_ok=True)
    return losses


def _update(reader: Reader, batch: List[Group], optimizer: torch.optim.Optimizer) -> float:
    texts = [text for group in batch for text in group.texts]
    questions = [group.question for group in batch for _ in group.texts]
    owners = torch.tensor([i for i, group in enumerate(batch) for _ in group.texts])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores, encoded = reader(questions, texts)
    loss = joint_loss(scores, mark_gold(encoded, [own for group in batch for own in group.spans]), owners)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([x for x in reader.parameters() if x.requires_grad], 1.0)
    optimizer.step()
    return float(loss.detach())


def _batches(groups: List[Group], size: int, seed: int) -> Iterator[List[Group]]:
    draw = random.Random(seed)
    while True:
        draw.shuffle(groups)
        for begin in range(0, len(groups), size):
            yield groups[begin : begin + size]


def _save(parts: Dict[str, Any], stamp: List[float], losses: List[float], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{_STATE}.partial"
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save({"stamp": stamp, "losses": losses, **states}, new)
    new.replace(folder / _STATE)


def _resume(parts: Dict[str, Any], stamp: List[float], folder: Path) -> List[float]:
    """RETURNS (List[float]): The losses so far; the parts are set to where they were. None if it was another
    training.
    """
    path = folder / _STATE
    if not path.is_file():
        return []
    state = torch.load(path, weights_only=True)
    if state["stamp"] != stamp:
        return []
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return list(state["losses"])

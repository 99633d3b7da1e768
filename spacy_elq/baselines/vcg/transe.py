"""TransE (Bordes et al., 2013): vectors of entities and relations, so that head + relation is near tail."""

from typing import Tuple

import numpy as np
from tqdm import tqdm

from ...types import Array


def train_transe(
    triples: Array,
    *,
    width: int,
    epochs: int,
    batch_size: int = 8192,
    learn_rate: float = 0.1,
    margin: float = 1.0,
    seed: int = 0,
    progress: bool = False,
) -> Tuple[Array, Array]:
    """Learn vectors from triples. For each triple, one with another head or tail is to be farther apart.

    triples (Array): (triples, 3) numbers of head, relation and tail, each from 0 on without gaps.
    width (int): Length of the vectors.
    epochs (int): How often each triple is seen.
    learn_rate (float): That of Adagrad.
    margin (float): How much farther apart, in the sum of absolute differences.
    RETURNS (Tuple[Array, Array]): (entities, width) vectors of length 1, and (relations, width).
    """
    random = np.random.default_rng(seed)
    count, relations = int(triples[:, [0, 2]].max()) + 1, int(triples[:, 1].max()) + 1
    bound = 6 / np.sqrt(width)
    tables = [random.uniform(-bound, bound, (n, width)).astype("float32") for n in (count, relations)]
    sums = [np.full((len(table), 1), 1e-8, dtype="float32") for table in tables]
    for _ in tqdm(range(epochs), desc="TransE", unit=" epochs", disable=not progress):
        tables[0] /= np.linalg.norm(tables[0], axis=1, keepdims=True)
        order = random.permutation(len(triples))
        for begin in range(0, len(order), batch_size):
            right = triples[order[begin : begin + batch_size]]
            wrong = corrupt(right, count, random)
            _, updates = margin_loss(tables[0], tables[1], right, wrong, margin=margin)
            for table, own, (rows, gradient) in zip(tables, sums, updates, strict=True):
                own[rows] += np.square(gradient).mean(axis=1, keepdims=True)
                table[rows] -= learn_rate * gradient / np.sqrt(own[rows])
    tables[0] /= np.linalg.norm(tables[0], axis=1, keepdims=True)
    return tables[0], tables[1]


def corrupt(triples: Array, count: int, random: np.random.Generator) -> Array:
    """RETURNS (Array): (triples, 3) the same with any other entity in the place of the head or the tail."""
    wrong = triples.copy()
    places = np.where(random.random(len(triples)) < 0.5, 0, 2)
    rows = np.arange(len(triples))
    shift = random.integers(1, max(count, 2), len(triples))
    wrong[rows, places] = (wrong[rows, places] + shift) % count
    return wrong


def margin_loss(
    entities: Array, relations: Array, right: Array, wrong: Array, *, margin: float
) -> Tuple[float, Tuple[Tuple[Array, Array], Tuple[Array, Array]]]:
    """The ranking loss of TransE: how far wrong triples come near right ones, up to the margin.

    entities, relations (Array): (entities, width) and (relations, width).
    right, wrong (Array): (triples, 3) numbers of head, relation and tail.
    RETURNS: The loss and, for entities and for relations, the rows that have a gradient and the gradient.
    """
    apart = [entities[x[:, 0]] + relations[x[:, 1]] - entities[x[:, 2]] for x in (right, wrong)]
    losses = margin + np.abs(apart[0]).sum(axis=1) - np.abs(apart[1]).sum(axis=1)
    is_near = losses > 0
    kept = [
        (x[is_near], sign * np.sign(y[is_near]))
        for x, y, sign in zip((right, wrong), apart, (1, -1), strict=True)
    ]
    rows = np.concatenate([x[:, place] for place in (0, 2) for x, _ in kept])
    gradients = np.concatenate([sign * y for sign in (1, -1) for _, y in kept])
    of_relations = np.concatenate([x[:, 1] for x, _ in kept]), np.concatenate([y for _, y in kept])
    return float(losses[is_near].sum()), (_add_up(rows, gradients), _add_up(*of_relations))


def _add_up(rows: Array, gradients: Array) -> Tuple[Array, Array]:
    """RETURNS (Tuple[Array, Array]): Each row once, ascending, and the sum of its gradients."""
    if not len(rows):
        return rows, gradients
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[begins], np.add.reduceat(gradients[order], begins)

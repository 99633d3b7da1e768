"""The reader: start, end and no answer over an encoder, joint over the passages of a question.

The score of a span is start + end - "no answer" of its passage. All spans of all passages of a question
compete with each other and with a score of 0, which stands for: no passage has the answer.
"""

import hashlib
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch
from transformers import AutoModel, AutoTokenizer

from .types import QAError

MAX_LENGTH = 192
MAX_ANSWER = 16
_HEADS = "heads.pt"


class Reading(NamedTuple):
    """The best span of a passage.

    start, end (int): Characters of the passage with its title, half-open.
    score (float): Above 0 if it is more likely right than "no answer".
    """

    start: int
    end: int
    score: float


class Reader(torch.nn.Module):
    """Reads passages."""

    def __init__(self, folder: str) -> None:
        """Load an encoder, or a reader that was saved.

        folder (str): A folder of transformers. Without saved heads, the heads are new.
        """
        super().__init__()
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, use_fast=True)
            self.encoder: Any = AutoModel.from_pretrained(folder)
        except (OSError, ValueError) as err:
            problem = str(err).splitlines()[0]
            raise QAError(
                f"{folder} is no encoder ({problem}). Fetch one: python -m spacy elq fetch-encoder"
            ) from err
        width = self.encoder.config.hidden_size
        self.spans, self.nothing = torch.nn.Linear(width, 2), torch.nn.Linear(width, 1)
        path = Path(folder) / _HEADS
        if path.is_file():
            self._heads().load_state_dict(torch.load(path, weights_only=True))
        self.eval()

    def save(self, folder: Path) -> None:
        """Write the reader to a folder."""
        self.encoder.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        torch.save(self._heads().state_dict(), folder / _HEADS)

    def _heads(self) -> torch.nn.ModuleDict:
        return torch.nn.ModuleDict({"spans": self.spans, "nothing": self.nothing})

    def freeze(self, layers: int) -> None:
        """Leave the embeddings and the first layers as they are."""
        for part in (self.encoder.embeddings, *self.encoder.encoder.layer[:layers]):
            part.requires_grad_(False)

    def forward(self, questions: List[str], texts: List[str]) -> Tuple[torch.Tensor, Any]:
        """Score the starts and ends of answers.

        questions, texts (List[str]): (passages,) the question of each, and the passage.
        RETURNS (Tuple[torch.Tensor, Any]): (passages, pieces, 2) scores, -inf outside of the passage, half of
            "no answer" already taken off each; and the encoding of the tokenizer.
        """
        length = min(MAX_LENGTH, self.encoder.config.max_position_embeddings)
        # of what is too long, the longer text loses its end: nearly always the passage
        encoded = self.tokenizer(
            questions, texts, truncation="longest_first", max_length=length, padding=True, return_tensors="pt"
        )
        states = self.encoder(**encoded).last_hidden_state
        inside = torch.tensor([[x == 1 for x in encoded.sequence_ids(i)] for i in range(len(texts))])
        scores = self.spans(states).float() - self.nothing(states[:, :1]).float() / 2
        return scores.masked_fill(~inside[..., None], -torch.inf), encoded

    @torch.inference_mode()
    def read(self, pairs: Sequence[Tuple[str, str]], *, batch_size: int = 32) -> List[Reading]:
        """Find the best span of each passage.

        pairs (Sequence[Tuple[str, str]]): (passages,) question and passage.
        batch_size (int): Passages in one batch; those of similar length are together.
        RETURNS (List[Reading]): (passages,) the best spans.
        """
        found: List[Any] = [None] * len(pairs)
        by_length = sorted(range(len(pairs)), key=lambda i: len(pairs[i][1]))
        for begin in range(0, len(pairs), batch_size):
            own = by_length[begin : begin + batch_size]
            with torch.autocast("cpu", dtype=torch.bfloat16):
                scores, encoded = self([pairs[i][0] for i in own], [pairs[i][1] for i in own])
            for row, i in enumerate(own):
                start, end, score = best_span(scores[row])
                if score > -torch.inf:
                    first, last = encoded.token_to_chars(row, start), encoded.token_to_chars(row, end)
                    found[i] = Reading(first.start, last.end, round(score, 4))
                else:
                    found[i] = Reading(0, 0, -1e9)
        return found


def hash_heads(folder: Path) -> str:
    """RETURNS (str): A checksum of the heads of a saved reader: every training changes them."""
    path = folder / _HEADS
    if not path.is_file():
        raise QAError(f"{folder} has no reader. Train it: python -m elq_qa train")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def best_span(scores: torch.Tensor, *, longest: int = MAX_ANSWER) -> Tuple[int, int, float]:
    """Find the best span.

    scores (torch.Tensor): (pieces, 2) of starts and ends.
    longest (int): The most word pieces of a span.
    RETURNS (Tuple[int, int, float]): Its first and its last word piece, and its score.
    """
    sums = scores[:, :1] + scores[None, :, 1]
    is_span = torch.ones_like(sums, dtype=torch.bool).triu().tril(longest - 1)
    best = int(sums.masked_fill(~is_span, -torch.inf).argmax())
    start, end = divmod(best, sums.shape[1])
    return start, end, float(sums[start, end])


def joint_loss(scores: torch.Tensor, gold: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """The negative log-likelihood of all gold starts and ends, joint over the passages of a question.

    scores (torch.Tensor): (passages, pieces, 2) of starts and ends, -inf outside of the passages.
    gold (torch.Tensor): (passages, pieces, 2) bool, the starts and ends of answers.
    groups (torch.Tensor): (passages,) the question of each passage, from 0 on, ascending. One without gold
        has "no answer", whose score is 0.
    RETURNS (torch.Tensor): The mean over questions.
    """
    losses = []
    for i in range(int(groups[-1]) + 1):
        own, right = scores[groups == i].flatten(0, 1), gold[groups == i].flatten(0, 1)
        # a column each for starts and ends, with "no answer" below
        every = torch.cat([own, own.new_zeros(1, 2)])
        known = right & own.isfinite()
        is_right = torch.cat([known, ~known.any(0, keepdim=True)])
        # exp(-inf - -inf) has no gradient: what cannot be is left out
        top = every.masked_fill(~is_right, -torch.inf).logsumexp(0)
        losses.append((every.logsumexp(0) - top).sum())
    return torch.stack(losses).mean()


def mark_gold(encoded: Any, spans: Sequence[Sequence[Tuple[int, int]]]) -> torch.Tensor:
    """Find the word pieces where answers start and end.

    encoded (Any): What the tokenizer returned for questions and passages.
    spans (Sequence[Sequence[Tuple[int, int]]]): The answers of each passage, in characters.
    RETURNS (torch.Tensor): (passages, pieces, 2) bool. What is cut off is not there.
    """
    gold = torch.zeros((*encoded["input_ids"].shape, 2), dtype=torch.bool)
    for row, own in enumerate(spans):
        for start, end in own:
            first = encoded.char_to_token(row, start, sequence_index=1)
            last = encoded.char_to_token(row, end - 1, sequence_index=1)
            if first is not None and last is not None:
                gold[row, first, 0] = gold[row, last, 1] = True
    return gold


def parameters_by_rate(reader: Reader, rate: float) -> List[Dict[str, Any]]:
    """RETURNS (List[Dict[str, Any]]): Groups for the optimizer: the heads are new and learn ten times as
    fast.
    """
    encoder = [x for x in reader.encoder.parameters() if x.requires_grad]
    return [{"params": encoder, "lr": rate}, {"params": list(reader._heads().parameters()), "lr": 10 * rate}]

"""Two corpora in one, so that what was learned from one is not forgotten while learning from the other."""

import random
from dataclasses import dataclass
from itertools import islice
from typing import Callable, Iterable, Iterator

from spacy.language import Language
from spacy.training import Example

Reader = Callable[[Language], Iterable[Example]]


def build_mixed_corpus(
    corpus: Reader, other: Reader, share: float = 1.0, seed: int = 0
) -> Callable[[Language], Iterator[Example]]:
    """Mix a part of another corpus into every epoch, so that what was learned from it is not forgotten. Needs
    `max_epochs = -1`.

    corpus (Reader): The corpus that is read completely in every epoch.
    other (Reader): The corpus that is mixed in, such as a `spacy-elq.ChunkedCorpus.v1`.
    share (float): Number of examples of the other corpus per example of the first.
    seed (int): Seed for the order of the examples.
    RETURNS (Callable[[Language], Iterator[Example]]): Each call gives both, shuffled.
    """
    return MixedCorpus(corpus, other, share, seed)


@dataclass
class MixedCorpus:
    """Reads two corpora. The settings are those of `build_mixed_corpus`; `turn` counts the calls."""

    corpus: Reader
    other: Reader
    share: float = 1.0
    seed: int = 0
    turn: int = 0

    def __call__(self, nlp: Language) -> Iterator[Example]:
        """YIELDS (Example): The examples of both, shuffled."""
        examples = list(self.corpus(nlp))
        examples += islice(self.other(nlp), round(self.share * len(examples)))
        random.Random(self.seed + self.turn).shuffle(examples)
        self.turn += 1
        yield from examples

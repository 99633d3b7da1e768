"""Two corpora in one, so that what was learnt from the one is not lost while the other is learnt."""

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
    """Build the reader `spacy-elq.MixedCorpus.v1`, for `max_epochs = -1`.

    corpus (Reader): Given whole every epoch.
    other (Reader): Goes with it in part, such as the next chunk of a `spacy-elq.ChunkedCorpus.v1`.
    share (float): How many examples of the other corpus there are for each of the first.
    seed (int): For the order.
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

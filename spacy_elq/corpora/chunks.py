"""A corpus that is read in chunks, one per epoch, so that it is never in memory as a whole."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, List, Optional

from spacy.language import Language
from spacy.training import Corpus, Example

from ..errors import ELQError, Errors


def build_chunked_corpus(
    path: Path, seed: int = 0, augmenter: Optional[Callable] = None
) -> Callable[[Language], Iterator[Example]]:
    """Read one file of a large corpus per epoch, so that it is never in memory as a whole. Needs
    `max_epochs = -1`.

    path (Path): Folder of .spacy files, as written by `spacy elq convert --chunk`; or a folder of several
        such folders, which take turns; or one file.
    seed (int): Seed for the order of the questions within a file.
    augmenter (Optional[Callable]): As in `spacy.Corpus.v1`, but applied again every epoch.
    RETURNS (Callable[[Language], Iterator[Example]]): Each call gives the next file, shuffled; after the
        last one it begins again.
    """
    return ChunkedCorpus(Path(path), seed, augmenter)


@dataclass
class ChunkedCorpus:
    """Reads one file per call. The settings are those of `build_chunked_corpus`; `turn` counts the calls."""

    path: Path
    seed: int = 0
    augmenter: Optional[Callable] = None
    turn: int = 0

    def __call__(self, nlp: Language) -> Iterator[Example]:
        """YIELDS (Example): The examples of the next file, shuffled."""
        files = self._files()
        examples = list(Corpus(files[self.turn % len(files)], augmenter=self.augmenter)(nlp))
        random.Random(self.seed + self.turn).shuffle(examples)
        self.turn += 1
        yield from examples

    def _files(self) -> List[Path]:
        """RETURNS (List[Path]): All files, those of one name from several folders next to each other."""
        if self.path.is_file():
            return [self.path]
        files = sorted(self.path.rglob("*.spacy"), key=lambda file_: (file_.name, file_))
        if not files:
            raise ELQError(Errors.E022.format(path=self.path, hint="Expected a folder of .spacy files."))
        return files

"""A corpus that is read in chunks, one an epoch, so that it is never in memory as a whole."""

import random
from pathlib import Path
from typing import Callable, Iterator, Optional

from spacy.language import Language
from spacy.training import Corpus, Example

from ..errors import ELQError, Errors


def build_chunked_corpus(
    path: Path, seed: int = 0, augmenter: Optional[Callable] = None
) -> Callable[[Language], Iterator[Example]]:
    """Build the reader `spacy-elq.ChunkedCorpus.v1`, for `max_epochs = -1`.

    path (Path): Folder of .spacy files, such as `spacy elq convert --chunk` writes, or of several such
        folders, which then take turns; or one file.
    seed (int): For the order of the questions within a chunk.
    augmenter (Optional[Callable]): As in `spacy.Corpus.v1`, but applied anew every epoch.
    RETURNS (Callable[[Language], Iterator[Example]]): Each call gives the next file, shuffled; after the
        last one it begins again.
    """
    turn = 0

    def read(nlp: Language) -> Iterator[Example]:
        nonlocal turn
        files = sorted(Path(path).rglob("*.spacy"), key=lambda file_: (file_.name, file_))
        if Path(path).is_file():
            files = [Path(path)]
        if not files:
            raise ELQError(Errors.E022.format(path=path, hint="Expected a folder of .spacy files."))
        examples = list(Corpus(files[turn % len(files)], augmenter=augmenter)(nlp))
        random.Random(seed + turn).shuffle(examples)
        turn += 1
        yield from examples

    return read

"""Pipelines and questions as evaluation needs them: loaded, linked, saved."""

import os
import shutil
import warnings
from pathlib import Path
from typing import List, Tuple, cast

from spacy.language import Language
from spacy.pipeline import EntityLinker
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import load_model
from tqdm import tqdm

from ..baselines.spacy_kb import KBLinker
from ..corpora.gold import GOLD_KEY, gold_spans
from ..errors import ELQError, Errors
from ..files import check_file, check_folder, describe
from ..types import Linker


def load_pipeline(path: str) -> Tuple[Language, Linker]:
    """Load a pipeline and find its linker.

    path (str): Folder or name of an installed pipeline package.
    RETURNS (Tuple[Language, Linker]): Both.
    """
    with warnings.catch_warnings():
        # the weights are our own; what torch says of its defaults helps nobody here
        warnings.filterwarnings("ignore", category=FutureWarning)
        try:
            nlp = load_model(path)
        except ELQError:
            raise
        except OSError as err:
            if err.filename is not None:  # with what the operating system says
                raise
            raise ELQError(Errors.E022.format(path=path, hint=describe(err))) from None
        except Exception as err:  # msgpack, torch and the config system raise anything on damaged files
            raise ELQError(Errors.E143.format(path=path, problem=describe(err))) from err
    return nlp, find_linker(nlp, path)


def find_linker(nlp: Language, path: str) -> Linker:
    """RETURNS (Linker): The first linker of a pipeline."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, EntityLinker):
            return KBLinker(pipe)
        if hasattr(pipe, "link_spans"):
            return cast(Linker, pipe)
    raise ELQError(Errors.E009.format(pipeline=path, pipes=", ".join(nlp.pipe_names) or "none"))


def read_docs(path: Path, nlp: Language) -> List[Doc]:
    """RETURNS (List[Doc]): The docs of a `.spacy` file, or of all such files in a folder."""
    files = sorted(path.rglob("*.spacy")) if path.is_dir() else []
    return [doc for file_ in files or [path] for doc in _read_file(file_, nlp)]


def _read_file(path: Path, nlp: Language) -> List[Doc]:
    check_file(path, "Make it with: python -m spacy elq convert")
    try:
        return list(DocBin().from_disk(path).get_docs(nlp.vocab))
    except OSError:
        raise
    except Exception as err:  # zlib and msgpack raise anything on other files
        problem = f"it is not a .spacy file ({err})"
        hint = "Make one with: python -m spacy elq convert"
        raise ELQError(Errors.E023.format(path=path, problem=problem, hint=hint)) from None


def read_gold(path: Path, nlp: Language) -> List[Example]:
    """Read gold docs and pair each with an unprocessed copy.

    RETURNS (List[Example]): At least one of them has gold links.
    """
    docs = read_docs(path, nlp)
    if not any(map(gold_spans, docs)):
        raise ELQError(Errors.E041.format(path=path, key=GOLD_KEY))
    return [Example(nlp.make_doc(doc.text), doc) for doc in docs]


def process(nlp: Language, examples: List[Example], *, batch_size: int, desc: str) -> None:
    """Run the pipeline over the predicted docs of examples, with a progress bar."""
    docs = nlp.pipe((example.predicted for example in examples), batch_size=batch_size)
    bar = tqdm(docs, total=len(examples), desc=desc, unit=" questions")
    for example, doc in zip(examples, bar, strict=True):
        example.predicted = doc


def save_pipeline(nlp: Language, path: Path) -> None:
    """Save a pipeline. An existing folder is only replaced when the new one is complete."""
    check_folder(path)
    path = path.absolute()
    if path.is_dir() and any(path.iterdir()) and not (path / "config.cfg").is_file():
        raise ELQError(Errors.E146.format(path=path))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new-{os.getpid()}")
    old = path.with_name(f".{path.name}.old-{os.getpid()}")
    try:
        nlp.to_disk(new)
        if path.exists():
            path.rename(old)
        new.rename(path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)

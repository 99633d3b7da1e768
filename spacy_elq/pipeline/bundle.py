"""A bundled pipeline with the entity encoder of its index, so that entities can be added anywhere."""

import os
import shutil
from pathlib import Path

from spacy.language import Language

from ..errors import ELQError, Errors
from ..index import register_encoder
from ..model.entity_encoder import BUNDLE as ENCODER
from ..model.entity_encoder import EntityEncoder, open_encoder
from ..model.onnx import import_runtime
from .base import BUNDLE, IndexedLinker


def open_index_encoder(nlp: Language, name: str, *, int8: bool = False) -> EntityEncoder:
    """Load the encoder that made the index of a pipeline.

    nlp (Language): The pipeline.
    name (str): Its linker.
    int8 (bool): Whether it will be saved in 8-bit integers, which needs ONNX Runtime.
    RETURNS (EntityEncoder): The encoder.
    """
    linker = nlp.get_pipe(name)
    if not isinstance(linker, IndexedLinker):
        raise ELQError(Errors.E077.format(setting="index_path", name=name))
    if linker.index is None:
        raise ELQError(Errors.E001.format(name=name))
    if int8:
        import_runtime(converts=True)
    return open_encoder(linker.index.meta["encoder"], linker.index.path)


def bundle_encoder(encoder: EntityEncoder, pipeline: Path, name: str, *, int8: bool = False) -> None:
    """Put the encoder of its index into a pipeline that was saved with the index inside.

    encoder (EntityEncoder): What `open_index_encoder` returned.
    pipeline (Path): The folder of the pipeline.
    name (str): Its linker.
    int8 (bool): Whether to save the encoder in 8-bit integers; see `EntityEncoder.to_disk`.
    """
    # of several indexes, the last one gets the changes
    indexes = (pipeline / name).glob(f"{BUNDLE}*/")
    folder = max(indexes, key=lambda path: (len(path.name), path.name)) / ENCODER
    new = folder.with_name(f".{folder.name}.new-{os.getpid()}")
    try:
        encoder.to_disk(new, int8=int8)
        # files that are there may be those of another index under a second name: they are never changed
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
        register_encoder(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)

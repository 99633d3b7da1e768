"""Small indexes for tests: an encoder without a model, and everything that an index answers."""

import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import numpy as np

from spacy_elq.catalogue import entity_to_dict
from spacy_elq.core.similarity import Prior
from spacy_elq.index import EntityIndex, build_index, encode_catalogue
from spacy_elq.names import hash_text
from spacy_elq.types import Array, Entity

WIDTH = 8


class Texts:
    """An encoder that needs no model: the texts of an entity seed its vector. It counts its calls."""

    width = WIDTH
    fingerprint = "texts"
    settings = {"name": "texts"}

    def __init__(self) -> None:
        self.encoded: List[str] = []

    def encode(self, entities: Sequence[Entity], *, batch_size: int) -> Array:
        self.encoded += [entity.id for entity in entities]
        return np.stack([vector_of(entity) for entity in entities])


def vector_of(entity: Entity) -> Array:
    seed = np.random.default_rng(hash_text(f"{entity.title}|{entity.description}"))
    return seed.normal(size=WIDTH).astype("float32")


def make_entity(number: int, version: int = 0) -> Entity:
    """An entity whose every field depends on its number, and whose texts, label and tags on its version."""
    return Entity(
        id=f"E{number}",
        title=f"Name {number % 7} (thing {number})" if number % 2 else f"Title {number % 5}",
        description=f"Number {number}, version {version}.",
        aliases=(f"alias {number}", f"shared {version}"),
        label=("", "GPE", "PERSON")[(number + version) % 3],
        ids={"other": str(number)} if number % 4 == 0 else {},
        popularity=float((number * 37 + version) % 100),
        tags=tuple(f"tag-{tag}" for tag in range(3) if (number + version) >> tag & 1),
    )


def write_catalogue(path: Path, entities: Iterable[Entity]) -> Path:
    text = "".join(json.dumps(entity_to_dict(entity)) + "\n" for entity in entities)
    path.write_text(text, encoding="utf8")
    return path


def encode(folder: Path, entities: Iterable[Entity], encoder: Any = None) -> Path:
    """RETURNS (Path): The vectors of entities."""
    folder.mkdir(parents=True, exist_ok=True)
    catalogue = write_catalogue(folder / "entities.jsonl", entities)
    encoded = encode_catalogue(catalogue, folder / "vectors", encoder or Texts())
    encoded.close()
    return encoded.path


def make_index(folder: Path, entities: Iterable[Entity], **settings: Any) -> EntityIndex:
    """RETURNS (EntityIndex): An index in `folder/index`."""
    return build_index(encode(folder, entities), folder / "index", **settings)


PRIORS = (
    Prior(),
    Prior(popularity_weight=0.7),
    Prior(name_weight=3.0, alias_share=0.75),
    Prior(name_weight=1.0, popularity_weight=0.3),
)
WITHINS: Sequence[Optional[Dict[str, List[str]]]] = (
    None,
    {"labels": ["GPE", ""]},
    {"tags": ["tag-1"]},
    {"ids": ["E1", "E2", "E3", "E404"]},
    {"labels": ["PERSON"], "tags": ["tag-0", "tag-2"]},
    {"tags": ["nobody's"]},
)
NAMES = ("title 1", "name 3", "alias 5", "shared 0", "shared 1", "Titel 2", "nobody", "", "Name 2 (thing 9)")
QUERIES = np.random.default_rng(11).normal(size=(len(NAMES), WIDTH)).astype("float32")


def ask(index: Any, *, ids: Sequence[str] = (), k: int = 4) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): Everything that an index answers, by entity id instead of by position."""
    with index.reading():
        answers: Dict[str, Any] = {"len": len(index), "width": index.width}
        everything = index.all_positions()
        heads = index.heads(everything)
        by_position = dict(zip(everything.tolist(), heads, strict=True))
        answers["heads"] = sorted(heads)
        answers["entities"] = {entity.id: entity for entity in index}
        known = index.positions(list(ids))
        answers["known"] = [by_position[p][0] if p >= 0 else None for p in known.tolist()]
        answers["contains"] = [id_ in index for id_ in ids]
        vectors = zip(heads, index.vectors, index.vectors_at(everything), strict=True)
        answers["vectors"] = {head[0]: (a.tolist(), b.tolist()) for head, a, b in vectors}
        popularity = zip(heads, index.popularity_at(everything).tolist(), strict=True)
        answers["popularity"] = {head[0]: value for head, value in popularity}
        for number, within in enumerate(WITHINS):
            answers[f"names {number}"] = index.are_names(NAMES, within=within).tolist()
            answers[f"find {number}"] = [
                sorted(entity.id for entity in index.find(name, within=within)) for name in NAMES
            ]
            owners, positions, degrees = index.match_names(NAMES, alias_share=0.75, within=within)
            named = [by_position[p][0] for p in positions.tolist()]
            matches = zip(owners.tolist(), named, degrees.tolist(), strict=True)
            answers[f"matches {number}"] = sorted(matches)
            for prior in PRIORS:
                found, similarities = index.search(QUERIES, k, names=NAMES, prior=prior, within=within)
                ranked = [[by_position[p][0] if p >= 0 else None for p in row] for row in found.tolist()]
                answers[f"search {number} {prior}"] = (ranked, similarities)
    return answers


def assert_same(found: Dict[str, Any], expected: Dict[str, Any]) -> None:
    """Same ids best first, similarities within 1e-5, all else equal."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if key.startswith("search"):
            assert found[key][0] == value[0], key
            np.testing.assert_allclose(found[key][1], value[1], atol=1e-5, rtol=1e-5, err_msg=key)
        else:
            assert found[key] == value, key


def is_same(found: Dict[str, Any], expected: Dict[str, Any]) -> bool:
    try:
        assert_same(found, expected)
    except AssertionError:
        return False
    return True


def in_child(work: Callable[[], Any], *, user: int = 0) -> int:
    """Run something in a forked process. RETURNS (int): Its exit code: 0, or 1 if it raised."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        if user:
            os.setresuid(user, user, user)
        work()
        code = 0
    except BaseException as err:
        import traceback

        traceback.print_exception(err)
    finally:
        os._exit(code)


def names(folder: Path) -> List[str]:
    """RETURNS (List[str]): What is in the folder of an index, without numbers, the lock and what is there
    while a database is open.
    """
    ignored = (".lock", "entities.db-wal", "entities.db-shm")
    found = [path.name for path in folder.iterdir() if path.name not in ignored]
    return sorted(re.sub(r"-[0-9a-f]{8}\.", ".", name) for name in found)

"""Read the catalogue, `entities.jsonl`: one JSON object per line, as a stream, with line numbers."""

import json
from pathlib import Path
from typing import Any, Dict, Iterator, Set, Union

from .errors import ELQError, Errors
from .types import Entity

PUBLISHED_IDS = ("wikidata", "title", "curid")
FIELDS = {"id", "title", "description", "aliases", "label", "tags", "ids", "popularity"}


def read_catalogue(path: Union[str, Path], *, ids: str = "wikidata") -> Iterator[Entity]:
    """Read and check a catalogue.

    path (Union[str, Path]): A JSONL file. `id` and `title` are required, `description`, `aliases`,
        `label`, `tags`, `ids` and `popularity` are optional, other fields are ignored.
        The catalogue of the published ELQ models is read as well: `title`, `text`, `idx`, optional `kb_idx`.
    ids (str): For that one, what becomes the id: "wikidata", "title" or "curid" (the number of the page). An
        entity without it, or whose id an earlier line has, gets "curid:" and the number.
    YIELDS (Entity): The entities in the order of the file.
    RAISES (ELQError): With the line number, for what is not a catalogue.
    """
    path = Path(path)
    if not path.is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected a catalogue in JSONL."))
    if ids not in PUBLISHED_IDS:
        expected = f"one of {', '.join(PUBLISHED_IDS)}"
        raise ELQError(Errors.E002.format(setting="ids", name="catalogue", value=ids, expected=expected))
    seen: Set[str] = set()
    with path.open("rb") as file_:
        for number, line in enumerate(file_, 1):
            if not line.strip():
                continue
            entity = _parse_line(path, number, line, ids, seen)
            if entity.id in seen:
                raise _error(path, number, "the id was used by an earlier line", entity.id)
            seen.add(entity.id)
            yield entity
    if not seen:
        raise ELQError(Errors.E021.format(path=path))


def count_entities(path: Union[str, Path]) -> int:
    """RETURNS (int): The number of entities in a catalogue, without parsing them."""
    if not Path(path).is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected a catalogue in JSONL."))
    with Path(path).open("rb") as file_:
        return sum(1 for line in file_ if line.strip())


def entity_from_dict(record: Dict[str, Any]) -> Entity:
    """Make an entity from a checked record, ignoring other fields."""
    fields = {key: value for key, value in record.items() if key in FIELDS and value is not None}
    lists = {key: tuple(fields.get(key, ())) for key in ("aliases", "tags")}
    return Entity(**{**fields, **lists})


def entity_to_dict(entity: Entity) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The entity as a record of the catalogue, without empty fields."""
    record = {
        "id": entity.id,
        "title": entity.title,
        "description": entity.description,
        "aliases": list(entity.aliases),
        "label": entity.label,
        "tags": list(entity.tags),
        "ids": entity.ids,
        "popularity": entity.popularity,
    }
    return {key: value for key, value in record.items() if value or key in ("id", "title")}


def _from_published(record: Dict[str, Any], ids: str, seen: Set[str]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): A record of the published catalogue as one of ours."""
    curid = str(record.get("idx") or "").rpartition("curid=")[2]
    known = {"wikidata": record.get("kb_idx"), "title": record.get("title"), "curid": curid}
    given = {key: value for key, value in known.items() if value}
    chosen = given.get(ids)
    if (not chosen or chosen in seen) and curid:
        chosen = f"curid:{curid}"
    text = record.get("text")
    return {
        "id": chosen,
        "title": record.get("title"),
        "description": text.strip() if isinstance(text, str) else text,
        "ids": {key: value for key, value in given.items() if key != ids},
    }


def _parse_line(path: Path, number: int, line: bytes, ids: str, seen: Set[str]) -> Entity:
    try:
        record = json.loads(line)
    except ValueError as err:
        raise _error(path, number, f"not valid JSON ({err})", _shorten(line)) from None
    if not isinstance(record, dict):
        raise _error(path, number, "expected a JSON object", _shorten(line))
    if "id" not in record and "idx" in record:
        record = _from_published(record, ids, seen)
    for key in ("id", "title"):
        if not isinstance(record.get(key), str) or not record[key].strip():
            problem = f"`{key}` must be a string that is not empty"
            raise _error(path, number, problem, repr(record.get(key)))
    for key in ("description", "label"):
        if not isinstance(record.get(key, ""), (str, type(None))):
            raise _error(path, number, f"`{key}` must be a string", repr(record[key]))
    for key in ("aliases", "tags"):
        if record.get(key) is not None and not _is_list_of_strings(record[key]):
            raise _error(path, number, f"`{key}` must be a list of strings", repr(record[key]))
    ids = record.get("ids")
    if ids is not None and not (isinstance(ids, dict) and _is_list_of_strings(list(ids.values()))):
        raise _error(path, number, "`ids` must map names to strings", repr(ids))
    popularity = record.get("popularity")
    if popularity is not None and not (type(popularity) in (int, float) and 0 <= popularity < 1e15):
        raise _error(path, number, "`popularity` must be a number, at least 0", repr(popularity))
    try:
        json.dumps(record, ensure_ascii=False).encode("utf8")
    except UnicodeEncodeError as err:
        raise _error(path, number, f"text that is not valid Unicode ({err.reason})", _shorten(line)) from None
    return entity_from_dict(record)


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _error(path: Path, number: int, problem: str, found: str) -> ELQError:
    return ELQError(Errors.E020.format(path=path, line=number, problem=problem, found=found))


def _shorten(line: bytes, length: int = 80) -> str:
    text = line.decode("utf8", errors="replace").strip()
    return text if len(text) <= length else text[:length] + " …"

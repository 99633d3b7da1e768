"""Read the catalogue, `entities.jsonl`: one JSON object per line, as a stream, with line numbers."""

import json
import warnings
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from reprlib import Repr
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, Union

from .errors import ELQError, Errors, Warnings
from .files import check_file
from .types import Entity

PUBLISHED_IDS = ("wikidata", "title", "curid")
FIELDS = ("id", "title", "description", "aliases", "label", "tags", "ids", "popularity")
# what a part of a catalogue is chosen by
CONDITIONS = ("labels", "tags", "ids")
Conditions = Tuple[Tuple[str, Tuple[str, ...]], ...]
_EXPECTED = "Expected a catalogue in JSONL."
# a value in a message: what is too long or too deep becomes "..."
_show = Repr()
_show.maxstring = _show.maxother = 80


def read_catalogue(path: Union[str, Path], *, ids: str = "wikidata") -> Iterator[Entity]:
    """Read and check a catalogue.

    path (Union[str, Path]): A JSONL file. `id` and `title` are required, `description`, `aliases`,
        `label`, `tags`, `ids` and `popularity` are optional, other fields are ignored with a warning.
        The catalogue of the published ELQ models is read as well: `title`, `text`, `idx`, optional `kb_idx`.
    ids (str): For that one, what becomes the id: "wikidata", "title" or "curid" (the number of the page). An
        entity without it, or whose id an earlier line has, gets "curid:" and the number.
    YIELDS (Entity): The entities in the order of the file.
    RAISES (ELQError): With the line number, for what is not a catalogue.
    """
    path = Path(path)
    check_file(path, _EXPECTED)
    if ids not in PUBLISHED_IDS:
        expected = f"one of {', '.join(PUBLISHED_IDS)}"
        raise ELQError(Errors.E002.format(setting="ids", name="catalogue", value=ids, expected=expected))
    seen: Set[str] = set()
    warned: Set[str] = set()
    with path.open("rb") as file_:
        for number, line in enumerate(file_, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            record = _parse_line(line, where)
            if "id" not in record and "idx" in record:
                record = _from_published(record, ids, seen)
            entity = check_entity(record, where, warned=warned)
            if entity.id in seen:
                raise _error(where, "the id was used by an earlier line", entity.id)
            seen.add(entity.id)
            yield entity
    if not seen:
        raise ELQError(Errors.E021.format(path=path))


def count_entities(path: Union[str, Path]) -> int:
    """RETURNS (int): The number of entities in a catalogue, without parsing them."""
    check_file(Path(path), _EXPECTED)
    if not Path(path).is_file():
        problem = "it is needed twice, and a pipe or device can be read only once"
        raise ELQError(Errors.E023.format(path=path, problem=problem, hint="Write it to a file first."))
    with Path(path).open("rb") as file_:
        return sum(1 for line in file_ if line.strip())


def check_entities(records: Iterable[Any]) -> List[Entity]:
    """RETURNS (List[Entity]): An entity for each record that a program gives; see `check_entity`. An unknown
    field is named once.
    """
    warned: Set[str] = set()
    return [check_entity(record, f"entity {i}", warned=warned) for i, record in enumerate(records, 1)]


def check_entity(record: Any, where: str, *, warned: Optional[Set[str]] = None) -> Entity:
    """Make an entity from a record that anyone may have written.

    record (Any): Expected to be an `Entity`, or a dict with the fields of the catalogue; lists may be tuples.
    where (str): Where the record is from, for messages, such as "entities.jsonl, line 3" or "entity 3".
    warned (Optional[Set[str]]): Unknown fields that were warned of already; new ones are added. Pass the
        same set for all records, so that each field is named once.
    RETURNS (Entity): The entity, of built-in types only. Fields that are None are left at their defaults.
    RAISES (ELQError): With what was found and what was expected.
    """
    if isinstance(record, Entity):
        record = {name: getattr(record, name) for name in FIELDS}
    if not isinstance(record, dict):
        raise _error(where, "expected a dict with the fields of an entity", _show.repr(record))
    _check_texts(record, where)
    _check_lists(record, where)
    plain = {key: _to_plain(record.get(key)) for key in FIELDS}
    entity = entity_from_dict({**plain, "popularity": _check_popularity(record, where)})
    try:
        "".join(_texts(entity)).encode("utf8")
    except UnicodeEncodeError as err:
        problem = f"text that is not valid Unicode ({err.reason})"
        raise _error(where, problem, ascii(err.object[err.start : err.end])) from None
    _warn_unknown(record, where, set() if warned is None else warned)
    return entity


def check_conditions(conditions: Any) -> Conditions:
    """Check which part of a catalogue counts, as users write it.

    conditions (Any): None, or lists of strings by name: {"labels": ["PERSON"], "tags": ["shop-7"]}.
    RETURNS (Conditions): The names and strings in order, without those that are None.
    RAISES (ELQError): If they are anything else.
    """
    if conditions is None:
        return ()
    if not isinstance(conditions, Mapping) or not set(conditions) <= set(CONDITIONS):
        raise ELQError(Errors.E165.format(found=repr(conditions)))
    given = {kind: values for kind, values in conditions.items() if values is not None}
    for values in given.values():
        is_list = isinstance(values, (list, tuple, set, frozenset))
        if not is_list or not all(isinstance(value, str) for value in values):
            raise ELQError(Errors.E165.format(found=repr(conditions)))
    return tuple(sorted((kind, tuple(sorted(set(map(plain_text, own))))) for kind, own in given.items()))


def plain_text(value: Any) -> Any:
    """RETURNS (Any): The text of a string whose type is a kind of `str`, such as that of numpy or of an enum;
    anything else as it is.
    """
    return str.__str__(value) if isinstance(value, str) else value


def _to_plain(value: Any) -> Any:
    """RETURNS (Any): A checked value with texts of the type `str`."""
    if isinstance(value, (list, tuple)):
        return tuple(map(plain_text, value))
    if isinstance(value, dict):
        return {plain_text(key): plain_text(own) for key, own in value.items()}
    return plain_text(value)


def _texts(entity: Entity) -> List[str]:
    """RETURNS (List[str]): All that is text in an entity."""
    own = [entity.id, entity.title, entity.description, entity.label, *entity.aliases, *entity.tags]
    return [*own, *entity.ids, *entity.ids.values()]


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
    if (not chosen or (isinstance(chosen, str) and chosen in seen)) and curid:
        chosen = f"curid:{curid}"
    text = record.get("text")
    return {
        "id": chosen,
        "title": record.get("title"),
        "description": text.strip() if isinstance(text, str) else text,
        "ids": {key: value for key, value in given.items() if key != ids},
    }


def _parse_line(line: bytes, where: str) -> Dict[str, Any]:
    try:
        record = json.loads(line)
    except RecursionError:
        raise _error(where, "not valid JSON (too deeply nested)", _shorten(line)) from None
    except ValueError as err:
        raise _error(where, f"not valid JSON ({err})", _shorten(line)) from None
    if not isinstance(record, dict):
        raise _error(where, "expected a JSON object", _shorten(line))
    return record


def _check_texts(record: Mapping[str, Any], where: str) -> None:
    for key in ("id", "title"):
        if not isinstance(record.get(key), str) or not record[key].strip():
            problem = f"`{key}` must be a string that is not empty"
            raise _error(where, problem, _show.repr(record.get(key)))
    for key in ("description", "label"):
        if not isinstance(record.get(key), (str, type(None))):
            raise _error(where, f"`{key}` must be a string", _show.repr(record[key]))


def _check_lists(record: Mapping[str, Any], where: str) -> None:
    for key in ("aliases", "tags"):
        if record.get(key) is not None and not _is_list_of_strings(record[key]):
            raise _error(where, f"`{key}` must be a list of strings", _show.repr(record[key]))
    ids = record.get("ids")
    if ids is not None and not (isinstance(ids, dict) and _is_list_of_strings([*ids, *ids.values()])):
        raise _error(where, "`ids` must map names to strings", _show.repr(ids))


def _check_popularity(record: Mapping[str, Any], where: str) -> float:
    value = record.get("popularity")
    if value is None:
        return 0.0
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1e15:
        raise _error(where, "`popularity` must be a number, at least 0", _show.repr(value))
    # a database has no minus zero
    return int(value) if isinstance(value, Integral) else float(value) + 0.0


def _warn_unknown(record: Mapping[str, Any], where: str, warned: Set[str]) -> None:
    for field in record:
        if field not in FIELDS and field not in warned:
            warned.add(field)
            close = get_close_matches(str(field).lower(), FIELDS, n=1)
            hint = f" Did you mean `{close[0]}`?" if close else f" Known: {', '.join(FIELDS)}."
            warnings.warn(Warnings.W007.format(where=where, field=field, hint=hint), stacklevel=4)


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _error(where: str, problem: str, found: str) -> ELQError:
    return ELQError(Errors.E020.format(where=where, problem=problem, found=found))


def _shorten(line: bytes, length: int = 80) -> str:
    text = line.decode("utf8", errors="replace").strip()
    return text if len(text) <= length else text[:length] + " …"

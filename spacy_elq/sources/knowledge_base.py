"""A catalogue from a knowledge base of spaCy (`InMemoryLookupKB`) on disk.

Such a folder has hashes of ids and aliases, frequencies, prior probabilities and vectors, and the strings of
the hashes. It has no titles and no descriptions: the most probable alias of an entity becomes its title, and
a file with descriptions can be given beside it.
"""

import json
import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from spacy.strings import StringStore

from ..catalogue import check_entity
from ..errors import ELQError, Errors
from ..types import Entity
from .tables import DELIMITERS, find_column, read_rows

CONTENTS, STRINGS = "contents", "strings.json"
# as spaCy writes them: number and width of the vectors; hash, frequency and vector; hash and number of
# entities; entity and prior probability
_HEADER, _ENTRY, _COUNT = struct.Struct("=qq"), struct.Struct("=Qfi"), struct.Struct("=q")
_ALIAS, _SENSE = struct.Struct("=Qq"), struct.Struct("=qf")
# what the file of descriptions may say
_DESCRIBED = ("title", "description")


@dataclass(frozen=True)
class KBSettings:
    """What else is known of the entities of a knowledge base.

    descriptions (Optional[Path]): JSONL, CSV or TSV with `id` and `title`, `description` or both.
    """

    descriptions: Optional[Path] = None


def read_spacy_kb(path: Path, *, settings: KBSettings = KBSettings()) -> Iterator[Entity]:
    """Read a knowledge base.

    path (Path): The folder that `InMemoryLookupKB.to_disk` wrote.
    YIELDS (Entity): The entities in the order in which they were added. The title is that of the
        descriptions, or the alias with the highest prior probability (of several the longest), or the id. The
        popularity is the frequency, or 0 if that is negative, such as a log probability.
    """
    entries, aliases = _read_contents(path)
    known = _read_descriptions(Path(settings.descriptions)) if settings.descriptions else {}
    for number, (id_, frequency) in enumerate(entries):
        names = [name for _, name in sorted(aliases[number], key=lambda own: (-own[0], -len(own[1])))]
        record: Dict[str, Any] = {"id": id_, "title": next(iter(names), id_), **known.get(id_, {})}
        record["aliases"] = [name for name in names if name != record["title"]]
        yield check_entity({**record, "popularity": max(frequency, 0.0)}, f"{path}, entity {number + 1}")


def _read_contents(path: Path) -> Tuple[List[Tuple[str, float]], Dict[int, List[Tuple[float, str]]]]:
    """RETURNS: Id and frequency of each entity, and by the number of an entity its aliases with their prior
    probabilities.
    """
    for name in (CONTENTS, STRINGS):
        if not (path / name).is_file():
            raise ELQError(Errors.E135.format(path=path, problem=f"it has no `{name}`"))
    try:
        strings = StringStore().from_disk(path / STRINGS)
        return _parse_contents((path / CONTENTS).read_bytes(), strings)
    except KeyError as err:
        problem = f"`{STRINGS}` lacks a string of `{CONTENTS}` ({err.args[0]})"
        raise ELQError(Errors.E135.format(path=path, problem=problem)) from None
    except (struct.error, ValueError, TypeError) as err:
        raise ELQError(Errors.E135.format(path=path, problem=f"it is damaged ({err})")) from None


def _parse_contents(
    data: bytes, strings: StringStore
) -> Tuple[List[Tuple[str, float]], Dict[int, List[Tuple[float, str]]]]:
    count, width = _HEADER.unpack_from(data)
    begin = _HEADER.size + 4 * count * width
    end = begin + _ENTRY.size * count
    if min(count, width) < 0 or end > len(data):
        raise ValueError(f"{len(data)} bytes for {count} entities")
    entries = [(strings[hash_], freq) for hash_, freq, _ in _ENTRY.iter_unpack(data[begin:end])]
    (count,), at = _COUNT.unpack_from(data, end), end + _COUNT.size
    aliases: Dict[int, List[Tuple[float, str]]] = defaultdict(list)
    for _ in range(count):
        hash_, senses = _ALIAS.unpack_from(data, at)
        at += _ALIAS.size
        for _ in range(senses):
            entry, prior = _SENSE.unpack_from(data, at)
            at += _SENSE.size
            # spaCy counts entities from 1
            aliases[entry - 1].append((prior, strings[hash_]))
    return entries, aliases


def _read_descriptions(path: Path) -> Dict[str, Dict[str, str]]:
    """RETURNS (Dict[str, Dict[str, str]]): Title, description or both, by id."""
    if not path.is_file():
        raise ELQError(Errors.E022.format(path=path, hint="Expected descriptions in JSONL, CSV or TSV."))
    format = path.suffix.lower().lstrip(".")
    if format not in ("jsonl", *DELIMITERS):
        raise ELQError(Errors.E042.format(found=path.suffix, known="jsonl, csv, tsv"))
    records = _read_jsonl(path) if format == "jsonl" else _read_columns(path, format)
    known = {}
    for where, record in records:
        given = {key: record[key] for key in _DESCRIBED if record.get(key)}
        entity = check_entity({"title": "-", **given, "id": record.get("id")}, where)
        known[entity.id] = given
    return known


def _read_jsonl(path: Path) -> Iterator[Tuple[str, Dict[str, Any]]]:
    with path.open("rb") as file_:
        for number, line in enumerate(file_, 1):
            where = f"{path}, line {number}"
            try:
                record = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError) as err:
                raise ELQError(Errors.E020.format(where=where, problem="not valid JSON", found=err)) from None
            if not isinstance(record, dict):
                problem = "expected a JSON object"
                raise ELQError(Errors.E020.format(where=where, problem=problem, found=type(record).__name__))
            if record:
                yield where, record


def _read_columns(path: Path, format: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    rows = read_rows(path, format=format)
    header = [name.strip() for name in next(rows)[1]]
    wanted = ["id", *(name for name in _DESCRIBED if name in header)]
    places = {name: find_column(path, header, name, field=name) for name in wanted}
    for number, cells in rows:
        yield f"{path}, line {number}", {name: cells[place].strip() for name, place in places.items()}

"""Tables: a catalogue from CSV or TSV, one entity per row."""

import csv
import warnings
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from ..catalogue import check_entity
from ..errors import ELQError, Errors, Warnings
from ..types import Entity

DELIMITERS = {"csv": ",", "tsv": "\t"}
COLUMNS = ("id", "title", "description", "aliases", "label", "tags", "popularity")
_REQUIRED = ("id", "title")
# of a cell, in characters: a stray quotation mark must not lead to the whole file in memory
_LONGEST = 1 << 27


@dataclass(frozen=True)
class TableSettings:
    """Which columns have the fields of an entity.

    id, title, description, aliases, label, tags, popularity (Optional[str]): The name of the column; None for
        the one with the name of the field, if there is one.
    list_separator (str): What separates the aliases, or the tags, of a cell.
    """

    id: Optional[str] = None
    title: Optional[str] = None
    description: Optional[str] = None
    aliases: Optional[str] = None
    label: Optional[str] = None
    tags: Optional[str] = None
    popularity: Optional[str] = None
    list_separator: str = "|"

    def __post_init__(self) -> None:
        """Check the separator."""
        if not self.list_separator:
            expected = "at least one character"
            raise ELQError(Errors.E131.format(setting="list_separator", value="", expected=expected))


def read_table(
    path: Path, *, format: str = "csv", settings: TableSettings = TableSettings()
) -> Iterator[Entity]:
    """Read a table whose first row names its columns.

    path (Path): The file, in UTF-8. Cells may be quoted and then have line breaks.
    format (str): "csv" (commas) or "tsv" (tabs).
    settings (TableSettings): The columns. Others are ignored.
    YIELDS (Entity): One for each row.
    RAISES (ELQError): With the line where the row begins.
    """
    rows = read_rows(path, format=format)
    columns = _choose_columns(path, next(rows)[1], settings)
    seen: Set[str] = set()
    for number, cells in rows:
        where = f"{path}, line {number}"
        record = {field: cells[column].strip() for field, column in columns.items()}
        entity = check_entity(_to_record(record, settings.list_separator), where)
        if entity.id in seen:
            problem = "the id was used by an earlier row"
            raise ELQError(Errors.E020.format(where=where, problem=problem, found=entity.id))
        seen.add(entity.id)
        yield entity


def read_rows(path: Path, *, format: str) -> Iterator[Tuple[int, List[str]]]:
    """Read a table row by row.

    YIELDS (Tuple[int, List[str]]): The line where a row begins, and its cells: as many as the first row has.
    """
    begin, width = 1, 0
    # one limit for the whole process, of 131,072 by default: we only ever raise it
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    try:
        with path.open("rb") as file_:
            # decoded line by line, so that errors know theirs
            lines = (line.decode("utf8" if number else "utf-8-sig") for number, line in enumerate(file_))
            reader = csv.reader(lines, delimiter=DELIMITERS[format], strict=True)
            for cells in reader:
                if cells and len(cells) != (width or len(cells)):
                    raise _error(path, begin, f"expected {width} cells, as in the first row", str(len(cells)))
                width = width or len(cells)
                if cells:
                    yield begin, cells
                begin = reader.line_num + 1
    except csv.Error as err:
        raise _error(path, begin, f"not valid {format.upper()}", str(err)) from None
    except UnicodeDecodeError as err:
        found = repr(err.object[max(err.start - 20, 0) : err.end])
        raise _error(path, reader.line_num + 1, f"not UTF-8 ({err.reason})", found) from None
    if not width:
        raise ELQError(Errors.E133.format(path=path, aside=": it is empty"))


def find_column(path: Path, header: List[str], column: str, *, field: str, hint: str = "") -> int:
    """RETURNS (int): Where a column is.

    RAISES (ELQError): If it is missing, or there twice.
    """
    if header.count(column) != 1:
        columns = ", ".join(repr(name) for name in header)
        raise ELQError(Errors.E134.format(path=path, column=column, field=field, columns=columns, hint=hint))
    return header.index(column)


def _choose_columns(path: Path, header: List[str], settings: TableSettings) -> Dict[str, int]:
    """RETURNS (Dict[str, int]): The position of the column for each field that has one."""
    header = [name.strip() for name in header]
    chosen = {}
    for field in COLUMNS:
        name = getattr(settings, field)
        if name is None and field not in header and field not in _REQUIRED:
            continue
        hint = f" Name the right one: --{field} COLUMN."
        chosen[field] = find_column(path, header, name or field, field=field, hint=hint)
    _warn_misspelt(path, header, chosen)
    return chosen


def _warn_misspelt(path: Path, header: List[str], chosen: Mapping[str, int]) -> None:
    """Warn of columns that nobody reads and that are nearly called like a field without a column."""
    missing = [field for field in COLUMNS if field not in chosen]
    for place, column in enumerate(header):
        close = get_close_matches(column.lower(), missing, n=1)
        if close and place not in chosen.values():
            message = Warnings.W080.format(path=path, column=column, field=close[0])
            warnings.warn(message, stacklevel=4)


def _to_record(cells: Dict[str, str], separator: str) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The cells of a row as a record of the catalogue; empty ones are left out."""
    record: Dict[str, Any] = {field: text for field, text in cells.items() if text}
    for field in ("aliases", "tags"):
        if field in record:
            record[field] = [part.strip() for part in record[field].split(separator) if part.strip()]
    if "popularity" in record:
        with suppress(ValueError):  # a text that is no number is an error of the record
            record["popularity"] = float(record["popularity"])
    return record


def _error(path: Path, line: int, problem: str, found: str) -> ELQError:
    return ELQError(Errors.E020.format(where=f"{path}, line {line}", problem=problem, found=found))

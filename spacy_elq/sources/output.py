"""Write a catalogue: all of it, or nothing."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable

from ..catalogue import entity_to_dict
from ..errors import ELQError, Errors
from ..files import replace_file
from ..types import Entity


@dataclass
class Report:
    """What became of a source.

    entities (int): How many were written.
    bare (int): How many of them have no description.
    left_out (Dict[str, int]): How many records were left out, by reason.
    """

    entities: int = 0
    bare: int = 0
    left_out: Dict[str, int] = field(default_factory=dict)


def write_entities(entities: Iterable[Entity], path: Path, *, source: Path) -> Report:
    """Write a catalogue under a temporary name beside its path, then rename it.

    entities (Iterable[Entity]): With unique ids.
    path (Path): The catalogue; an existing file is replaced at the end.
    source (Path): Where the entities are from, for messages.
    RETURNS (Report): How many were written.
    RAISES (ELQError): If there are none.
    """
    report = Report()
    with replace_file(path) as work, work.open("wb") as file_:
        for entity in entities:
            file_.write(to_line(entity))
            report.entities += 1
            report.bare += not entity.description
        if not report.entities:
            raise ELQError(Errors.E133.format(path=source, aside=""))
    return report


def to_line(entity: Entity) -> bytes:
    """RETURNS (bytes): The line of a catalogue for an entity."""
    return json.dumps(entity_to_dict(entity), ensure_ascii=False).encode("utf8") + b"\n"

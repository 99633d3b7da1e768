"""Templates of questions: text with `{}` in place of a name, by entity label."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Dict, Iterable, List, Optional

from ..errors import ELQError, Errors
from ..files import check_file
from .formats import parse_heading, read_lines

# the templates that come with the package, and the word that stands for them
OWN_TEMPLATES = Path(__file__).with_name("templates.txt")
DEFAULT = "default"
# headings that are no labels
_GENERAL, _NONE, _FILLERS = "general", "none", "fillers"
_OWN_SHARE = 0.6


@dataclass(frozen=True)
class Templates:
    """Templates to choose from. Labels are in lower case; "general" has the templates for all of them.

    single (Dict[str, List[str]]): By label, those with one name.
    several (Dict[str, List[str]]): By label, those with two or more names.
    none (List[str]): Texts that name no entity.
    fillers (List[str]): What may stand in place of a name and is no entity.
    """

    single: Dict[str, List[str]] = field(default_factory=dict)
    several: Dict[str, List[str]] = field(default_factory=dict)
    none: List[str] = field(default_factory=list)
    fillers: List[str] = field(default_factory=list)

    def choose(self, label: str, rng: Random, *, several: bool = False) -> Optional[str]:
        """RETURNS (Optional[str]): A template for an entity, more often one of its label, or None if there is
        no such template.
        """
        known = self.several if several else self.single
        own, general = known.get(label.lower(), []), known.get(_GENERAL, [])
        pool = own if own and (not general or rng.random() < _OWN_SHARE) else general
        return rng.choice(pool) if pool else None

    def nothing(self, rng: Random) -> Optional[str]:
        """RETURNS (Optional[str]): A text without an entity: one of `none`, or a template with a filler."""
        template = self.choose(_GENERAL, rng) if self.fillers else None
        if template and (not self.none or rng.random() < 1 - _OWN_SHARE):
            return template.replace("{}", rng.choice(self.fillers))
        return rng.choice(self.none) if self.none else None


def read_templates(paths: Iterable[Path] = ()) -> Templates:
    """Read files of templates, one per line.

    A heading "# PERSON, AUTHOR" names the labels that the templates below it are for; those without a
    heading, or below "# general", are for all. Below "# none" are texts without an entity, below "# fillers"
    words that are no entity and may stand in place of one.

    paths (Iterable[Path]): The files; "default" stands for the templates of the package. By default those.
    RETURNS (Templates): All of them.
    """
    templates = Templates()
    for path in list(paths) or [Path(DEFAULT)]:
        _read_file(OWN_TEMPLATES if str(path) == DEFAULT else path, templates)
    return templates


def _read_file(path: Path, templates: Templates) -> None:
    check_file(path, "Expected templates of questions, one per line.")
    labels = [_GENERAL]
    for number, line in read_lines(path):
        heading = parse_heading(line)
        if heading is None:
            _add(line.strip(), labels, templates, f"line {number}", path)
        else:
            labels = [part.strip().lower() for part in heading.split(",") if part.strip()] or [_GENERAL]


def _add(text: str, labels: List[str], templates: Templates, where: str, path: Path) -> None:
    slots, plain = text.count("{}"), text.replace("{}", "")
    is_bare = labels in ([_NONE], [_FILLERS])
    if any(sign in plain for sign in ("{", "}", "](")) or bool(slots) == is_bare:
        expected = "no {}" if is_bare else "{} in place of each name"
        problem = f"expected a template with {expected}, below '# {', '.join(labels)}'"
        raise ELQError(Errors.E040.format(path=path, where=where, problem=problem, found=text[:120]))
    if is_bare:
        (templates.none if labels == [_NONE] else templates.fillers).append(text)
    else:
        for label in labels:
            (templates.single if slots == 1 else templates.several).setdefault(label, []).append(text)

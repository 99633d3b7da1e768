"""Questions for a catalogue that has none: names in templates, as hurried people type them."""

import re
from array import array
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Callable, Deque, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np
from spacy.lang.en.stop_words import STOP_WORDS
from tqdm import tqdm

from ..catalogue import count_entities, read_catalogue
from ..errors import ELQError, Errors, check_setting, whole_number
from ..files import check_file, check_output
from ..names import entity_names, find_words, hash_text, normalize_name, typed_names
from ..types import Array, Entity
from .augment import add_typo
from .base import Question, QuestionSpan
from .formats import WRITERS, guess_format
from .templates import DEFAULT, Templates, read_templates

# the share of each way to ask; the first question about an entity is always plain
_STYLES = {"plain": 0.6, "typo": 0.15, "several": 0.15, "alone": 0.1}
_LOWER = 0.7
_TWO_HINTS = 0.3
_NONE = 0.1
# words of a description that may tell an entity apart: what it is stands at the beginning
_HINTS = 6
_RECENT = 100
_TRIES = 5
_LONGEST_NAME = 6
_UNTYPED = re.compile(r"[\[\]\r\n]")


class Mention(NamedTuple):
    """A name as it may be typed.

    text (str): The name.
    id (str): The entity.
    kind (str): "plain", "nickname" or "ambiguous".
    hints (Sequence[str]): Words that tell the entity apart from others of that name; one must follow it.
    """

    text: str
    id: str
    kind: str
    hints: Sequence[str] = ()


@dataclass
class GeneratedReport:
    """What was made of a catalogue.

    entities (int): The entities with questions.
    nameless (int): Those without: all of their names are shared with others from which no word of the
        description tells them apart, or cannot be typed.
    kinds (Counter): How many questions of each kind.
    left_out (int): Questions that the format of the output cannot hold.
    """

    entities: int = 0
    nameless: int = 0
    kinds: Counter = field(default_factory=Counter)
    left_out: int = 0


def write_questions(
    catalogue: Path,
    output: Path,
    *,
    templates: Sequence[Path] = (),
    per_entity: int = 4,
    seed: int = 0,
    progress: bool = False,
) -> GeneratedReport:
    """Write questions for the entities of a catalogue, which is read up to three times, as a stream.

    output (Path): Marked text (.txt) or JSONL (.jsonl), grouped by kind.
    templates (Sequence[Path]): See `read_templates`.
    per_entity, seed (int): See `generate_questions`.
    progress (bool): Whether to show progress bars.
    RETURNS (GeneratedReport): What was made.
    """
    check_file(catalogue, "Expected a catalogue in JSONL.")
    check_output(output, catalogue, *(path for path in templates if str(path) != DEFAULT))
    chosen, total = read_templates(templates), count_entities(catalogue)
    format = guess_format(output)
    if format not in WRITERS or output.suffix.lower() == ".gz":
        raise ELQError(Errors.E042.format(found=output.name, known="marked (.txt), jsonl (.jsonl)"))
    steps = iter(("Names", "Hints", "Questions"))

    def read() -> Iterable[Entity]:
        entities = read_catalogue(catalogue)
        return tqdm(entities, desc=next(steps), total=total, unit=" entities", disable=not progress)

    report = GeneratedReport()
    questions = generate_questions(read, chosen, per_entity=per_entity, seed=seed, report=report)
    report.left_out = WRITERS[format](questions, output)
    return report


def generate_questions(
    read: Callable[[], Iterable[Entity]],
    templates: Templates,
    *,
    per_entity: int = 4,
    seed: int = 0,
    report: Optional[GeneratedReport] = None,
) -> Iterator[Question]:
    """Make questions about entities. The names of an entity take turns, its title first.

    read (Callable[[], Iterable[Entity]]): Gives the entities, from the beginning; it is called three times.
    templates (Templates): What is asked.
    per_entity (int): Questions about each entity; fewer where that would repeat one.
    seed (int): The same seed gives the same questions.
    report (Optional[GeneratedReport]): Is filled.
    YIELDS (Question): The questions by entity, then those that name none, a tenth of them.
    """
    check_setting("questions", "per_entity", per_entity, whole_number(1))
    report = report or GeneratedReport()
    names = Names(read())
    hints = Hints(read(), names)
    asker = _Asker(templates, names)
    for entity in read():
        rng = Random(f"{seed} {entity.id}")
        mentions = find_mentions(entity, names, hints)
        report.entities += bool(mentions)
        report.nameless += not mentions
        for question in asker.ask(entity, mentions, count=per_entity, rng=rng):
            report.kinds[question.kind] += 1
            yield question
    made = report.kinds.total()
    if not made:
        raise ELQError(Errors.E181.format(count=report.nameless))
    for question in asker.ask_nothing(count=round(_NONE * made), rng=Random(seed)):
        report.kinds[question.kind] += 1
        yield question


class Names:
    """All names of a catalogue, as hashes."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        """Collect them.

        entities (Iterable[Entity]): All entities.
        """
        hashes = array("q")
        for entity in entities:
            hashes.extend(hash_text(name, signed=True) for name in entity_names(entity))
        self._all, counts = np.unique(np.asarray(hashes, dtype="int64"), return_counts=True)
        self._shared = self._all[counts > 1]

    def has(self, text: str) -> bool:
        """RETURNS (bool): Whether an entity has that name."""
        return _holds(self._all, normalize_name(text))

    def is_shared(self, text: str) -> bool:
        """RETURNS (bool): Whether several entities have that name."""
        return _holds(self._shared, normalize_name(text))

    def occur_in(self, text: str) -> bool:
        """RETURNS (bool): Whether a text has a name in it that is not a mere function word."""
        words = [word for word, _, _ in find_words(text)]
        parts = (words[i : i + n] for n in range(1, _LONGEST_NAME + 1) for i in range(len(words) - n + 1))
        return any(not STOP_WORDS.issuperset(part) and self.has(" ".join(part)) for part in parts)


class Hints:
    """Words that tell entities of one name apart, as hashes of name and word."""

    def __init__(self, entities: Iterable[Entity], names: Names) -> None:
        """Collect them.

        entities (Iterable[Entity]): All entities.
        names (Names): Their names.
        """
        hashes = array("q")
        for entity in entities:
            for name in entity_names(entity):
                if names.is_shared(name):
                    words = set(_content_words(entity))
                    hashes.extend(hash_text(f"{name}\n{word}", signed=True) for word in words)
        found, counts = np.unique(np.asarray(hashes, dtype="int64"), return_counts=True)
        self._telling, self._names = found[counts == 1], names

    def find(self, entity: Entity, name: str) -> List[str]:
        """RETURNS (List[str]): Words that only this one of the entities of a name has, the first ones first;
        neither in the name nor names themselves, nor names of others together with it.
        """
        key, own = normalize_name(name), entity_names(entity)
        words = [word for word in dict.fromkeys(_content_words(entity)) if word not in key.split()]
        return [
            word
            for word in words[:_HINTS]
            if _holds(self._telling, f"{key}\n{word}")
            and not self._names.has(word)
            and (f"{key} {word}" in own or not self._names.has(f"{key} {word}"))
        ]


def find_mentions(entity: Entity, names: Names, hints: Hints) -> List[Mention]:
    """RETURNS (List[Mention]): The names of an entity as they may be typed, those of its title first. A name
    that other entities have too comes with hints, or not at all.
    """
    own = normalize_name(typed_names(entity)[0])
    mentions = []
    for name in typed_names(entity):
        if not normalize_name(name) or _UNTYPED.search(name):
            continue
        if not names.is_shared(name):
            kind = "plain" if normalize_name(name) == own else "nickname"
            mentions.append(Mention(name, entity.id, kind))
        elif words := hints.find(entity, name):
            mentions.append(Mention(name, entity.id, "ambiguous", words))
    return mentions


class _Asker:
    """Asks about one entity after another; some questions also name one of those before.

    templates (Templates): What is asked.
    names (Names): All names of the catalogue.
    """

    def __init__(self, templates: Templates, names: Names) -> None:
        self.templates, self.names = templates, names
        self._recent: Deque[Mention] = deque(maxlen=_RECENT)

    def ask(self, entity: Entity, mentions: List[Mention], *, count: int, rng: Random) -> Iterator[Question]:
        """YIELDS (Question): Different questions about an entity, its mentions in turn."""
        seen = set()
        for number in range(count if mentions else 0):
            for _ in range(_TRIES):
                style = rng.choices(list(_STYLES), list(_STYLES.values()))[0] if number else "plain"
                question = self._ask_once(mentions[number % len(mentions)], entity.label, style, rng)
                if question.text not in seen:
                    seen.add(question.text)
                    yield question
                    break
        self._recent.extend(mentions[:1])

    def ask_nothing(self, *, count: int, rng: Random) -> Iterator[Question]:
        """YIELDS (Question): Different texts without a name, as many as asked for, or as there are."""
        seen: Set[str] = set()
        for _ in range(_TRIES * count):
            text = self.templates.nothing(rng)
            if len(seen) < count and text and text not in seen and not self.names.occur_in(text):
                seen.add(text)
                yield Question(text, [], "none")

    def _ask_once(self, mention: Mention, label: str, style: str, rng: Random) -> Question:
        """RETURNS (Question): A question in one style, or in a plainer one where that is not possible."""
        mentions, kind = [mention], mention.kind
        template = "{}" if style == "alone" else self.templates.choose(label, rng) or "{}"
        if style == "several" and (found := self._add_others(mention, label, rng)):
            (template, mentions), kind = found, "several"
        is_lower = rng.random() < _LOWER
        if is_lower:
            mentions = [other._replace(text=other.text.lower()) for other in mentions]
        if style == "typo" and (typed := self._misspell(mentions[0], rng)):
            mentions, kind = [typed], "typo"
        template = template.lower() if is_lower else template[0].upper() + template[1:]
        return _fill(template, mentions, kind, rng)

    def _add_others(self, mention: Mention, label: str, rng: Random) -> Optional[Tuple[str, List[Mention]]]:
        """RETURNS (Optional[Tuple[str, List[Mention]]]): A template with several names and its mentions,
        or None if there is no such template, or too few entities before.
        """
        template = self.templates.choose(label, rng, several=True)
        others = [other for other in self._recent if other.id != mention.id]
        needed = template.count("{}") - 1 if template else 0
        if not template or len(others) < needed:
            return None
        return template, rng.sample([mention, *rng.sample(others, needed)], needed + 1)

    def _misspell(self, mention: Mention, rng: Random) -> Optional[Mention]:
        """RETURNS (Optional[Mention]): The mention with a typo, or None if that would be a name again, or the
        name needs hints to be understood.
        """
        typed = add_typo(mention.text, rng)
        if mention.hints or self.names.has(typed) or not normalize_name(typed):
            return None
        return mention._replace(text=typed)


def _fill(template: str, mentions: Sequence[Mention], kind: str, rng: Random) -> Question:
    """RETURNS (Question): The template with mentions in it, hints behind them."""
    text, *rest = template.split("{}")
    spans = []
    for mention, part in zip(mentions, rest, strict=True):
        spans.append(QuestionSpan(len(text), len(text) + len(mention.text), mention.id))
        text += " ".join([mention.text, *_choose_hints(mention.hints, rng)]) + part
    return Question(text, spans, kind)


def _choose_hints(hints: Sequence[str], rng: Random) -> List[str]:
    """RETURNS (List[str]): One or two of the hints, in their order, if there are any."""
    count = min(len(hints), 2 if rng.random() < _TWO_HINTS else 1)
    return [hints[i] for i in sorted(rng.sample(range(len(hints)), count))]


def _content_words(entity: Entity) -> List[str]:
    """RETURNS (List[str]): What the title says in parentheses or behind a comma, then the description, in
    words that mean something.
    """
    _, *aside = re.split(r"[(,]", entity.title, maxsplit=1)
    words = find_words(" ".join([*aside, entity.description]))
    return [word for word, _, _ in words if len(word) > 2 and word.isalpha() and word not in STOP_WORDS]


def _holds(hashes: Array, text: str) -> bool:
    """RETURNS (bool): Whether sorted hashes have that of a text."""
    key = hash_text(text, signed=True)
    place = int(np.searchsorted(hashes, key))
    return place < len(hashes) and int(hashes[place]) == key

"""A world of seven entities whose counts can be added up by hand.

Every title and alias counts as one link; "mercury" is a name of both its entities.

    name            links                   plain   freq   link probability
    mercury         P 5 + 1, E 3 + 1         10      20     10 / 20 = 0.5
    quicksilver     E 1                       0       1     1
    venus           V 3 + 1                   4       8     4 / 8 = 0.5
    sun             S 7 + 1                   8      16     8 / 16 = 0.5
    thermometer     T 1 + 1                   6       8     2 / 8 = 0.25
    venus flytrap   F 1                       0       1     1
    sun records     R 1                       3       4     1 / 4 = 0.25

Eight pages; of these link to P: 1, 2, to V: 1, 2, 5, to S: 1, to E: 3, 4, to T: 3.

    relatedness = 1 - (log max - log both) / (log 8 - log min)
    P, V   1 - (log 3 - log 2) / (log 8 - log 2) = 0.7075187
    P, S   1 - (log 2 - log 1) / (log 8 - log 1) = 2 / 3
    V, S   1 - (log 3 - log 1) / (log 8 - log 1) = 0.4716792
    E, T   1 - (log 2 - log 1) / (log 8 - log 1) = 2 / 3
    all others 0
"""

import json
from pathlib import Path
from typing import Any

from spacy_elq.baselines.tagme.dictionary import AnchorDictionary, build_dictionary

ENTITIES = [
    {"id": "P", "title": "Mercury (planet)"},
    {"id": "E", "title": "Mercury (element)", "aliases": ["Quicksilver"]},
    {"id": "V", "title": "Venus", "label": "LOC"},
    {"id": "S", "title": "Sun"},
    {"id": "T", "title": "Thermometer"},
    {"id": "F", "title": "Venus flytrap"},
    {"id": "R", "title": "Sun Records"},
]
ANCHORS = "mercury\tP\t2\nMercury\tP\t3\nMercury\tE\t3\nVénus\tV\t3\nthe Sun\tS\t7\nthermometer\tT\t1\n"
PAGES = [
    ("1", "[Mercury](P) and [Venus](V) go round the [Sun](S)."),
    ("2", "[Mercury](P) is smaller."),
    ("2", "So is [Venus](V)."),
    ("3", "[Mercury](E) is in a [thermometer](T)."),
    ("4", "[Mercury](E) is a metal."),
    ("5", "[Venus](V)!"),
    ("6", "Nothing."),
    ("7", "Nothing."),
    ("8", "mercury " * 10 + "venus " * 4 + "sun " * 5 + "sun records " * 3 + "thermometer " * 6),
]
# of the pairs that are related at all
PV, PS, VS, ET = 0.7075187496, 2 / 3, 0.4716791664, 2 / 3


def sentence(page: str, marked: str) -> dict:
    """A sentence as JSONL has it, from text with marks."""
    text, spans = "", []
    for part in marked.split("["):
        mention, mark, rest = part.partition("](")
        id_, _, after = rest.partition(")")
        if mark:
            spans.append({"start": len(text), "end": len(text) + len(mention), "id": id_})
        text += mention + after
    return {"text": text, "spans": spans, "page": page, "complete": False}


def write_world(folder: Path) -> Path:
    """Write anchors.tsv, entities.jsonl and sentences.jsonl."""
    (folder / "anchors.tsv").write_text(ANCHORS, encoding="utf8")
    sentences = [sentence(page, marked) for page, marked in PAGES]
    for name, records in [("entities", ENTITIES), ("sentences", sentences)]:
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf8")
    return folder


def build(world: Path, output: Path, **changes: Any) -> AnchorDictionary:
    """The dictionary of the world."""
    paths = [world / "anchors.tsv", world / "entities.jsonl", output]
    return build_dictionary(*paths, **{"sentences": [world / "sentences.jsonl"], **changes})[0]

"""Makes small dumps in the shape of Wikidata's."""

import bz2
import gzip
import json
from pathlib import Path

OPENERS = {".bz2": bz2.compress, ".gz": gzip.compress}


def statement(value, rank="normal"):
    if value is None:
        return {"mainsnak": {"snaktype": "somevalue"}, "type": "statement", "rank": rank}
    if value.startswith("Q"):
        value = {"entity-type": "item", "numeric-id": int(value[1:]), "id": value}
    return {
        "mainsnak": {"snaktype": "value", "datavalue": {"value": value}},
        "type": "statement",
        "rank": rank,
    }


def item(id, label=None, *, description=None, aliases=(), sites=(), lang="en", **claims):
    """An item with one language; empty mappings are lists, as PHP writes them. `claims` by property: a
    value, or several, or pairs of value and rank.
    """

    def text(value):
        return {lang: {"language": lang, "value": value}} if value else []

    statements = {}
    for name, values in claims.items():
        values = [values] if isinstance(values, str) else values
        statements[name] = [
            statement(*value) if isinstance(value, tuple) else statement(value) for value in values
        ]
    return {
        "type": "item",
        "id": id,
        "labels": text(label),
        "descriptions": text(description),
        "aliases": {lang: [{"language": lang, "value": alias} for alias in aliases]} if aliases else [],
        "claims": statements or [],
        "sitelinks": {
            site: {"site": site, "title": title, "badges": []} for site, title in dict(sites).items()
        }
        or [],
    }


def dump_lines(records):
    lines = [json.dumps(record, separators=(",", ":")) for record in records]
    return ["[", *(f"{line}," for line in lines[:-1]), *lines[-1:], "]"]


def write_dump(path: Path, records, *, lines=None) -> Path:
    data = "".join(f"{line}\n" for line in lines or dump_lines(records)).encode("utf8")
    path.write_bytes(OPENERS.get(path.suffix, bytes)(data))
    return path

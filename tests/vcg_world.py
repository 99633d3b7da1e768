"""Relations of the ten entities of conftest.py, and hyperlinks between them, few enough to count by hand.

entity  relations (· is the inverse)           leads to
E1      capital of ·, link, link ·             E7 (not real, but a title with a word to share), E5, E5
E3      near to                                E4
E8      place of birth                         E5
E10     named after                            E9
"""

from pathlib import Path
from typing import Any

from spacy_elq.baselines.vcg.build import build_relations
from spacy_elq.baselines.vcg.relations import Relations

TRIPLES = """\
head\trelation\ttail\tsource
E7\tcapital\tE1\twikidata
E3\tnear_to\tE4\twikidata
E8\t/people/person/place_of_birth\tE5\tfreebase
E10\t/a/b./business/brand/named_after\tE9\tfreebase
E10\t/a/b./business/brand/named_after\tE9\tfreebase
X1\tcapital\tE1\twikidata
E1\tcapital\tX2\twikidata
"""
LINKS = "page\tlinked\nE1\tE5\nE5\tE1\nE1\tE9\nX1\tE9\n"


def write_world(folder: Path) -> Path:
    """Write triples.tsv and links.tsv."""
    (folder / "triples.tsv").write_text(TRIPLES, encoding="utf8")
    (folder / "links.tsv").write_text(LINKS, encoding="utf8")
    return folder


def build(world: Path, index: Path, output: Path, **changes: Any) -> Relations:
    """The relations of the world, with vectors of length 8."""
    settings = {"links": world / "links.tsv", "width": 8, "epochs": 5, **changes}
    return build_relations(world / "triples.tsv", index, output, **settings)[0]

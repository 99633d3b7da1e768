"""Relations of the ten entities of conftest.py, and hyperlinks between them, few enough to count by hand.

relation            number  inverse
capital             0       5
near_to             1       6
place_of_birth      2       7
named_after         3       8
hyperlink           4       9

entity  leads to                                        entities  relations
E1      E5 and E9 by 4, E7 by 5, E5 by 9                3         3
E3      E4 by 1                                         1         1
E4      E3 by 6                                         1         1
E5      E1 by 4, E8 by 7, E1 by 9                       2         3
E7      E1 by 0                                         1         1
E8      E5 by 2                                         1         1
E9      E10 by 8, E1 by 9                               2         2
E10     E9 by 3                                         1         1
"""

from pathlib import Path
from typing import Any, Tuple

from spacy_elq.baselines.vcg.build import RelationsReport, build_relations
from spacy_elq.baselines.vcg.relations import Relations

TRIPLES = """\
head\trelation\ttail\tsource
E7\tcapital\tE1\twikidata
E3\tnear_to\tE4\twikidata
E8\t/people/person/place_of_birth\tE5\tfreebase
E10\t/business/brand./business/brand/named_after\tE9\tfreebase
E10\t/business/brand./business/brand/named_after\tE9\tfreebase
X1\tcapital\tE1\twikidata
E1\tcapital\tX2\twikidata
"""
LINKS = "page\tlinked\nE1\tE5\nE5\tE1\nE1\tE9\nX1\tE9\n"
WIDTH = 8


def write_relations(folder: Path) -> Path:
    """Write triples.tsv and links.tsv."""
    (folder / "triples.tsv").write_text(TRIPLES, encoding="utf8")
    (folder / "links.tsv").write_text(LINKS, encoding="utf8")
    return folder


def build_world(world: Path, index: Path, output: Path, **changes: Any) -> Tuple[Relations, RelationsReport]:
    """The relations of the world."""
    settings = {"links": world / "links.tsv", "width": WIDTH, "epochs": 5, **changes}
    return build_relations(world / "triples.tsv", index, output, **settings)

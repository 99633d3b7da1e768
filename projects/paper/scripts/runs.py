"""The result files: one for each run that was measured, in folders by kind."""

import json
from pathlib import Path
from typing import Any, Dict, List

import srsly

Row = Dict[str, Any]

RESULTS = Path("results")
SETTINGS = {
    "questions": "WebQSP_EL",
    "wikipedia": "Wikipedia",
    "wikipedia_questions": "Wikipedia, then WebQSP_EL",
    "keep": "Wikipedia, then WebQSP_EL, turns of conversations, and texts that name nothing",
    "everything": "Wikipedia, then every training file",
}
MAIN = "wikipedia_questions"
SYSTEMS = {
    "elq": "ELQ: `elq_linker`",
    "blink": "two stages: `elq_span_extractor`, `elq_blink`",
    "tagme": "TAGME: `elq_tagme`",
    "vcg": "VCG: `elq_vcg`",
    "spacy": "spaCy: `ner`, `entity_linker`",
}
TESTS = {"webqsp_el": "WebQSP_EL", "graphquestions_el": "GraphQuestions_EL"}
# what is decided is decided on these, never on a test set; the first two belong to the tests
DEVS = {
    **TESTS,
    "conel22": "ConEL 2022",
    "simplequestions": "SimpleQuestions",
    "simpledbpediaqa": "SimpleDBpediaQA",
}
_ORDER = ("name", "system", "setting", "test", "entities", "parameters", "seed", "threshold_from")


def write_run(folder: Path, kind: str, name: str, run: Row) -> None:
    """Write the file of a run, in place of an earlier one of that name.

    run (Row): What holds for the whole run, and under "tests" the figures of each test set, if it has any.
    """
    path = folder / kind / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


def read_rows(folder: Path, kind: str) -> List[Row]:
    """RETURNS (List[Row]): A row for each run and test set, sorted by system, setting, test, ..., seed."""
    rows = []
    for path in sorted((folder / kind).glob("*.json")):
        run = srsly.read_json(path)
        rows += [{**run, **test} for test in run.pop("tests", [{}])]
    return sorted(rows, key=lambda row: [str(row.get(key)) for key in _ORDER])

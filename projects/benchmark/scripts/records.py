"""The result files: one for each thing that was measured."""

import json
import re
from pathlib import Path
from typing import Any, List

import typer

RESULTS = Path("results")
# the pipelines that are measured
NAMES = {"readme": "README", "real": "real data"}


def write_record(folder: Path, name: str, record: Any) -> None:
    """Write a result file, in place of an earlier one of that name, and print what is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf8")
    typer.echo(json.dumps(record, ensure_ascii=False))


def read_records(folder: Path, prefix: str) -> List[Any]:
    """RETURNS (List[Any]): What is in the files whose names begin with a prefix, sorted by name."""
    return [json.loads(path.read_text(encoding="utf8")) for path in sorted(folder.glob(f"{prefix}*.json"))]


def slug(name: str) -> str:
    """RETURNS (str): A name for a file: 'IVF256,SQ8@nprobe=64' is 'IVF256_SQ8_nprobe_64'."""
    return re.sub(r"[^A-Za-z0-9]", "_", name)

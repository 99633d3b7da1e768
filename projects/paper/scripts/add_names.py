"""Add names to a catalogue that people use and Wikipedia has no title for: "troy il" for *Troy, Illinois*."""

import os
from pathlib import Path
from typing import Any, Dict, List

import srsly
import typer
from tqdm import tqdm

STATES = {
    "AL": "Alabama",
    "AK": "Alaska",
    "AZ": "Arizona",
    "AR": "Arkansas",
    "CA": "California",
    "CO": "Colorado",
    "CT": "Connecticut",
    "DE": "Delaware",
    "FL": "Florida",
    "GA": "Georgia",
    "HI": "Hawaii",
    "ID": "Idaho",
    "IL": "Illinois",
    "IN": "Indiana",
    "IA": "Iowa",
    "KS": "Kansas",
    "KY": "Kentucky",
    "LA": "Louisiana",
    "ME": "Maine",
    "MD": "Maryland",
    "MA": "Massachusetts",
    "MI": "Michigan",
    "MN": "Minnesota",
    "MS": "Mississippi",
    "MO": "Missouri",
    "MT": "Montana",
    "NE": "Nebraska",
    "NV": "Nevada",
    "NH": "New Hampshire",
    "NJ": "New Jersey",
    "NM": "New Mexico",
    "NY": "New York",
    "NC": "North Carolina",
    "ND": "North Dakota",
    "OH": "Ohio",
    "OK": "Oklahoma",
    "OR": "Oregon",
    "PA": "Pennsylvania",
    "RI": "Rhode Island",
    "SC": "South Carolina",
    "SD": "South Dakota",
    "TN": "Tennessee",
    "TX": "Texas",
    "UT": "Utah",
    "VT": "Vermont",
    "VA": "Virginia",
    "WA": "Washington",
    "WV": "West Virginia",
    "WI": "Wisconsin",
    "WY": "Wyoming",
    "AB": "Alberta",
    "BC": "British Columbia",
    "MB": "Manitoba",
    "NB": "New Brunswick",
    "NS": "Nova Scotia",
    "ON": "Ontario",
    "QC": "Quebec",
    "SK": "Saskatchewan",
}
_CODES = {state: code for code, state in STATES.items()}


def main(catalogue: Path = typer.Argument(..., help="Catalogue in JSONL, which is replaced")) -> None:
    """Add the names."""
    new, count = catalogue.with_suffix(".new"), 0
    with new.open("w", encoding="utf8") as file_:
        for record in tqdm(srsly.read_jsonl(catalogue), desc="Names", unit=" entities"):
            names = find_names(record)
            count += len(names)
            if names:
                record["aliases"] = [*record.get("aliases", ()), *names]
            file_.write(srsly.json_dumps(record) + "\n")
    os.replace(new, catalogue)
    typer.echo(f"{count} names added")


def find_names(record: Dict[str, Any]) -> List[str]:
    """RETURNS (List[str]): The names that an entity lacks."""
    place, _, state = record["title"].rpartition(", ")
    names = [f"{place} {_CODES[state]}"] if place and state in _CODES else []
    return [name for name in names if name not in record.get("aliases", ())]


if __name__ == "__main__":
    typer.run(main)

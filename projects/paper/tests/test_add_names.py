"""`scripts/add_names.py`."""

import add_names
import pytest
import srsly


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Troy, Illinois", ["Troy IL"]),
        ("Troy", []),
        ("Georgia", []),
        ("Vancouver, British Columbia", ["Vancouver BC"]),
        ("Paris, Texas (film)", []),
        ("Earth, Wind & Fire", []),
    ],
)
def test_places_get_the_code_of_their_state(title, names):
    assert add_names.find_names({"title": title}) == names


def test_a_catalogue_gets_each_name_once(tmp_path):
    path = tmp_path / "entities.jsonl"
    records = [
        {"id": "a", "title": "Troy, Illinois", "stub": True},
        {"id": "b", "title": "Troy", "aliases": ["x"]},
    ]
    srsly.write_jsonl(path, records)
    for _ in range(2):
        add_names.main(path)
    assert list(srsly.read_jsonl(path)) == [{**records[0], "aliases": ["Troy IL"]}, records[1]]

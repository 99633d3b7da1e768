import bz2
import gzip
import json
import os

import numpy as np
import pytest
from filelock import FileLock
from wikidata_dump import dump_lines, item, statement, write_dump

from spacy_elq.catalogue import read_catalogue
from spacy_elq.errors import ELQError
from spacy_elq.sources import wikidata
from spacy_elq.sources.items import LABELS, Classes, ItemConverter, WikidataSettings
from spacy_elq.sources.wikidata import build_from_wikidata
from spacy_elq.types import Entity

# a city of a kind below city, a human, classes, a thing that is nothing, a property
ITEMS = [
    item("Q5", "human", P279=["Q215627"]),
    item("Q1549591", "big city", P279="Q515"),
    item("Q515", "city", P279=["Q486972"]),
    item(
        "Q90",
        "Paris",
        description="capital of France",
        aliases=["City of Light", "Paris"],
        sites={"enwiki": "Paris", "dewiki": "Paris", "frwiki": "Paris"},
        P31="Q1549591",
        P646="/m/05qtj",
    ),
    item("Q7251", "Alan Turing", description="mathematician", sites={"enwiki": "Alan Turing"}, P31="Q5"),
    {**item("P31", "instance of"), "type": "property"},
    item("Q99", None, P31="Q5"),
    item("Q100", "Unknown", P31="Q424242"),
]


def convert(record, *, pairs=(), **settings):
    classes = Classes(np.asarray(pairs, dtype="int64").reshape(-1, 2))
    return ItemConverter(WikidataSettings(**settings), classes).convert(record)


def build(tmp_path, records=ITEMS, *, name="dump.json.bz2", lines=None, restart=False, **settings):
    dump = write_dump(tmp_path / name, records, lines=lines)
    output = tmp_path / "entities.jsonl"
    report = build_from_wikidata(dump, output, settings=WikidataSettings(**settings), restart=restart)
    assert not (tmp_path / "entities.jsonl.partial").exists()
    return {entity.id: entity for entity in read_catalogue(output)}, report


# ---------------------------------------------------------------------- one item


def test_every_field_of_an_item():
    assert convert(ITEMS[3], pairs=[(1549591, 515)]) == Entity(
        "Q90",
        "Paris",
        "capital of France",
        ("City of Light",),
        "GPE",
        {"wikipedia": "Paris", "freebase": "/m/05qtj"},
        3,
    )


def test_names_of_another_language():
    record = item(
        "Q1", "Welt", description="alles", aliases=["All"], lang="de", sites={"dewiki": "Welt", "enwiki": "W"}
    )
    assert convert(record) == "label"
    entity = convert(record, lang="de")
    assert (entity.title, entity.description, entity.aliases) == ("Welt", "alles", ("All",))
    assert entity.ids == {"wikipedia": "Welt"}
    # the sites of a language with a hyphen
    cantonese = item("Q1", "x", lang="zh-yue", sites={"zh_yuewiki": "y"})
    assert convert(cantonese, lang="zh-yue").ids == {"wikipedia": "y"}


def test_a_blank_label_is_none():
    assert convert(item("Q1", "  ")) == "label"


def test_names_for_all_languages_stand_in():
    record = item("Q1", "Mul", aliases=["Both", "M"], lang="mul")
    assert convert(record).title == "Mul"
    own = item("Q1", "Own", aliases=["Both", "O"])
    both = {**own, **{key: {**own[key], **record[key]} for key in ("labels", "aliases")}}
    assert (convert(both).title, convert(both).aliases) == ("Own", ("Mul", "Both", "O", "M"))
    # an alias of the language is no title
    both["labels"].pop("en")
    assert (convert(both).title, convert(both).aliases) == ("Mul", ("Both", "O", "M"))


@pytest.mark.parametrize(
    ("values", "label"),
    [
        (["Q5"], "PERSON"),
        ([("Q5", "deprecated")], ""),
        ([("Q5", "deprecated"), ("Q515", "normal")], "GPE"),
        ([("Q5", "normal"), ("Q515", "preferred")], "GPE"),
        # a value that is unknown
        ([(None, "preferred"), ("Q5", "normal")], ""),
        ([(None, "normal"), ("Q5", "normal")], "PERSON"),
    ],
)
def test_the_best_rank_counts(values, label):
    assert convert(item("Q1", "x", P31=values)).label == label


def test_values_of_old_dumps_have_only_a_number():
    record = item("Q1", "x", P31="Q5")
    del record["claims"]["P31"][0]["mainsnak"]["datavalue"]["value"]["id"]
    assert convert(record).label == "PERSON"
    record["claims"]["P31"][0]["mainsnak"]["datavalue"]["value"] = {"id": "Q515"}
    assert convert(record).label == "GPE"


def test_the_nearest_class_gives_the_label():
    # 1 is below 2 and 3; 2 is two steps below organization, 3 one below city; cities go round in a circle
    pairs = [(1, 2), (1, 3), (2, 4), (4, 43229), (3, 515), (515, 3)]
    assert convert(item("Q9", "x", P31="Q1"), pairs=pairs).label == "GPE"
    # of several classes the one that is nearest to a label
    assert convert(item("Q9", "x", P31=["Q2", "Q3"]), pairs=pairs).label == "GPE"
    assert convert(item("Q9", "x", P31=["Q3", "Q4"]), pairs=pairs).label == "GPE"
    assert convert(item("Q9", "x", P31=["Q7", "Q3"]), pairs=pairs).label == "GPE"
    assert convert(item("Q9", "x", P31=["Q7"]), pairs=pairs).label == ""


def test_labels_of_ones_own():
    assert LABELS["Q5"] == "PERSON"
    assert convert(item("Q1", "x", P31="Q5"), labels={"Q5": "HUMAN"}).label == "HUMAN"
    assert convert(item("Q1", "x", P31="Q5"), labels={"Q5": ""}).label == ""
    assert convert(item("Q1", "x", P31="Q515"), labels={"Q5": "HUMAN"}).label == "GPE"


def test_types_and_sitelinks():
    record = item("Q1", "x", P31="Q3", sites={"enwiki": "x", "dewiki": "x"})
    assert convert(record, types=("Q515",)) == "type"
    assert isinstance(convert(record, types=("Q515", "Q3")), Entity)
    assert isinstance(convert(record, types=("Q515",), pairs=[(3, 515)]), Entity)
    assert convert(item("Q1", "x"), types=("Q515",)) == "type"
    assert convert(record, min_sitelinks=3) == "sitelinks"
    assert convert(record, min_sitelinks=2).popularity == 2


@pytest.mark.parametrize("settings", [{"types": ("human",)}, {"types": ("",)}, {"labels": {"P31": "X"}}])
def test_what_is_no_class_is_an_error(settings):
    with pytest.raises(ELQError, match=r"E131.*ids of classes in Wikidata"):
        WikidataSettings(**settings)


# ---------------------------------------------------------------------- a dump


@pytest.mark.parametrize("name", ["dump.json", "dump.json.gz", "dump.json.bz2"])
def test_a_dump_becomes_a_catalogue(tmp_path, name):
    found, report = build(tmp_path, name=name)
    assert list(found) == ["Q5", "Q1549591", "Q515", "Q90", "Q7251", "Q100"]
    assert {id_: entity.label for id_, entity in found.items() if entity.label} == {
        "Q90": "GPE",
        "Q7251": "PERSON",
    }
    assert (report.entities, report.bare, report.left_out) == (6, 4, {"label": 1})


def test_a_stream_of_several_parts_is_read_to_its_end(tmp_path):
    lines = [f"{line}\n".encode() for line in dump_lines(ITEMS)]
    (tmp_path / "dump.json.bz2").write_bytes(
        bz2.compress(b"".join(lines[:3])) + bz2.compress(b"".join(lines[3:]))
    )
    report = build_from_wikidata(tmp_path / "dump.json.bz2", tmp_path / "out.jsonl")
    assert report.entities == 6


def test_subclasses_count_unless_told_otherwise(tmp_path):
    assert list(build(tmp_path, types=("Q515",))[0]) == ["Q90"]
    with pytest.raises(
        ELQError, match=r"E133.*no entity for the catalogue \(7 items left out by their type\)"
    ):
        build(tmp_path, types=("Q515",), subclasses=False)
    assert not list(tmp_path.glob("*.partial"))
    found, report = build(tmp_path, types=("Q1549591",), subclasses=False)
    assert found["Q90"].label == ""
    assert report.left_out == {"type": 6}


def test_items_with_few_sitelinks_are_not_even_parsed(tmp_path):
    lines = dump_lines(ITEMS)
    lines.insert(1, "{not valid},")
    found, report = build(tmp_path, lines=lines, min_sitelinks=2)
    assert list(found) == ["Q90"]
    assert report.left_out["sitelinks"] == 8


@pytest.mark.filterwarnings("error")
def test_redirects_and_lines_without_brackets(tmp_path):
    records = [{**item("Q1", "x"), "redirect": "Q2"}, item("Q2", "y")]
    found, _ = build(tmp_path, lines=[json.dumps(record) for record in records])
    assert list(found) == ["Q2"]


@pytest.mark.filterwarnings("error")
def test_blank_lines_behind_a_dump(tmp_path):
    assert len(build(tmp_path, lines=[*dump_lines(ITEMS), "", " "])[0]) == 6


def test_a_dump_that_ends_early_is_a_warning(tmp_path):
    with pytest.warns(UserWarning, match=r"W008.*ends at line 6 without the `\]`"):
        found, _ = build(tmp_path, lines=[*dump_lines(ITEMS)[:5], ""], name="dump.json.gz")
    assert len(found) == 4


# ---------------------------------------------------------------------- interrupted


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[1]",
        '{"type":"item","labels":{"en":{"value":"x"}}}',
        '{"type":"item","id":"Q1","labels":{"en":{"language":"en"}}}',
        "[" * 9999,
        '{"type":"item","id":5,"labels":{"en":{"value":"x"}}}',
        '{"type":"item","id":"","labels":{"en":{"value":"x"}}}',
        '{"type":"item","id":"Q1","labels":{"en":{"value":5}}}',
        '{"type":"item","id":"Q1","labels":{"en":{"value":"x"}},"sitelinks":{"enwiki":{"title":5}}}',
        json.dumps(item("Q1", "\ud83d")),
    ],
)
def test_a_bad_line_keeps_what_was_read(tmp_path, bad):
    lines = dump_lines(ITEMS)
    broken = [*lines[:5], bad, *lines[6:]]
    with pytest.raises(ELQError, match=r"E130.*line 6: not an item of Wikidata.*the same command continues"):
        build(tmp_path, lines=broken, subclasses=False)
    assert not (tmp_path / "entities.jsonl").exists()
    kept = tmp_path / "entities.jsonl.partial" / "entities.jsonl"
    assert [entity.id for entity in read_catalogue(kept)] == ["Q5", "Q1549591", "Q515", "Q90"]
    found, report = build(tmp_path, subclasses=False)
    assert (len(found), report.entities, report.bare, report.left_out) == (6, 6, 4, {"label": 1})


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_half_a_download_is_an_error_and_can_be_continued(tmp_path, suffix):
    records = [item(f"Q{i}", f"title {i * 7919}", P279="Q2") for i in range(1, 3000)]
    dump = write_dump(tmp_path / f"dump.json{suffix}", records)
    whole = dump.read_bytes()
    dump.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(ELQError, match=r"E130.*line \d+: the compressed data is damaged"):
        build_from_wikidata(dump, tmp_path / "entities.jsonl")
    dump.write_bytes(whole)
    assert build_from_wikidata(dump, tmp_path / "entities.jsonl").entities == 2999


def interrupt_after(monkeypatch, count):
    """Interrupt after so many lines that were parsed; gives the list of those that are parsed."""
    parsed, original = [], wikidata._parse

    def parse(line):
        if len(parsed) == count:
            raise KeyboardInterrupt
        parsed.append(line)
        return original(line)

    monkeypatch.setattr(wikidata, "_parse", parse)
    return parsed


# of the first reading, which parses the three classes, or of the second
@pytest.mark.parametrize("count", [1, 3, 4, 6, 9])
def test_an_interrupted_run_gives_the_same_catalogue(tmp_path, monkeypatch, count):
    expected, _ = build(tmp_path)
    (tmp_path / "entities.jsonl").unlink()
    with monkeypatch.context() as patch:
        parsed = interrupt_after(patch, count)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path)
        assert len(parsed) == count
    again = interrupt_after(monkeypatch, None)
    found, report = build(tmp_path)
    assert found == expected
    assert report.entities == 6
    # no line twice, but for brackets
    assert [line for line in again if len(line) > 3 and line in parsed[3:]] == []
    assert len(again) + count == 3 + len(ITEMS) + 2


def test_what_was_written_after_the_state_is_written_once(tmp_path, monkeypatch):
    """Killed between two saves, the file of entities is longer than the state says."""
    with monkeypatch.context() as patch:
        interrupt_after(patch, 8)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path)
    with (tmp_path / "entities.jsonl.partial" / "entities.jsonl").open("ab") as file_:
        file_.write(b'{"id": "Q7251", "tit' + b"x" * 10000)
    assert len(build(tmp_path)[0]) == 6


def test_a_run_that_was_killed_when_all_was_done_starts_over(tmp_path, monkeypatch):
    """Between renaming the catalogue and removing the folder."""
    with monkeypatch.context() as patch:
        interrupt_after(patch, 8)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path)
    (tmp_path / "entities.jsonl.partial" / "entities.jsonl").unlink()
    assert len(build(tmp_path)[0]) == 6


@pytest.mark.filterwarnings("error")
def test_a_reading_that_was_killed_after_the_last_line(tmp_path):
    dump = write_dump(tmp_path / "dump.json", ITEMS)
    reading = wikidata.Reading(tmp_path / "results", dump)
    reading.run(lambda line: (line, "line"), desc="", progress=False)
    reading.state = reading.state._replace(size=-1)
    reading.run(lambda line: (line, "line"), desc="", progress=False)
    assert (tmp_path / "results").read_bytes() == dump.read_bytes()
    assert reading.state.size == dump.stat().st_size


def test_the_state_is_saved_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(wikidata, "_LINES", 2)
    monkeypatch.setattr(wikidata, "_SECONDS", -1.0)
    saved = []
    monkeypatch.setattr(wikidata.Reading, "_save", lambda self, file_: saved.append(self.state.lines))
    build(tmp_path, subclasses=False)
    assert saved == [2, 4, 6, 8, 10, 10]


def test_other_settings_do_not_continue(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 8)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path, types=("Q5",))
    with pytest.raises(ELQError, match=r"E132.*other settings \(types \['Q5'\]\).*--restart"):
        build(tmp_path, types=("Q515",))
    # the classes are known
    parsed = interrupt_after(monkeypatch, None)
    assert list(build(tmp_path, types=("Q515",), restart=True)[0]) == ["Q90"]
    assert len(parsed) == len(ITEMS) + 2


@pytest.mark.parametrize("count", [2, 8])
def test_another_dump_does_not_continue(tmp_path, monkeypatch, count):
    with monkeypatch.context() as patch:
        interrupt_after(patch, count)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path, name="dump.json")
    # of the same size
    other = [item("Q5", "hunam", P279=["Q215627"]), *ITEMS[1:]]
    for records in (other, ITEMS[:1]):
        with pytest.raises(ELQError, match=r"E132.*another dump"):
            build(tmp_path, records, name="dump.json")
    found, _ = build(tmp_path, other, name="dump.json", restart=True)
    assert (len(found), found["Q5"].title) == (6, "hunam")


def test_classes_of_another_dump_are_read_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path)
    other = [item("Q1549591", "big city", P279="Q43229"), *ITEMS[2:]]
    assert build(tmp_path, other)[0]["Q90"].label == "ORG"


# ---------------------------------------------------------------------- the folder of a run


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """RETURNS: The folder of an interrupted run whose classes are complete."""
    with monkeypatch.context() as patch:
        interrupt_after(patch, 8)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path)
    return tmp_path / "entities.jsonl.partial"


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("name", ["notes.txt", "entities.jsonl", "settings.json"])
def test_a_folder_of_somebody_else_stays_as_it_is(tmp_path, restart, name):
    work = tmp_path / "entities.jsonl.partial"
    work.mkdir()
    (work / name).write_text("{}")
    with pytest.raises(ELQError, match=rf"E185.*{work}.*no file '\.spacy-elq'.*Rename it"):
        build(tmp_path, restart=restart)
    assert [path.name for path in work.iterdir()] == [name]
    assert (work / name).read_text() == "{}"
    assert not (tmp_path / "entities.jsonl").exists()


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "entities.jsonl.partial").mkdir()
    assert len(build(tmp_path)[0]) == 6


@pytest.mark.parametrize("restart", [True, False])
def test_a_file_of_somebody_else_in_our_folder_stays(tmp_path, interrupted, restart):
    (interrupted / "notes.txt").write_text("mine")
    dump, output = tmp_path / "dump.json.bz2", tmp_path / "entities.jsonl"
    assert build_from_wikidata(dump, output, restart=restart).entities == 6
    assert [path.name for path in interrupted.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "left", ["entities.jsonl.state.new", "subclasses.bin.state.new", "settings.json.new"]
)
def test_what_a_process_that_was_killed_leaves_goes(tmp_path, interrupted, left):
    (interrupted / left).write_text("half")
    assert len(build(tmp_path)[0]) == 6


def test_one_run_at_a_time(tmp_path, interrupted):
    names = sorted(path.name for path in interrupted.iterdir())
    with FileLock(interrupted / ".lock"), pytest.raises(ELQError, match=rf"E186.*{interrupted}"):
        build(tmp_path, restart=True)
    assert {*names, ".lock"} == {path.name for path in interrupted.iterdir()} | {".lock"}
    assert len(build(tmp_path)[0]) == 6


BAD = ["", "{", "[]", "7", "null", "[1, 2]", "[1, 2, 3, {}, 5, 6]", '[1, "2", 3, {}, 5]', "[" * 99999, "\xff"]
BAD_STATES = [
    *BAD,
    "[1, 2, 3, [], 5]",
    '[1, 2, 3, {"full": "x"}, 5]',
    "[-1, 2, 3, {}, 5]",
    "[1, 2, -3, {}, 5]",
]


@pytest.mark.parametrize("name", ["entities.jsonl.state", "subclasses.bin.state"])
@pytest.mark.parametrize("text", [*BAD_STATES, "[1, 2, 99999, {}, 5]"])
def test_a_damaged_state_is_an_error_that_says_how_to_start_over(tmp_path, interrupted, name, text):
    (interrupted / name).write_text(text, encoding="latin1")
    with pytest.raises(ELQError, match=rf"E132.*{interrupted}.*`{name}` is damaged.*--restart"):
        build(tmp_path)
    assert len(build(tmp_path, restart=True)[0]) == 6


@pytest.mark.parametrize("text", BAD)
def test_damaged_settings_are_an_error_that_says_how_to_start_over(tmp_path, interrupted, text, monkeypatch):
    (interrupted / "settings.json").write_text(text, encoding="latin1")
    with pytest.raises(ELQError, match=r"E132.*`settings.json` is damaged.*--restart"):
        build(tmp_path)
    # the classes are known
    parsed = interrupt_after(monkeypatch, None)
    assert len(build(tmp_path, restart=True)[0]) == 6
    assert len(parsed) == len(ITEMS) + 2


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "entities.jsonl").symlink_to(tmp_path / "real" / "file.jsonl")
    for _ in range(2):
        assert len(build(tmp_path)[0]) == 6
        assert (tmp_path / "entities.jsonl").is_symlink()
        assert [path.name for path in (tmp_path / "real").iterdir()] == ["file.jsonl"]


def test_a_pipe_is_no_output(tmp_path):
    os.mkfifo(tmp_path / "entities.jsonl")
    with pytest.raises(ELQError, match=r"E187.*entities\.jsonl is a pipe or a device"):
        build(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_an_empty_dump(tmp_path):
    with pytest.raises(ELQError, match=r"E133.*has no entity for the catalogue. Nothing was written"):
        build(tmp_path, lines=["[", "]"])
    (tmp_path / "none.json.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(ELQError, match="E133"):
        build_from_wikidata(tmp_path / "none.json.gz", tmp_path / "out.jsonl")


def test_statement_of_the_helper_has_the_shape_of_wikidata():
    value = {"entity-type": "item", "numeric-id": 5, "id": "Q5"}
    assert statement("Q5")["mainsnak"]["datavalue"]["value"] == value

import pytest
from conftest import run_spacy
from spacy.cli import app
from typer.testing import CliRunner
from wikidata_dump import item, write_dump

import spacy_elq.cli  # noqa: F401 (adds the commands to spaCy's)
from spacy_elq.catalogue import read_catalogue

ITEMS = [
    item("Q1549591", "big city", P279="Q515"),
    item("Q90", "Paris", description="capital", sites={"enwiki": "Paris", "dewiki": "Paris"}, P31="Q1549591"),
    item("Q7251", "Alan Turing", description="mathematician", sites={"enwiki": "Alan Turing"}, P31="Q5"),
    item("Q64", "Berlin", lang="de", sites={"dewiki": "Berlin"}, P31="Q515"),
]


def invoke(*args):
    """Run `spacy elq catalogue` in this process; gives the exit code and what it printed, as one line."""
    result = CliRunner().invoke(app, ["elq", "catalogue", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def dump(tmp_path):
    return write_dump(tmp_path / "dump.json.bz2", ITEMS)


def read(path):
    return [(entity.id, entity.label) for entity in read_catalogue(path)]


def test_help_explains_what_resuming_costs():
    code, output = invoke("--help")
    assert code == 0
    assert "--min-sitelinks" in output
    assert "OUTPUT.partial" in output


def test_wikidata(dump, tmp_path):
    output = tmp_path / "entities.jsonl"
    done = run_spacy("elq", "catalogue", dump, output, "--types", "Q515, Q5", "--labels", "Q515=CITY")
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert "entities.jsonl: 2 entities" in printed
    assert "1 items left out by their type" in printed
    assert "1 items left out by their label" in printed
    assert "no description" not in printed
    assert f"Next: python -m spacy elq encode {output} VECTORS --encoder MODEL" in printed
    assert read(output) == [("Q90", "CITY"), ("Q7251", "PERSON")]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--no-subclasses", "--types", "Q515,Q5"], [("Q7251", "PERSON")]),
        (["--min-sitelinks", 2], [("Q90", "GPE")]),
        (["--lang", "de"], [("Q64", "GPE")]),
        (["--format", "wikidata", "--no-subclasses", "-s", 1], [("Q90", ""), ("Q7251", "PERSON")]),
    ],
)
def test_options_of_wikidata(dump, tmp_path, options, found):
    code, output = invoke(dump, tmp_path / "out.jsonl", *options)
    assert code == 0, output
    assert read(tmp_path / "out.jsonl") == found


def test_a_damaged_dump_can_be_continued_or_restarted(dump, tmp_path):
    whole = dump.read_bytes()
    dump.write_bytes(whole[:-10])
    out = tmp_path / "out.jsonl"
    code, output = invoke(dump, out)
    assert code == 1
    assert "E130" in output
    dump.write_bytes(whole)
    code, output = invoke(dump, out, "--lang", "de")
    assert code == 1
    assert "E132" in output
    assert invoke(dump, out, "--lang", "de", "--restart")[0] == 0
    assert read(out) == [("Q64", "GPE")]


def test_table(tmp_path):
    source = tmp_path / "things.csv"
    source.write_text("key,name,text,aka,kind,group,views\nE1,Rome,,Roma;Urbs,GPE,eu,3\n", encoding="utf8")
    out = tmp_path / "out.jsonl"
    columns = {"id": "key", "title": "name", "description": "text", "aliases": "aka", "label": "kind"}
    columns |= {"tags": "group", "popularity": "views", "list-separator": ";"}
    code, output = invoke(
        source, out, *(word for key, name in columns.items() for word in (f"--{key}", name))
    )
    assert code == 0, output
    assert "1 entities have no description: only their names tell them apart" in output
    (entity,) = read_catalogue(out)
    assert (entity.id, entity.title, entity.aliases) == ("E1", "Rome", ("Roma", "Urbs"))
    assert (entity.label, entity.tags, entity.popularity) == ("GPE", ("eu",), 3)


def test_knowledge_base(tmp_path):
    from spacy.kb import InMemoryLookupKB
    from spacy.vocab import Vocab

    kb = InMemoryLookupKB(Vocab(), 1)
    kb.add_entity("Q1", freq=1, entity_vector=[1])
    kb.to_disk(tmp_path / "kb")
    (tmp_path / "d.tsv").write_text("id\ttitle\tdescription\nQ1\tOne\tA number.\n", encoding="utf8")
    code, output = invoke(tmp_path / "kb", tmp_path / "out.jsonl", "--descriptions", tmp_path / "d.tsv")
    assert code == 0, output
    assert [entity.description for entity in read_catalogue(tmp_path / "out.jsonl")] == ["A number."]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--title", "name"], 1, "E136"),
        (["--labels", "Q5"], 2, "such as Q5=PERSON"),
        (["--types", "human"], 1, "E131"),
    ],
)
def test_wrong_options_are_errors(dump, tmp_path, options, code, message):
    found, output = invoke(dump, tmp_path / "out.jsonl", *options)
    assert (found, message in output) == (code, True), output

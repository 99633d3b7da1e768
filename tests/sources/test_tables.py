import csv

import pytest

from spacy_elq.catalogue import read_catalogue
from spacy_elq.errors import ELQError
from spacy_elq.sources import build_catalogue, guess_format, read_table, tables, write_entities
from spacy_elq.sources.tables import TableSettings
from spacy_elq.types import Entity

FULL = """\
id,title,description,aliases,label,tags,popularity,founded
E1,Paris,Capital of France.,City of Light|| Paname ,GPE,eu|city,12,-250
E2,Rome,,,,,,-753
"""


@pytest.fixture
def write(tmp_path):
    def write_text(text, name="things.csv", encoding="utf8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write_text


def test_every_field_by_the_name_of_its_column(write):
    assert list(read_table(write(FULL))) == [
        Entity(
            "E1", "Paris", "Capital of France.", ("City of Light", "Paname"), "GPE", {}, 12.0, ("eu", "city")
        ),
        Entity("E2", "Rome"),
    ]


def test_columns_with_other_names(write):
    text = "key;name|text\taka\tkind\tgroup\tviews\n" + "E1\tRome\tRoma; Caput Mundi\tGPE\teu;it\t1e3\n"
    text = text.replace("key;name|text", "key\tname")
    settings = TableSettings(
        id="key",
        title="name",
        aliases="aka",
        label="kind",
        tags="group",
        popularity="views",
        list_separator=";",
    )
    assert list(read_table(write(text), format="tsv", settings=settings)) == [
        Entity("E1", "Rome", "", ("Roma", "Caput Mundi"), "GPE", {}, 1000.0, ("eu", "it"))
    ]
    # the field that no column has stays away, and one may be two fields
    both = TableSettings(id="name", title="name", description="aka")
    assert list(read_table(write(text), format="tsv", settings=both)) == [
        Entity("Rome", "Rome", "Roma; Caput Mundi")
    ]


def test_byte_order_mark_quotes_and_line_breaks(write):
    text = '\ufeff"id", title ,description\r\nE1,"Paris, ""the"" city","One\r\ntwo"\r\n\r\nE2,Rome,x\r\n'
    assert list(read_table(write(text))) == [
        Entity("E1", 'Paris, "the" city', "One\r\ntwo"),
        Entity("E2", "Rome", "x"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # line 3 belongs to the row of line 2
        (
            'id,title\nE1,"a\nb"\n,Rome\n',
            "things.csv, line 4: `id` must be a string that is not empty. Found: None",
        ),
        ("id,title\nE1,\n", "line 2: `title` must be a string"),
        ("id,title\nE1,a\nE1,b\n", "line 3: the id was used by an earlier row. Found: E1"),
        ("id,title\nE1,a,b\n", "line 2: expected 2 cells, as in the first row. Found: 3"),
        ("id,title\nE1,a\nE2\n", "line 3: expected 2 cells, as in the first row. Found: 1"),
        (
            "id,title,popularity\nE1,a,many\n",
            "line 2: `popularity` must be a number, at least 0. Found: 'many'",
        ),
        ("id,title,popularity\nE1,a,nan\n", "line 2: `popularity` must be a number"),
        ('id,title\nE1,a\nE2,"b\nE3,c\n', "line 3: not valid CSV. Found: unexpected end of data"),
    ],
)
def test_errors_name_the_line(write, text, message):
    with pytest.raises(ELQError, match="E020") as error:
        list(read_table(write(text)))
    assert message in str(error.value)


def test_a_long_cell_is_read(write):
    (entity,) = read_table(write("id,title,description\nE1,a," + "x" * 200000))
    assert len(entity.description) == 200000


def test_a_cell_that_never_ends_is_an_error(write, monkeypatch):
    monkeypatch.setattr(tables, "_LONGEST", 1000)
    limit = csv.field_size_limit(500)
    try:
        with pytest.raises(ELQError, match=r"line 2: not valid CSV\. Found: field larger than field limit"):
            list(read_table(write('id,title\nE1,"' + "x" * 2000)))
        # whoever has set a higher limit keeps it
        csv.field_size_limit(10000)
        assert len(next(read_table(write("id,title\nE1," + "x" * 2000))).title) == 2000
        assert csv.field_size_limit() == 10000
    finally:
        csv.field_size_limit(limit)


def test_a_column_that_is_nearly_called_like_a_field_is_named(write):
    path = write("id,title,Descripton,founded,label,labels\nE1,a,b,c,d,e\n")
    with pytest.warns(UserWarning, match="W080") as warned:
        assert list(read_table(path)) == [Entity("E1", "a", label="d")]
    (text,) = [str(warning.message) for warning in warned]
    assert f"{path}: the column 'Descripton' is ignored. Did you mean `description`?" in text
    assert "--description 'Descripton'" in text


@pytest.mark.filterwarnings("error")
def test_a_column_that_is_read_is_not_named(write):
    path = write("id,title,descripton,founded\nE1,a,b,c\n")
    (entity,) = read_table(path, settings=TableSettings(label="descripton"))
    assert entity == Entity("E1", "a", label="b")


def test_another_encoding_is_an_error(write):
    text = 'id,title\nE1,Rome\nE2,"a\nMünchen"\n'
    with pytest.raises(ELQError, match=r"E020.*line 4: not UTF-8 \(invalid start byte\). Found: b'M\\xfc'"):
        list(read_table(write(text, encoding="latin1")))


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            "key,title\nE1,a\n",
            {},
            "needs one column 'id' for `id`. Its columns: 'key', 'title'. Name the right one: --id",
        ),
        (
            "id,title\nE1,a\n",
            {"aliases": "aka"},
            "needs one column 'aka' for `aliases`. Its columns: 'id', 'title'.",
        ),
        ("id,title,title\nE1,a,b\n", {}, "needs one column 'title' for `title`"),
        ("id;title\nE1;a\n", {}, "Its columns: 'id;title'"),
    ],
)
def test_a_missing_column_is_named_with_those_there_are(write, text, settings, message):
    with pytest.raises(ELQError, match="E134") as error:
        list(read_table(write(text), settings=TableSettings(**settings)))
    assert message in str(error.value)


def test_a_separator_is_needed():
    with pytest.raises(ELQError, match=r"E131.*`list_separator` is ''"):
        TableSettings(list_separator="")


# ---------------------------------------------------------------------- to a catalogue


def test_table_to_catalogue(write, tmp_path):
    output = tmp_path / "new" / "entities.jsonl"
    report = build_catalogue(write(FULL), output, settings={"description": "founded"})
    assert (report.entities, report.bare, report.left_out) == (2, 0, {})
    assert [entity.description for entity in read_catalogue(output)] == ["-250", "-753"]
    assert build_catalogue(write(FULL), output).bare == 1
    build_catalogue(write(FULL.replace(",", "\t"), "things.tsv"), output)
    build_catalogue(write(FULL.replace(",", "\t"), "things.txt"), output, format="tsv")
    assert list(tmp_path.glob("new/*")) == [output]


def test_an_error_leaves_the_old_catalogue_and_nothing_else(write, tmp_path):
    output = tmp_path / "new" / "entities.jsonl"
    build_catalogue(write(FULL), output)
    before = output.read_bytes()
    with pytest.raises(ELQError, match="line 4"):
        build_catalogue(write(FULL + "E2,x,,,,,,\n"), output)
    assert output.read_bytes() == before
    assert list(tmp_path.glob("new/*")) + list(tmp_path.glob("new/.*")) == [output]


@pytest.mark.parametrize("text", ["", "\n\n", "id,title\n"])
def test_a_table_without_rows_is_an_error(write, tmp_path, text):
    with pytest.raises(ELQError, match=r"E133.*has no entity for the catalogue.*Nothing was written"):
        build_catalogue(write(text), tmp_path / "entities.jsonl")
    assert not (tmp_path / "entities.jsonl").exists()


def test_the_catalogue_appears_when_it_is_complete(tmp_path):
    output = tmp_path / "entities.jsonl"

    def entities():
        yield Entity("E1", "Paris")
        assert not output.exists()
        yield Entity("E2", "Rome")

    assert write_entities(entities(), output, source=tmp_path).entities == 2
    assert output.exists()


def test_a_link_stays_and_its_file_is_replaced(write, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real" / "entities.jsonl")
    build_catalogue(write(FULL), tmp_path / "link.jsonl")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len(list(read_catalogue(tmp_path / "real" / "entities.jsonl"))) == 2


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "csv"),
        ("a.TSV", "tsv"),
        ("latest-all.json", "wikidata"),
        ("latest-all.json.bz2", "wikidata"),
        ("latest-all.json.GZ", "wikidata"),
    ],
)
def test_format_from_the_name(tmp_path, name, format):
    assert guess_format(tmp_path / name) == format


@pytest.mark.parametrize("name", ["a.txt", "folder", "a.csv.gz", "a.gz"])
def test_a_name_that_suggests_no_format(tmp_path, name):
    with pytest.raises(ELQError, match=r"E042.*wikidata, csv, tsv, spacy-kb \(--format\)"):
        guess_format(tmp_path / name)


def test_settings_of_another_format_are_an_error(write, tmp_path):
    with pytest.raises(ELQError, match=r"E136.*format csv has no setting `types`, `lang`. It has: id, title"):
        build_catalogue(
            write(FULL), tmp_path / "out.jsonl", settings={"types": ("Q5",), "lang": "en", "id": "id"}
        )


def test_source_and_output(write, tmp_path):
    with pytest.raises(ELQError, match="E022"):
        build_catalogue(tmp_path / "missing.csv", tmp_path / "out.jsonl")
    with pytest.raises(ELQError, match="E045"):
        build_catalogue(write(FULL), tmp_path / "things.csv")
    with pytest.raises(ELQError, match=r"E042.*'xls'"):
        build_catalogue(write(FULL), tmp_path / "out.jsonl", format="xls")

import pytest
from conftest import run_spacy
from vcg_world import WIDTH, write_relations

from spacy_elq.baselines.vcg.relations import Relations


@pytest.fixture
def files(tmp_path):
    """Files that a test may change."""
    return write_relations(tmp_path)


def run(files, index, *more):
    settings = ("--width", WIDTH, "--epochs", 1)
    done = run_spacy("elq", "relations", files / "triples.tsv", index.path, files / "out", *settings, *more)
    return done.returncode, " ".join(done.stdout.split()), done.stderr


def test_command_writes_relations_and_prints_counts(files, index):
    code, output, errors = run(files, index, "--links", files / "links.tsv")
    assert code == 0, errors
    assert "out: 5 relations of 8 entities" in output
    assert "7 triples, 4 hyperlinks" in output
    assert "3 of them have an entity that is not in the index, such as X1, X2" in output
    assert "spacy elq init-config elq_vcg vcg.cfg --relations" in output
    assert Relations.open(files / "out").width == WIDTH


def test_nothing_is_left_out_where_all_are_known(files, index):
    (files / "triples.tsv").write_text("E1\tcapital of\tE7\n", encoding="utf8")
    code, output, _ = run(files, index)
    assert (code, "not in the index" in output) == (0, False)
    assert "out: 1 relations of 2 entities" in output


def test_an_error_is_its_message_alone(files, index):
    (files / "triples.tsv").write_text("E1 capital\n", encoding="utf8")
    code, _, errors = run(files, index)
    assert code == 1
    assert "E040" in errors
    assert "Traceback" not in errors


def test_config_gets_the_relations(files):
    done = run_spacy("elq", "init-config", "vcg", files / "vcg.cfg", "--relations", "there")
    assert done.returncode == 0, done.stderr
    assert 'relations = "there"' in (files / "vcg.cfg").read_text(encoding="utf8")

import json
import subprocess
import sys

import pytest
import spacy
from spacy.cli import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

from spacy_elq.cli.convert import convert
from spacy_elq.errors import ELQError


def docs_of(path):
    return list(DocBin().from_disk(path).get_docs(spacy.blank("en").vocab))


def gold_of(doc):
    return [(span.text, span.kb_id_) for span in doc.spans["gold_links"]]


def invoke(*args):
    """Run `spacy elq convert` in this process; gives the exit code and what it printed, as one line."""
    result = CliRunner().invoke(app, ["elq", "convert", *map(str, args)])
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def write(tmp_path):
    def write_file(name, *lines):
        path = tmp_path / name
        text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
        path.write_text(text, encoding="utf8")
        return path

    return write_file


def test_help_explains_the_input():
    code, output = invoke("--help")
    assert code == 0
    assert "[shaq](Q169452)" in output
    assert "--format" in output


def test_command_writes_docs_and_prints_counts(questions_path, tmp_path):
    target = tmp_path / "new" / "folder" / "questions.spacy"
    command = [sys.executable, "-m", "spacy", "elq", "convert", str(questions_path), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    docs = docs_of(target)
    assert len(docs) == 20
    assert docs[2].text == "when was shaquille o'neal born"
    assert gold_of(docs[2]) == [("shaquille o'neal", "E8")]
    assert [(ent.text, ent.kb_id_) for ent in docs[2].ents] == gold_of(docs[2])
    assert docs[10].user_data["kind"] == "nickname"
    output = " ".join(done.stdout.split())
    assert "20 questions, 22 gold links" in output
    assert "Kinds: plain 10, nickname 3, typo 2, several 3, none 2" in output
    assert "do not fit" not in output


def test_misfits_are_dropped_counted_and_shown(write, tmp_path):
    spans = [{"start": 11, "end": 14, "id": "E5"}, {"start": 22, "end": 27, "id": "E1"}]
    source = write("q.jsonl", {"text": "weather in newyork or paris", "spans": spans})
    code, output = invoke(source, tmp_path / "q.spacy")
    assert code == 0
    assert "1 gold links do not fit the tokens" in output
    assert "'new' in 'weather in newyork or paris'" in output
    assert gold_of(docs_of(tmp_path / "q.spacy")[0]) == [("paris", "E1")]


def test_overlapping_links_are_all_in_the_span_group(write, tmp_path):
    spans = [{"start": 0, "end": 13, "id": "E5"}, {"start": 0, "end": 8, "id": "E9"}]
    source = write("q.jsonl", {"text": "new york city hotels", "spans": spans})
    code, output = invoke(source, tmp_path / "q.spacy")
    assert code == 0
    assert "1 gold links overlap" in output
    doc = docs_of(tmp_path / "q.spacy")[0]
    assert gold_of(doc) == [("new york city", "E5"), ("new york", "E9")]
    assert [ent.kb_id_ for ent in doc.ents] == ["E5"]


def test_questions_without_kinds_print_no_kinds(write, tmp_path):
    code, output = invoke(write("q.txt", "is [paris](E1) old"), tmp_path / "q.spacy")
    assert code == 0
    assert "1 questions, 1 gold links" in output
    assert "Kinds" not in output


def test_format_option_goes_before_the_suffix(write, tmp_path):
    source = write("questions.data", "is [paris](E1) old")
    report = convert(source, tmp_path / "q.spacy", format="marked")
    assert (report.questions, report.mentions) == (1, 1)


def test_language_chooses_the_tokenizer(write, tmp_path):
    source = write("q.txt", "why don't [paris](E1) cabs stop")
    tokens = {}
    for lang in ("en", "de"):
        convert(source, tmp_path / "q.spacy", lang=lang)
        tokens[lang] = [token.text for token in docs_of(tmp_path / "q.spacy")[0]]
    assert "n't" in tokens["en"]
    assert "don't" in tokens["de"]


def test_unknown_suffix_names_the_formats(write, tmp_path):
    code, output = invoke(write("q.csv", "a,b"), tmp_path / "q.spacy")
    assert code == 1
    assert "E042" in output
    assert "'.csv'" in output
    assert "marked, jsonl (--format)" in output
    assert not (tmp_path / "q.spacy").exists()


def test_unknown_format(write, tmp_path):
    with pytest.raises(ELQError, match=r"E042.*'conll'"):
        convert(write("q.txt", "hello"), tmp_path / "q.spacy", format="conll")


def test_missing_input(tmp_path):
    code, output = invoke(tmp_path / "no.txt", tmp_path / "q.spacy")
    assert code == 1
    assert "E022" in output
    assert "no.txt" in output


def test_bad_line_is_named(write, tmp_path):
    source = write("q.txt", "is [paris](E1) old", "is [paris](E 1) old")
    code, output = invoke(source, tmp_path / "q.spacy")
    assert code == 1
    assert "line 2" in output
    assert not (tmp_path / "q.spacy").exists()


def test_a_language_that_spacy_does_not_know(tmp_path):
    (tmp_path / "questions.txt").write_text("is [paris](E1) big\n", encoding="utf8")
    with pytest.raises(ELQError, match=r"E046.*'zz'"):
        convert(tmp_path / "questions.txt", tmp_path / "out.spacy", lang="zz")

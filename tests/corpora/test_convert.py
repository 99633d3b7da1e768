import gzip
import json
import os
import subprocess
import sys

import pytest
import spacy
from spacy.cli import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

from spacy_elq.corpora.chunks import build_chunked_corpus
from spacy_elq.corpora.convert import convert
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
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
    assert "token boundaries" not in output


def test_misfits_are_dropped_counted_and_shown(write, tmp_path):
    spans = [{"start": 11, "end": 14, "id": "E5"}, {"start": 22, "end": 27, "id": "E1"}]
    source = write("q.jsonl", {"text": "weather in newyork or paris", "spans": spans})
    code, output = invoke(source, tmp_path / "q.spacy")
    assert code == 0
    assert "1 gold links do not match token boundaries: not used in training, missed in evaluation" in output
    assert "'new' in 'weather in newyork or paris'" in output
    doc = docs_of(tmp_path / "q.spacy")[0]
    assert gold_of(doc) == [("paris", "E1")]
    assert doc.user_data["lost"] == 1


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
    for word in ("Kinds", "left out", "partly marked", "does not know"):
        assert word not in output


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
    assert "marked, jsonl, el4qa, elq (--format)" in output
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


# which questions, by which ids, into which files

EL4QA = [
    {
        "question_id": "W-1",
        "utterance": "who rules rome",
        "entities": ["Q220"],
        "entities_pos": [[10, 14]],
    },
    {
        "question_id": "W-2",
        "utterance": "is paris older than atlantis",
        "entities": ["Q90", "Q404"],
        "entities_pos": [[3, 8], [20, 28]],
    },
    {"question_id": "W-3", "utterance": "what time is it", "entities": [], "entities_pos": []},
]


@pytest.fixture
def el4qa(tmp_path):
    path = tmp_path / "el4qa.json"
    path.write_text(json.dumps(EL4QA), encoding="utf8")
    return path


@pytest.fixture
def entities(write):
    return write(
        "entities.jsonl",
        {"id": "E1", "title": "Paris", "ids": {"wikidata": "Q90", "freebase": "m.05qtj"}},
        {"id": "E2", "title": "Rome", "ids": {"wikidata": "Q220"}},
    )


@pytest.fixture
def five(write):
    return write("five.txt", *(f"question {i}" for i in range(5)))


def texts_of(*paths):
    return [doc.text for path in paths for doc in docs_of(path)]


def test_help_names_the_options():
    output = invoke("--help")[1]
    for option in ("--entities", "--ids", "--only", "--without", "--chunk", "--limit"):
        assert option in output


def test_el4qa_is_converted(el4qa, tmp_path):
    code, output = invoke(el4qa, tmp_path / "q.spacy")
    assert code == 0
    assert "3 questions, 3 gold links" in output
    docs = docs_of(tmp_path / "q.spacy")
    assert [gold_of(doc) for doc in docs] == [
        [("rome", "Q220")],
        [("paris", "Q90"), ("atlantis", "Q404")],
        [],
    ]


def test_a_bad_question_is_named(tmp_path):
    (tmp_path / "q.json").write_text(json.dumps([*EL4QA, {"utterance": 5}]), encoding="utf8")
    code, output = invoke(tmp_path / "q.json", tmp_path / "q.spacy")
    assert code == 1
    assert "question 4" in output


def test_files_of_the_published_code_are_converted(write, tmp_path):
    catalogue = write(
        "entity.jsonl", {"title": "Rome", "text": " A city.", "idx": "x?curid=7", "kb_idx": "Q220"}
    )
    pieces = {"tokenized_text_ids": [2040, 3513, 4199], "tokenized_mention_idxs": [[2, 3]], "label_id": [0]}
    line = {"id": "W-1", "text": "who rules rome", "mentions": [[10, 14]], "entity": ["Rome"], **pieces}
    options = ("--format", "elq", "--entities", catalogue, "--ids", "title")
    assert invoke(write("test.jsonl", line), tmp_path / "q.spacy", *options)[0] == 0
    assert gold_of(docs_of(tmp_path / "q.spacy")[0]) == [("rome", "Q220")]
    code, output = invoke(write("bad.jsonl", line, pieces), tmp_path / "bad.spacy", *options)
    assert code == 1
    assert "line 2: expected a string `text`" in output
    assert not (tmp_path / "bad.spacy").exists()


def test_compressed_questions_that_are_partly_marked(tmp_path):
    lines = [json.dumps({"text": "is paris old", "complete": False}), json.dumps({"text": "what time is it"})]
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    code, output = invoke(tmp_path / "q.jsonl.gz", tmp_path / "q.spacy")
    assert code == 0
    assert "1 questions are partly marked: unmarked text counts as unknown" in output
    assert [doc.user_data.get("complete") for doc in docs_of(tmp_path / "q.spacy")] == [False, None]


def test_gold_ids_are_translated_to_those_of_the_catalogue(el4qa, entities, tmp_path):
    code, output = invoke(el4qa, tmp_path / "q.spacy", "--entities", entities)
    assert code == 0
    assert "1 gold links have an id that is not in the catalogue; they keep it" in output
    docs = docs_of(tmp_path / "q.spacy")
    assert [gold_of(doc) for doc in docs] == [[("rome", "E2")], [("paris", "E1"), ("atlantis", "Q404")], []]


def test_gold_ids_are_translated_by_several_catalogues(write, el4qa, entities, tmp_path):
    more = write(
        "more.jsonl",
        {"id": "E9", "title": "Atlantis", "ids": {"wikidata": "Q404"}},
        {"id": "E3", "title": "Roma", "ids": {"wikidata": "Q220"}},
    )
    code, output = invoke(el4qa, tmp_path / "q.spacy", "-e", entities, "-e", more)
    assert code == 0
    assert "they keep it" not in output
    docs = docs_of(tmp_path / "q.spacy")
    assert [gold_of(doc) for doc in docs] == [[("rome", "E3")], [("paris", "E1"), ("atlantis", "E9")], []]


def test_the_system_of_gold_ids_can_be_named(write, entities, tmp_path):
    source = write("q.txt", "is [paris](m.05qtj) old")
    code, output = invoke(source, tmp_path / "q.spacy", "-e", entities, "-i", "freebase")
    assert code == 0
    assert "does not know" not in output
    assert gold_of(docs_of(tmp_path / "q.spacy")[0]) == [("paris", "E1")]


def test_a_system_that_the_catalogue_does_not_have(el4qa, entities, tmp_path):
    code, output = invoke(el4qa, tmp_path / "q.spacy", "-e", entities, "-i", "imdb")
    assert code == 1
    assert "E048" in output
    assert "'imdb'" in output
    assert not (tmp_path / "q.spacy").exists()


@pytest.mark.parametrize(
    ("options", "expected", "left_out"),
    [
        ({"--only": '["W-1", "W-3"]'}, [0, 2], 1),
        ({"--without": "W-1\n"}, [1, 2], 1),
        ({"--only": '["W-1", "W-3"]', "--without": "W-1\n"}, [2], 2),
    ],
    ids=["only", "without", "both"],
)
def test_questions_are_chosen_by_their_ids(el4qa, tmp_path, options, expected, left_out):
    arguments = []
    for option, text in options.items():
        (tmp_path / option).write_text(text, encoding="utf8")
        arguments += [option, tmp_path / option]
    code, output = invoke(el4qa, tmp_path / "q.spacy", *arguments)
    assert code == 0
    assert f"{left_out} questions left out (--only, --without)" in output
    assert texts_of(tmp_path / "q.spacy") == [EL4QA[i]["utterance"] for i in expected]


def test_a_missing_list_of_questions(el4qa, tmp_path):
    code, output = invoke(el4qa, tmp_path / "q.spacy", "--only", tmp_path / "no.json")
    assert code == 1
    assert "Expected a list of question ids" in output
    assert not (tmp_path / "q.spacy").exists()


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (0, 5), (9, 5)])
def test_limit_stops_after_so_many_questions(five, tmp_path, limit, count):
    code, output = invoke(five, tmp_path / "q.spacy", "--limit", limit)
    assert code == 0
    assert f"{count} questions" in output
    assert texts_of(tmp_path / "q.spacy") == [f"question {i}" for i in range(count)]


def test_limit_counts_the_questions_that_are_chosen(el4qa, tmp_path):
    (tmp_path / "ids").write_text("W-1")
    report = convert(el4qa, tmp_path / "q.spacy", without=tmp_path / "ids", limit=1)
    assert (report.questions, report.left_out) == (1, 1)
    assert texts_of(tmp_path / "q.spacy") == [EL4QA[1]["utterance"]]


def test_chunks_are_files_of_so_many_questions(five, tmp_path):
    folder = tmp_path / "new" / "chunks"
    code, output = invoke(five, folder, "--chunk", 2)
    assert code == 0
    assert "5 questions" in output
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["00000.spacy", "00001.spacy", "00002.spacy"]
    assert [len(docs_of(path)) for path in files] == [2, 2, 1]
    assert texts_of(*files) == [f"question {i}" for i in range(5)]


def test_chunks_replace_those_of_an_earlier_conversion(five, tmp_path):
    folder = tmp_path / "chunks"
    convert(five, folder, chunk=1)
    for name in ("notes.txt", "dev.spacy"):
        (folder / name).write_text("mine")
    convert(five, folder, chunk=3, limit=4)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["00000.spacy", "00001.spacy", "dev.spacy", "notes.txt"]
    assert texts_of(folder / "00000.spacy", folder / "00001.spacy") == [f"question {i}" for i in range(4)]


def test_a_failed_conversion_leaves_the_chunks_of_an_earlier_one(five, write, tmp_path):
    folder = tmp_path / "chunks"
    convert(five, folder, chunk=2)
    before = texts_of(*sorted(folder.iterdir()))
    with pytest.raises(ELQError, match="line 2"):
        convert(write("bad.txt", "fine", "is [paris](E 1) old"), folder, chunk=1)
    assert texts_of(*sorted(folder.iterdir())) == before


def test_chunks_left_behind_by_a_killed_conversion_do_not_count(five, tmp_path):
    (tmp_path / "chunks" / "partial").mkdir(parents=True)
    (tmp_path / "chunks" / "partial" / "00009.spacy").write_text("half")
    convert(five, tmp_path / "chunks", chunk=9)
    assert [path.name for path in (tmp_path / "chunks").iterdir()] == ["00000.spacy"]


def test_chunks_need_a_folder(five, tmp_path):
    (tmp_path / "q.spacy").write_text("a file")
    code, output = invoke(five, tmp_path / "q.spacy", "--chunk", 2)
    assert code == 1
    assert "E141" in output
    assert (tmp_path / "q.spacy").read_text() == "a file"


def test_a_chunked_corpus_reads_what_was_written(write, tmp_path):
    source = write("q.jsonl", *({"text": f"question {i}", "complete": False} for i in range(4)))
    convert(source, tmp_path / "chunks", chunk=3)
    read = build_chunked_corpus(tmp_path / "chunks")
    nlp = spacy.blank("en")
    examples = [example for _ in range(2) for example in read(nlp)]
    assert sorted(example.text for example in examples) == [f"question {i}" for i in range(4)]
    assert not any(example.reference.user_data["complete"] for example in examples)


@pytest.mark.parametrize("option", ["--chunk", "--limit"])
def test_a_negative_number_is_refused(five, tmp_path, option):
    assert invoke(five, tmp_path / "q.spacy", option, -1)[0] == 2


@pytest.mark.parametrize("name", ["q.txt", "hard", "soft"])
def test_the_input_is_not_replaced(write, tmp_path, name):
    source = write("q.txt", "is [paris](E1) old")
    os.link(source, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(source)
    code, output = invoke(source, tmp_path / name)
    assert code == 1
    assert "E045" in output
    assert source.read_text() == "is [paris](E1) old\n"


def test_a_bad_line_loses_nothing(write, tmp_path):
    convert(write("good.txt", "is [paris](E1) old"), tmp_path / "q.spacy")
    before = sorted(tmp_path.iterdir()), (tmp_path / "q.spacy").read_bytes()
    write("bad.txt", "fine", "is [paris](E 1) old")
    with pytest.raises(ELQError, match="line 2"):
        convert(tmp_path / "bad.txt", tmp_path / "q.spacy")
    (tmp_path / "bad.txt").unlink()
    assert (sorted(tmp_path.iterdir()), (tmp_path / "q.spacy").read_bytes()) == before


def test_a_failing_disk_loses_nothing(write, tmp_path, monkeypatch):
    source = write("good.txt", "is [paris](E1) old")
    (tmp_path / "q.spacy").write_text("old")

    def fail(self, path):
        path.write_text("half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(DocBin, "to_disk", fail)
    code, output = invoke(source, tmp_path / "q.spacy")
    assert code == 1
    assert "No space left on device. Free some space" in output
    assert (tmp_path / "q.spacy").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.txt", "q.spacy"]


@pytest.mark.parametrize("format", ["jsonl", "elq"])
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"text": "a \\ud800 b", "mentions": [], "entity": []}', r"not valid Unicode (\ud800 is half"),
        ('{"text": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_lines_that_json_allows_and_nothing_else(write, tmp_path, format, line, problem):
    good = {"text": "a", "mentions": [], "entity": []}
    code, output = invoke(write("q.jsonl", good, line), tmp_path / "q.spacy", "--format", format)
    assert code == 1
    assert "q.jsonl, line 2: " in output
    assert problem in output


def test_el4qa_that_json_allows_and_nothing_else(write, tmp_path):
    records = [{"utterance": "a"}, {"utterance": "\ud800"}]
    code, output = invoke(write("q.json", json.dumps(records)), tmp_path / "q.spacy")
    assert code == 1
    assert "q.json, question 2: text that is not valid Unicode" in output
    code, output = invoke(write("q.json", "[" * 100_000), tmp_path / "q.spacy")
    assert code == 1
    assert "nested too deeply" in output


def test_ids_that_are_nested_too_deeply(write, tmp_path):
    code, output = invoke(
        write("q.txt", "a"), tmp_path / "q.spacy", "--only", write("ids.json", "[" * 100_000)
    )
    assert code == 1
    assert "nested too deeply" in output

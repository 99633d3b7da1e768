import json
import os
import subprocess
import sys
from io import BufferedReader, BytesIO, RawIOBase
from threading import Timer

import pytest
import spacy
from spacy.cli import app
from typer.testing import CliRunner

from spacy_elq.errors import ELQError
from spacy_elq.pipeline.stream import link, link_waiting, read_records, read_waiting

QUESTION = "how big is new york city"


def elq_link(*args, stdin=None):
    command = [sys.executable, "-m", "spacy", "elq", "link", *map(str, args)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, encoding="utf8", timeout=600)


def invoke(*args, stdin=None):
    return CliRunner().invoke(app, ["elq", "link", *map(str, args)], input=stdin)


def read_jsonl(text):
    return [json.loads(line) for line in text.splitlines()]


def places(record):
    return [(x["start"], x["end"], x["id"]) for x in record["links"]]


@pytest.fixture(scope="module")
def nlp(trained_path):
    return spacy.load(trained_path)


def test_help():
    output = " ".join(invoke("--help").output.split())
    assert "one JSON object per question, in the same order" in output
    assert "--alternatives" in output


def test_standard_input_to_standard_output(trained_path):
    done = elq_link(trained_path, stdin="hotels in the city of light\n\nis jörg in paris old\n")
    assert done.returncode == 0, done.stderr
    first, empty, last = read_jsonl(done.stdout)
    assert first["text"] == "hotels in the city of light"
    (found,) = first["links"]
    assert 0.2 <= found.pop("score") <= 1.0
    assert len(found.pop("alternatives")) == 3
    assert found == {
        "start": 14,
        "end": 27,
        "mention": "city of light",
        "id": "E1",
        "title": "Paris",
        "label": "GPE",
    }
    assert empty == {"text": "", "links": []}
    assert last["text"] == "is jörg in paris old"
    assert "jörg" in done.stdout
    assert "questions/s" not in done.stderr


def test_malformed_jsonl_ends_with_the_line_and_no_traceback(trained_path, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "a"}\n\n{"text": 5}\n', encoding="utf8")
    result = invoke(trained_path, source, tmp_path / "out.jsonl")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    message = " ".join(result.output.split())
    assert "in.jsonl, line 3: expected a JSON object" in message
    assert '{"text": 5}' in message


def test_errors_do_not_go_to_standard_output(trained_path):
    result = invoke(trained_path, "--jsonl", stdin='{"text": "a"}\n{"text": 5}\n')
    assert result.exit_code == 1
    assert all(line.startswith("{") for line in result.stdout.splitlines())
    assert "E040" in result.stderr


@pytest.mark.parametrize(
    "line", ['{"text": "a"', '["text"]', '"text"', "5", '{"question": "a"}', '{"text": 1}']
)
def test_what_is_not_a_record(line):
    with pytest.raises(ELQError, match=r"E040.*questions, line 1"):
        list(read_records([line.encode()], is_jsonl=True, name="questions"))


def test_blank_lines_of_text_count_and_those_of_jsonl_do_not():
    assert list(read_records([b"a\n", b"\n", b" b\r\n"], is_jsonl=False, name="x")) == [
        {"text": "a"},
        {"text": ""},
        {"text": " b"},
    ]
    assert list(read_records([b'{"text": "a"}\n', b" \n"], is_jsonl=True, name="x")) == [{"text": "a"}]


def test_jsonl_files_keep_order_and_extra_fields(trained_path, tmp_path):
    records = [
        {"id": 7, "text": "weather in pariss", "meta": {"lang": "en"}},
        {"text": "what time is it"},
        {"text": QUESTION, "answer": None},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf8")
    result = invoke(trained_path, source, tmp_path / "out.jsonl")
    assert result.exit_code == 0, result.output
    found = read_jsonl((tmp_path / "out.jsonl").read_text(encoding="utf8"))
    assert [places(record) for record in found] == [[(11, 17, "E1")], [], [(11, 24, "E5")]]
    assert [{k: v for k, v in record.items() if k != "links"} for record in found] == records


def test_kind_of_input_goes_by_suffix_and_can_be_told(trained_path, tmp_path):
    line = json.dumps({"text": QUESTION})
    for name, options, text in [
        ("in.txt", [], line),
        ("in.jsonl", [], QUESTION),
        ("in.jsonl", ["--text"], line),
        ("in.txt", ["--jsonl"], QUESTION),
    ]:
        (tmp_path / name).write_text(line + "\n", encoding="utf8")
        result = invoke(trained_path, tmp_path / name, *options)
        assert read_jsonl(result.stdout)[0]["text"] == text
    assert read_jsonl(invoke(trained_path, "-", "-", "--jsonl", stdin=line).stdout)[0]["text"] == QUESTION


def test_links_are_those_of_the_pipeline_and_offsets_slice_to_the_mention(nlp, gold_docs):
    # odd blanks and signs move characters and tokens apart
    texts = [f" {doc.text}  ?!" for doc in gold_docs] + [doc.text for doc in gold_docs]
    records = list(link(nlp, [{"text": text} for text in texts]))
    assert [record["text"] for record in records] == texts
    assert sum(len(record["links"]) for record in records) > 22
    for record, doc in zip(records, nlp.pipe(texts), strict=True):
        assert places(record) == [(e.start_char, e.end_char, e.kb_id_) for e in doc.ents]
        for found in record["links"]:
            assert record["text"][found["start"] : found["end"]] == found["mention"]


def test_entity_without_label_gets_that_of_the_pipeline(nlp):
    (record,) = link(nlp, [{"text": QUESTION}])
    assert record["links"][0]["label"] == nlp.get_pipe("elq_linker").label


def test_threshold_option(trained_path):
    text = "is paris older than new york city\n" + QUESTION
    usual, low, high = (
        sum(len(record["links"]) for record in read_jsonl(invoke(trained_path, *options, stdin=text).stdout))
        for options in ([], ["--threshold", "0.001"], ["--threshold", "0.9999"])
    )
    assert high == 0
    assert usual == 3
    assert low >= usual


@pytest.mark.parametrize("value", ["-0.1", "1.5"])
def test_threshold_out_of_range(trained_path, value):
    result = invoke(trained_path, "--threshold", value, stdin=QUESTION)
    assert result.exit_code == 1
    assert "E002" in result.output
    assert "expected a number from 0 to 1" in " ".join(result.output.split())


@pytest.mark.parametrize("count", [0, 1, 3, 10, 11])
def test_alternatives_are_the_first_of_those_in_python(nlp, count):
    (record,) = link(nlp, [{"text": QUESTION}], alternatives=count)
    (found,) = record["links"]
    (ent,) = nlp(QUESTION).ents
    expected = ent._.elq_alternatives[:count]
    assert [x["id"] for x in found["alternatives"]] == [x["id"] for x in expected]
    assert [x["score"] for x in found["alternatives"]] == pytest.approx(
        [x["score"] for x in expected], abs=1e-6
    )
    for first in found["alternatives"][:1]:
        assert first == {key: found[key] for key in ("id", "title", "label", "score")}


def test_alternatives_option(trained_path):
    result = invoke(trained_path, "--alternatives", "1", stdin=QUESTION)
    (alternative,) = read_jsonl(result.stdout)[0]["links"][0]["alternatives"]
    assert set(alternative) == {"id", "title", "label", "score"}
    assert alternative["id"] == "E5"


def test_a_negative_number_of_alternatives_is_refused(trained_path):
    result = invoke(trained_path, "--alternatives", "-1", stdin=QUESTION)
    assert result.exit_code == 2
    assert "--alternatives" in result.output


def test_entities_of_other_components_are_no_links(trained_path):
    nlp = spacy.load(trained_path)
    ruler = nlp.add_pipe("entity_ruler", before="elq_linker")
    ruler.add_patterns([{"label": "NUMBER", "pattern": "big"}])
    assert [ent.text for ent in nlp(QUESTION).ents] == ["big", "new york city"]
    (record,) = link(nlp, [{"text": QUESTION}])
    assert [found["mention"] for found in record["links"]] == ["new york city"]


def test_two_processes_give_the_same_as_one(trained_path, nlp, gold_docs, tmp_path):
    texts = [doc.text for doc in gold_docs] * 10
    source = tmp_path / "in.txt"
    source.write_text("\n".join(texts) + "\n", encoding="utf8")
    done = elq_link(trained_path, source, tmp_path / "out.jsonl", "--n-process", "2", "--batch-size", "16")
    assert done.returncode == 0, done.stderr
    found = read_jsonl((tmp_path / "out.jsonl").read_text(encoding="utf8"))
    expected = list(link(nlp, [{"text": text} for text in texts]))
    assert len(found) == 200
    assert [record["text"] for record in found] == texts
    assert [places(record) for record in found] == [places(record) for record in expected]
    scores = [[x["score"] for record in records for x in record["links"]] for records in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_missing_input(trained_path, tmp_path):
    result = invoke(trained_path, tmp_path / "no.txt")
    assert result.exit_code == 1
    assert "E022" in result.output
    assert "no.txt" in result.output


def test_missing_pipeline(tmp_path):
    result = invoke(tmp_path / "nothing", stdin=QUESTION)
    assert result.exit_code == 1
    assert "E022" in result.output


def test_pipeline_without_linker(tmp_path):
    spacy.blank("en").to_disk(tmp_path / "other")
    result = invoke(tmp_path / "other", stdin=QUESTION)
    assert result.exit_code == 1
    assert "E009" in result.output


def test_another_encoding_is_an_error_with_its_line():
    with pytest.raises(ELQError, match=r"E040.*questions, line 2: expected text in UTF-8"):
        list(read_records([b"fine\n", "Zürich".encode("latin1")], is_jsonl=False, name="questions"))


def test_half_a_surrogate_pair_is_an_error_before_anything_is_lost():
    with pytest.raises(ELQError, match=r"E040.*line 1"):
        list(read_records([b'{"text": "a \\ud800 b"}'], is_jsonl=True, name="questions"))


@pytest.mark.parametrize("name", ["questions.txt", "hard", "soft", "folder/../questions.txt"])
def test_the_input_is_not_emptied(trained_path, tmp_path, name):
    source = tmp_path / "questions.txt"
    source.write_text("is paris big\n", encoding="utf8")
    os.link(source, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(source)
    (tmp_path / "folder").mkdir()
    result = invoke(trained_path, source, tmp_path / name)
    assert result.exit_code == 1
    assert "E045" in result.output
    assert source.read_text(encoding="utf8") == "is paris big\n"


def test_a_bad_line_loses_nothing(trained_path, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "is paris big"}\n' * 3 + "5\n", encoding="utf8")
    output = tmp_path / "out.jsonl"
    output.write_text("old", encoding="utf8")
    result = invoke(trained_path, tmp_path / "in.jsonl", output, "--batch-size", "1")
    assert result.exit_code == 1
    assert "in.jsonl, line 4" in result.output
    assert output.read_text(encoding="utf8") == "old"
    (kept,) = tmp_path.glob("out.jsonl.*")
    assert str(kept) in result.output.replace("\n", "")
    texts = [record["text"] for record in read_jsonl(kept.read_text(encoding="utf8"))]
    assert texts
    assert set(texts) == {"is paris big"}


@pytest.mark.parametrize("depth", [100_000, *range(700, 1000, 20)])
def test_deeply_nested_json_is_linked_or_refused(trained_path, tmp_path, depth):
    line = '{"text": "is paris big", "x": ' + "[" * depth + "]" * depth + "}"
    (tmp_path / "in.jsonl").write_text(line, encoding="utf8")
    result = invoke(trained_path, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    if result.exit_code:
        assert "in.jsonl, line 1: expected a JSON object" in result.output
        assert "nested too deeply" in result.output
    assert result.exit_code == int(not (tmp_path / "out.jsonl").exists())
    assert depth < 1000 or result.exit_code == 1


def test_the_folder_of_the_output_is_made(trained_path, tmp_path):
    source = tmp_path / "questions.txt"
    source.write_text("is paris big\n", encoding="utf8")
    assert invoke(trained_path, source, tmp_path / "new" / "links.jsonl").exit_code == 0
    assert (tmp_path / "new" / "links.jsonl").read_text(encoding="utf8").count("\n") == 1


# Lines as they come


class Chunks(RawIOBase):
    """A stream of which each read gets one chunk, as of a pipe that is written to line by line."""

    def __init__(self, *chunks):
        self.chunks = list(chunks)

    def readable(self):
        return True

    def readinto(self, buffer):
        chunk = self.chunks.pop(0) if self.chunks else b""
        buffer[: len(chunk)] = chunk
        return len(chunk)


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\n", b"b\n"], [[b"a"], [b"b"]]),
        ([b"a\n\nb\n"], [[b"a", b"", b"b"]]),
        ([b"a\nb", b"c", b"d\ne"], [[b"a"], [b"bcd"], [b"e"]]),
        ([b"a"], [[b"a"]]),
        ([b"\n"], [[b""]]),
        ([], []),
    ],
)
def test_lines_are_read_as_they_come(chunks, lines):
    assert list(read_waiting(BufferedReader(Chunks(*chunks)))) == lines


def test_a_long_line_is_put_together():
    line = b"x" * 200_000
    assert list(read_waiting(BytesIO(b"a\n" + line + b"\nb"))) == [[b"a"], [line], [b"b"]]


def test_lines_that_wait_are_linked_in_batches_and_none_waits_for_more(nlp, monkeypatch):
    sizes = []
    linker = nlp.get_pipe("elq_linker")
    predict = linker.predict
    monkeypatch.setattr(linker, "predict", lambda docs: sizes.append(len(docs)) or predict(docs))
    line = QUESTION.encode() + b"\n"
    stream = BufferedReader(Chunks(line, line * 5, line * 2))
    results = link_waiting(nlp, stream, is_jsonl=False, name="-", batch_size=4)
    first = next(results)
    assert sizes == [1]
    assert [first, *results] == [*link(nlp, [{"text": QUESTION}])] * 8
    assert sizes[:4] == [1, 4, 1, 2]


def test_an_error_names_the_line_of_the_whole_input(nlp):
    stream = BufferedReader(Chunks(b'{"text": "a"}\n\n', b'{"text": "b"}\n', b"5\n"))
    results = link_waiting(nlp, stream, is_jsonl=True, name="-")
    assert [next(results)["text"], next(results)["text"]] == ["a", "b"]
    with pytest.raises(ELQError, match=r"E040.*line 4"):
        next(results)


def test_each_line_is_answered_before_the_next_is_written(trained_path):
    command = [sys.executable, "-m", "spacy", "elq", "link", str(trained_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        # a command that waits for more would never answer
        stop = Timer(300, process.kill)
        stop.start()
        try:
            for text in ("is paris big", QUESTION):
                process.stdin.write(f"{text}\n".encode())
                process.stdin.flush()
                assert json.loads(process.stdout.readline())["text"] == text
            process.stdin.close()
            assert process.stdout.read() == b""
            assert process.wait(timeout=300) == 0
        finally:
            stop.cancel()


def test_two_processes_read_standard_input_too(trained_path):
    done = elq_link(trained_path, "--n-process", "2", stdin=f"{QUESTION}\nis paris big\n")
    assert done.returncode == 0, done.stderr
    assert [record["text"] for record in read_jsonl(done.stdout)] == [QUESTION, "is paris big"]

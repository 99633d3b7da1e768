import gzip
import json
from pathlib import Path

import pytest
from conftest import QUESTIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elq.corpora import FORMATS, Question, QuestionSpan, guess_format, read_questions
from spacy_elq.corpora.formats import _parse_marked, read_marked, to_marked, write_jsonl, write_marked
from spacy_elq.errors import ELQError


@pytest.fixture
def read(tmp_path):
    def read_text(text, format="marked"):
        path = tmp_path / "questions"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf8"))
        return list(read_questions(path, format=format))

    return read_text


def jsonl(**record):
    return json.dumps(record)


# Marked text


@pytest.mark.parametrize(
    ("line", "text", "mentions"),
    [
        ("is [paris](E1) big", "is paris big", [("paris", "E1")]),
        ("[a b](E1) or [c](E2)?", "a b or c?", [("a b", "E1"), ("c", "E2")]),
        ("[a](E1)[b](E2)", "ab", [("a", "E1"), ("b", "E2")]),
        ("[paris](E1)", "paris", [("paris", "E1")]),
        ("what time is it", "what time is it", []),
        ("a [note] (aside)", "a [note] (aside)", []),
        (
            "où est [Zürich](Q72) 😀 et [東京](Q1490)",
            "où est Zürich 😀 et 東京",
            [("Zürich", "Q72"), ("東京", "Q1490")],
        ),
        ("[o'neal, s.](m/0.1_x-y)", "o'neal, s.", [("o'neal, s.", "m/0.1_x-y")]),
    ],
)
def test_marks_become_character_spans(read, line, text, mentions):
    (question,) = read(line)
    assert question.text == text
    assert [(text[span.start : span.end], span.id) for span in question.spans] == mentions


plain = st.text(st.characters(codec="utf-8", exclude_characters="[]()\r\n"))
marks = st.tuples(plain.filter(bool), st.from_regex(r"[A-Za-z0-9_/.]+", fullmatch=True))


@settings(deadline=None)
@given(st.lists(plain | marks))
def test_any_marked_text_is_read_as_it_was_written(parts):
    line = "".join(part if isinstance(part, str) else f"[{part[0]}]({part[1]})" for part in parts)
    text, spans = "", []
    for part in parts:
        if isinstance(part, tuple):
            spans.append(QuestionSpan(len(text), len(text) + len(part[0]), part[1]))
        text += part if isinstance(part, str) else part[0]
    assert _parse_marked(Path("x"), 1, line, "") == Question(text, spans)


def test_a_line_with_a_hash_names_the_kind_of_those_below(read):
    questions = read("a\n# typo\nb\nc\n## two words\n\nd\n#\ne\n")
    assert [(question.text, question.kind) for question in questions] == [
        ("a", ""),
        ("b", "typo"),
        ("c", "typo"),
        ("d", "two words"),
        ("e", ""),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("#hashtag query", "#hashtag query"),
        ("##two", "##two"),
        ("#[paris](E1)", "#paris"),
        (" # indented", " # indented"),
        (r"\# 1 song of [paris](E1)", "# 1 song of paris"),
        (r"\#", "#"),
        (r"\#hashtag", "#hashtag"),
        (r"\\# twice", r"\# twice"),
        (r"\ # no escape", r"\ # no escape"),
    ],
)
def test_a_hash_that_begins_a_question(read, line, text):
    (question,) = read(f"# kind\n{line}\n")[-1:]
    assert (question.text, question.kind) == (text, "kind")
    assert [text[span.start : span.end] for span in question.spans] == ["paris"] * line.count("](")


# what is special in marked text, and what is not
texts = st.text(st.sampled_from("#\\[]() \t\r\n\ufeffab") | st.characters(codec="utf-8"), max_size=12)
ids = st.text(st.sampled_from("Q1() ") | st.characters(codec="utf-8"), min_size=1, max_size=4)


@st.composite
def any_questions(draw):
    parts = draw(st.lists(st.tuples(texts, texts.filter(bool), ids), max_size=3))
    text, spans = "", []
    for before, mention, id_ in parts:
        start = len(text) + len(before)
        spans.append(QuestionSpan(start, start + len(mention), id_))
        text += before + mention
    return Question(text + draw(texts), spans, " ".join(draw(texts).split()))


@settings(deadline=None)
@given(st.lists(any_questions(), max_size=5))
def test_what_is_written_is_read_as_it_was_or_counted(tmp_path_factory, questions):
    path = tmp_path_factory.mktemp("marked") / "questions.txt"
    left_out = write_marked(questions, path)
    written = [question for question in questions if to_marked(question)]
    kinds = ["", *dict.fromkeys(question.kind for question in written)]
    assert list(read_marked(path)) == sorted(written, key=lambda question: kinds.index(question.kind))
    assert left_out == len(questions) - len(written)


@pytest.mark.parametrize(
    ("text", "span", "line"),
    [
        ("is paris big", (3, 8, "E1"), "is [paris](E1) big"),
        ("# paris", (2, 7, "E1"), r"\# [paris](E1)"),
        ("#paris", (1, 6, "E1"), "#[paris](E1)"),
        (r"\#paris", (2, 7, "E1"), r"\\#[paris](E1)"),
        ("paris (texas)", (0, 13, "E2"), "[paris (texas)](E2)"),
        ("is paris [texas] big", (3, 16, "E2"), None),
        ("is paris big", (3, 8, "E(1)"), None),
        ("is paris big", (3, 8, "E 1"), None),
        ("paris](E1)", (0, 5, "E1"), None),
        ("paris\nbig", (0, 5, "E1"), None),
        ("\ufeffparis", (1, 6, "E1"), None),
        ("paris\r", (0, 5, "E1"), None),
    ],
)
def test_what_marked_text_can_hold(text, span, line):
    assert to_marked(Question(text, [QuestionSpan(*span)])) == line


def test_what_marked_text_cannot_hold_without_a_mention():
    spans = [QuestionSpan(0, 5, "E1"), QuestionSpan(3, 8, "E2")]
    assert to_marked(Question("paris big", spans)) is None
    assert to_marked(Question(" ", [])) is None
    assert to_marked(Question("a [b](c)", [])) is None


def test_the_order_of_the_links_does_not_matter():
    spans = [QuestionSpan(2, 3, "E2"), QuestionSpan(0, 1, "E1")]
    assert to_marked(Question("a b", spans)) == "[a](E1) [b](E2)"


def test_the_questions_of_the_tests_are_all_read(questions_path):
    questions = list(read_questions(questions_path, format="marked"))
    assert len(questions) == 20
    assert sum(len(question.spans) for question in questions) == QUESTIONS.count("](")


@pytest.mark.parametrize(
    "mark",
    ["[paris](E1", "[paris]()", "[](E1)", "[paris](E 1)", "[paris](Paris_(Texas))", "[a [b](E1)](E2)", "]("],
)
def test_a_broken_mark_is_an_error_with_its_line(read, mark):
    with pytest.raises(
        ELQError, match=r"questions, line 4: a mark that is not of the form \[text\]\(id\)"
    ) as error:
        read(f"[fine](E1)\n\n# kind\nis {mark} big\n")
    assert f"is {mark} big" in str(error.value)


def test_a_long_line_is_cut_in_the_error(read):
    with pytest.raises(ELQError) as error:
        read("[paris](E1 " + "x" * 1000)
    assert len(str(error.value)) < 400


def test_windows_line_ends_are_no_part_of_the_text(read):
    assert [question.text for question in read("a\r\nb\r\n")] == ["a", "b"]


@pytest.mark.parametrize(
    ("format", "line"), [("marked", "# typo\na"), ("jsonl", '{"text": "a", "kind": "typo"}')]
)
def test_a_byte_order_mark_is_no_part_of_the_text(read, format, line):
    assert read(b"\xef\xbb\xbf" + line.encode(), format) == [Question("a", [], "typo")]


@pytest.mark.parametrize("format", FORMATS)
def test_another_encoding_is_an_error_with_its_line(read, format):
    with pytest.raises(ELQError, match="line 1"):
        read("Zürich".encode("latin1"), format)


# JSONL


@settings(deadline=None)
@given(st.lists(any_questions(), max_size=5))
def test_written_jsonl_is_read_as_it_was(tmp_path_factory, questions):
    path = tmp_path_factory.mktemp("jsonl") / "questions.jsonl"
    extra = Question("a", [QuestionSpan(0, 1, "E")], "typo", "7", False, "Paris")
    assert write_jsonl([*questions, extra], path) == 0
    assert list(read_questions(path, format="jsonl")) == [*questions, extra]


def test_jsonl_is_read_with_spans_and_kind(read):
    spans = [{"start": 3, "end": 8, "id": "E1"}, {"start": 3, "end": 12, "id": "E2"}]
    lines = [jsonl(text="is Paris big", spans=spans, kind="plain"), "", jsonl(text="東京 😀")]
    assert read("\n".join(lines), "jsonl") == [
        Question("is Paris big", [QuestionSpan(3, 8, "E1"), QuestionSpan(3, 12, "E2")], "plain"),
        Question("東京 😀", [], ""),
    ]


def test_jsonl_may_say_which_question_it_is_where_it_is_from_and_that_marks_are_missing(read):
    lines = [
        jsonl(text="a", qid="WebQTest-1", complete=False),
        jsonl(text="b", qid=7, complete=True),
        jsonl(text="c", qid=None),
        jsonl(text="d", page="Paris"),
    ]
    assert read("\n".join(lines), "jsonl") == [
        Question("a", [], "", "WebQTest-1", False),
        Question("b", [], "", "7", True),
        Question("c", []),
        Question("d", [], page="Paris"),
    ]


def test_null_and_unknown_fields_are_ignored(read):
    assert read(jsonl(text="a", spans=None, kind=None, more=1), "jsonl") == [Question("a", [])]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected a JSON object"),
        (jsonl(spans=[]), "expected an object with a string `text`"),
        (jsonl(text=3), "expected an object with a string `text`"),
        (jsonl(text="abc", spans=["E1"]), "a span needs whole numbers `start` and `end`, and a string `id`"),
        (
            jsonl(text="abc", spans=[[0, 1, "E1"]]),
            "a span needs whole numbers `start` and `end`, and a string `id`",
        ),
        (jsonl(text="abc", spans=[None]), "a span needs whole numbers `start` and `end`, and a string `id`"),
        (
            jsonl(text="abc", spans=[{"end": 1, "id": "E1"}]),
            "a span needs whole numbers `start` and `end`, and a string `id`",
        ),
        (
            jsonl(text="abc", spans=[{"start": 0, "id": "E1"}]),
            "a span needs whole numbers `start` and `end`, and a string `id`",
        ),
        (
            jsonl(text="abc", spans=[{"start": 0, "end": 1}]),
            "a span needs whole numbers `start` and `end`, and a string `id`",
        ),
        (jsonl(text="abc", spans=[{"start": "x", "end": 1, "id": "E1"}]), "a span needs"),
        (jsonl(text="abc", spans=[{"start": -1, "end": 1, "id": "E1"}]), "a span outside of the text"),
        (jsonl(text="abc", spans=[{"start": 0, "end": 4, "id": "E1"}]), "a span outside of the text"),
        (jsonl(text="abc", spans=[{"start": 2, "end": 2, "id": "E1"}]), "a span outside of the text"),
        (jsonl(text="abc", spans=[{"start": 2, "end": 1, "id": "E1"}]), "a span outside of the text"),
        (jsonl(text="abc", complete="no"), "`complete` must be true or false: no"),
        (jsonl(text="abc", complete=0), "`complete` must be true or false: 0"),
        (jsonl(text="abc", complete=None), "`complete` must be true or false: None"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(read, line, problem):
    with pytest.raises(ELQError, match=f"questions, line 3: {problem}"):
        read(jsonl(text="fine") + "\n\n" + line, "jsonl")


@pytest.mark.parametrize(("start", "end"), [(0, 3), (2, 3), (0, 1)])
def test_a_span_may_touch_the_ends_of_the_text(read, start, end):
    (question,) = read(jsonl(text="abc", spans=[{"start": start, "end": end, "id": "E1"}]), "jsonl")
    assert question.spans == [QuestionSpan(start, end, "E1")]


@pytest.mark.parametrize(
    "spans",
    [
        5,
        [{"start": 0, "end": 1, "id": None}],
        [{"start": 0, "end": 1, "id": ""}],
        [{"start": 0.9, "end": 1.9, "id": "E1"}],
    ],
)
def test_values_of_a_wrong_type_are_not_bent(read, spans):
    with pytest.raises(ELQError, match="line 1"):
        read(jsonl(text="abc", spans=spans), "jsonl")


# Compressed


def test_a_compressed_file_is_read_as_the_plain_one(tmp_path):
    path = tmp_path / "questions.jsonl.gz"
    path.write_bytes(gzip.compress(f"{jsonl(text='où')}\n\n{jsonl(text='東京', kind='city')}".encode()))
    assert list(read_questions(path, format="jsonl")) == [Question("où", []), Question("東京", [], "city")]


def test_marked_text_may_be_compressed_too(tmp_path):
    path = tmp_path / "questions.txt.GZ"
    path.write_bytes(gzip.compress(b"is [paris](E1) big"))
    assert [question.text for question in read_questions(path, format="marked")] == ["is paris big"]


def test_a_bad_line_of_a_compressed_file_has_its_number(tmp_path):
    path = tmp_path / "questions.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(text="fine").encode() + b"\n{"))
    with pytest.raises(ELQError, match=r"questions\.jsonl\.gz, line 2: not valid JSON"):
        list(read_questions(path, format="jsonl"))


def test_a_file_that_only_looks_compressed_is_an_error(tmp_path):
    path = tmp_path / "questions.jsonl.gz"
    path.write_text(jsonl(text="plain"))
    with pytest.raises(ELQError, match="line 1: damaged or not compressed with gzip"):
        list(read_questions(path, format="jsonl"))


def test_a_compressed_file_with_other_bytes_in_it_is_an_error(tmp_path):
    path = tmp_path / "questions.jsonl.gz"
    data = gzip.compress("".join(jsonl(text=f"question {i}") + "\n" for i in range(2000)).encode())
    path.write_bytes(data[:12] + b"\xff" * 28 + data[40:])
    with pytest.raises(ELQError, match="line 1: damaged or not compressed with gzip"):
        list(read_questions(path, format="jsonl"))


def test_a_compressed_file_that_was_cut_off_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "questions.jsonl.gz"
    lines = "".join(jsonl(text=f"question {i} {i * 7919}") + "\n" for i in range(2000))
    path.write_bytes(gzip.compress(lines.encode())[:-2000])
    read = []
    with pytest.raises(ELQError, match="damaged or not compressed with gzip") as error:
        read.extend(read_questions(path, format="jsonl"))
    assert 0 < len(read) < 2000
    assert f"line {len(read) + 1}:" in str(error.value)


# EL4QA


def el4qa(*records):
    return json.dumps(records)


def question(utterance="who rules rome", **fields):
    return {"question_id": "W-1", "utterance": utterance, **fields}


def test_el4qa_is_read_with_ids_and_spans(read):
    records = [
        question("is rome older than 東京", entities=["Q220", "Q1490"], entities_pos=[[3, 7], [19, 21]]),
        question("what time is it", question_id=12, entities=[], entities_pos=[], main_entity="", more=1),
        {"utterance": "none", "entities": None, "question_id": None},
    ]
    assert read(el4qa(*records), "el4qa") == [
        Question(
            "is rome older than 東京", [QuestionSpan(3, 7, "Q220"), QuestionSpan(19, 21, "Q1490")], id="W-1"
        ),
        Question("what time is it", [], id="12"),
        Question("none", []),
    ]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("who rules rome", "expected an object with a string `utterance`"),
        ({"question_id": "W-1"}, "expected an object with a string `utterance`"),
        (question(3), "expected an object with a string `utterance`"),
        (question(entities=["Q220"]), "`entities` and `entities_pos` must be lists of one length"),
        (question(entities_pos=[[10, 14]]), "`entities` and `entities_pos` must be lists of one length"),
        (
            question(entities="Q", entities_pos=[[10, 14]]),
            "`entities` and `entities_pos` must be lists of one length",
        ),
        (
            question(entities=["Q220"], entities_pos={"0": 1}),
            "`entities` and `entities_pos` must be lists of one length",
        ),
        (question(entities=["Q220"], entities_pos=[10]), "a span needs whole numbers"),
        (question(entities=["Q220"], entities_pos=[[10]]), "a span needs whole numbers"),
        (question(entities=["Q220"], entities_pos=[[10, 12, 14]]), "a span needs whole numbers"),
        (question(entities=["Q220"], entities_pos=[["10", 14]]), "a span needs whole numbers"),
        (question(entities=[None], entities_pos=[[10, 14]]), "a span needs whole numbers"),
        (question(entities=["Q220"], entities_pos=[[10, 15]]), "a span outside of the text"),
        (question(entities=["Q220"], entities_pos=[[-1, 3]]), "a span outside of the text"),
        (question(entities=["Q220"], entities_pos=[[3, 3]]), "a span outside of the text"),
    ],
)
def test_a_bad_question_is_an_error_with_its_number(read, record, problem):
    with pytest.raises(ELQError, match=f"questions, question 2: {problem}"):
        read(el4qa(question(), record), "el4qa")


def test_questions_before_a_bad_one_are_read(tmp_path):
    path = tmp_path / "questions.json"
    path.write_text(el4qa(question(), 3))
    questions = read_questions(path, format="el4qa")
    assert next(questions).id == "W-1"
    with pytest.raises(ELQError, match="question 2"):
        next(questions)


def test_json_that_is_no_list_of_questions_is_an_error(read):
    with pytest.raises(ELQError, match="line 1: expected a list of questions: dict"):
        read(json.dumps(question()), "el4qa")


@pytest.mark.parametrize(("text", "line"), [("[\n{},\n{]", 3), ("", 1)])
def test_broken_json_is_an_error_with_its_line(read, text, line):
    with pytest.raises(ELQError, match=f"questions, line {line}: not valid JSON"):
        read(text, "el4qa")


def test_el4qa_may_have_a_byte_order_mark_and_be_compressed(tmp_path):
    path = tmp_path / "questions.json.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps([question()], indent=1).encode()))
    assert list(read_questions(path, format="el4qa")) == [Question("who rules rome", [], id="W-1")]


# The files of the published code


def elq(text="who rules rome", **fields):
    return jsonl(**{"id": "WebQTrn-1", "text": text, "entity": [], "mentions": [], **fields})


def test_elq_is_read_with_titles_as_ids(read):
    lines = [
        elq(
            "is rome older than 東京", entity=["Rome", "Tokyo"], mentions=[[3, 7], [19, 21]], label_id=[1, 2]
        ),
        jsonl(text="what time is it", entity=[], mentions=[]),
        elq("none", id=5),
    ]
    spans = [QuestionSpan(3, 7, "Rome"), QuestionSpan(19, 21, "Tokyo")]
    assert read("\n".join(lines), "elq") == [
        Question("is rome older than 東京", spans, id="WebQTrn-1"),
        Question("what time is it", []),
        Question("none", [], id="5"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a JSON object"),
        (elq(3), "expected a string `text`"),
        (jsonl(entity=[], mentions=[]), "expected a string `text`"),
        (jsonl(text="a", entity=[]), "`entity` and `mentions` must be lists of one length"),
        (jsonl(text="a", mentions=[]), "`entity` and `mentions` must be lists of one length"),
        (elq(entity=["Rome"]), "`entity` and `mentions` must be lists of one length"),
        (elq(entity="R", mentions=[[10, 14]]), "`entity` and `mentions` must be lists of one length"),
        (elq(entity=["Rome"], mentions={"0": 1}), "`entity` and `mentions` must be lists of one length"),
        (elq(entity=["Rome"], mentions=[10]), "a span needs whole numbers"),
        (elq(entity=[3], mentions=[[10, 14]]), "a span needs whole numbers"),
        (elq(entity=["Rome"], mentions=[[10, 15]]), "a span outside of the text"),
    ],
)
def test_a_bad_line_of_elq_is_an_error_with_its_number(read, line, problem):
    with pytest.raises(ELQError, match=f"questions, line 2: {problem}"):
        read(elq() + "\n" + line, "elq")


def test_json_in_another_encoding_is_an_error_with_its_line(read):
    with pytest.raises(ELQError, match="questions, line 1: not UTF-8"):
        read("Zürich".encode("latin1"), "el4qa")


# Which format


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.txt", "marked"),
        ("a.md", "marked"),
        ("a.jsonl", "jsonl"),
        ("b.txt.jsonl", "jsonl"),
        ("a.jsonl.gz", "jsonl"),
        ("A.TXT.GZ", "marked"),
        ("a.json", "el4qa"),
        ("a.json.gz", "el4qa"),
    ],
)
def test_the_name_of_a_file_suggests_its_format(name, format):
    assert guess_format(Path(name)) == format
    assert format in FORMATS


@pytest.mark.parametrize("name", ["a.csv", "a", "a.gz", "a.csv.gz"])
def test_an_unknown_suffix_is_an_error_that_names_the_option(name):
    with pytest.raises(
        ELQError, match=r"Unknown format '(\.csv|\.gz)?'. Known: marked, jsonl, el4qa, elq \(--format\)"
    ):
        guess_format(Path(name))


def test_an_unknown_format_is_an_error_that_names_the_known(read):
    with pytest.raises(ELQError, match=r"Unknown format 'csv'\. Known: marked, jsonl"):
        read("a", "csv")


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_file_is_named_before_anything_is_read(tmp_path, format):
    with pytest.raises(ELQError, match=r"File not found: .*nowhere"):
        read_questions(tmp_path / "nowhere", format=format)

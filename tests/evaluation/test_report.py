import json
import re
from html.parser import HTMLParser

import pytest
import spacy
from conftest import run_spacy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from spacy.cli import app
from spacy.tokens import DocBin, Span
from typer.testing import CliRunner

from spacy_elq.errors import ELQError
from spacy_elq.evaluation.metrics import evaluate
from spacy_elq.evaluation.report import read_metrics, write_html

KB_URL = "https://kb.example/{}"


@pytest.fixture
def page(tmp_path):
    """Makes the page of questions, each given as text, links found and gold links (as tokens and id)."""

    def make(*questions, kind=None, **settings):
        nlp = spacy.blank("en")
        found, gold = DocBin(store_user_data=True), DocBin(store_user_data=True)
        for text, links, right in questions:
            doc = nlp(text)
            doc.ents = [Span(doc, *place, label="X", kb_id=id_) for *place, id_ in links]
            for ent in doc.ents:
                ent._.elq_title = f"Title of {ent.kb_id_}"
            found.add(doc)
            doc = nlp(text)
            doc.spans["gold_links"] = [Span(doc, *place, label="X", kb_id=id_) for *place, id_ in right]
            if kind:
                doc.user_data["kind"] = kind
            gold.add(doc)
        found.to_disk(tmp_path / "found.linked.spacy")
        gold.to_disk(tmp_path / "gold.spacy")
        target = tmp_path / "new" / "page.html"
        settings = {"kb_url": KB_URL, **settings}
        write_html(tmp_path / "found.json", tmp_path / "gold.spacy", target, **settings)
        return target.read_text(encoding="utf8")

    return make


def marks(html):
    """The labels on the page, in order."""
    return re.findall(r"\b(RIGHT|WRONG|GOLD)\b", html)


def test_help():
    result = CliRunner().invoke(app, ["elq", "report", "--help"])
    assert result.exit_code == 0
    assert "correct ones green, wrong ones red" in " ".join(result.output.split())


def test_command_prints_a_table_and_writes_the_page(trained_path, gold_docs, tmp_path):
    data = tmp_path / "gold.spacy"
    DocBin(docs=gold_docs, store_user_data=True).to_disk(data)
    metrics = tmp_path / "metrics.json"
    evaluate(str(trained_path), data, metrics, train=data)
    html = tmp_path / "page.html"
    done = run_spacy("elq", "report", metrics, data, "--html", html)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert rows["questions"][:4] == ["gold", "found", "weak", "P"]
    assert rows["all"] == ["20", "22", "22", *["1.000"] * 12]
    assert rows["seen"][0] == "18"
    assert rows["unseen"][0] == "0"
    assert rows["several"] == ["3", "7", "7", *["1.000"] * 12]
    assert rows["none"] == ["2", "0", "0", *["-"] * 12]
    assert "Threshold 0.2000." in " ".join(done.stdout.split())
    assert "questions/s" in " ".join(done.stdout.split())
    text = html.read_text(encoding="utf8")
    assert "20 of 20 questions without an error" in text
    assert marks(text) == ["RIGHT"] * 22
    assert 'href="https://www.wikidata.org/wiki/E5"' in text
    assert "New York City" in text


def test_table_without_page(trained_path, gold_docs, tmp_path):
    metrics = {
        "questions": 1,
        "gold": 4,
        "found": 2,
        **{name: {"p": 0.5, "r": 0.25, "f": 1 / 3} for name in ("weak", "strong", "mentions", "links")},
        "kinds": {},
        "threshold": 0.1,
        "questions_per_second": 12.3,
        "candidates_recall": 0.75,
        "errors": {"missed": [{}], "wrong": [], "specific": [{}, {}], "extra": [{}, {}, {}]},
    }
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(metrics), encoding="utf8")
    result = CliRunner().invoke(app, ["elq", "report", str(path), str(tmp_path / "gold.spacy")])
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    assert "Gold among the candidates: 0.750" in shown
    assert "1 missed mentions, 0 wrong entities, 2 more or less specific ones, 3 extra mentions" in shown
    assert "0.500 0.250 0.333" in " ".join(result.output.split())
    assert "seen" not in result.output
    assert list(tmp_path.iterdir()) == [path]


def test_right_link(page):
    html = page(("is paris old", [(1, 2, "E1")], [(1, 2, "E1")]))
    assert marks(html) == ["RIGHT"]
    assert 'href="https://kb.example/E1"' in html
    assert "Title of E1 E1" in html


def test_link_at_another_place_of_the_same_mention_is_right(page):
    assert marks(page(("hotels in new york city", [(2, 5, "E5")], [(2, 4, "E5")]))) == ["RIGHT"]


def test_wrong_entity_is_shown_with_gold(page):
    html = page(("is paris old", [(1, 2, "E2")], [(1, 2, "E1")]))
    assert marks(html) == ["WRONG", "GOLD"]
    assert 'href="https://kb.example/E2"' in html
    assert 'href="https://kb.example/E1"' in html


def test_wrong_place_is_wrong(page):
    assert marks(page(("is paris old", [(0, 1, "E1")], [(1, 2, "E1")]))) == ["WRONG", "GOLD"]


def test_missed_link(page):
    assert marks(page(("is paris old", [], [(1, 2, "E1")]))) == ["GOLD"]


def test_link_where_gold_has_none(page):
    assert marks(page(("is paris old", [(1, 2, "E1")], []))) == ["WRONG"]


def test_right_and_wrong_in_one_question(page):
    html = page(("paris or georgia", [(0, 1, "E1"), (2, 3, "E7")], [(0, 1, "E1"), (2, 3, "E6")]))
    assert marks(html) == ["RIGHT", "WRONG", "GOLD", "GOLD"]


def test_questions_with_errors_come_first(page):
    html = page(
        ("first is right", [], []),
        ("second is wrong", [(0, 1, "E1")], []),
        ("third is right", [], []),
        ("fourth is wrong", [], [(0, 1, "E1")]),
        kind="nickname",
    )
    order = [html.index(word) for word in ("second", "fourth", "first", "third")]
    assert order == sorted(order)
    assert "2 of 4 questions without an error" in html
    # each question with an error says what kind it is
    assert html.count("nickname") == 2


def test_titles_are_escaped(page):
    html = page(("is paris old", [(1, 2, "<b>E1")], []))
    assert "Title of &lt;b&gt;E1" in html
    assert "<b>" not in html


def test_a_link_without_a_title(own_path, gold_docs, tmp_path):
    """spaCy's own linker writes none."""
    data = tmp_path / "gold.spacy"
    DocBin(docs=gold_docs, store_user_data=True).to_disk(data)
    evaluate(str(own_path), data, tmp_path / "metrics.json")
    write_html(tmp_path / "metrics.json", data, tmp_path / "page.html", kb_url=KB_URL)
    html = (tmp_path / "page.html").read_text(encoding="utf8")
    assert re.search(r">E\d+</a>", html)
    assert "None" not in html
    # nor does it have a threshold
    done = run_spacy("elq", "report", tmp_path / "metrics.json", data)
    assert done.returncode == 0, done.stderr
    assert "Threshold" not in done.stdout


def test_headings_are_escaped(page):
    html = page(("is paris old", [], [(1, 2, "E1")]), kind="<script>alert(1)</script>")
    assert "<script>" not in html
    assert "<h2" in html
    assert "&lt;script&gt;alert(1)" in html


@pytest.mark.parametrize(
    ("id_", "address"),
    [
        ("Q1", "https://kb.example/Q1"),
        ("AC/DC (band)", "https://kb.example/AC/DC%20(band)"),
        ('"><script>', "https://kb.example/%22%3E%3Cscript%3E"),
        ("who?#{}", "https://kb.example/who%3F%23%7B%7D"),
        ("Zürich", "https://kb.example/Z%C3%BCrich"),
    ],
)
def test_ids_are_quoted_in_addresses(page, id_, address):
    html = page(("is paris old", [(1, 2, id_)], []))
    assert f'href="{address}"' in html
    assert "<script>" not in html


@pytest.mark.parametrize(
    "kb_url",
    [
        "javascript:alert('{}')",
        "data:text/html,{}",
        "//kb.example/{}",
        "{}",
        "https:{}",
        "https://kb.example/",
        "",
    ],
)
def test_addresses_are_of_the_web_and_have_a_place_for_the_id(page, tmp_path, kb_url):
    with pytest.raises(ELQError, match=r"E055.*https://.*\{\}"):
        page(("is paris old", [(1, 2, "E1")], []), kb_url=kb_url)
    assert not (tmp_path / "new").exists()


TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "h2",
    "figure",
    "div",
    "mark",
    "small",
    "a",
    "br",
}
SVG = {"svg", "text", "line", "polyline", "circle"}


class Page(HTMLParser):
    """What a browser makes of a page: tags, attributes and the text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = set(), [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text += data


evil = st.text(st.sampled_from("<>\"'&;:/{}%=#?ax! \n"), max_size=12)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(word=evil, id_=evil, kind=evil)
@example("<script>alert(1)</script>", "javascript:alert(1)", "<script>alert(1)</script>")
@example("</mark><img src=x>", '" onclick="alert(1)', "{0} {title}")
@example("</title><script>", "//evil.example", "<img src=x onerror=alert(1)>")
def test_nothing_of_the_data_becomes_markup(page, tmp_path, word, id_, kind):
    line = {"step": 1, "losses": {f"{word}a": 1.0, "b": 2.0}, "scores": {}, "score": 0.5}
    (tmp_path / "log.jsonl").write_text(json.dumps(line), encoding="utf8")
    question = (f"is {word} old", [(1, 2, f"{id_}x")], [(0, 1, f"{id_}y")])
    found = Page(page(question, kind=kind, training=tmp_path / "log.jsonl"))
    assert found.tags <= TAGS | SVG
    names = {name for name, _ in found.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "srcdoc", "action")}
    links = [value for name, value in found.attributes if name == "href"]
    assert len(links) == 2
    assert all(link.startswith("https://kb.example/") for link in links)
    # a browser shows what the data says
    assert f"{id_}x".split() == [] or f"{id_}x".split()[-1] in found.text
    assert " ".join(kind.split()) in " ".join(found.text.split())


def test_page_says_its_encoding_and_loads_nothing(page):
    html = page(("is zürich old", [(1, 2, "E1")], []))
    assert '<meta charset="utf-8">' in html
    assert "is zürich" not in html.split("<body>")[0]
    assert not re.search(r"<(script|link|img|iframe)|src=|@import|url\(", html)


def test_training_curve_is_above_the_questions(page, tmp_path):
    questions = [("is paris old", [(1, 2, "E1")], [(1, 2, "E1")])]
    assert "<svg" not in page(*questions)
    log = tmp_path / "log.jsonl"
    lines = [
        {
            "epoch": 0,
            "step": step,
            "losses": {"elq_linker": 1.0},
            "scores": {"elq_weak_f": 50.0},
            "score": 0.5,
        }
        for step in (0, 10)
    ]
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf8")
    html = page(*questions, training=log)
    assert html.index("<h1>") < html.index("<svg") < html.index("<figure")
    assert html.count("<svg") == 2
    assert "Weak F1 on development questions: 0.500 at step 0" in html
    assert "prefers-color-scheme: dark" in html


def test_missing_log_writes_no_page(page, tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.jsonl.*--paths\.log"):
        page(("is paris old", [], []), training=tmp_path / "no.jsonl")
    assert not (tmp_path / "new").exists()


def test_curve_without_a_page_is_refused(tmp_path):
    path = tmp_path / "metrics.json"
    result = CliRunner().invoke(app, ["elq", "report", str(path), "gold.spacy", "--training", "log.jsonl"])
    assert result.exit_code == 2
    assert "--html" in result.output


def test_missing_metrics_name_the_command_that_makes_them(tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.json.*spacy elq evaluate"):
        read_metrics(tmp_path / "no.json")


def test_missing_linked_docs(tmp_path, questions_path):
    with pytest.raises(ELQError, match=r"E022.*no\.linked\.spacy"):
        write_html(tmp_path / "no.json", questions_path, tmp_path / "page.html", kb_url=KB_URL)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("texts", [["is paris old"], ["is paris old", "how big is that"]])
def test_questions_that_are_not_those_of_the_metrics(page, tmp_path, texts):
    page(("is paris old", [], []), ("how big is it", [], []))
    DocBin(docs=[spacy.blank("en")(text) for text in texts]).to_disk(tmp_path / "other.spacy")
    with pytest.raises(ELQError, match=r"E044.*found\.linked\.spacy.*other\.spacy"):
        write_html(tmp_path / "found.json", tmp_path / "other.spacy", tmp_path / "x.html", kb_url=KB_URL)
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize("content", ["{}", "not json"])
def test_a_file_without_metrics_is_refused(tmp_path, content):
    path = tmp_path / "metrics.json"
    path.write_text(content, encoding="utf8")
    result = CliRunner().invoke(app, ["elq", "report", str(path), str(tmp_path / "gold.spacy")])
    assert result.exit_code == 1
    assert "E023" in result.output
    assert "python -m spacy elq evaluate" in result.output

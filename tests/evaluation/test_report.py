import base64
import hashlib
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
from spacy_elq.evaluation.page import SCRIPT, STYLE
from spacy_elq.evaluation.report import read_metrics, write_html

KB_URL = "https://kb.example/{}"
PRF = {"p": 0.5, "r": 0.25, "f": 1 / 3}
METRICS = {
    "questions": 1,
    "gold": 4,
    "found": 2,
    **dict.fromkeys(("weak", "strong", "mentions", "links"), PRF),
    "kinds": {},
    "threshold": 0.1,
    "questions_per_second": 12.3,
    "candidates_recall": 0.75,
    "errors": {"missed": [{}], "wrong": [], "specific": [{}, {}], "extra": [{}, {}, {}]},
}


@pytest.fixture
def page(tmp_path):
    """Makes the page of questions, each given as text, links found and gold links (as tokens and id)."""

    def make(*questions, kind=None, kinds=None, scores=(), metrics=METRICS, **settings):
        nlp = spacy.blank("en")
        found, gold = DocBin(store_user_data=True), DocBin(store_user_data=True)
        scores = iter(scores)
        for i, (text, links, right) in enumerate(questions):
            doc = nlp(text)
            doc.ents = [Span(doc, *place, label="X", kb_id=id_) for *place, id_ in links]
            for ent in doc.ents:
                ent._.elq_title = f"Title of {ent.kb_id_}"
                ent._.elq_score = next(scores, None)
            found.add(doc)
            doc = nlp(text)
            doc.spans["gold_links"] = [Span(doc, *place, label="X", kb_id=id_) for *place, id_ in right]
            if kind or kinds:
                doc.user_data["kind"] = kinds[i] if kinds else kind
            gold.add(doc)
        found.to_disk(tmp_path / "found.linked.spacy")
        gold.to_disk(tmp_path / "gold.spacy")
        (tmp_path / "found.json").write_text(json.dumps(metrics), encoding="utf8")
        target = tmp_path / "new" / "page.html"
        settings = {"kb_url": KB_URL, **settings}
        write_html(tmp_path / "found.json", tmp_path / "gold.spacy", target, **settings)
        return target.read_text(encoding="utf8")

    return make


class Page(HTMLParser):
    """What a browser makes of a page: tags, attributes, text and the links of each question. An element that
    is not closed, or closed twice, is an error, and so is an id used twice.
    """

    VOID = {"meta", "input", "br"}

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], {}
        self.feed(html)
        self.close()
        assert self.open == []
        ids = [value for name, value in self.attributes if name == "id"]
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    @property
    def text(self):
        return "".join(text for texts in self.texts.values() for text in texts)


def sides(html):
    """Of each question on the page, the states of its gold links and of its predicted ones."""
    found = []
    for block in re.findall(r"<article.*?</article>", html, re.DOTALL):
        gold, predicted = re.search(r"<h4>Gold</h4>(.*)<h4>Prediction</h4>(.*)", block, re.DOTALL).groups()
        predicted = predicted.split("<details")[0]
        found.append(tuple(re.findall(r'<span class="badge (\w+)">', side) for side in (gold, predicted)))
    return found


def marks(html):
    """The same of the only question."""
    (found,) = sides(html)
    return found


def filters(html):
    """The names of all check boxes, with their counts."""
    boxes = re.findall(r"<label><input[^>]*> (?:<span[^>]*>)?(.*?)(?:</span>)? \((\d+)\)</label>", html)
    return {name: int(count) for name, count in boxes}


def test_help():
    result = CliRunner().invoke(app, ["elq", "report", "--help"])
    assert result.exit_code == 0
    assert "spurious or missed" in " ".join(result.output.split())


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
    assert [state for pair in sides(text) for states in pair for state in states] == ["right"] * 44
    assert "<title>Entity linking: metrics</title>" in text
    assert "<h2>Confidence</h2>" in text
    assert "<h2>Training</h2>" not in text
    assert "Threshold 0.2000." in text
    assert 'href="https://www.wikidata.org/wiki/E5"' in text
    assert "New York City" in text


def test_table_without_page(trained_path, gold_docs, tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(METRICS), encoding="utf8")
    result = CliRunner().invoke(app, ["elq", "report", str(path), str(tmp_path / "gold.spacy")])
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    assert "Gold among the candidates: 0.750" in shown
    assert "1 missed mentions, 0 wrong entities, 2 more or less specific ones, 3 extra mentions" in shown
    assert "0.500 0.250 0.333" in " ".join(result.output.split())
    assert "seen" not in result.output
    assert list(tmp_path.iterdir()) == [path]


def test_right_link(page):
    html = page(("is paris old", [(1, 2, "E1")], [(1, 2, "E1")]), scores=[0.87654])
    assert marks(html) == (["right"], ["right"])
    assert html.count('href="https://kb.example/E1"') == 2
    # gold has the title that the link has; only the link has a score
    assert html.count("Title of E1</span> <code>E1</code></a>") == 2
    assert html.count("0.877</span>") == 1
    assert html.count('is <mark class="right">paris</mark> old') == 2


@pytest.mark.parametrize(
    ("found", "gold", "states"),
    [
        # another place of the same mention
        ([(2, 5, "E5")], [(2, 4, "E5")], (["boundary"], ["boundary"])),
        ([(2, 5, "E1")], [(2, 4, "E5")], (["wrong"], ["wrong"])),
        ([(0, 1, "E5")], [(2, 4, "E5")], (["missed"], ["spurious"])),
        ([], [(2, 4, "E5")], (["missed"], [])),
        ([(2, 4, "E5")], [], ([], ["spurious"])),
        (
            [(0, 1, "E1"), (2, 5, "E5")],
            [(0, 1, "E1"), (2, 5, "E6")],
            (["right", "wrong"], ["right", "wrong"]),
        ),
        # gold may overlap, and say the same twice; each counts once
        ([(2, 4, "E5")], [(2, 5, "E6"), (2, 4, "E5")], (["right", "missed"], ["right"])),
        ([(2, 4, "E5")], [(2, 4, "E5"), (2, 4, "E5")], (["right", "missed"], ["right"])),
    ],
)
def test_links_of_both_sides_have_their_state(page, found, gold, states):
    assert marks(page(("hotels in new york city", found, gold))) == states


def test_overlapping_gold_is_marked_and_listed(page):
    html = page(("hotels in new york city", [], [(2, 4, "E5"), (3, 5, "E6")]))
    marked = (
        '<mark class="missed">new </mark><mark class="missed">york</mark><mark class="missed"> city</mark>'
    )
    assert marked in html
    assert '<q dir="auto">new york</q>' in html
    assert '<q dir="auto">york city</q>' in html


def test_gold_links_that_were_lost_are_missed(page, tmp_path):
    page(("is paris old", [], []))
    doc = spacy.blank("en")("is paris old")
    doc.user_data["lost"] = 2
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "gold.spacy")
    write_html(tmp_path / "found.json", tmp_path / "gold.spacy", tmp_path / "x.html", kb_url=KB_URL)
    html = (tmp_path / "x.html").read_text(encoding="utf8")
    assert marks(html) == (["missed"], [])
    assert "2 that do not fit the tokens" in html
    assert "0 of 1 questions without an error" in html


def test_gold_titles_are_those_of_alternatives_or_of_the_index(page, tmp_path, index):
    question = ("is paris or georgia old", [(1, 2, "E1")], [(1, 2, "E2"), (3, 4, "E6"), (4, 5, "E99")])
    page(question)
    found = DocBin().from_disk(tmp_path / "found.linked.spacy")
    (doc,) = found.get_docs(spacy.blank("en").vocab)
    doc.ents[0]._.elq_alternatives = [{"id": "E2", "title": "Second", "score": 0.1, "label": ""}]
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "found.linked.spacy")
    paths = [tmp_path / name for name in ("found.json", "gold.spacy", "x.html")]
    write_html(*paths, kb_url=KB_URL)
    html = paths[2].read_text(encoding="utf8")
    assert "Second</span> <code>E2</code>" in html
    assert '/E6"><code>E6</code>' in html
    done = run_spacy("elq", "report", *paths[:2], "--html", paths[2], "--index", index.path)
    assert done.returncode == 0, done.stderr
    html = paths[2].read_text(encoding="utf8")
    assert "Second</span> <code>E2</code>" in html
    assert "Georgia (country)</span> <code>E6</code>" in html
    assert '/E99"><code>E99</code>' in html


def test_title_of_the_page(page):
    assert "<title>Entity linking: found</title>" in page(("is paris old", [], []))
    html = page(("is paris old", [], []), title="<Test> & more")
    assert "<title>&lt;Test&gt; &amp; more</title>" in html
    assert "<h1>&lt;Test&gt; &amp; more</h1>" in html


def test_scores_are_on_the_page(page):
    html = page(("is paris old", [], []), metrics={**METRICS, "kinds": {"<b>typo": METRICS}})
    assert "<h2>Scores</h2>" in html
    assert (
        '<th scope="row">&lt;b&gt;typo</th><td>1</td><td>4</td><td>2</td><td>0.500</td><td>0.250</td>' in html
    )
    assert "Gold among the candidates: 0.750." in html


def test_charts_judge_the_links_by_weak_match(page):
    questions = [
        ("hotels in new york city", [(2, 5, "E5")], [(2, 4, "E5")]),
        ("is paris old", [(1, 2, "E1")], [(1, 2, "E2")]),
    ]
    html = page(*questions, scores=[0.95, 0.55])
    assert html.index("<h2>Scores") < html.index("<h2>Confidence") < html.index("<h2>Questions")
    assert "0.9 to 1: 1 links, mean score 0.950, 1.000 right" in html
    assert "0.5 to 0.6: 1 links, mean score 0.550, 0.000 right" in html
    assert "threshold 0.550: 1.000 of the links kept, 0.500 of them wrong" in html
    # without scores there is nothing to draw
    assert "Confidence" not in page(*questions)


def test_filters_count_questions(page):
    html = page(
        ("new york city", [(0, 3, "E5")], [(0, 2, "E5")]),
        ("is paris old", [(1, 2, "E1"), (2, 3, "E3")], [(1, 2, "E2")]),
        ("is paris new", [(1, 2, "E1")], [(1, 2, "E2")]),
        ("what time is it", [], []),
        kinds=["plain", "", "plain", "none"],
    )
    states = {"right": 1, "boundary differs": 1, "wrong entity": 2, "spurious": 1, "missed": 0}
    assert filters(html) == {**states, "plain": 2, "no kind": 1, "none": 1}
    blocks = re.findall(r'<article class="question" id="q(\d)" data-states="(.*?)" data-kind="(\d)">', html)
    assert blocks == [
        ("2", "wrong spurious", "1"),
        ("3", "wrong", "0"),
        ("1", "boundary", "0"),
        ("4", "right", "2"),
    ]
    assert re.findall(r'name="kind" value="(\d)"> (.*?) \(', html) == [
        ("0", "plain"),
        ("1", "no kind"),
        ("2", "none"),
    ]
    # without the script there are no filters, and all questions
    assert '<form id="filters" hidden>' in html
    assert "<article hidden" not in html


def test_questions_of_one_kind_have_no_filter_for_it(page):
    html = page(("is paris old", [], []), kind="plain")
    assert "Kind of question" not in html
    assert "plain" not in filters(html)


def test_questions_with_errors_come_first(page):
    html = page(
        ("first is right", [], []),
        ("second is wrong", [(0, 1, "E1")], []),
        ("third is right", [], []),
        ("fourth is wrong", [], [(0, 1, "E1")]),
        kind="nickname",
    )
    order = [html.index(word, html.index("<article")) for word in ("second", "fourth", "first", "third")]
    assert order == sorted(order)
    assert "2 of 4 questions without an error" in html
    # each question says what kind it is
    assert html.count("nickname") == 4


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
    assert re.search(r'"><code>E\d+</code></a>', html)
    assert "None" not in html
    # nor does it have a threshold
    done = run_spacy("elq", "report", tmp_path / "metrics.json", data)
    assert done.returncode == 0, done.stderr
    assert "Threshold" not in done.stdout


def test_headings_are_escaped(page):
    html = page(("is paris old", [], [(1, 2, "E1")]), kind="<script>alert(1)</script>")
    assert html.count("<script>") == 1
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
    assert html.count("<script>") == 1


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
    "script",
    "body",
    "section",
    "h1",
    "h2",
    "h3",
    "h4",
    "article",
    "div",
    "p",
    "span",
    "mark",
    "q",
    "a",
    "code",
    "ul",
    "li",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "form",
    "fieldset",
    "legend",
    "label",
    "input",
    "button",
    "details",
    "summary",
    "dl",
    "dt",
    "dd",
}
SVG = {"svg", "text", "line", "polyline", "circle", "rect"}


def explained(text, *words):
    """The explanation of a question, with the same words everywhere."""
    word, id_, kind = words
    candidate = {"id": f"{id_}z", "title": word, "label": kind, "vector": 1.5, "name": 0.5, "popularity": 0.0}
    mention = {
        "start": 0,
        "end": 2,
        "text": word,
        "parts": {"mention": -1.25, kind: 2.5},
        "mention_probability": 0.75,
        "none": None,
        "joint": 0.625,
        "score": 0.375,
        "is_link": False,
        "candidates": [{**candidate, "similarity": 2.0, "probability": 0.875}],
    }
    return {"text": text, "threshold": 0.125, "mentions": [mention]}


evil = st.text(st.sampled_from("<>\"'&;:/{}%=#?ax! \n"), max_size=12)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(word=evil, id_=evil, kind=evil)
@example("<script>alert(1)</script>", "javascript:alert(1)", "<script>alert(1)</script>")
@example("</mark><img src=x>", '" onclick="alert(1)', "{0} {title}")
@example("</title><script>", "//evil.example", "<img src=x onerror=alert(1)>")
def test_nothing_of_the_data_becomes_markup(page, tmp_path, word, id_, kind):
    line = {"step": 1, "losses": {f"{word}a": 1.0, "b": 2.0}, "scores": {}, "score": 0.5}
    (tmp_path / "log.jsonl").write_text(json.dumps(line), encoding="utf8")
    text = f"is {word} old"
    lines = [explained(text, word, id_, kind), explained("second", word, id_, kind)]
    (tmp_path / "found.explained.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf8")
    html = page(
        (text, [(1, 2, f"{id_}x")], [(0, 1, f"{id_}y")]),
        ("second", [], []),
        kinds=[kind, "b"],
        scores=[0.5],
        title=word or "x",
        metrics={**METRICS, "kinds": {kind: METRICS}},
        training=tmp_path / "log.jsonl",
    )
    found = Page(html)
    assert set(found.tags) <= TAGS | SVG
    # one script and one style: ours
    assert found.texts["script"] == [SCRIPT]
    assert found.texts["style"] == [STYLE]
    names = {name for name, _ in found.attributes}
    forbidden = ("src", "srcdoc", "action", "formaction", "style")
    assert not {name for name in names if name.startswith("on") or name in forbidden}
    classes = {x for name, value in found.attributes if name == "class" for x in value.split()}
    assert {name for name in classes if not re.fullmatch(r"[a-z]+[0-2]?", name)} == set()
    links = [value for name, value in found.attributes if name == "href"]
    assert len(links) == 4
    assert all(link.startswith("https://kb.example/") for link in links)
    # a browser shows what the data says
    for shown in (f"{id_}x", f"{id_}y", f"{id_}z", kind, word):
        assert " ".join(shown.split()) in " ".join(found.text.split())


def test_page_says_its_encoding_and_loads_nothing(page):
    html = page(("is zürich old", [(1, 2, "E1")], []))
    assert '<meta charset="utf-8">' in html
    assert "is zürich" not in html.split("<body>")[0]
    assert not re.search(r"<(link|img|iframe)|src=|@import|url\(|fetch|XMLHttp|import\(", html)
    # and a browser would not let it: nothing runs but what the page was made with
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', html).group(1)
    assert policy.startswith("default-src 'none'; ")
    for kind, text in (("style", STYLE), ("script", SCRIPT)):
        assert f"<{kind}>{text}</{kind}>" in html
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


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
    assert html.index("<h1>") < html.index("<svg") < html.index("<article")
    assert html.count("<svg") == 2
    assert "Weak F1 on development questions: 0.500 at step 0" in html
    assert "prefers-color-scheme: dark" in html


def test_missing_log_writes_no_page(page, tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.jsonl.*--paths\.log"):
        page(("is paris old", [], []), training=tmp_path / "no.jsonl")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("option", ["--training", "--title", "--index"])
def test_options_of_the_page_without_a_page_are_refused(tmp_path, option):
    path = tmp_path / "metrics.json"
    result = CliRunner().invoke(app, ["elq", "report", str(path), "gold.spacy", option, "x"])
    assert result.exit_code == 2
    assert "--html" in result.output
    assert option in result.output


def test_explanations_are_shown_on_click(page, tmp_path):
    question = ("is paris old", [(1, 2, "E1")], [(1, 2, "E1")])
    assert "<details>" not in page(question)
    path = tmp_path / "found.explained.jsonl"
    path.write_text(json.dumps(explained("is paris old", "paris", "E", "GPE")), encoding="utf8")
    html = page(question)
    (details,) = re.findall(r"<details>.*?</details>", html, re.DOTALL)
    assert "paris</q> is not a link" in details
    values = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", details))
    assert values == {
        "mention part": "-1.25",
        "GPE part": "2.5",
        "mention probability": "0.75",
        "joint probability": "0.625",
        "score": "0.375",
        "threshold": "0.125",
    }
    assert re.findall(r"<td>(.*?)</td>", details) == ["GPE", "1.500", "0.500", "0.000", "2.000", "0.875"]
    assert 'href="https://kb.example/Ez"' in details


def test_explanation_of_a_mention_that_may_be_none_and_of_no_mention(page, tmp_path):
    first = explained("is paris old", "paris", "E", "GPE")
    first["mentions"][0].update(none=0.25, is_link=True, candidates=[])
    lines = [first, {"text": "second", "threshold": 0.1, "mentions": []}]
    (tmp_path / "found.explained.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf8")
    html = page(("is paris old", [], []), ("second", [], []))
    assert "<dt>none of the candidates</dt><dd>0.25</dd>" in html
    assert "paris</q> is a link" in html
    assert "Candidates" not in html
    assert "no mentions" in html


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", r"E023.*found\.explained\.jsonl.*line 1.*spacy elq evaluate"),
        ("[1]", "E023.*line 1"),
        ('{"text": "is paris old", "threshold": 0.1}', "E023.*line 1.*mentions"),
        ('{"text": "is paris old", "threshold": "x", "mentions": []}', "E023.*line 1"),
        ('{"text": "is paris old", "threshold": 1, "mentions": [{"text": "a"}]}', "E023.*line 1"),
        ('{"text": "is paris old", "threshold": 1, "mentions": []}\n7', "E023.*line 2"),
        ('{"text": "\\ud800", "threshold": 1, "mentions": []}', "E023.*line 1.*surrogate"),
        ('{"text": "other", "threshold": 1, "mentions": []}', r"E044.*found\.explained\.jsonl"),
        ("", "E044"),
    ],
)
def test_a_file_without_explanations_of_the_questions_is_refused(page, tmp_path, content, message):
    (tmp_path / "found.explained.jsonl").write_text(content, encoding="utf8")
    with pytest.raises(ELQError, match=message):
        page(("is paris old", [], []))
    assert not (tmp_path / "new").exists()


def test_missing_metrics_name_the_command_that_makes_them(tmp_path):
    with pytest.raises(ELQError, match=r"E022.*no\.json.*spacy elq evaluate"):
        read_metrics(tmp_path / "no.json")


def test_missing_linked_docs(tmp_path, questions_path):
    (tmp_path / "no.json").write_text(json.dumps(METRICS), encoding="utf8")
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

"""`serve/page`: what people see at /, in a real browser."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import spacy

from spacy_elq.serve.app import PAGE

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

CHROMIUM = Path("/usr/bin/chromium")
ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TOKEN = "a-token"
HOSTILE = "<img src=x onerror=alert(1)>"
# as in the world of the tests, but two labels, an id of Wikidata, and something that is not harmless as HTML
ENTITIES = [
    {
        "id": "E5",
        "title": "New York City",
        "description": "Largest city of the United States.",
        "label": "CITY",
        "ids": {"wikidata": "Q60"},
    },
    {
        "id": "Q42",
        "title": f"Trap {HOSTILE}",
        "description": HOSTILE,
        "aliases": ["trap", *(f"<b>{i}</b>" for i in range(9))],
    },
]
NEW_YORK, BOTH = "how big is new york city", "is paris older than new york city"
# the least contrast of text, by WCAG 2 AA
CONTRAST = 4.5
# of elements that match a selector, in each hue: text against its background
CONTRASTS = """([selector, hues]) => {
  const light = ([r, g, b]) => [r, g, b]
    .map((value) => value / 255)
    .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const background = (element) => {
    const own = getComputedStyle(element).backgroundColor;
    return channels(own)[3] === 0 ? background(element.parentElement) : own;
  };
  const found = [...document.querySelectorAll(selector)]
    .filter((element) => element.checkVisibility() && element.textContent.trim());
  return found.flatMap((element) => hues.map((hue) => {
    const owner = element.closest(".mention, .chip");
    if (hue !== null) owner.style.setProperty("--hue", hue);
    const both = [getComputedStyle(element).color, background(element)].map(channels).map(light);
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  }));
}"""
NAMELESS = """() => [...document.querySelectorAll("button, input, textarea, a, [tabindex='0']")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(element.ariaLabel || element.textContent.trim() || element.labels?.length))
  .map((element) => element.outerHTML)"""


@pytest.fixture(scope="module")
def url(start_server, trained_path, index, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    copied = shutil.copytree(index.path, folder / "index")
    nlp = spacy.load(trained_path, config={"components.elq_linker.index_path": str(copied)})
    nlp.to_disk(folder / "pipeline")
    url = start_server(folder / "pipeline", "--writable", env={"SPACY_ELQ_TOKEN": TOKEN}).url
    key = {"Authorization": f"Bearer {TOKEN}"}
    httpx.put(f"{url}/entities", json={"entities": ENTITIES}, headers=key).raise_for_status()
    return url


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(10_000)
        yield context
        browser.close()


@pytest.fixture
def problems():
    """What the browser complains about. A test that provokes errors empties it."""
    return []


@pytest.fixture
def page(browser, url, problems):
    """The page, which may ask nobody else, and may not complain."""
    page, hosts = browser.new_page(), set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url)[:2]))
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    page.goto(url)
    expect(page.locator("#facts")).to_have_text(re.compile("11 entities"))
    expect(page.locator("#examples button").first).to_be_visible()
    yield page
    page.close()
    scheme, host = urlsplit(url)[:2]
    assert hosts <= {(scheme, host), ("data", "")}
    assert problems == []


def type_(page, text):
    page.get_by_label("Type a question").fill(text)


def mention(page, text):
    return page.get_by_role("button", name=re.compile(f"^{text}:"))


def is_link_request(request):
    return urlsplit(request.url).path == "/link"


def changed(page, path, change):
    """Let the page get another answer from a route than the server's."""

    def handle(route):
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), **change})

    page.route(f"**/{path}", handle)


# ---------------------------------------------------------------------- links


def test_links_appear_while_one_types(page):
    asked = []
    page.on("request", lambda request: asked.append(request) if is_link_request(request) else None)
    page.get_by_label("Type a question").press_sequentially(NEW_YORK, delay=5)
    expect(page.locator(".mention .words")).to_have_text(["new york city"])
    expect(page.locator("#status")).to_have_text("1 link")
    expect(page.locator(".mention")).to_have_attribute(
        "aria-label", re.compile(r"^new york city: New York City, CITY, score 0\.\d\d$")
    )
    assert len(asked) < len(NEW_YORK) / 3
    type_(page, "")
    expect(page.locator("#result")).to_be_empty()
    expect(page.locator("#status")).to_be_empty()


def test_nothing_is_asked_for_an_empty_text(page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    type_(page, " \n ")
    page.wait_for_timeout(400)
    assert asked == []


def test_labels_have_colours(page):
    type_(page, NEW_YORK)
    expect(page.locator(".mention")).to_have_count(1)
    expect(page.locator("#legend")).to_be_hidden()
    type_(page, BOTH)
    expect(page.locator(".mention .words")).to_have_text(["paris", "new york city"])
    expect(page.locator("#legend li")).to_have_text(["GPE", "CITY"])
    tint = "elements => elements.map(element => getComputedStyle(element).backgroundColor)"
    gpe, city = page.locator(".mention").evaluate_all(tint)
    assert gpe != city
    assert page.locator("#legend .chip").evaluate_all(tint) == [gpe, city]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(page, scheme):
    page.emulate_media(color_scheme=scheme)
    type_(page, BOTH)
    mention(page, "paris").click()
    page.get_by_role("searchbox", name="Search the catalogue").fill("paris")
    expect(page.locator("#found li").first).to_be_visible()
    expect(page.locator("#panel tbody .quiet").first).not_to_be_empty()
    measured = page.evaluate(CONTRASTS, [".mention, .mention span, .chip", list(range(0, 360, 5))])
    assert len(measured) > 300
    assert min(measured) >= CONTRAST
    everything = page.evaluate(
        CONTRASTS, ["h1, h2, h3, p, a, label, dt, dd, th, td, li, button, span", [None]]
    )
    assert min(everything) >= CONTRAST
    assert page.evaluate(NAMELESS) == []


def test_text_is_never_html(page):
    type_(page, f"{HOSTILE} paris")
    expect(page.locator("#result")).to_contain_text(HOSTILE)
    page.get_by_role("searchbox", name="Search the catalogue").fill("trap")
    expect(page.locator("#found li")).to_contain_text([f"Trap {HOSTILE}"])
    expect(page.locator("#found li")).to_contain_text(["Also: trap, <b>0</b>, <b>1</b>"])
    assert page.locator("img, #found b").count() == 0


def test_emoji_do_not_shift_mentions(page):
    faces = 2 * "\N{GRINNING FACE}"
    type_(page, f"{faces}{BOTH}")
    expect(page.locator(".mention .words")).to_have_text(["paris", "new york city"])
    expect(page.locator("#result")).to_contain_text(f"{faces}is paris")


def test_an_older_answer_never_replaces_a_newer_one(page):
    held = []

    def hold(route):
        if "paris" in route.request.post_data:
            held.append(route)
        else:
            route.continue_()

    page.route("**/link", hold)
    with page.expect_request(is_link_request):
        type_(page, BOTH)
    with page.expect_event("requestfailed") as failed:
        type_(page, NEW_YORK)
    assert "paris" in failed.value.post_data
    expect(page.locator("#result")).to_contain_text("how big")
    assert len(held) == 1


# ---------------------------------------------------------------------- the panel


def test_panel_shows_why_there_is_a_link(page):
    type_(page, BOTH)
    mention(page, "new york city").click()
    panel = page.get_by_role("region", name="new york city")
    expect(panel).to_contain_text("reaches the threshold of 0.2.")
    expect(panel.locator("dt")).to_have_text(
        ["Mention", "Name", "Mention probability", "Joint", "Calibrated score", "Threshold"]
    )
    expect(panel.locator("thead th")).to_have_text(
        ["Candidate", "Id", "Probability", "Vector", "Name", "Popularity", "Similarity"]
    )
    first = panel.locator("tbody tr").first
    expect(first.locator("th")).to_have_text("New York City CITYLargest city of the United States.")
    expect(first.locator("td").first).to_have_text("E5 Q60")
    probability, vector, name, popularity, similarity = map(float, first.locator("td").all_inner_texts()[1:])
    assert 0.5 < probability <= 1
    assert vector + name + popularity == pytest.approx(similarity, abs=0.02)
    wikidata = first.get_by_role("link", name="Q60 on Wikidata")
    expect(wikidata).to_have_attribute("href", "https://www.wikidata.org/wiki/Q60")
    expect(wikidata).to_have_attribute("target", "_blank")
    expect(wikidata).to_have_attribute("rel", "noreferrer noopener")
    panel.get_by_role("button", name="Close").click()
    expect(page.locator("#panel")).to_be_hidden()
    expect(mention(page, "new york city")).to_be_focused()


def test_panel_shows_why_there_is_no_link(page):
    type_(page, BOTH)
    expect(page.locator("#others h3")).to_have_text("Likely mentions that are no links")
    mention(page, "new york").click()
    panel = page.locator("#panel")
    expect(panel).to_contain_text("is below the threshold of 0.2.")
    page.get_by_label("Threshold").fill("0.01")
    expect(panel).to_contain_text("reaches the threshold of 0.01, but it overlaps with “new york city”.")
    type_(page, "how do i boil an egg")
    expect(panel).to_be_hidden()


def test_panel_has_none_of_these_if_the_model_knows_it(page):
    def handle(route):
        answer = route.fetch()
        mentions = [{**own, "none": 0.25} for own in answer.json()["mentions"]]
        route.fulfill(response=answer, json={"mentions": mentions})

    page.route("**/explain", handle)
    type_(page, NEW_YORK)
    mention(page, "new york city").click()
    expect(page.locator("#panel dl div").filter(has_text="None of these")).to_contain_text("0.2500")


def test_panel_without_explanations(page):
    changed(page, "info", {"explains": False})
    page.reload()
    type_(page, BOTH)
    mention(page, "paris").click()
    panel = page.locator("#panel")
    expect(panel.locator("thead th")).to_have_text(["Candidate", "Id", "Score"])
    expect(panel.locator("tbody th").first).to_have_text("Paris GPECapital of France.")
    expect(page.locator("#others")).to_be_hidden()


def test_keyboard_is_enough(page):
    def tab_to(locator, most):
        for _ in range(most):
            page.keyboard.press("Tab")
            if locator.evaluate("element => element === document.activeElement"):
                return
        pytest.fail(f"no way to {locator}")

    tab_to(page.get_by_label("Type a question"), 1)
    page.keyboard.type(BOTH)
    expect(page.locator(".mention")).to_have_count(2)
    tab_to(mention(page, "paris"), 10)
    outline = "element => getComputedStyle(element).outlineStyle"
    assert mention(page, "paris").evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_be_focused()
    expect(mention(page, "paris")).to_have_attribute("aria-expanded", "true")
    tab_to(page.get_by_role("button", name="Close"), 1)
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(mention(page, "paris")).to_be_focused()
    expect(mention(page, "paris")).to_have_attribute("aria-expanded", "false")
    tab_to(mention(page, "new york city"), 1)
    page.keyboard.press("Space")
    expect(page.locator("#panel-title")).to_have_text("“new york city”")


# ---------------------------------------------------------------------- options


def test_threshold(page):
    type_(page, BOTH)
    expect(page.locator(".mention")).to_have_count(2)
    slider, reset = page.get_by_label("Threshold"), page.get_by_role("button", name="Reset")
    expect(slider).to_have_value("0.2")
    expect(reset).to_be_disabled()
    with page.expect_request(is_link_request) as asked:
        slider.press("End")
    assert asked.value.post_data_json["threshold"] == 1
    expect(page.locator(".mention")).to_have_count(0)
    expect(page.locator("#status")).to_have_text("0 links")
    with page.expect_request(is_link_request) as asked:
        reset.click()
    assert "threshold" not in asked.value.post_data_json
    expect(page.locator(".mention")).to_have_count(2)
    expect(slider).to_have_value("0.2")
    expect(slider).to_be_focused()


def test_restriction_by_label(page):
    type_(page, BOTH)
    expect(page.locator("#legend li")).to_have_count(2)
    only = page.get_by_role("group", name="Only these labels")
    with page.expect_request(is_link_request) as asked:
        only.get_by_label("CITY").check()
    assert asked.value.post_data_json["within"] == {"labels": ["CITY"]}
    expect(page.locator("#legend")).to_be_hidden()
    expect(mention(page, "new york city")).to_have_attribute("aria-label", re.compile("CITY"))
    with page.expect_request(is_link_request) as asked:
        only.get_by_label("CITY").uncheck()
    assert "within" not in asked.value.post_data_json
    expect(page.locator("#legend li")).to_have_count(2)


def test_what_a_pipeline_lacks_is_not_there(page):
    changed(page, "info", {"labels": ["GPE"], "threshold": None, "entities": None})
    page.reload()
    type_(page, BOTH)
    expect(page.locator(".mention")).to_have_count(2)
    for id_ in ("labels-control", "threshold-control", "search"):
        expect(page.locator(f"#{id_}")).to_be_hidden()


def test_address_has_the_question(page, url):
    type_(page, BOTH)
    page.get_by_label("Threshold").fill("0.5")
    page.get_by_role("checkbox", name="GPE").check()
    expect(page).to_have_url(f"{url}/#q=is+paris+older+than+new+york+city&threshold=0.5&label=GPE")
    page.reload()
    expect(page.get_by_label("Type a question")).to_have_value(BOTH)
    expect(page.get_by_label("Threshold")).to_have_value("0.5")
    expect(page.get_by_role("checkbox", name="GPE")).to_be_checked()
    page.goto(f"{url}/#q=how+big+is+new+york+city")
    expect(page.locator(".mention .words")).to_have_text(["new york city"])
    expect(page.get_by_role("button", name="Reset")).to_be_disabled()


def test_examples(page):
    example = page.get_by_role("group", name="Examples").get_by_role("button").first
    example.click()
    expect(page.get_by_label("Type a question")).to_have_value(example.inner_text())
    expect(page.locator(".mention").first).to_be_visible()


# ---------------------------------------------------------------------- the catalogue


def test_search(page):
    page.get_by_role("searchbox", name="Search the catalogue").press_sequentially("new york city", delay=5)
    expect(page.locator("#found li")).to_have_count(1)
    expect(page.locator("#found li")).to_contain_text(["New York City E5 Q60 CITY"])
    expect(page.locator("#found li")).to_contain_text(["Largest city of the United States."])
    expect(page.locator("#search-status")).to_have_text("1 entity")
    page.get_by_role("searchbox", name="Search the catalogue").fill("shaq")
    expect(page.locator("#found li")).to_contain_text(["Also: Shaq"])
    page.get_by_role("searchbox", name="Search the catalogue").fill("")
    expect(page.locator("#found li")).to_have_count(0)


# ---------------------------------------------------------------------- what goes wrong


def test_page_shows_what_the_server_says(page, problems):
    type_(page, "a" * 5_001)
    expect(page.get_by_role("alert")).to_contain_text("A text of 5001 characters, at most 5000.")
    type_(page, NEW_YORK)
    expect(page.locator(".mention")).to_have_count(1)
    expect(page.locator("#error")).to_be_hidden()
    problems.clear()


def test_no_server(page, problems):
    page.route("**/link", lambda route: route.abort())
    type_(page, NEW_YORK)
    expect(page.get_by_role("alert")).to_have_text("The server cannot be reached.")
    problems.clear()


def test_a_busy_server_is_asked_once_more(page, problems):
    answers = []

    def refuse(route):
        answers.append(route)
        if len(answers) > 1:
            route.continue_()
        else:
            busy = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"detail": "Too many texts."}}
            route.fulfill(**busy)

    page.route("**/link", refuse)
    type_(page, NEW_YORK)
    expect(page.get_by_role("alert")).to_have_text("Too many texts. Trying again in 1 s …")
    expect(page.locator(".mention")).to_have_count(1)
    expect(page.locator("#error")).to_be_hidden()
    assert len(answers) == 2
    problems.clear()


def test_a_text_that_could_not_be_linked(page):
    failed = {"text": NEW_YORK, "links": [], "error": "Something is wrong with it"}
    changed(page, "link", {"results": [failed]})
    type_(page, NEW_YORK)
    expect(page.get_by_role("alert")).to_have_text("Something is wrong with it")


# ---------------------------------------------------------------------- the page itself


def test_small_screens(page):
    page.set_viewport_size({"width": 320, "height": 600})
    type_(page, BOTH)
    mention(page, "paris").click()
    page.get_by_role("searchbox", name="Search the catalogue").fill("trap")
    expect(page.locator("#found li")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") == 320


def test_headers(url):
    policy = httpx.get(url).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_files_are_small_and_plain():
    files = {path.name: path.read_text(encoding="utf8") for path in PAGE.iterdir()}
    assert sum(map(len, files.values())) < 30_000
    for name, text in files.items():
        assert "innerHTML" not in text, name
    assert not re.search(r"<style|\sstyle=|\son\w+=", files["index.html"])
    assert (
        json.dumps(sorted(files)) == '["api.js", "app.js", "dom.js", "index.html", "panel.js", "style.css"]'
    )

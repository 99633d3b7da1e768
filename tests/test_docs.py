"""What people read is true: every code block of the README and of docs/ runs in a small but real world, every
link leads somewhere, and figures are those of the pages that commands write.

A block says what it is by its first line:

    ```python         run, in the order of the page
    ```text           after Python: what it prints, where scores may differ; `text exact`: to the letter;
                      `text new`: what a real encoder makes of questions that training never saw
    ```bash           each line is run; `bash parse`: needs a network or minutes, options are checked
    ```jsonl NAME     read, and written to NAME, if there is one; the same for text
    ```ini            a part of a config: names and settings must exist
"""

import configparser
import contextlib
import inspect
import io
import json
import os
import re
import runpy
import shlex
import shutil
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple
from xml.etree import ElementTree

import pytest
import spacy
import spacy.cli
import srsly
import typer
from conftest import PUBLISHED_FILES, train
from serve_world import start as start_server
from spacy import registry
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training.initialize import init_nlp
from spacy.util import load_config
from thinc.api import Config, fix_random_seed
from transformers import AutoTokenizer, BertConfig, BertModel
from typer.testing import CliRunner

import spacy_elq.cli  # noqa: F401  (adds the commands)
from spacy_elq import errors
from spacy_elq.catalogue import FIELDS, read_catalogue
from spacy_elq.corpora import read_questions
from spacy_elq.model.fetch import SOURCES
from spacy_elq.model.recipe import write_recipe
from spacy_elq.serve.app import create_app
from spacy_elq.serve.service import LinkService
from spacy_elq.serve.settings import ServeSettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# the page of the commands shows their usage, made from the commands themselves
WRITTEN = [page for page in PAGES if page.name != "commands.md"]
SENTENCES = [
    {"text": "Mercury is nearest to the Sun.", "spans": [{"start": 0, "end": 7, "id": "Q308"}], "page": "1"},
    {"text": "Thermometers had mercury.", "spans": [{"start": 17, "end": 24, "id": "Q925"}], "page": "2"},
    {"text": "A mercury lamp.", "spans": [], "page": "3"},
]
# where the page of the service says that it is
SERVICE = "http://127.0.0.1:8000"
SPACY = typer.main.get_command(spacy.cli.app)


class Block(NamedTuple):
    """A code block: its language, the words behind it, its text and the line where it begins."""

    language: str
    words: List[str]
    text: str
    line: int

    @property
    def file(self) -> Optional[str]:
        """RETURNS (Optional[str]): The file that it is the content of."""
        return next((word for word in self.words if "." in word), None)


def read_blocks(page: Path) -> List[Block]:
    blocks, inside = [], None
    for number, line in enumerate(page.read_text(encoding="utf8").splitlines(), 1):
        if inside is None and line.lstrip().startswith("```"):
            language, *words = line.strip("` ").split() or [""]
            inside = Block(language, words, "", number)
        elif inside is not None and line.strip() == "```":
            blocks.append(inside)
            inside = None
        elif inside is not None:
            inside = inside._replace(text=inside.text + line + "\n")
    assert inside is None, f"{page.name}: the block of line {inside.line} has no end"
    return blocks


# ---------------------------------------------------------------------- the world


@pytest.fixture(scope="session")
def docs_world(tmp_path_factory: pytest.TempPathFactory, encoder_path: Path) -> Path:
    """A folder with what the pages speak of: the entities and questions of the quick start, an index, and a
    pipeline that was trained with the shipped config.
    """
    world = tmp_path_factory.mktemp("docs")
    # longer texts than the tiny BERT's, and a layer more than the shipped config freezes
    config = BertConfig.from_pretrained(encoder_path, max_position_embeddings=160, num_hidden_layers=3)
    fix_random_seed(0)  # whatever ran before
    BertModel(config).save_pretrained(world / "encoder")
    AutoTokenizer.from_pretrained(encoder_path, model_max_length=160).save_pretrained(world / "encoder")
    write_recipe(world / "encoder", SOURCES["all-MiniLM-L6-v2"].recipe)
    (world / "assets").mkdir()
    (world / "assets" / "encoder").symlink_to("../encoder")
    for page in ("quickstart.md", "formats.md"):
        for block in read_blocks(DOCS / page):
            if block.file:
                (world / block.file).write_text(block.text, encoding="utf8")
    shutil.copy(world / "dev.txt", world / "test.txt")
    shutil.copy(world / "entities.jsonl", world / "mine.jsonl")
    (world / "queries.txt").write_text("how tall is shaq\nis there mercury in fish\n", encoding="utf8")
    srsly.write_jsonl(world / "sentences.jsonl", SENTENCES)
    (world / "models").mkdir()
    with _chdir(world):
        for command in (
            "encode entities.jsonl vectors --encoder encoder",
            "index vectors index",
            "convert train.txt corpus/train.spacy",
            "convert dev.txt corpus/dev.spacy",
            "convert test.txt corpus/test.spacy",
            "dictionary anchors.tsv entities.jsonl dictionary",
        ):
            run_spacy(["elq", *command.split()])
        make_pipeline().to_disk("models/elq")
    return world


@contextlib.contextmanager
def _chdir(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def make_pipeline() -> Language:
    """RETURNS (Language): A pipeline of the shipped config that knows the questions of the quick start."""
    paths = {"paths.index": "index", "paths.encoder": "encoder", "initialize.after_init": None}
    config = load_config(ROOT / "configs" / "elq.cfg", overrides=paths, interpolate=True)
    config["corpora"]["train"]["augmenter"] = None
    fix_random_seed(0)
    nlp = init_nlp(config)
    docs = [doc for name in ("train", "dev") for doc in _docs(nlp, Path("corpus") / f"{name}.spacy")]
    # the README asks this
    docs.append(nlp.make_doc("is mercury closer to the sun than venus"))
    docs[-1].spans["gold_links"] = [Span(docs[-1], 1, 2, label="LOC", kb_id="Q308")]
    # by heart, so that what the pages print does not depend on luck; "quicksilver" has too many word pieces
    for _ in range(10):
        train(nlp, docs, steps=50, learn_rate=0.0005)
        found = [{(ent.start, ent.end, ent.kb_id_) for ent in nlp(doc.text).ents} for doc in docs]
        if sum(links != _gold(doc) for links, doc in zip(found, docs, strict=True)) <= 1:
            return nlp
    raise AssertionError("the small pipeline does not learn its questions")


def _gold(doc: Doc) -> Set[Tuple[int, int, str]]:
    return {(span.start, span.end, span.kb_id_) for span in doc.spans["gold_links"]}


def _docs(nlp: Language, path: Path) -> Iterator[Doc]:
    return DocBin().from_disk(path).get_docs(nlp.vocab)


@pytest.fixture
def folder(
    request: pytest.FixtureRequest, docs_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of the world for one page, as the current folder."""
    copy = tmp_path / "world"
    shutil.copytree(docs_world, copy, symlinks=True)
    if request.node.name == "test_blocks[published]":
        published = request.getfixturevalue("published")
        for name in PUBLISHED_FILES.values():
            shutil.copy(published / name, copy / name)
        (copy / "bert-large-uncased").symlink_to((published / "bert").resolve())
    monkeypatch.chdir(copy)
    return copy


# ---------------------------------------------------------------------- blocks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_blocks(page: Path, folder: Path) -> None:
    with serving(page, folder) as url:
        check_blocks(page, folder, url)


@contextlib.contextmanager
def serving(page: Path, folder: Path) -> Iterator[str]:
    """Serve the pipeline that the pages speak of, for the page that is about it."""
    if page.stem != "service":
        yield SERVICE
        return
    server = start_server(folder / "models" / "elq", log=folder / "server.log")
    try:
        yield server.url
    finally:
        server.stop()


def check_blocks(page: Path, folder: Path, url: str) -> None:
    namespace: Dict[str, object] = {"__name__": "__main__"}
    printed: Optional[str] = None
    for block in read_blocks(page):
        block = block._replace(text=block.text.replace(SERVICE, url))
        where = f"{page.name}, line {block.line}"
        output, printed = printed, None
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf8")
        if block.language == "python":
            printed = run_python(block, where, namespace)
        elif block.language == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                run_line(line, where, parse_only="parse" in block.words)
        elif block.language == "text" and output is not None:
            check_output(block, output, where)
        elif block.language == "ini":
            check_config(block.text, where)
        elif block.language in ("json", "jsonl"):
            check_json(block, folder, where)
        else:
            assert block.language in ("text", "mermaid"), f"{where}: what is {block.language!r}?"


def run_python(block: Block, where: str, namespace: Dict[str, object]) -> str:
    """RETURNS (str): What the block printed."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        exec(compile("\n" * block.line + block.text, where, "exec"), namespace)
    return stdout.getvalue()


def check_output(block: Block, output: str, where: str) -> None:
    """Compare what was printed with what the page says. Scores differ from one training to the next: where
    there are any, the shape of the lines is compared.
    """
    if "exact" in block.words:
        assert output == block.text, where
        return
    # new questions are for real encoders: the tiny one may find nothing in them
    assert output or "new" in block.words, f"{where}: nothing was printed"
    assert {_shape(x) for x in output.splitlines()} <= {_shape(x) for x in block.text.splitlines()}, where


def _shape(line: str) -> str:
    """RETURNS (str): A line with its words as "w" and its numbers as "0", runs as one."""
    indent = len(line) - len(line.lstrip())
    kinds = ["0" if re.fullmatch(r"[\d.e-]+", word) else "w" for word in line.split()]
    return " " * indent + re.sub(r"(w )+", "w ", " ".join(kinds))


def run_line(line: str, where: str, *, parse_only: bool) -> None:
    """Run a line of a shell, or check it."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    text = ""
    if words[0] == "echo" and words[2:3] == [">"]:
        Path(words[3]).write_text(words[1] + "\n", encoding="utf8")
        return
    if words[0] == "echo" and words[2:3] == ["|"]:
        text, words = words[1] + "\n", words[3:]
    if words[:4] == ["python", "-m", "spacy", "project"]:
        check_project(words[4:], where)
    elif words[:3] == ["python", "-m", "spacy"]:
        if parse_only or "fetch-encoder" in words:
            parse_spacy(words[3:], where)
        else:
            run_spacy(words[3:], text=text, where=where)
    elif words[:4] == ["python", "-m", "pip", "install"]:
        check_install(words[4], where)
    elif words[0] in ("podman", "docker"):
        # no engine runs here; tests/test_container.py checks the files
        assert (ROOT / words[words.index("-f") + 1]).is_file() if "-f" in words else "run" in words, where
    elif words[0] == "curl":
        check_request(words[1:], where)
    elif words[0] == "python" and words[1].endswith(".py"):
        run_script(words[1:])
    elif words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf8")
        assert all(f"\n{target}:" in makefile for target in words[1:]), where
    else:
        pytest.fail(f"{where}: no way to check {line!r}")


def run_spacy(words: List[str], *, text: str = "", where: str = "") -> None:
    result = CliRunner().invoke(spacy.cli.app, words, input=text, catch_exceptions=False)
    assert result.exit_code == 0, f"{where}: {' '.join(words)}\n{result.output}"


def parse_spacy(words: List[str], where: str) -> None:
    """Check a command's name, arguments and options without running it."""
    command, names = SPACY, []
    while hasattr(command, "commands"):
        name, *words = words
        names.append(name)
        assert name in command.commands, f"{where}: no command {' '.join(names)}"
        command = command.commands[name]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            command.make_context(name, words)
    except Exception as err:  # click or its copy in typer
        if "does not exist" in str(err):  # a file that is not needed for parsing
            return
        pytest.fail(f"{where}: {' '.join([*names, *words])}: {err}")


def check_project(words: List[str], where: str) -> None:
    """Check that a project has a command or workflow."""
    action, name, *rest = words
    assert action == "run", where
    place = rest[0] if rest and not rest[0].startswith("-") else "."
    project = srsly.read_yaml(ROOT / place / "project.yml")
    known = [*project["workflows"], *(command["name"] for command in project["commands"])]
    assert name in known, f"{where}: {place}/project.yml has no {name!r}"


def check_request(words: List[str], where: str) -> None:
    """Check that the server has what is asked, and the fields that are sent."""
    method = words[words.index("-X") + 1] if "-X" in words else "POST"
    (path,) = [word.partition(":8000")[2] for word in words if word.startswith("127.0.0.1")]
    operation = create_openapi()["paths"][path][method.lower()]
    sent = json.loads(words[words.index("--json") + 1])
    ref = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = create_openapi()["components"]["schemas"][ref.rpartition("/")[2]]
    assert set(schema.get("required", ())) <= set(sent) <= set(schema["properties"]), where


@lru_cache
def create_openapi() -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The description of the server."""
    nlp = spacy.blank("en")
    service = LinkService(nlp, nlp.add_pipe("elq_linker"))
    return create_app(ServeSettings(), service).openapi()


def check_install(target: str, where: str) -> None:
    extras = re.fullmatch(r"\.(?:\[(.*)\])?", target)
    assert extras, f"{where}: {target}"
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = set((extras[1] or "").split(",")) - {""}
    assert wanted <= setup["options.extras_require"].keys(), f"{where}: {target}"


def run_script(words: List[str]) -> None:
    before = sys.argv
    sys.argv = words
    try:
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")
    finally:
        sys.argv = before


def check_config(text: str, where: str) -> None:
    """Check that what a part of a config names is registered and has these settings."""
    config = Config().from_str(_add_parents(text), interpolate=False)
    for name, component in config.get("components", {}).items():
        known = Language.get_factory_meta(component.get("factory", name)).default_config
        assert component.keys() - {"factory"} <= known.keys(), f"{where}: [components.{name}]"
    for section in _sections(config):
        for kind, name in [(key[1:], value) for key, value in section.items() if key.startswith("@")]:
            settings = inspect.signature(registry.get(kind, name)).parameters
            given = {key for key in section if not key.startswith("@")}
            assert given <= settings.keys(), f"{where}: {name} has no {given - settings.keys()}"
    shipped = Config().from_disk(ROOT / "configs" / "elq.cfg", interpolate=False)
    for section in config.keys() & {"training", "nlp"}:
        assert config[section].keys() <= shipped[section].keys(), f"{where}: [{section}]"


def _add_parents(text: str) -> str:
    """RETURNS (str): A part of a config with the sections above its own, which Config asks for."""
    names, bodies = re.findall(r"(?m)^\[(.*)\]$", text), re.split(r"(?m)^\[.*\]$", text)[1:]
    sections = dict(zip(names, bodies, strict=True))
    for parts in [name.split(".") for name in names]:
        for i in range(1, len(parts)):
            sections.setdefault(".".join(parts[:i]), "\n")
    return "".join(f"[{name}]{body}" for name, body in sorted(sections.items()))


def _sections(config: Dict[str, object]) -> Iterator[Dict[str, object]]:
    yield config
    for value in config.values():
        if isinstance(value, dict):
            yield from _sections(value)


def check_json(block: Block, folder: Path, where: str) -> None:
    records = [block.text] if block.language == "json" else block.text.splitlines()
    keys = {key for record in records for key in json.loads(record)}
    path = folder / "block.jsonl"
    path.write_text(block.text, encoding="utf8")
    if "title" in keys:
        assert list(read_catalogue(path)), where
        unknown = keys - set(FIELDS)
        assert not unknown, f"{where}: {unknown}"
    if "spans" in keys:
        assert list(read_questions(path, format="jsonl")), where


# ---------------------------------------------------------------------- prose


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_commands_in_prose(page: Path) -> None:
    """Commands that a sentence or a table names exist, and have the options given."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf8"))
    for code in re.findall(r"`([^`\n]+)`", prose):
        # an ellipsis stands for whatever comes there
        words = shlex.split(code) if code.startswith("python -m spacy ") and "…" not in code else []
        if words[3:4] == ["project"]:
            check_project(words[4:], page.name)
        elif len(words) > 5:
            parse_spacy(words[3:], page.name)
        elif match := re.match(r"(?:python -m )?spacy elq ([\w-]+)", code):
            assert match[1] in SPACY.commands["elq"].commands, f"{page.name}: {code}"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_codes_exist(page: Path) -> None:
    for code in re.findall(r"\b([EW]0\d\d)\b", page.read_text(encoding="utf8")):
        assert hasattr(errors.Errors, code) or hasattr(errors.Warnings, code), f"{page.name}: {code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links(page: Path) -> None:
    for target in find_links(page):
        if re.match(r"\w+:", target):
            assert target.startswith("https://"), f"{page.name}: {target}"
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), f"{page.name}: {target} leads nowhere"
        if anchor:
            assert anchor in anchors_of(path), f"{page.name}: {path.name} has no heading #{anchor}"


def find_links(page: Path) -> List[str]:
    text = re.sub(r"(?ms)^```.*?^```$|^    [^\n]*$|`[^`\n]*`", "", page.read_text(encoding="utf8"))
    return re.findall(r"(?<!\\)\]\(([^()\s]+)\)", text)


def anchors_of(page: Path) -> List[str]:
    """RETURNS (List[str]): The anchors of headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf8"))
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_readme_fits_a_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf8")
    prose = re.sub(r"(?ms)^```.*?^```$", "", text)
    assert len(text.splitlines()) <= 150
    assert len(text.encode("utf8")) <= 9000
    assert len(re.findall(r"(?m)^# ", prose)) == 1


def test_every_page_is_listed() -> None:
    for listing in (ROOT / "README.md", DOCS / "index.md"):
        listed = {Path(target).name for target in find_links(listing)}
        assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= listed


def test_figures_are_those_of_the_experiments() -> None:
    """Results and comparison in the README have the figures of the page that a command writes."""
    figures = (DOCS / "experiments.md").read_text(encoding="utf8")
    rows = [line.strip("|").split("|") for line in figures.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows]
    readme = (ROOT / "README.md").read_text(encoding="utf8")
    for trained_on, *cells in re.findall(
        r"(?m)^\| (W\S+|Wikipedia.*?) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", readme
    ):
        for test, ours, paper in (("WebQSP_EL", *cells[:2]), ("GraphQuestions_EL", *cells[2:])):
            found = [row for row in rows if row[:4] == [trained_on, "33 M", test, "277,103"]]
            pattern = rf"{re.escape(ours)} ± [\d.]+ \({re.escape(paper)}\)"
            # of the two ways to choose the threshold, that on the development questions of the same set
            own = [row for row in found if any(cell.startswith(test.lower()) for cell in row)]
            assert any(re.fullmatch(pattern, cell) for row in own for cell in row), (trained_on, test)
    measured = re.findall(r"(?m)^\| .*`(\w+)`.* \| ([\d.]+) \| ([\d.]+) \|$", readme)
    assert len(measured) == 4
    for component, f1, speed in measured:
        found = [row for row in rows if f"`{component}`" in row[0] and row[2] == "WebQSP_EL"]
        assert found[0][6].split()[0] == f1, component
        assert found[0][9].split()[0] == speed, component


def test_picture(docs_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs_world)
    output = tmp_path / "picture.svg"
    questions = ["--question", "how tall is shaq", "--question", "a < b"]
    run_script(["docs/make_picture.py", "models/elq", str(output), *questions])
    texts = [element.text for element in ElementTree.parse(output).iter() if element.tag.endswith("text")]
    assert texts[:3] == ["how tall is", "shaq", "Shaquille O'Neal"]
    assert texts[-1] == "a < b"


# ---------------------------------------------------------------------- the test itself


@pytest.mark.parametrize(
    "line",
    [
        "python -m spacy elq encode entities.jsonl vectors --encoder encoder --normm 4",
        "python -m spacy elq encod entities.jsonl vectors --encoder encoder",
        "python -m spacy elq index vectors index --ef-search many",
        "python -m spacy project run everything-else",
        "python -m pip install '.[onyx]'",
        "make al",
        "rm -rf index",
    ],
)
def test_typos_are_found(line: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_line(line, "here", parse_only=True)


@pytest.mark.parametrize(
    "text",
    [
        "[components.elq_linker]\nthreshold = 0.5\n",
        '[components.elq_linker.decoder]\n@misc = "spacy-elq.Decoder.v1"\ntreshold = 0.5\n',
        "[training]\nmax_epoch = 5\n",
    ],
)
def test_wrong_settings_are_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check_config(text, "here")

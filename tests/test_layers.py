"""Who may import whom. The table is the architecture: a module imports from the layers below it only."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "spacy_elq"

# from the bottom up; packages of one layer do not know each other
LAYERS = [
    {"errors", "types"},
    {"files", "util"},
    {"catalogue", "names", "core"},
    {"client", "model", "index", "corpora", "sources"},
    {"pipeline"},
    {"baselines", "published"},
    {"evaluation"},
    {"distributed", "serve"},
    {"cli"},
]
# the same inside of each package
INSIDE = {
    "core": [{"calibration", "spans", "losses", "negatives", "similarity"}, {"decode"}],
    "model": [
        {"case", "prefix", "recipe", "wordpieces"},
        {"transformer"},
        {"onnx", "rows"},
        {"fetch"},
        {"pretrained"},
        {"entity_encoder", "towers"},
    ],
    "index": [
        {"backend", "connections", "log"},
        {"database", "milvus", "vectors"},
        {"files"},
        {"entries", "sync"},
        {"check", "compact", "view"},
        {"within"},
        {"search"},
        {"entity_index"},
        {"build", "several"},
        {"encode"},
    ],
    "corpora": [
        {"gold"},
        {"base"},
        {"augment", "choose", "chunks", "formats", "mixed"},
        {"convert", "templates"},
        {"generate"},
    ],
    "sources": [{"items", "output", "tables"}, {"knowledge_base", "wikidata"}, {"build"}],
    "pipeline": [
        {
            "annotate",
            "batch",
            "boundaries",
            "configs",
            "explain",
            "gold",
            "knowledge_base",
            "legacy",
            "logger",
            "plan",
            "quantize",
            "settings",
        },
        {"callbacks", "restrict", "stream", "tokenizer"},
        {"scorer"},
        {"base"},
        {"biencoder", "bundle", "linker", "remote"},
        {"factories"},
    ],
    "published": [{"tensors"}, {"index"}, {"importer"}],
    "baselines": [{"reduce"}, {"blink", "tagme"}, {"vcg"}, {"factories", "spacy_kb"}],
    "baselines.blink": [{"boundaries", "marking"}, {"context", "extractor"}, {"component"}],
    "baselines.tagme": [{"spotting"}, {"dictionary"}, {"component"}],
    "baselines.vcg": [
        {"characters", "decode", "losses", "transe", "words"},
        {"relations"},
        {"build", "mentions"},
        {"features"},
        {"network"},
        {"component"},
    ],
    "evaluation": [
        {"chart", "compare", "explained", "pipelines"},
        {"blocks", "confidence", "curve", "metrics", "speed", "thresholds", "recall"},
        {"page"},
        {"report"},
    ],
    "serve": [
        {"log", "metrics", "published", "service", "settings"},
        {"batching", "limits"},
        {"schemas"},
        {"app"},
        {"run"},
    ],
    "distributed": [{"cluster", "parts"}, {"work"}, {"encode", "link"}],
    "cli": [{"_util"}, {"*"}],
}
# … but for these
NEIGHBOURS = {("catalogue", "names")}
# arithmetic sees arrays, nothing else
ARRAYS_ONLY = {f"core.{name}" for layer in INSIDE["core"] for name in layer}
NOT_ARRAYS = {"spacy", "spacy_transformers", "thinc", "torch", "transformers", "faiss"}
# heavy libraries, each in one place
HOMES = {
    "faiss": {"index.backend"},
    "fastapi": {"serve.app"},
    "fsspec": {"distributed.parts"},
    "httpx": {"client"},
    "milvus_lite": {"index.milvus"},
    "prometheus_client": {"serve.metrics"},
    "ray": {"distributed.cluster"},
    "onnx": {"model.onnx"},
    "onnxruntime": {"model.onnx"},
    "pymilvus": {"index.milvus"},
    "sqlite3": {"index.connections"},
    "spacy_transformers": {"model.transformer"},
    "threadpoolctl": {"util"},
    "torch": {
        "util",
        "model.transformer",
        "model.onnx",
        "model.pretrained",
        "model.entity_encoder",
        "published.tensors",
        "baselines.vcg.network",
    },
}
HOMES_OF_NAMES = {"AutoModel": {"model.pretrained"}, "AutoTokenizer": {"model.pretrained"}}


def modules():
    """YIELDS: Dotted name inside the package ("" for the package itself) and source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imports(name, source, *, is_package=False):
    """YIELDS: Absolute dotted names that a module imports, anywhere in it; "spacy_elq.x" for its own."""
    parents = ["spacy_elq", *name.split(".")] if name else ["spacy_elq"]
    here = parents if is_package or not name else parents[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            prefix = [*base, *([node.module] if node.module else [])]
            yield from (".".join([*prefix, alias.name]) for alias in node.names)


def layer_of(layers, part):
    """RETURNS: How far up a part stands, None if it is in no layer; "*" stands for all that are not named."""
    found = next((i for i, layer in enumerate(layers) if part in layer), None)
    return found if found is not None else next((i for i, x in enumerate(layers) if "*" in x), None)


def split_at_difference(name, target):
    """RETURNS: The package that two modules share, and the part of it that each is in."""
    here, there = name.split("."), target.split(".")
    shared = 0
    while shared < min(len(here), len(there)) - 1 and here[shared] == there[shared]:
        shared += 1
    return ".".join(here[:shared]), here[shared], there[shared]


def own_breaches(name, imported):
    """RETURNS: What a module must not import of its own package."""
    breaches = []
    for target in (target.removeprefix("spacy_elq.") for target in imported if "spacy_elq." in target):
        package, part, other = split_at_difference(name, target)
        if part == other or (part, other) in NEIGHBOURS:
            continue
        layers = INSIDE[package] if package else LAYERS
        levels = layer_of(layers, part), layer_of(layers, other)
        if None in levels or levels[1] >= levels[0]:
            breaches.append(f"{name} imports {target}")
    return breaches


def foreign_breaches(name, imported):
    """RETURNS: What a module must not import of other packages."""
    breaches = []
    for target in imported:
        top, last = target.split(".")[0], target.split(".")[-1]
        homes = HOMES.get(top) or HOMES_OF_NAMES.get(last)
        if homes is not None and name not in homes:
            breaches.append(f"{name} imports {target}, which belongs to {homes}")
        if name in ARRAYS_ONLY and top in NOT_ARRAYS:
            breaches.append(f"{name} imports {target}, but sees arrays only")
    return breaches


MODULES = [
    (name, list(imports(name, path.read_text(encoding="utf8"), is_package=path.name == "__init__.py")))
    for name, path in modules()
]
each_module = pytest.mark.parametrize(("name", "imported"), MODULES, ids=[name or "-" for name, _ in MODULES])


@each_module
def test_module_has_a_layer(name, imported):
    parts = name.split(".") if name else []
    for i, part in enumerate(parts):
        package = ".".join(parts[:i])
        layers = INSIDE[package] if package else LAYERS
        assert layer_of(layers, part) is not None, (
            f"{part} is not in the table of layers of {package or 'all'}"
        )


@each_module
def test_module_imports_downwards_only(name, imported):
    # a package's own __init__ names what is in it
    if name in INSIDE:
        imported = [x for x in imported if not x.startswith(f"spacy_elq.{name}.")]
    if name:
        assert own_breaches(name, imported) == []


@each_module
def test_heavy_libraries_have_one_home(name, imported):
    assert foreign_breaches(name, imported) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core.spans", "from ..pipeline.linker import ELQLinker"),
        ("core.spans", "from .decode import log_sigmoid"),
        ("pipeline.gold", "from .scorer import match"),
        ("index.files", "from ..pipeline.linker import ELQLinker"),
        ("index.files", "from .entity_index import EntityIndex"),
        ("index.files", "def f():\n    from .. import pipeline"),
        ("pipeline.linker", "import spacy_elq.cli"),
        ("pipeline.linker", "from .unheard_of import x"),
        ("model.entity_encoder", "from ..index import EntityIndex"),
        ("baselines.tagme.spotting", "from .dictionary import AnchorDictionary"),
        ("baselines.tagme.component", "from ..blink.marking import Marks"),
        ("baselines.tagme.spotting", "from ..vcg.relations import Relations"),
        ("cli.link", "from .evaluate import evaluate_cli"),
    ],
)
def test_breach_of_layers_is_seen(name, source):
    assert own_breaches(name, imports(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pipeline.linker", "import faiss"),
        ("index.encode", "from torch.nn import Linear"),
        ("model.towers", "from transformers import AutoModel"),
        ("model.rows", "from spacy_transformers.layers import TransformerListener"),
        ("core.decode", "from thinc.api import Model"),
    ],
)
def test_breach_of_homes_is_seen(name, source):
    assert foreign_breaches(name, imports(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pipeline.scorer", "from .gold import align_span"),
        ("index.encode", "from ..catalogue import read_catalogue\nfrom .files import publish"),
        ("index.backend", "import faiss"),
        ("cli.link", "from ..pipeline.linker import ELQLinker\nfrom ._util import command"),
        ("baselines.spacy_kb", "from .tagme.dictionary import AnchorDictionary"),
    ],
)
def test_what_is_allowed_passes(name, source):
    imported = list(imports(name, source))
    assert own_breaches(name, imported) + foreign_breaches(name, imported) == []

"""Who may import whom. The table is the architecture: a module imports from the layers below it only."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "spacy_elq"

# from the bottom up; modules of one layer do not know each other
LAYERS = [
    {"about", "errors", "types", "threads"},
    {"forward"},
    {"spans", "losses", "decode", "catalogue", "rows", "tensors", "tokenizer", "settings", "engine"},
    {"index", "entity_encoder"},
    {"models", "gold", "negatives", "scorer", "callbacks", "annotate"},
    {"indexed"},
    {"linker", "pairs", "corpora", "augment", "published"},
    {"baselines"},
    {"cli"},
]
# … but for these
NEIGHBOURS = {("scorer", "gold")}
# and these know less than their layer may
ONLY = {
    "entity_encoder": {"engine", "errors", "types"},
    "spans": {"types"},
    "losses": {"types"},
    "decode": {"types"},
}
# arithmetic sees arrays, nothing else
ARRAYS_ONLY = {"spans", "losses", "decode"}
NOT_ARRAYS = {"spacy", "spacy_transformers", "thinc", "torch", "transformers", "faiss"}
# heavy libraries, each in one module; torch in the one that runs encoders and in the one that is an encoder
HOMES = {
    "faiss": {"index.backend"},
    "torch": {"engine", "entity_encoder"},
    "onnx": {"engine"},
    "onnxruntime": {"engine"},
    "ray": {"baselines"},
}
HOMES_OF_NAMES = {"AutoModel": {"entity_encoder"}, "AutoTokenizer": {"entity_encoder"}}


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


def layer_of(part):
    return next((i for i, layer in enumerate(LAYERS) if part in layer), None)


def own_breaches(name, imported):
    """RETURNS: What a module must not import of its own package."""
    part = name.split(".")[0]
    breaches = []
    for target in imported:
        if not target.startswith("spacy_elq."):
            continue
        other = target.split(".")[1]
        if other == part or (part, other) in NEIGHBOURS:
            continue
        below = layer_of(other) is not None and layer_of(other) < layer_of(part)
        if not below or other not in ONLY.get(part, {other}):
            breaches.append(f"{name} imports {other}")
    return breaches


def foreign_breaches(name, imported):
    """RETURNS: What a module must not import of other packages."""
    breaches = []
    for target in imported:
        top, last = target.split(".")[0], target.split(".")[-1]
        homes = HOMES.get(top) or HOMES_OF_NAMES.get(last)
        if homes is not None and name not in homes and name.split(".")[0] not in homes:
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
    assert not name or layer_of(name.split(".")[0]) is not None, f"{name} is not in the table of layers"


@each_module
def test_module_imports_downwards_only(name, imported):
    if not name:
        assert [x for x in imported if x.startswith("spacy_elq")] == ["spacy_elq.about.__version__"]
    else:
        assert own_breaches(name, imported) == []


@each_module
def test_heavy_libraries_have_one_home(name, imported):
    assert foreign_breaches(name, imported) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("spans", "from .linker import ELQLinker"),
        ("spans", "from .decode import log_sigmoid"),
        ("gold", "from .scorer import match"),
        ("index.store", "from ..linker import ELQLinker"),
        ("index.store", "def f():\n    from .. import linker"),
        ("linker", "import spacy_elq.cli"),
        ("linker", "from .unheard_of import x"),
        ("entity_encoder", "from .index import EntityIndex"),
    ],
)
def test_breach_of_layers_is_seen(name, source):
    assert own_breaches(name, imports(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("linker", "import faiss"),
        ("index.encode", "from torch.nn import Linear"),
        ("models", "from transformers import AutoModel"),
        ("decode", "from thinc.api import Model"),
    ],
)
def test_breach_of_homes_is_seen(name, source):
    assert foreign_breaches(name, imports(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("scorer", "from .gold import gold_spans"),
        ("index.encode", "from ..catalogue import read_catalogue\nfrom .store import commit"),
        ("index.backend", "import faiss"),
        ("cli.link", "from ..linker import ELQLinker\nfrom ._util import command"),
    ],
)
def test_what_is_allowed_passes(name, source):
    imported = list(imports(name, source))
    assert own_breaches(name, imported) + foreign_breaches(name, imported) == []

"""spaCy imports our commands whenever someone runs `python -m spacy`, and our factories with every pipeline:
until used, they must cost nothing.
"""

import re
import subprocess
import sys

import pytest
from typer.main import get_command

from spacy_elq.cli import app
from spacy_elq.corpora import FORMATS
from spacy_elq.model.onnx import PRECISIONS
from spacy_elq.sources import FORMATS as SOURCES

HEAVY = ("torch", "transformers", "faiss", "spacy_transformers", "onnx", "onnxruntime", "sklearn", "scipy")
# thinc imports torch on its own account
SCRIPT = f"""
import sys
import {{before}}
names = [name for name in {HEAVY} if name not in sys.modules]
own = set(sys.modules)
import {{module}}
print([name for name in names if name in sys.modules])
print(sorted(name for name in set(sys.modules) - own if name.startswith("spacy_elq.")))
"""


def new_modules(module, before):
    """RETURNS: The heavy libraries and modules of our own that an import brings."""
    code = SCRIPT.format(before=before, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    heavy, own = done.stdout.splitlines()
    return heavy, own


@pytest.mark.parametrize(("module", "before"), [("spacy_elq.cli", "spacy.cli"), ("spacy_elq", "sys")])
def test_import_brings_no_heavy_library(module, before):
    heavy, own = new_modules(module, before)
    assert heavy == "[]"
    assert set(re.findall(r"spacy_elq\.(\w+)", own)) <= {"cli", "errors"}


@pytest.mark.parametrize(
    ("module", "before"),
    [
        ("spacy_elq.pipeline.factories", "spacy"),
        ("spacy_elq.baselines.factories", "spacy"),
        ("spacy_elq.pipeline.remote", "spacy"),
        ("spacy_elq.client", "spacy"),
    ],
)
def test_factories_and_client_bring_no_heavy_library(module, before):
    heavy, own = new_modules(module, before)
    assert heavy == "[]"
    homes = (
        "index",
        "model",
        "pipeline.linker",
        "pipeline.base",
        "baselines.blink",
        "baselines.tagme",
        "baselines.vcg",
    )
    assert [home for home in homes if f"'spacy_elq.{home}" in own] == []
    assert f"'{module}'" in own


def test_blank_pipeline_brings_no_component_of_ours():
    code = (
        "import sys, spacy\n"
        "spacy.blank('en')\n"
        "assert 'spacy_elq.pipeline.factories' in sys.modules\n"
        "print([x for x in ('faiss', 'spacy_elq.index', 'spacy_elq.pipeline.base') if x in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_heavy_library_would_be_seen():
    heavy, own = new_modules("spacy_elq.pipeline.linker", "spacy.cli")
    assert "'faiss'" in heavy
    assert "'spacy_elq.pipeline.linker'" in own


def option(command, name):
    return next(x for x in get_command(app).commands[command].params if x.name == name)


# said in words, since the modules that know them are heavy
@pytest.mark.parametrize(
    ("command", "name", "values"),
    [("convert", "format", FORMATS), ("catalogue", "format", SOURCES), ("quantize", "precision", PRECISIONS)],
)
def test_help_names_all_values(command, name, values):
    words = re.findall(r"[\w-]+", option(command, name).help)
    assert [word for word in words if word in values] == list(values)

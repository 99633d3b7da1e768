"""`python -m spacy elq …`: importing this package adds the commands to spaCy's own CLI."""

from spacy.cli._util import app as spacy_app

from ._util import app
from .add import add_cli
from .bench import bench_cli
from .bundle import bundle_cli
from .catalogue import catalogue_cli
from .check import check_cli
from .compact import compact_cli
from .convert import convert_cli
from .dictionary import dictionary_cli
from .encode import encode_cli
from .evaluate import evaluate_cli
from .explain import explain_cli
from .fetch_encoder import fetch_encoder_cli
from .import_ import import_cli
from .index import index_cli
from .init_config import init_config_cli
from .link import link_cli
from .quantize import quantize_cli
from .questions import questions_cli
from .recall import recall_cli
from .relations import relations_cli
from .remove import remove_cli
from .report import report_cli
from .serve import serve_cli
from .show import show_cli
from .threshold import threshold_cli

spacy_app.add_typer(app, name="elq")

__all__ = [
    "add_cli",
    "app",
    "bench_cli",
    "bundle_cli",
    "catalogue_cli",
    "check_cli",
    "compact_cli",
    "convert_cli",
    "dictionary_cli",
    "encode_cli",
    "evaluate_cli",
    "explain_cli",
    "fetch_encoder_cli",
    "import_cli",
    "index_cli",
    "init_config_cli",
    "link_cli",
    "quantize_cli",
    "questions_cli",
    "recall_cli",
    "relations_cli",
    "remove_cli",
    "report_cli",
    "serve_cli",
    "show_cli",
    "threshold_cli",
]

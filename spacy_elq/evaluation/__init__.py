"""How good and how fast a pipeline is: metrics, thresholds, recall, speed, the report."""

from .metrics import evaluate
from .pipelines import find_linker, load_pipeline, process, read_docs, read_gold, save_pipeline
from .recall import recall
from .report import read_metrics, write_html
from .speed import bench, bench_in_turn
from .thresholds import choose_thresholds, threshold_curve

__all__ = [
    "bench",
    "bench_in_turn",
    "choose_thresholds",
    "evaluate",
    "find_linker",
    "load_pipeline",
    "process",
    "read_docs",
    "read_gold",
    "read_metrics",
    "recall",
    "save_pipeline",
    "threshold_curve",
    "write_html",
]

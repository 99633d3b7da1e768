"""Compare ways to run an encoder on a CPU, into `results/engines.json`."""

import statistics
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

import spacy
import torch
import typer
from records import RESULTS, write_record
from torch.ao.quantization import quantize_dynamic
from transformers import AutoModel, AutoTokenizer

from spacy_elq import util
from spacy_elq.evaluation import read_docs
from spacy_elq.model.onnx import OnnxTransformer, to_onnx


def main(
    encoder: str = typer.Argument(..., help="Folder or hub name of the encoder"),
    questions: Path = typer.Argument(..., help="Test questions (.spacy)"),
    batch_sizes: str = typer.Option("1,64", help="Batch sizes"),
    n_threads: int = typer.Option(1, "--threads", min=1, help="Threads"),
    limit: int = typer.Option(320, min=1, help="How many questions"),
    repeats: int = typer.Option(5, min=1, help="Runs; the median counts"),
    results: Path = typer.Option(RESULTS, help="Folder of the result files"),
) -> None:
    """Run an encoder with torch and ONNX Runtime, in float32 and int8."""
    util.set_threads(n_threads)
    texts = [doc.text for doc in read_docs(questions, spacy.blank("en"))][:limit]
    tokenizer, ways = AutoTokenizer.from_pretrained(encoder), _build_engines(encoder)
    rows: List[Dict[str, Any]] = [{"engine": name, "speed": {}} for name in ways]
    for size in (int(x) for x in batch_sizes.split(",")):
        starts = range(0, len(texts), size)
        batches = [tokenizer(texts[i : i + size], padding=True, return_tensors="pt") for i in starts]
        runs = [[_run_engine(way, batches) for way in ways.values()] for _ in range(repeats + 1)]
        plain = runs[0][0][1]
        for i, row in enumerate(rows):
            cosines = torch.cosine_similarity(runs[0][i][1], plain)
            row["cosine"], row["least_cosine"] = (round(float(x), 4) for x in (cosines.mean(), cosines.min()))
            # the first run is to warm up
            row["speed"][str(size)] = round(statistics.median(run[0][0] / run[i][0] for run in runs[1:]), 2)
    record = {"encoder": Path(encoder).name, "processor": _processor(), "engines": rows}
    write_record(results, "engines", record)


def _build_engines(encoder: str) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The encoder as each engine runs it, torch in float32 first."""
    model = AutoModel.from_pretrained(encoder).eval()
    graphs = {precision: to_onnx(model, precision=precision) for precision in ("float32", "int8")}
    return {
        "torch, float32": model,
        "torch, int8 (dynamic quantization)": quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8),
        **{f"ONNX Runtime, {name}": OnnxTransformer(model.config, graph) for name, graph in graphs.items()},
    }


@torch.inference_mode()
def _run_engine(way: Any, batches: List[Any]) -> Tuple[float, torch.Tensor]:
    """RETURNS (Tuple[float, torch.Tensor]): The seconds of the forward passes, and the mean vector of each
    question.
    """
    vectors, seconds = [], 0.0
    for batch in batches:
        begin = time.perf_counter()
        states = way(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        seconds += time.perf_counter() - begin
        mask = batch["attention_mask"].unsqueeze(-1)
        vectors.append((states * mask).sum(dim=1) / mask.sum(dim=1))
    return seconds, torch.cat(vectors)


def _processor() -> str:
    """RETURNS (str): The processor, and its vector instructions, as far as the system says."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf8") if path.is_file() else ""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    kinds = [kind for kind in ("avx2", "avx512f", "avx512_vnni") if kind in facts.get("flags", "").split()]
    return ", ".join([facts.get("model name", "unknown"), *kinds])


if __name__ == "__main__":
    typer.run(main)

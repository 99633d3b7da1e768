"""Peak memory and time of `spacy elq import` against the size of its inputs (Linux)."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import faiss
import numpy as np
import torch
import typer
from transformers import BertConfig, BertModel, BertTokenizerFast

PATTERNS = {
    "checkpoint": "elq_*.bin",
    "params": "*_params.txt",
    "entities": "entity.jsonl",
    "vectors": "all_entities_*.t7",
    "index": "faiss_hnsw_index.pkl",
}
PIECES = ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "it"]
SMALL = {"vocab_size": 100, "num_hidden_layers": 1, "intermediate_size": 64}
BERT_LARGE = {"vocab_size": 30522, "num_hidden_layers": 24, "intermediate_size": 4096}
MB = 1e6


def main(
    folder: Optional[Path] = typer.Argument(
        None, help="Files of a published model, named as published; without it, files of random numbers"
    ),
    entities: int = typer.Option(200_000, help="How many entities the random files have"),
    width: int = typer.Option(1024, help="Width of their vectors"),
    large: bool = typer.Option(
        False, "--large", help="Encoders of the size of BERT-large, not of one small layer"
    ),
) -> None:
    """Import a model and print what that took."""
    with tempfile.TemporaryDirectory(prefix="spacy-elq-") as name:
        work = Path(name)
        if folder is None:
            folder = work / "files"
            write_files(folder, entities, width, BERT_LARGE if large else SMALL)
        files = {key: next(folder.glob(pattern)) for key, pattern in PATTERNS.items()}
        options = [x for key in list(files)[1:] for x in (f"--{key}", str(files[key]))]
        command = ["-m", "spacy", "elq", "import", str(files["checkpoint"]), str(work / "pipeline"), *options]
        for what, arguments in {"nothing": [*command[:4], "--help"], "import": command}.items():
            seconds, peaks = run([sys.executable, *arguments])
            sizes = ", ".join(f"{key} {peak / MB:.0f} MB" for key, peak in peaks.items())
            typer.echo(f"{what}: {seconds:.0f} s, {sizes}")
        typer.echo(", ".join(f"{key} {path.stat().st_size / MB:.1f} MB" for key, path in files.items()))


def run(command: List[str]) -> Tuple[float, Dict[str, int]]:
    """Run a command to its end.

    RETURNS (Tuple[float, Dict[str, int]]): Seconds, and peaks in bytes: "VmHWM", all that was resident, pages
        of mapped files among it, and "RssAnon", what the system cannot take back.
    """
    begin = time.perf_counter()
    peaks = {"VmHWM": 0, "RssAnon": 0}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # not `getrusage`, which counts this process as it was when the other was forked off
    while process.poll() is None:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key in peaks:
                peaks[key] = max(peaks[key], int(value.split()[0]) * 1024)
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(f"This failed: {' '.join(command)}")
    return time.perf_counter() - begin, peaks


def write_files(folder: Path, entities: int, width: int, size: Dict[str, int]) -> None:
    """Write files in the layout of a published model, with random numbers in them.

    size (Dict[str, int]): Settings of the two encoders.
    """
    bert = folder / "bert"
    bert.mkdir(parents=True)
    pieces = [*PIECES, *(f"[unused{i}]" for i in range(3, size["vocab_size"] - len(PIECES) + 3))]
    (bert / "vocab.txt").write_text("\n".join(pieces) + "\n")
    BertTokenizerFast(vocab_file=str(bert / "vocab.txt"), model_max_length=512).save_pretrained(bert)
    config = BertConfig(hidden_size=width, num_attention_heads=width // 64, **size)
    config.save_pretrained(bert)
    head = "classification_heads.mention_scores.bound_classifier"
    state: Dict[str, torch.Tensor] = {f"{head}.weight": torch.zeros(3, width), f"{head}.bias": torch.zeros(3)}
    for encoder in ("context_encoder", "cand_encoder"):
        weights = BertModel(config).state_dict()
        state.update({f"{encoder}.bert_model.{key}": value for key, value in weights.items()})
    torch.save(state, folder / "elq_random.bin")
    (folder / "elq_random_params.txt").write_text(repr({"bert_model": "bert"}))
    with (folder / "entity.jsonl").open("w") as file_:
        for i in range(entities):
            line = {"text": " " + "A thing like others. " * 20, "idx": f"https://x.org/wiki?curid={i}"}
            file_.write(json.dumps({**line, "title": f"Entity {i}", "entity": f"Entity {i}"}) + "\n")
    vectors = np.random.default_rng(0).standard_normal((entities, width), dtype="float32")
    torch.save(torch.from_numpy(vectors), folder / "all_entities_random.t7")
    # few neighbours, found carelessly: the vectors in the file are what it is large by
    index = faiss.IndexHNSWFlat(width, 8, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 8
    index.add(vectors)
    faiss.write_index(index, str(folder / "faiss_hnsw_index.pkl"))


if __name__ == "__main__":
    typer.run(main)

"""The figures of docs/performance.md: `bench` measures a pipeline and its int8 twin, `engines` the ways to
run an encoder, into docs/performance.json, beside the tables of `scripts/index_table.py`; `write` makes the
page of it.
"""

import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List, Optional, Tuple

import spacy
import srsly
import torch
import typer
from spacy.tokens import DocBin
from torch.ao.quantization import quantize_dynamic
from transformers import AutoModel, AutoTokenizer

from spacy_elq import util as threads
from spacy_elq.evaluation.metrics import evaluate
from spacy_elq.evaluation.speed import STAGES, bench_in_turn
from spacy_elq.model.onnx import OnnxTransformer, to_onnx

app = typer.Typer(help=__doc__, no_args_is_help=True)
FIGURES, PAGE = Path("docs/performance.json"), Path("docs/performance.md")
PRECISIONS = ("float32", "int8")
# the pipeline whose figures are the goals of the project
REAL = "real"
NAMES = {
    "readme": "the README's pipeline",
    REAL: "the real-data pipeline",
}
GOALS = {
    "overhead_batch_1": "whole pipeline / bare forward pass, batch 1 (goal: at most 1.35)",
    "overhead_batch_64": "whole pipeline / bare forward pass, batch 64 (goal: at most 1.25)",
    "int8_speedup_batch_1": "questions a second, int8 / float32, batch 1 (goal: at least 1.5)",
    "int8_speedup_batch_64": "questions a second, int8 / float32, batch 64 (goal: at least 1.5)",
    "int8_f_loss": "weak F1 lost by int8, in points (goal: at most 0.5)",
}
INDEX_GOALS = {
    "recall_at_10": "recall@10 of the default back end, {entities:,} entities (goal: at least 0.99)",
    "share_of_vectors": "its resident memory / that of the vectors (goal: at most 0.20)",
    "f_loss": "weak F1 lost against exact search, in points (goal: at most 0.3)",
    "load_seconds": "seconds to load it (goal: under 3)",
}
LARGE_GOALS = {
    "recall_at_10": "recall@10 of the default back end, {entities:,} entities",
    "resident_mb": "its resident memory in MB (goal: under 3,000)",
}
INDEX_COLUMNS = {
    "factory": "factory string",
    "widths": "settings",
    "entities": "entities",
    "width": "width",
    "encoder": "encoder",
    "recall_at_10": "recall@10",
    "weak_f": "weak F1",
    "queries_per_second": "queries/s",
    "resident_mb": "resident MB",
    "share_of_vectors": "of the vectors",
    "disk_mb": "disk MB",
    "load_seconds": "load s",
    "build_seconds": "build s",
}
SHARING_COLUMNS = {
    "how": "how",
    "processes": "processes",
    "entities": "entities",
    "rss_mb": "resident MB each",
    "pss_mb": "proportional MB each",
}
_TEXTS = {
    "head": """Every figure here was written by `scripts/performance.py` from `docs/performance.json`; the
commands are the workflow `performance` of `project.yml` (`python -m spacy project run performance`), after
`all` and `paper`.""",
    "bench": """Medians over repeats, on the test questions. *forward*: the bare forward pass of the same
encoder over the word pieces of the same batches, padded to the longest of each, measured in turn with the
pipeline; *ratio*: whole pipeline / forward. In batches the pipeline runs texts of similar length together,
which is quicker than the yardstick. Times are milliseconds a question. float32 and int8 take turns in one
run; peak memory and load time are those of a process of its own. The larger the encoder, the smaller what is
around it: the real-data pipeline has gte-small (33 M parameters), the README's all-MiniLM-L6-v2 (22 M).""",
    "engines": """The bare forward pass of {encoder} over word pieces of the test questions, by the ways to
run it on a CPU, in turn (`scripts/performance.py engines`). *speed*: questions a second beside those of torch
in float32, the median over the repeats; *cosine*: of the mean vectors of questions with those of torch in
float32, mean and least. The processor: {processor}.""",
    "lengths": """One doc of so many tokens, questions in a row: if the cost is linear, tokens a second stay
the same from the first doc on that fills a window of the encoder. And so many questions in a stream, in
batches: if it is linear, questions a second stay the same.""",
    "index": """Each back end in a process of its own, one thread, one query at a time
(`scripts/index_table.py measure`). *recall@10*: against exact search; *weak F1*: of the real-data pipeline
with this index; *resident*: what the process has more in memory after 1,000 searches and look-ups, *of the
vectors*: in proportion to the float32 vectors. The default of each size is marked *.""",
    "synthetic": """Vectors and queries drawn at random, with the spectrum, clusters and angles of the real
ones of *encoder* (`scripts/index_table.py synthesize`).""",
    "sharing": """What processes have of the mapped files of an index: *resident* counts shared pages for each
of them, *proportional* divides each page by the processes that share it (`scripts/index_table.py share`).""",
}


@app.command()
def bench(
    pipeline: str = typer.Argument(..., help="Trained pipeline, with its threshold"),
    int8: str = typer.Argument(..., help="What `spacy elq quantize` made of it, with its own threshold"),
    questions: Path = typer.Argument(..., help="Test questions (.spacy)"),
    name: str = typer.Option(..., help=f"One of {', '.join(NAMES)}"),
    batch_sizes: str = typer.Option("1,8,64", help="Batch sizes to try"),
    lengths: str = typer.Option("10,100,300,1000,3000,5000", help="Docs of so many tokens"),
    counts: str = typer.Option("100,400,1600", help="Streams of so many questions, in the largest batches"),
    n_threads: int = typer.Option(1, "--threads", min=1, help="Threads"),
    limit: int = typer.Option(500, min=1, help="How many of the questions are measured for speed"),
    repeats: int = typer.Option(5, min=1, help="Runs, of which the median counts"),
) -> None:
    """Measure both pipelines in turn and put their figures into docs/performance.json in the place of earlier
    ones.
    """
    if name not in NAMES:
        raise typer.BadParameter(f"Expected one of {', '.join(NAMES)}.", param_hint="--name")
    pipelines = [pipeline, int8]
    sizes = [int(size) for size in batch_sizes.split(",")]
    runs = bench_in_turn(pipelines, questions, sizes, n_threads=n_threads, limit=limit, repeats=repeats)
    streams = [
        bench_in_turn(pipelines, questions, [max(sizes)], n_threads=n_threads, limit=int(count))
        for count in counts.split(",")
    ]
    rows = []
    for i, (path, precision) in enumerate(zip(pipelines, PRECISIONS, strict=True)):
        alone = _bench_alone(path, questions, lengths, ["-t", str(n_threads), "-n", str(limit)])
        row = {"name": name, "precision": precision, "weak_f": _weak_f(path, questions)}
        own = [
            {key: stream[i][0][key] for key in ("questions", "questions_per_second")} for stream in streams
        ]
        # streams longer than the set are all of it, once
        counted = list({stream["questions"]: stream for stream in own}.values())
        rows.append({**row, **alone, "repeats": repeats, "runs": runs[i], "counts": counted})
    _store(name, rows)


@app.command()
def engines(
    encoder: str = typer.Argument(..., help="Folder or hub name of the encoder"),
    questions: Path = typer.Argument(..., help="Test questions (.spacy)"),
    batch_sizes: str = typer.Option("1,64", help="Batch sizes to try"),
    n_threads: int = typer.Option(1, "--threads", min=1, help="Threads"),
    limit: int = typer.Option(320, min=1, help="How many of the questions"),
    repeats: int = typer.Option(5, min=1, help="Runs, of which the median counts"),
) -> None:
    """Run an encoder by torch and by ONNX Runtime, in float32 and in int8, and put what each gives and takes
    into docs/performance.json.
    """
    threads.set_threads(n_threads)
    docs = DocBin().from_disk(questions).get_docs(spacy.blank("en").vocab)
    texts, tokenizer = (
        [doc.text for doc in itertools.islice(docs, limit)],
        AutoTokenizer.from_pretrained(encoder),
    )
    ways = _build_engines(encoder)
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
    _update({"engines": rows, "engines_encoder": Path(encoder).name, "processor": _processor()})


def _build_engines(encoder: str) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): The encoder as each engine runs it, torch in float32 first."""
    model = AutoModel.from_pretrained(encoder).eval()
    graphs = {precision: to_onnx(model, precision=precision) for precision in PRECISIONS}
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
    """RETURNS (str): The processor, and what it has for integers and floats, as far as the system says."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf8") if path.is_file() else ""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    kinds = [kind for kind in ("avx2", "avx512f", "avx512_vnni") if kind in facts.get("flags", "").split()]
    return ", ".join([facts.get("model name", "unknown"), *kinds])


def _bench_alone(pipeline: str, questions: Path, lengths: str, settings: List[str]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): Load time, peak memory and the cost by length, in a process of its own."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "spacy", "elq", "bench", pipeline, str(questions), str(path)]
        command += ["-b", "1", "-r", "3", "-l", lengths, *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        figures = srsly.read_json(path)
    return {key: figures[key] for key in figures if key != "runs"}


def _weak_f(pipeline: str, questions: Path) -> float:
    with TemporaryDirectory() as folder:
        return evaluate(pipeline, questions, Path(folder) / "metrics.json")["weak"]["f"]


def _store(name: str, rows: List[Dict[str, Any]]) -> None:
    # what no command makes any more goes
    kept = [row for row in _read().get("pipelines", []) if row["name"] in NAMES]
    others = [row for row in kept if row["name"] != name]
    pipelines = sorted([*others, *rows], key=lambda row: list(NAMES).index(row["name"]))
    _update({"pipelines": pipelines, **(summarize(*rows) if name == REAL else {})})


def _update(figures: Dict[str, Any]) -> None:
    """Put figures into docs/performance.json, in the place of earlier ones."""
    data = {**_read(), **figures}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf8")


def summarize(plain: Dict[str, Any], quantized: Dict[str, Any]) -> Dict[str, Optional[float]]:
    """RETURNS (Dict[str, Optional[float]]): The figures of `GOALS`, from the rows of both precisions; None
    where the batch size was not measured.
    """
    speeds = [
        {run["batch_size"]: run["questions_per_second"] for run in row["runs"]} for row in (plain, quantized)
    ]
    ratios = {run["batch_size"]: run["ratio"] for run in plain["runs"]}
    found: Dict[str, Optional[float]] = {}
    for size in (1, 64):
        is_known = size in ratios
        found[f"overhead_batch_{size}"] = round(ratios[size], 3) if is_known else None
        speedup = speeds[1][size] / speeds[0][size] if is_known else None
        found[f"int8_speedup_batch_{size}"] = None if speedup is None else round(speedup, 3)
    found["int8_f_loss"] = round(100 * (plain["weak_f"] - quantized["weak_f"]), 2)
    return found


@app.command()
def write() -> None:
    """Write docs/performance.md."""
    data = _read()
    pipelines, index = data.get("pipelines", []), data.get("index", [])
    header = ("pipeline", "precision", "batch", "questions/s", "forward", "ratio", *STAGES)
    real = [row for row in index if row["vectors"] == "real"]
    synthetic = [row for row in index if row not in real]
    parts = [
        "# Performance",
        _TEXTS["head"],
        "## Goals, on the real-data pipeline",
        _table(("", "measured"), [(text, _show(data.get(key))) for key, text in GOALS.items()]),
        "## Goals, on the index",
        _table(("", "measured"), _index_goals(real) + _index_goals(synthetic, LARGE_GOALS)),
        "## Speed",
        _TEXTS["bench"],
        _table(header, [line for row in pipelines for line in _run_rows(row)]),
        _table(
            ("pipeline", "precision", "entities", "weak F1", "load s", "peak MB", "threads"),
            [_pipeline_row(row) for row in pipelines],
        ),
        "## Engines",
        _TEXTS["engines"].format(
            encoder=data.get("engines_encoder", "one encoder"),
            processor=data.get("processor", "not measured yet"),
        ),
        _table(("engine", "speed, batch 1", "speed, batch 64", "cosine", "least cosine"), _engine_rows(data)),
        "## Cost by length and number",
        _TEXTS["lengths"],
        _table(("pipeline", "precision", "tokens", "tokens/s"), _curve(pipelines, "lengths", "tokens")),
        _table(
            ("pipeline", "precision", "questions", "questions/s"), _curve(pipelines, "counts", "questions")
        ),
        "## Index",
        _TEXTS["index"],
        _table(tuple(INDEX_COLUMNS.values()), _index_rows(real)),
        "## 5.9 million entities of width 1,024",
        _TEXTS["synthetic"],
        _table(tuple(INDEX_COLUMNS.values()), _index_rows(synthetic)),
        "## Processes share an index",
        _TEXTS["sharing"],
        _table(tuple(SHARING_COLUMNS.values()), _columns(SHARING_COLUMNS, data.get("index_sharing", []))),
    ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf8")


def _index_goals(rows: List[Dict[str, Any]], goals: Dict[str, str] = INDEX_GOALS) -> List[Tuple[str, ...]]:
    """RETURNS (List[Tuple[str, ...]]): What was measured of the default back ends, beside exact search."""
    exact = {(row["entities"], row.get("encoder")): row["weak_f"] for row in rows if row["factory"] == "Flat"}
    lines: List[Tuple[str, ...]] = []
    for row in rows:
        if row["default"]:
            best = exact.get((row["entities"], row.get("encoder")))
            loss = None if best is None else 100 * (best - row["weak_f"])
            found = {**row, "f_loss": loss}
            lines += [
                (text.format(**row), _show(found[key], digits=0 if key == "resident_mb" else 4))
                for key, text in goals.items()
            ]
    return lines


def _run_rows(row: Dict[str, Any]) -> List[Tuple[str, ...]]:
    return [
        (
            NAMES[row["name"]],
            row["precision"],
            str(run["batch_size"]),
            f"{run['questions_per_second']:.1f}",
            _show(run["forward"], scale=1000),
            _show(run["ratio"]),
            *(_show(run["seconds"][stage], scale=1000) for stage in STAGES),
        )
        for run in row["runs"]
    ]


def _pipeline_row(row: Dict[str, Any]) -> Tuple[str, ...]:
    figures = [f"{row['entities']:,}", f"{100 * row['weak_f']:.1f}", f"{row['load_seconds']:.1f}"]
    peak = _show(row["peak_mb"], digits=0)
    return (NAMES[row["name"]], row["precision"], *figures, peak, str(row["threads"]))


def _curve(rows: List[Dict[str, Any]], key: str, unit: str) -> List[Tuple[str, ...]]:
    return [
        (NAMES[row["name"]], row["precision"], f"{own[unit]:,}", f"{own[f'{unit}_per_second']:,.0f}")
        for row in rows
        for own in row[key]
    ]


def _engine_rows(data: Dict[str, Any]) -> List[Tuple[str, ...]]:
    return [
        (
            row["engine"],
            *(_show(row["speed"].get(size)) for size in ("1", "64")),
            *(_show(row[key], digits=4) for key in ("cosine", "least_cosine")),
        )
        for row in data.get("engines", [])
    ]


def _index_rows(rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    shown = [{**row, "factory": f"`{row['factory']}`{' *' if row.get('default') else ''}"} for row in rows]
    return _columns(INDEX_COLUMNS, shown)


def _columns(columns: Dict[str, str], rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    return [tuple("" if row.get(key) is None else str(row[key]) for key in columns) for row in rows]


def _show(value: Optional[float], *, scale: float = 1.0, digits: int = 2) -> str:
    return "not measured" if value is None else f"{scale * value:.{digits}f}"


def _table(header: Tuple[str, ...], rows: List[Tuple[str, ...]]) -> str:
    if not rows:
        return "Not measured yet."
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _read() -> Dict[str, Any]:
    return json.loads(FIGURES.read_text(encoding="utf8")) if FIGURES.is_file() else {}


if __name__ == "__main__":
    app()

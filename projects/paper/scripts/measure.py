"""Measure pipelines: choose thresholds on development sets, evaluate, and write a file for each run to
`results`. `scripts/tables.py` makes the page of them.
"""

import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

import spacy
import srsly
import typer
from runs import DEVS, MAIN, RESULTS, SETTINGS, TESTS, Row, write_run

from spacy_elq.evaluation import (
    bench_in_turn,
    choose_thresholds,
    evaluate,
    load_pipeline,
    save_pipeline,
    write_html,
)
from spacy_elq.pipeline.scorer import METRICS
from spacy_elq.pipeline.settings import update_settings

app = typer.Typer(help=__doc__, no_args_is_help=True)
WIKIPEDIA = "https://en.wikipedia.org/wiki/{}"
_WORK = typer.Option(Path("work"), help="Folder with `corpus`; tuned pipelines, metrics and pages go there")
_RESULTS = typer.Option(RESULTS, help="Folder of the result files")


@app.command()
def setting(
    pipeline: Path = typer.Argument(..., help="Trained pipeline"),
    name: str = typer.Argument(..., help=f"How it was trained: {', '.join(SETTINGS)}"),
    work: Path = _WORK,
    results: Path = _RESULTS,
    seed: int = typer.Option(0, help="Seed of the training"),
    index: Optional[Path] = typer.Option(None, help="Another index made with the same encoder"),
) -> None:
    """Evaluate on both test sets, each with thresholds chosen on its own development set.

    GraphQuestions_EL is also evaluated with the thresholds of WebQSP_EL.
    """
    corpus, tuned = work / "corpus", {}
    for test in TESTS:
        tuned[test] = work / "models" / f"{name}-{seed}-{test}{index.name if index else ''}"
        dev = corpus / f"{test}_dev.spacy"
        choose_thresholds(
            str(pipeline), dev, output=tuned[test], index_path=index, first=True, calibrate=False
        )
    ((speed,),) = bench_in_turn([str(tuned["webqsp_el"])], corpus / "webqsp_el_test.spacy", [1])
    tests = []
    for test, source in [(test, test) for test in TESTS] + [("graphquestions_el", "webqsp_el")]:
        data_path, train = corpus / f"{test}_test.spacy", corpus / "webqsp_el_train.spacy"
        metrics_path = work / "metrics" / f"{tuned[source].name}-on-{test}.json"
        metrics = evaluate(str(tuned[source]), data_path, metrics_path, train=train)
        write_html(metrics_path, data_path, metrics_path.with_suffix(".html"), kb_url=WIKIPEDIA)
        tests.append({"test": test, "threshold_from": f"{source}_dev", **_figures(metrics)})
        if (name, seed, source) == (MAIN, 0, test):
            tests[-1]["examples"] = _examples(metrics)
    run = {"setting": name, "seed": seed, "parameters": _count_parameters(pipeline), **_speed(speed)}
    entities = metrics["entities"]
    file_name = f"{name}-{seed}-{run['parameters']}m-{entities}"
    write_run(results, "settings", file_name, {**run, "entities": entities, "tests": tests})


@app.command()
def ablation(
    pipeline: Path = typer.Argument(..., help="Trained pipeline"),
    name: str = typer.Argument(..., help="What is left out or put in"),
    work: Path = _WORK,
    results: Path = _RESULTS,
    first: bool = typer.Option(True, help="Whether the best link of a question has its own threshold"),
    changed: List[str] = typer.Option([], "--set", help="Another value of a setting: prior.temperature=1.0"),
) -> None:
    """Choose the thresholds and evaluate on each of the five development sets."""
    corpus, model = work / "corpus", work / "models" / "ablation"
    if changed:
        nlp, linker = load_pipeline(str(pipeline))
        pairs = [pair.split("=", 1) for pair in changed]
        update_settings(nlp, linker.name, {key: srsly.json_loads(value) for key, value in pairs})
        save_pipeline(nlp, model)
        pipeline = model
    tests = []
    for test in DEVS:
        dev = corpus / f"{test}_dev.spacy"
        choose_thresholds(str(pipeline), dev, output=model, first=first, calibrate=False)
        metrics = evaluate(str(model), dev, work / "metrics" / "ablation.json")
        tests.append({"test": f"{test}_dev", "threshold_from": f"{test}_dev", **_figures(metrics)})
    run = {"setting": name, "seed": 0, "parameters": _count_parameters(model)}
    entities = metrics["entities"]
    file_name = f"{slug(name)}-{run['parameters']}m-{entities}"
    write_run(results, "ablations", file_name, {**run, "entities": entities, "tests": tests})


@app.command()
def compare(
    elq: Path = typer.Option(..., help="Pipeline with `elq_linker`"),
    blink: Path = typer.Option(..., help="Pipeline with `elq_span_extractor` and `elq_blink`"),
    dictionary: Path = typer.Option(..., help="Dictionary for `elq_tagme`"),
    vcg: Path = typer.Option(..., help="Pipeline with `elq_vcg`"),
    own: Path = typer.Option(..., "--spacy", help="Pipeline with spaCy's `ner` and `entity_linker`"),
    work: Path = _WORK,
    results: Path = _RESULTS,
    seed: int = typer.Option(0, help="Seed of the trainings"),
) -> None:
    """Evaluate ELQ and its baselines on both test sets, with thresholds chosen on their development sets, and
    measure their speed in turn.
    """
    corpus = work / "corpus"
    tagme = _save_tagme(dictionary, work / "models" / "tagme")
    systems = {"elq": elq, "blink": blink, "tagme": tagme, "vcg": vcg, "spacy": own}
    tests: Dict[str, List[Row]] = {system: [] for system in systems}
    for test in TESTS:
        names = [f"comparison-{system}-{seed}-{test}" for system in systems]
        tuned = [
            str(_tune(pipeline, corpus / f"{test}_dev.spacy", work / "models" / name))
            for name, pipeline in zip(names, systems.values(), strict=True)
        ]
        data_path, train = corpus / f"{test}_test.spacy", corpus / "webqsp_el_train.spacy"
        speeds = bench_in_turn(tuned, data_path, [1])
        for system, name, pipeline, (speed,) in zip(systems, names, tuned, speeds, strict=True):
            metrics = evaluate(pipeline, data_path, work / "metrics" / f"{name}.json", train=train)
            row = {"test": test, "threshold_from": f"{test}_dev", "entities": metrics["entities"]}
            tests[system].append({**row, **_figures(metrics), **_speed(speed)})
    for system, path in systems.items():
        run = {"system": system, "seed": seed, "parameters": _count_parameters(path)}
        write_run(results, "comparison", f"{system}-{seed}", {**run, "tests": tests[system]})


@app.command()
def package(
    pipeline: Path = typer.Argument(..., help="The pipeline that will be packaged"),
    trained: Path = typer.Argument(..., help="The pipeline that it was made of, to count its parameters"),
    work: Path = _WORK,
    results: Path = _RESULTS,
    seed: int = typer.Option(0, help="Seed of its training"),
) -> None:
    """Evaluate a pipeline as it is, with its threshold, on both test sets and the five development sets."""
    sets = [*((f"{test}_test", test) for test in TESTS), *((f"{dev}_dev", f"{dev}_dev") for dev in DEVS)]
    tests = []
    for file_name, test in sets:
        metrics_path = work / "metrics" / f"package-{test}.json"
        metrics = evaluate(str(pipeline), work / "corpus" / f"{file_name}.spacy", metrics_path)
        tests.append({"test": test, "entities": metrics["entities"], **_figures(metrics)})
    run = {"setting": MAIN, "seed": seed, "parameters": _count_parameters(trained)}
    write_run(results, "package", f"package-{seed}", {**run, "tests": tests})


def slug(name: str) -> str:
    """RETURNS (str): A name for a file: 'no names, no popularity' is 'no-names-no-popularity'."""
    return re.sub(r"\W+", "-", name.lower()).strip("-")


def _figures(metrics: Dict[str, Any]) -> Row:
    """RETURNS (Row): What the tables show of the metrics of an evaluation."""
    return {
        **{name: round(metrics[name]["f"], 4) for name in METRICS},
        "weak_p": round(metrics["weak"]["p"], 4),
        "weak_r": round(metrics["weak"]["r"], 4),
        "candidates_recall": round(metrics["candidates_recall"], 4),
        **{
            f"weak_{group}": round(metrics[group]["weak"]["f"], 4)
            for group in ("unseen", "described")
            if group in metrics
        },
        "threshold": metrics["threshold"] and round(metrics["threshold"], 4),
        "first_threshold": metrics["first_threshold"] and round(metrics["first_threshold"], 4),
        "commit": _commit(),
        "errors": {kind: len(records) for kind, records in metrics["errors"].items()},
    }


def _examples(metrics: Dict[str, Any]) -> Dict[str, List[Dict[str, str]]]:
    """RETURNS: A few errors of each kind: names are facts, the questions themselves are not published."""
    keys = ("mention", "gold", "found")
    return {
        kind: [{key: record[key] for key in keys} for record in records[::9][:6]]
        for kind, records in metrics["errors"].items()
    }


def _speed(run: Dict[str, Any]) -> Row:
    """RETURNS (Row): The speed, and the seconds by the paper's stages."""
    seconds = {stage: run["seconds"][stage] for stage in ("tokenizer", "encoder", "search")}
    seconds["rest"] = sum(run["seconds"].values()) - sum(seconds.values())
    return {
        "questions_per_second": round(run["questions_per_second"], 1),
        "seconds": {stage: round(value, 5) for stage, value in seconds.items()},
    }


def _count_parameters(pipeline: Path) -> Optional[int]:
    """RETURNS (Optional[int]): Millions of parameters of the transformer, None without one."""
    nlp = spacy.load(pipeline)
    if "transformer" not in nlp.pipe_names:
        return None
    component: Any = nlp.get_pipe("transformer")
    return sum(x.numel() for x in component.model.transformer.parameters()) // 1_000_000


def _save_tagme(dictionary: Path, output: Path) -> Path:
    nlp = spacy.blank("en")
    # link probabilities below 0.1, the least of TAGME's second version, cost time and change nothing on dev
    config = {"dictionary": str(dictionary.absolute()), "min_link_probability": 0.1}
    nlp.add_pipe("elq_tagme", config=config)
    save_pipeline(nlp, output)
    return output


def _tune(pipeline: Path, dev: Path, output: Path) -> Path:
    """RETURNS (Path): The pipeline with thresholds for the questions of `dev`, or as it is if it has none."""
    if not hasattr(load_pipeline(str(pipeline))[1], "threshold"):
        return pipeline
    choose_thresholds(str(pipeline), dev, output=output, first=True, calibrate=False)
    return output


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    app()

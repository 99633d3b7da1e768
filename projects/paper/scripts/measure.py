"""The figures of docs/results.md: `measure`, `ablation` and `compare` evaluate pipelines into
docs/results.json, `data` counts a question set into docs/data.json, `write` makes the tables of both.
"""

import statistics
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import spacy
import srsly
import typer
from spacy.tokens import DocBin

from spacy_elq.corpora.gold import LOST, gold_spans
from spacy_elq.evaluation.metrics import evaluate
from spacy_elq.evaluation.pipelines import load_pipeline, save_pipeline, set_settings
from spacy_elq.evaluation.report import write_html
from spacy_elq.evaluation.speed import bench_in_turn
from spacy_elq.evaluation.thresholds import choose_thresholds
from spacy_elq.index import EntityIndex
from spacy_elq.pipeline.scorer import METRICS

app = typer.Typer(help=__doc__, no_args_is_help=True)
RESULTS, DATA, PAGE = Path("docs/results.json"), Path("docs/data.json"), Path("docs/results.md")
WIKIPEDIA = "https://en.wikipedia.org/wiki/{}"
KEY = ("system", "setting", "test", "entities", "parameters", "seed", "threshold_from")
TESTS = {"webqsp_el": "WebQSP_EL", "graphquestions_el": "GraphQuestions_EL"}
SETTINGS = {
    "questions": "WebQSP_EL",
    "wikipedia": "Wikipedia",
    "wikipedia_questions": "Wikipedia, then WebQSP_EL",
    "everything": "Wikipedia, then every training file",
}
MAIN = "wikipedia_questions"
# Li et al. 2020, Tables 1, 2, 4 and 6: facts to stand beside ours
PAPER_MAIN = {
    ("questions", "webqsp_el"): (90.0, 85.0, 87.4, 1.56),
    ("questions", "graphquestions_el"): (60.1, 57.2, 58.6, 1.57),
    ("wikipedia", "webqsp_el"): (86.1, 81.8, 83.9, 1.56),
    ("wikipedia", "graphquestions_el"): (69.8, 69.8, 69.8, 1.57),
    ("wikipedia_questions", "webqsp_el"): (91.0, 87.0, 89.0, 1.56),
    ("wikipedia_questions", "graphquestions_el"): (74.7, 66.4, 70.3, 1.57),
}
# what ELQ is compared with, all on one catalogue and trained on WebQSP_EL, but for TAGME
SYSTEMS = {
    "elq": "ELQ: `elq_linker`",
    "blink": "two stages: `elq_span_extractor`, `elq_blink`",
    "tagme": "TAGME: `elq_tagme`",
    "spacy": "spaCy: `ner`, `entity_linker`",
}
COMPARISON = "comparison"
PAPER_SYSTEMS = {
    ("elq", "webqsp_el"): PAPER_MAIN["questions", "webqsp_el"],
    ("elq", "graphquestions_el"): PAPER_MAIN["questions", "graphquestions_el"],
    ("blink", "webqsp_el"): (82.2, 79.4, 80.8, 0.80),
    ("blink", "graphquestions_el"): (65.3, 61.2, 63.2, 0.78),
    ("tagme", "webqsp_el"): (53.1, 27.3, 36.1, 2.39),
    ("tagme", "graphquestions_el"): (49.6, 36.5, 42.0, 3.16),
}
PAPER_SECONDS = {"encoder": 0.683, "search": 0.107, "rest": 0.00508}
PAPER_DATA = {
    "webqsp_el_test": (1603, 1806),
    "graphquestions_el_test": (2075, 2229),
}
ERRORS = {
    "missed": "missed mentions",
    "wrong": "wrong entities",
    "specific": "more or less specific",
    "extra": "extra mentions",
}
ABLATED = {"weak": "weak F1", "mentions": "mentions", "links": "links", "candidates_recall": "gold in 10"}
_TEXTS = {
    "head": """Every figure here was written by `scripts/results.py` from what `spacy elq evaluate` and
`spacy elq bench` measured (`docs/results.json`, `docs/data.json`); the commands are those of `project.yml`:
the workflows `paper` and `comparison`, and `paper-large`, `paper-everything`, `paper-ablations` and
`paper-ablation-pairs`. The paper's figures stand beside ours in parentheses. Its model is BERT-large (340 M
parameters, once for questions and once for entities) over 5,903,527 entities; ours is gte-small (33 M) or
all-MiniLM-L6-v2 (22 M), as *encoder* says, over the catalogue named in each row: comparable in kind, not in
scale. Gold links whose entity the catalogue does not have count as missed.""",
    "main": """Questions a second: one question at a time on one core, as the paper measures, on another
machine than the paper's, and of the last seed, as are the stages below. *γ from*: the questions that the
thresholds were chosen on, one for the best link of a question and one for the others (`first_threshold`; the
paper has one for all, see the ablations). More than one seed: mean ± standard deviation.""",
    "detail": """In percent. *strong*: entity and boundaries equal; *mentions*: they overlap, whatever
the entity; *links*: gold mentions given (the paper, trained on Wikipedia, on WebQSP_EL dev: 94.6 and
90.2); *gold in 10*: gold is among the ten candidates of its mention, where the catalogue has it;
*unseen*: weak F1 of the questions of whose entities WebQSP_EL train has none; *described*: weak F1 of
those whose gold entities all have a description.""",
    "comparison": """Weak match, mentions only and links only (gold mentions given), in percent; questions a
second: one at a time, on one core, on the questions of the row, all systems in one run of `spacy project run
comparison`. ELQ, the two stages and spaCy's components are trained on WebQSP_EL train, from the same encoder
where they have one; TAGME is not trained, and counts hyperlinks. Thresholds, where a system has any, are
chosen on the development questions of the same set. The paper's BLINK was trained on Wikipedia (its span
extraction model on WebQSP), on a larger scale; its VCG has 74.7 and 39.0.""",
    "ablations": """In percent, the thresholds chosen on the same set. The paper, on WebQSP_EL dev after 20 of
100 epochs on Wikipedia: 87.7 in full, 46.1 without hard negatives, 17.2 also without the pretrained
entity encoder.""",
    "errors": """Counted in links. *more or less specific*: the words of one title contain those of the
other. Examples give mention and titles; the questions themselves are on the pages that `spacy elq report
--html` writes.""",
    "limits": """The catalogue has no paragraph for the entities that were taken into it only because
questions ask for them (*without a description*): all that is known of them is their title. It also has some
things twice, under titles of different years (*Paul of Tarsus* and *Paul the Apostle*), of which gold is one.
Whether common nouns (*university*, *state*) and second mentions are marked differs from question to question.
The development questions of GraphQuestions_EL are about other entities than its test, nearly all of them
names, and tell little about it.

Tried on the development questions of both sets, and left out, as they helped on neither or cost as much on
the other: an exponent on the probability of the entity, other weights of popularity, popularity for entities
that have none, a prior learnt from names by logistic regression, counts of anchors as a prior, a bonus for
the longest name at a place or for part of a name, entities of the same name merged, questions asked about
other entities, the mean of the weights of several models, half the learning rate after Wikipedia. Kept
(see the ablations): names and popularity beside the dense score, a second threshold, a temperature, stage 1,
names only from partly marked sentences, sentences cut to the length of questions, some of them beside the
questions.""",
}


@app.command()
def measure(
    pipeline: Path = typer.Argument(..., help="Trained pipeline"),
    setting: str = typer.Option(..., help=f"How it was trained: {', '.join(SETTINGS)}"),
    corpus: Path = typer.Option(..., help="Folder of the question sets (.spacy)"),
    work: Path = typer.Option(..., help="Folder for pipelines with their thresholds, metrics and pages"),
    seed: int = typer.Option(0, help="The seed of its training"),
    index: Optional[Path] = typer.Option(None, help="Another index of the same encoder"),
) -> None:
    """Choose thresholds on the two development sets, evaluate on the two test sets, put the rows into
    docs/results.json in the place of earlier ones.

    GraphQuestions_EL is evaluated twice: with the threshold of its own development set, as the paper does,
    and with that of WebQSP_EL.
    """
    tuned = {}
    for name in TESTS:
        tuned[name] = work / "models" / f"{setting}-{seed}-{name}{index.name if index else ''}"
        choose_thresholds(str(pipeline), corpus / f"{name}_dev.spacy", output=tuned[name], index_path=index)
    ((speed,),) = bench_in_turn([str(tuned["webqsp_el"])], corpus / "webqsp_el_test.spacy", [1])
    parameters = _count_parameters(pipeline)
    for name, source in [(name, name) for name in TESTS] + [("graphquestions_el", "webqsp_el")]:
        row = {"system": "spacy-elq", "setting": setting, "test": name, "seed": seed}
        row["parameters"] = parameters
        row["threshold_from"] = f"{source}_dev"
        metrics_path = work / "metrics" / f"{tuned[source].name}-on-{name}.json"
        data_path, train = corpus / f"{name}_test.spacy", corpus / "webqsp_el_train.spacy"
        metrics = evaluate(str(tuned[source]), data_path, metrics_path, train=train)
        write_html(metrics_path, data_path, metrics_path.with_suffix(".html"), kb_url=WIKIPEDIA)
        _put({**row, **_figures(metrics), **_speed(speed)})


@app.command()
def ablation(
    pipeline: Path = typer.Argument(..., help="Trained pipeline"),
    name: str = typer.Argument(..., help="What is left out or put in"),
    corpus: Path = typer.Option(..., help="Folder of the question sets (.spacy)"),
    work: Path = typer.Option(..., help="Folder for the pipeline with its thresholds, and metrics"),
    first: bool = typer.Option(True, help="Whether the best link of a question has its own threshold"),
    changed: List[str] = typer.Option([], "--set", help="Another value of a setting: temperature=1.0"),
) -> None:
    """Choose the thresholds and evaluate on each development set, put the rows into docs/results.json."""
    model = work / "models" / "ablation"
    if changed:
        nlp, linker = load_pipeline(str(pipeline))
        pairs = [setting.split("=", 1) for setting in changed]
        set_settings(nlp, linker, **{name: srsly.json_loads(value) for name, value in pairs})
        save_pipeline(nlp, model)
        pipeline = model
    for test in TESTS:
        dev = corpus / f"{test}_dev.spacy"
        choose_thresholds(str(pipeline), dev, output=model, first=first)
        metrics = evaluate(str(model), dev, work / "metrics" / "ablation.json")
        row = {"system": "spacy-elq", "setting": name, "test": f"{test}_dev", "seed": 0}
        row["parameters"] = _count_parameters(model)
        _put({**row, "threshold_from": f"{test}_dev", **_figures(metrics), "questions_per_second": None})


@app.command()
def compare(
    elq: Path = typer.Option(..., help="Pipeline with `elq_linker`"),
    blink: Path = typer.Option(..., help="Pipeline with `elq_span_extractor` and `elq_blink`"),
    dictionary: Path = typer.Option(..., help="Dictionary for `elq_tagme`"),
    own: Path = typer.Option(..., "--spacy", help="Pipeline with spaCy's `ner` and `entity_linker`"),
    corpus: Path = typer.Option(..., help="Folder of the question sets (.spacy)"),
    work: Path = typer.Option(..., help="Folder for pipelines with their thresholds, and metrics"),
    seed: int = typer.Option(0, help="The seed of the trainings"),
) -> None:
    """Evaluate ELQ and what it is compared with on the two test sets, with the thresholds of their
    development sets, and measure their speed in turn; put the rows into docs/results.json in the place of
    earlier ones.
    """
    tagme = work / "models" / "tagme"
    _save_tagme(dictionary, tagme)
    systems = {"elq": elq, "blink": blink, "tagme": tagme, "spacy": own}
    for test in TESTS:
        names = [f"{COMPARISON}-{system}-{seed}-{test}" for system in systems]
        tuned = [
            str(_tune(pipeline, corpus / f"{test}_dev.spacy", work / "models" / name))
            for name, pipeline in zip(names, systems.values(), strict=True)
        ]
        data_path, train = corpus / f"{test}_test.spacy", corpus / "webqsp_el_train.spacy"
        speeds = bench_in_turn(tuned, data_path, [1])
        for system, name, pipeline, (speed,) in zip(systems, names, tuned, speeds, strict=True):
            metrics = evaluate(pipeline, data_path, work / "metrics" / f"{name}.json", train=train)
            row = {"system": system, "setting": COMPARISON, "test": test, "seed": seed}
            row["parameters"] = _count_parameters(Path(pipeline))
            _put({**row, "threshold_from": f"{test}_dev", **_figures(metrics), **_speed(speed)})


def _count_parameters(pipeline: Path) -> Optional[int]:
    """RETURNS (Optional[int]): Millions of parameters of the transformer, None without one."""
    nlp = spacy.load(pipeline)
    if "transformer" not in nlp.pipe_names:
        return None
    component: Any = nlp.get_pipe("transformer")
    return sum(x.numel() for x in component.model.transformer.parameters()) // 1_000_000


def _save_tagme(dictionary: Path, output: Path) -> None:
    nlp = spacy.blank("en")
    # link probabilities below 0.1, the least of TAGME's second version, cost time and change nothing on dev
    config = {"dictionary": str(dictionary.absolute()), "min_link_probability": 0.1}
    nlp.add_pipe("elq_tagme", config=config)
    save_pipeline(nlp, output)


def _tune(pipeline: Path, dev: Path, output: Path) -> Path:
    """RETURNS (Path): The pipeline with thresholds for the questions of `dev`, or as it is if it has none."""
    if "threshold" not in load_pipeline(str(pipeline))[1].cfg:
        return pipeline
    choose_thresholds(str(pipeline), dev, output=output)
    return output


@app.command()
def data(
    corpus_path: Path = typer.Argument(..., help="A question set (.spacy), or a folder of them"),
    index_path: Path = typer.Argument(..., help="The index whose catalogue is looked at"),
    name: str = typer.Option(..., help="Name of the question set"),
) -> None:
    """Count a question set into docs/data.json."""
    index, nlp = EntityIndex.open(index_path), spacy.blank("en")
    files = sorted(corpus_path.rglob("*.spacy")) if corpus_path.is_dir() else [corpus_path]
    questions = lost = 0
    ids: List[str] = []
    for path in files:
        for doc in DocBin().from_disk(path).get_docs(nlp.vocab):
            questions += 1
            lost += int(doc.user_data.get(LOST, 0))
            ids += [span.kb_id_ for span in gold_spans(doc)]
    positions = index.positions(ids)
    described = [bool(index.entity(int(p)).description) for p in positions if p >= 0]
    row = {
        "name": name,
        "questions": questions,
        "links": len(ids) + lost,
        "lost": lost,
        "entities": len(set(ids)),
        "known": len(described),
        "described": sum(described),
    }
    rows = [old for old in _read(DATA) if old["name"] != name]
    _write_json(DATA, sorted([*rows, row], key=lambda r: str(r["name"])))


@app.command()
def write() -> None:
    """Write docs/results.md."""
    rows = _read(RESULTS)
    header = ("trained on", "encoder", "test", "entities")
    parts = [
        "# Results",
        _TEXTS["head"],
        "## Table 1: data",
        _table(("set", "questions", "gold links", "(paper)", "entities", "in the catalogue"), _data_rows()),
        "## Table 2: weak match, in percent",
        _table((*header, "P", "R", "F1", "questions/s", "γ from", "seeds"), _main_rows(rows)),
        _TEXTS["main"],
        "## ELQ beside its baselines",
        _table(
            ("system", *header[1:], "P", "R", "F1", "mentions", "links", "questions/s", "seeds"),
            _comparison_rows(rows),
        ),
        _TEXTS["comparison"],
        _compared(rows),
        "## Mentions only, links only, candidates, unseen entities",
        _table(
            (*header, "strong", "mentions", "links", "gold in 10", "unseen", "described"),
            _detail_rows(rows),
        ),
        _TEXTS["detail"],
        "## Run time by stage, milliseconds a question, one core, one question at a time",
        _table(
            ("trained on", "parameters", "entities", "tokenizer", "encoder", "search", "rest"),
            _time_rows(rows),
        ),
        "## Ablations (WebQSP_EL dev, GraphQuestions_EL dev)",
        _table(
            ("what", *header[1::2], *(f"{test}: {x}" for test in ("W", "G") for x in ABLATED.values())),
            _ablation_rows(rows),
        ),
        _TEXTS["ablations"],
        "## Errors",
        _table((*header, *ERRORS.values()), _error_rows(rows)),
        _TEXTS["errors"],
        *_examples(rows),
        "## What limits it",
        _limits(rows),
        _TEXTS["limits"],
    ]
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf8")


def _figures(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """RETURNS (Dict[str, Any]): What a row takes from the metrics of an evaluation."""
    errors: Dict[str, List[Dict[str, str]]] = metrics["errors"]
    return {
        "entities": metrics["entities"],
        **{name: round(metrics[name]["f"], 4) for name in METRICS},
        "weak_p": round(metrics["weak"]["p"], 4),
        "weak_r": round(metrics["weak"]["r"], 4),
        "candidates_recall": round(metrics["candidates_recall"], 4),
        **{f"weak_{name}": round(metrics[name]["weak"]["f"], 4) for name in _groups(metrics)},
        "threshold": metrics["threshold"] and round(metrics["threshold"], 4),
        "first_threshold": metrics["first_threshold"] and round(metrics["first_threshold"], 4),
        "commit": _commit(),
        "errors": {kind: len(records) for kind, records in errors.items()},
        "examples": {kind: [_example(record) for record in errors[kind][::9][:6]] for kind in errors},
    }


def _speed(run: Dict[str, Any]) -> Dict[str, Any]:
    # by the paper's stages
    seconds = {stage: run["seconds"][stage] for stage in ("tokenizer", "encoder", "search")}
    seconds["rest"] = sum(run["seconds"].values()) - sum(seconds.values())
    return {
        "questions_per_second": round(run["questions_per_second"], 1),
        "seconds": {stage: round(value, 5) for stage, value in seconds.items()},
    }


def _put(row: Dict[str, Any]) -> None:
    """Write a row, in the place of an earlier one of the same kind."""
    rows = [old for old in _read(RESULTS) if any(old.get(key) != row[key] for key in KEY)]
    _write_json(RESULTS, sorted([*rows, row], key=lambda r: [str(r.get(key)) for key in KEY]))


def _groups(metrics: Dict[str, Any]) -> List[str]:
    return [name for name in ("unseen", "described") if name in metrics]


def _example(record: Dict[str, str]) -> Dict[str, str]:
    # names are facts; the questions themselves stay where they are
    return {key: record[key] for key in ("mention", "gold", "found")}


def _is_main(row: Dict[str, Any]) -> bool:
    return row["setting"] in SETTINGS and row["test"] in TESTS


def _grouped(rows: List[Dict[str, Any]]) -> List[Tuple[Tuple[str, ...], List[Dict[str, Any]]]]:
    """RETURNS: The rows of Table 2 by setting, encoder, test, entities and where the thresholds are from, in
    the order of the settings, the larger encoder first.
    """
    groups: Dict[Any, List[Dict[str, Any]]] = {}
    for row in filter(_is_main, rows):
        key = (row["setting"], _encoder(row), row["test"], row["entities"], row["threshold_from"])
        groups.setdefault(key, []).append(row)
    order = list(SETTINGS)

    def place(item: Any) -> Any:
        (setting, _, test, entities, source), (row, *_) = item
        return order.index(setting), -(row.get("parameters") or 0), -len(test), entities, source

    return sorted(groups.items(), key=place)


def _encoder(row: Dict[str, Any]) -> str:
    return f"{row['parameters']} M" if row.get("parameters") else ""


def _mean(rows: List[Dict[str, Any]], key: str, scale: float = 100.0) -> str:
    values = [scale * row[key] for row in rows if row.get(key) is not None]
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def _main_rows(rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    table = []
    for (setting, encoder, test, entities, source), group in _grouped(rows):
        paper = PAPER_MAIN.get((setting, test), ())
        shown = [_mean(group, key) for key in ("weak_p", "weak_r", "weak")]
        speed = _mean(group[-1:], "questions_per_second", 1.0)
        beside = [f" ({x})" for x in paper] or [""] * 4
        table.append(
            (
                SETTINGS[setting],
                encoder,
                TESTS[test],
                f"{entities:,}",
                *(f"{x}{y}" for x, y in zip([*shown, speed], beside, strict=True)),
                source,
                str(len(group)),
            )
        )
    return table


def _compared_groups(rows: List[Dict[str, Any]]) -> Dict[Tuple[str, str], List[Dict[str, Any]]]:
    """RETURNS: The rows of the comparison by test and system, a seed each."""
    groups: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
    for test in TESTS:
        for system in SYSTEMS:
            own = [r for r in rows if (r["system"], r["setting"], r["test"]) == (system, COMPARISON, test)]
            if own:
                groups[test, system] = own
    return groups


def _comparison_rows(rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    table = []
    for (test, system), group in _compared_groups(rows).items():
        shown = [_mean(group, key) for key in ("weak_p", "weak_r", "weak")]
        speed = _mean(group, "questions_per_second", 1.0)
        beside = [f" ({x})" for x in PAPER_SYSTEMS.get((system, test), ())] or [""] * 4
        weak = [f"{x}{y}" for x, y in zip(shown, beside[:3], strict=True)]
        details = [_mean(group, key) for key in ("mentions", "links")]
        entities, seeds = f"{group[0]['entities']:,}", str(len(group))
        about = (SYSTEMS[system], _encoder(group[0]), TESTS[test], entities)
        table.append((*about, *weak, *details, f"{speed}{beside[3]}", seeds))
    return table


def _compared(rows: List[Dict[str, Any]]) -> str:
    """RETURNS (str): Where ELQ is ahead and where it is not, in words."""
    groups = _compared_groups(rows)
    lines = []
    for (test, system), group in groups.items():
        elq = groups.get((test, "elq"))
        if system == "elq" or elq is None:
            continue
        means = [
            [statistics.mean(row[key] for row in own) for key in ("weak", "questions_per_second")]
            for own in (elq, group)
        ]
        gain, ratio = 100 * (means[0][0] - means[1][0]), means[0][1] / means[1][1]
        ahead = "ahead of" if gain > 0 else "NOT ahead of"
        lines.append(
            f"- {TESTS[test]}: ELQ is {ahead} {SYSTEMS[system]} by {gain:+.1f} weak F1, "
            f"at {ratio:.2f} times its questions a second."
        )
    return "\n".join(lines) or "Not measured yet."


def _detail_rows(rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    keys = ("strong", "mentions", "links", "candidates_recall", "weak_unseen", "weak_described")
    return [
        (SETTINGS[setting], encoder, TESTS[test], f"{entities:,}", *(_mean(group, key) for key in keys))
        for (setting, encoder, test, entities, source), group in _grouped(rows)
        if source.startswith(test)
    ]


def _time_rows(rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    table = [
        (
            SETTINGS[row["setting"]],
            encoder,
            f"{row['entities']:,}",
            *(f"{1000 * row['seconds'][stage]:.1f}" for stage in ("tokenizer", "encoder", "search", "rest")),
        )
        for (_, encoder, test, _, _), (*_, row) in _grouped(rows)
        if row.get("seconds") and test == "webqsp_el"
    ]
    paper = [f"{1000 * PAPER_SECONDS[stage]:.0f}" for stage in ("encoder", "search", "rest")]
    return [*table, ("the paper (another machine)", "340 M", "5,903,527", "", *paper)]


def _ablation_rows(rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    by_name: Dict[Tuple[str, str, int], Dict[str, Dict[str, Any]]] = {}
    for row in rows:
        if row["test"].endswith("_dev"):
            by_name.setdefault((row["setting"], _encoder(row), row["entities"]), {})[row["test"]] = row
    return [
        (
            name,
            encoder,
            f"{entities:,}",
            *(_mean([own.get(f"{test}_dev", {})], key) for test in TESTS for key in ABLATED),
        )
        for (name, encoder, entities), own in by_name.items()
    ]


def _error_rows(rows: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    return [
        (
            SETTINGS[setting],
            encoder,
            TESTS[test],
            f"{entities:,}",
            *(str(group[0]["errors"][k]) for k in ERRORS),
        )
        for (setting, encoder, test, entities, source), group in _grouped(rows)
        if source.startswith(test)
    ]


def _examples(rows: List[Dict[str, Any]]) -> List[str]:
    parts = []
    for test, name in TESTS.items():
        chosen = [
            group[0] for (setting, _, own, *_), group in _grouped(rows) if (setting, own) == (MAIN, test)
        ]
        for kind, title in ERRORS.items() if chosen else ():
            lines = [
                f"- *{e['mention']}*: " + ", ".join(f"{k} {e[k]}" for k in ("gold", "found") if e[k])
                for e in chosen[0]["examples"][kind]
            ]
            parts += [f"{name}, {title}:", "\n".join(lines) or "- none"]
    return parts


def _limits(rows: List[Dict[str, Any]]) -> str:
    """RETURNS (str): For both tests, how far the main row is from the paper, and what the tables say."""
    data, lines = {row["name"]: row for row in _read(DATA)}, {}
    for (setting, encoder, test, entities, source), group in _grouped(rows):
        counts = data.get(f"{test}_test")
        # the sets are counted over the catalogue of the tables, the smaller one
        if setting != MAIN or not source.startswith(test) or counts is None or test in lines:
            continue
        weak = statistics.mean(100 * row["weak"] for row in group)
        paper, described = PAPER_MAIN[setting, test][2], _mean(group, "weak_described")
        about = ", ".join(filter(None, (TESTS[test], encoder, f"{entities:,} entities")))
        aside = f"; where all have one, weak F1 is {described}" if described else ""
        lost, bare = (
            100 * (counts[more] - counts[less]) / counts["links"]
            for more, less in (("links", "known"), ("known", "described"))
        )
        lines[test] = (
            f"- {about}: weak F1 {weak:.1f}, the paper {paper} "
            f"({weak - paper:+.1f}). Of the gold links {lost:.1f} % are to entities that the catalogue does "
            f"not have, {bare:.1f} % to entities without a description{aside}. Gold is among the ten "
            f"candidates in {_mean(group, 'candidates_recall')} %, and linked in {_mean(group, 'links')} % "
            "where the mention is given."
        )
    return "\n".join(lines.values()) or "Not measured yet."


def _data_rows() -> List[Tuple[str, ...]]:
    return [
        (
            row["name"],
            f"{row['questions']:,}",
            f"{row['links']:,}",
            "/".join(f"{x:,}" for x in PAPER_DATA.get(row["name"], ())),
            f"{row['entities']:,}",
            f"{_percent(row, 'known')}, {_percent(row, 'described')} with a description",
        )
        for row in _read(DATA)
    ]


def _percent(row: Dict[str, Any], key: str) -> str:
    return f"{100 * row[key] / row['links']:.1f} %"


def _table(header: Tuple[str, ...], rows: List[Tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _read(path: Path) -> List[Dict[str, Any]]:
    return srsly.read_json(path) if path.is_file() else []


def _write_json(path: Path, rows: List[Dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    srsly.write_json(path, rows)


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    app()

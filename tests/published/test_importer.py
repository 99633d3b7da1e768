import json

import faiss
import numpy as np
import pytest
import spacy
import torch
from conftest import (
    PUBLISHED_FILES,
    PUBLISHED_PARAMS,
    PUBLISHED_QUESTIONS,
    PUBLISHED_TITLES,
    links_of,
    published_links,
    run_spacy,
)
from spacy.tokens import DocBin
from typer.testing import CliRunner

from spacy_elq.cli import app

QUESTIONS = [*PUBLISHED_QUESTIONS, "what time is it"]
GAMMA = -2.9


def arguments(published, output, **changes):
    """The words behind `python -m spacy elq`."""
    paths = {option: published / name for option, name in PUBLISHED_FILES.items()} | changes
    options = [str(word) for key, path in paths.items() if key != "checkpoint" for word in (f"--{key}", path)]
    return ["import", str(paths["checkpoint"]), str(output), *options]


def expected_links(published, text):
    """Characters and ids of the links, the titles being the ids."""
    links = published_links(published, text, GAMMA)
    return sorted((start, end, PUBLISHED_TITLES[row]) for start, end, row in links)


def test_help():
    result = CliRunner().invoke(app, ["import", "--help"])
    assert result.exit_code == 0
    assert "to a pipeline that gives the same scores" in " ".join(result.output.split())


def test_command_makes_a_pipeline_that_spacy_loads_and_evaluates(published, tmp_path):
    output = tmp_path / "new" / "pipeline"
    done = run_spacy("elq", *arguments(published, output), "--ids", "title", "--threshold", 0.055)
    assert done.returncode == 0, done.stderr
    assert f"{output}: pipeline with index and entity encoder" in " ".join(done.stdout.split())
    assert "10/10" in done.stderr  # the progress bars know how far it is
    assert [path.name for path in output.parent.iterdir()] == ["pipeline"]

    nlp = spacy.load(output)
    expected = {text: expected_links(published, text) for text in QUESTIONS}
    assert {text: links_of(nlp(text)) for text in QUESTIONS} == expected
    assert any(expected.values())

    docs = DocBin(docs=list(nlp.pipe(QUESTIONS)), store_user_data=True)
    docs.to_disk(tmp_path / "gold.spacy")
    done = run_spacy("evaluate", output, tmp_path / "gold.spacy", "--output", tmp_path / "scores.json")
    assert done.returncode == 0, done.stderr
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf8"))
    assert {key: scores[key] for key in ("elq_weak_f", "elq_strong_f")} == {
        "elq_weak_f": 1.0,
        "elq_strong_f": 1.0,
    }


def cut_checkpoint(published, folder):
    data = (published / PUBLISHED_FILES["checkpoint"]).read_bytes()
    (folder / "cut.bin").write_bytes(data[: len(data) // 2])
    return {"checkpoint": folder / "cut.bin"}


def save_vectors(folder, *shape):
    torch.save(torch.zeros(shape), folder / "vectors.t7")
    return {"vectors": folder / "vectors.t7"}


def json_params(published, folder):
    (folder / "params.txt").write_text(json.dumps(PUBLISHED_PARAMS), encoding="utf8")
    return {"params": folder / "params.txt"}


def blink_index(published, folder):
    """As BLINK's: one number more, so that L2 distance orders by inner product."""
    index = faiss.IndexHNSWFlat(49, 16)
    index.add(np.zeros((10, 49), dtype="float32"))
    faiss.write_index(index, str(folder / "index.pkl"))
    return {"index": folder / "index.pkl"}


def other_catalogue(published, folder):
    lines = (published / PUBLISHED_FILES["entities"]).read_text(encoding="utf8")
    (folder / "more.jsonl").write_text(lines * 2, encoding="utf8")
    return {"entities": folder / "more.jsonl"}


BAD = {
    "truncated checkpoint": (
        cut_checkpoint,
        ["cut.bin", "it is truncated", "tensors that torch.save wrote", "fetch it again"],
    ),
    "width": (
        lambda published, folder: save_vectors(folder, 10, 32),
        ["vectors of width 32", f"{PUBLISHED_FILES['checkpoint']} has width 48", "Name those of this model"],
    ),
    "fewer vectors": (
        other_catalogue,
        ["10 vectors for 20 entities", "a row for every line", "Name files that belong together"],
    ),
    "JSON": (
        json_params,
        ["params.txt", "it is JSON", "expected the one-line Python dict", "such as elq_large_params.txt"],
    ),
    "L2": (
        blink_index,
        ["an index by L2 distance, of width 49", "ELQ searches by inner product", "leave out --index"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_said_before_anything_is_written(published, tmp_path, name):
    make, parts = BAD[name]
    changes = make(published, tmp_path)
    before = sorted(tmp_path.iterdir())
    result = CliRunner().invoke(app, arguments(published, tmp_path / "out", **changes))
    assert result.exit_code == 1
    output = " ".join(result.output.split())
    assert [part for part in parts if part not in output] == []
    assert output.startswith("✘ [spacy-elq E0")
    assert sorted(tmp_path.iterdir()) == before


def test_bad_input_is_a_message_without_a_traceback(published, tmp_path):
    done = run_spacy("elq", *arguments(published, tmp_path / "out", **cut_checkpoint(published, tmp_path)))
    assert done.returncode == 1
    assert done.stderr.startswith("✘ [spacy-elq E049]")
    assert "Traceback" not in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cut.bin"]

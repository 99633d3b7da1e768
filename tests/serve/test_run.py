"""`serve.run`: how the server starts, and how it does not."""

import socket
import subprocess
import sys

import pytest

from spacy_elq.errors import ELQError
from spacy_elq.serve import run
from spacy_elq.serve.settings import ServeSettings


def serve(*options):
    command = [sys.executable, "-m", "spacy", "elq", "serve", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pipeline_that_cannot_be_loaded_ends_it(tmp_path, workers):
    done = serve(tmp_path / "nothing", "--workers", workers, "--port", 0)
    assert done.returncode != 0
    assert "nothing" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken(trained_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = serve(trained_path, "--port", taken.getsockname()[1])
    assert done.returncode != 0
    assert "already in use" in done.stderr


def test_writing_without_a_token(trained_path, monkeypatch):
    monkeypatch.delenv("SPACY_ELQ_TOKEN", raising=False)
    done = serve(trained_path, "--writable")
    assert done.returncode == 1
    assert "SPACY_ELQ_TOKEN" in done.stderr


def test_what_it_needs_is_said(monkeypatch):
    monkeypatch.setattr(run, "find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(ELQError, match=r"uvicorn.*spacy-elq\[serve\]"):
        run.serve(ServeSettings("x"), host="127.0.0.1", port=0, workers=1)

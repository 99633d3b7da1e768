"""Requests that a generator makes of the OpenAPI description: none of them may break the server."""

import shutil
import subprocess
import sys

import httpx
import pytest
import spacy

TOKEN = "a-token"


@pytest.fixture(scope="module")
def writable(start_server, trained_path, index, tmp_path_factory):
    """A server whose catalogue can be changed, with the token."""
    folder = tmp_path_factory.mktemp("writable")
    copied = shutil.copytree(index.path, folder / "index")
    nlp = spacy.load(trained_path, config={"components.elq_linker.index_path": str(copied)})
    nlp.to_disk(folder / "pipeline")
    return start_server(folder / "pipeline", "--writable", env={"SPACY_ELQ_TOKEN": TOKEN})


def attack(server, *options):
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--no-color"]
    checks = ["--checks", "not_a_server_error,status_code_conformance,response_schema_conformance"]
    header = ["--header", f"Authorization: Bearer {TOKEN}"]
    done = subprocess.run(
        [*command, *checks, *header, *map(str, options)], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert httpx.get(f"{server.url}/ready").status_code == 200
    text = httpx.get(f"{server.url}/metrics").text
    assert 'status="200"' in text
    assert 'status="5' not in text.replace('status="503"', "")


def test_no_request_breaks_the_server(writable):
    attack(writable, "--max-examples", 8, "--phases", "examples,fuzzing", "--seed", 1)


@pytest.mark.slow
def test_no_request_breaks_the_server_for_long(writable):
    attack(writable, "--max-examples", 300, "--seed", 2)

"""`serve.app`: the server as a process of its own, over HTTP."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import spacy
from conftest import links_of

PARIS, NEW_YORK = "what is the capital of france near paris", "how big is new york city"
TOKEN = "a-token"
KEY = {"Authorization": f"Bearer {TOKEN}"}


def post(server, path, body, **settings):
    return httpx.post(f"{server.url}{path}", json=body, timeout=30, **settings)


def ids(answer):
    assert answer.status_code == 200, answer.text
    return [[link["id"] for link in result["links"]] for result in answer.json()["results"]]


def log_of(server):
    # the last line may not be complete yet
    lines = server.log.read_text(encoding="utf8").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]


# ---------------------------------------------------------------------- links


def test_links_are_those_of_the_pipeline(server, gold_docs, trained_path):
    nlp = spacy.load(trained_path)
    found = post(server, "/link", {"text": [doc.text for doc in gold_docs]}).json()["results"]
    for doc, result in zip(gold_docs, found, strict=True):
        assert result["text"] == doc.text
        assert [(x["start"], x["end"], x["id"]) for x in result["links"]] == links_of(nlp(doc.text))
        assert result["error"] is None


def test_one_text_and_its_options(server):
    assert ids(post(server, "/link", {"text": PARIS})) == [["E1"]]
    assert ids(post(server, "/link", {"text": PARIS, "within": {"ids": ["E2"], "labels": ["GPE"]}})) == [
        ["E2"]
    ]
    assert ids(post(server, "/link", {"text": PARIS, "threshold": 1.0})) == [[]]
    answer = post(server, "/link", {"text": PARIS, "alternatives": 0})
    assert answer.json()["results"][0]["links"][0]["alternatives"] == []
    assert ids(post(server, "/link", {"text": []})) == []


def test_requests_of_many_connections_are_linked_together(server):
    def ask(i):
        return ids(post(server, "/link", {"text": [PARIS, NEW_YORK][i % 2]}))

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(64)))
    assert found == [[["E1"]], [["E5"]]] * 32
    text = httpx.get(f"{server.url}/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["elq_batch_texts_count"]) < float(values["elq_batch_texts_sum"])


def test_candidates_and_explanations(server):
    start = NEW_YORK.index("new")
    body = {"text": NEW_YORK, "start": start, "end": len(NEW_YORK), "alternatives": 2}
    answer = post(server, "/candidates", body).json()
    assert answer["mention"] == "new york city"
    assert [candidate["id"] for candidate in answer["candidates"]][:1] == ["E5"]
    assert post(server, "/candidates", {**body, "start": 99, "end": 100}).status_code == 400
    mentions = post(server, "/explain", {"text": NEW_YORK}).json()["mentions"]
    assert [mention["text"] for mention in mentions if mention["is_link"]] == ["new york city"]


def test_clients_of_the_published_service_are_understood(server, start_server, trained_path):
    # as they do it: JSON without a content type
    answer = httpx.post(f"{server.url}/entity_linking", content=json.dumps({"question": PARIS}).encode())
    (found,) = answer.json()["detection_res"]
    assert found["dbpedia_ids"][0][0] == "E1"
    assert found["pred_tuples_string"][0][0] == ["Paris", "paris"]
    assert len(found["scores"][0]) == len(found["dbpedia_ids"][0]) == 10
    for body in (b"", b"no JSON", b'{"text": "x"}', b'{"question": "\\ud800"}'):
        assert httpx.post(f"{server.url}/entity_linking", content=body).status_code == 422


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "text"),
        ({"text": 1}, "text"),
        ({"text": "x", "treshold": 0.5}, "treshold"),
        ({"text": "x", "threshold": 2}, "threshold"),
        ({"text": "x", "within": {"label": ["GPE"]}}, "label"),
        ({"text": "x", "alternatives": -1}, "alternatives"),
    ],
)
def test_what_is_not_valid_is_said(server, body, problem):
    answer = post(server, "/link", body)
    assert answer.status_code == 422
    assert problem in answer.json()["detail"]


def test_what_cannot_be_sent_back_is_refused(server):
    for body in (b'{"text": "secret \\ud800"}', b"{", b"[]", b'{"text": NaN}', b"\xff\xfe"):
        answer = httpx.post(f"{server.url}/link", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert "secret" not in answer.text


def test_emoji_and_other_scripts_keep_their_offsets(server):
    text = "😀😀 how big is new york city"
    (link,) = post(server, "/link", {"text": text}).json()["results"][0]["links"]
    assert text[link["start"] : link["end"]] == "new york city"


def test_limits(start_server, trained_path):
    options = ["--max-texts", 3, "--max-characters", 50, "--max-body", 400, "--max-queue", 2]
    server = start_server(trained_path, *options)
    assert ids(post(server, "/link", {"text": [PARIS, NEW_YORK]})) == [["E1"], ["E5"]]
    too_many = post(server, "/link", {"text": ["x"] * 4})
    assert (too_many.status_code, "at most 3" in too_many.text) == (413, True)
    too_long = post(server, "/link", {"text": "x" * 51})
    assert (too_long.status_code, "at most 50" in too_long.text) == (413, True)
    full = post(server, "/link", {"text": ["x"] * 3})
    assert (full.status_code, full.headers["Retry-After"]) == (503, "1")

    def in_parts():
        yield b'{"text": "'
        yield b"x" * 1000
        yield b'"}'

    for content in (b"x" * 401, in_parts()):
        answer = httpx.post(f"{server.url}/link", content=content)
        assert (answer.status_code, "400 bytes" in answer.text) == (413, True)
    # none of this has hurt it
    assert ids(post(server, "/link", {"text": PARIS})) == [["E1"]]


def test_a_request_that_takes_too_long_is_given_up(start_server, trained_path):
    server = start_server(trained_path, "--timeout", 0.05, "--max-characters", 100000)
    answer = post(server, "/link", {"text": ["what is this about " * 200] * 20})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    deadline = time.time() + 60
    while post(server, "/link", {"text": PARIS}).status_code != 200:
        assert time.time() < deadline
        time.sleep(0.1)


def test_a_client_that_goes_away_costs_nothing_more(start_server, trained_path):
    server = start_server(trained_path, "--batch-size", 1, "--log-texts")
    body = json.dumps({"text": ["what is this about " * 40] * 200}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /link HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        time.sleep(0.3)
    start = time.time()
    while not any(line.get("status") == 499 for line in log_of(server)):
        assert time.time() < start + 30
        time.sleep(0.05)
    assert ids(post(server, "/link", {"text": PARIS})) == [["E1"]]
    batches = httpx.get(f"{server.url}/metrics").text.split("elq_batch_texts_count ")[1]
    assert float(batches.split()[0]) < 200


def test_the_log_has_no_texts(server, start_server, trained_path):
    post(server, "/link", {"text": "a very secret paris"})
    httpx.get(f"{server.url}/entities", params={"name": "a very secret name"})
    # a line is written once the answer is on its way
    deadline = time.time() + 30
    while not {"/link", "/entities"} <= {line.get("path") for line in log_of(server)}:
        assert time.time() < deadline
        time.sleep(0.05)
    lines = [line for line in log_of(server) if line["message"] == "request"]
    assert {line["status"] for line in lines if line["path"] == "/entities"} == {200}
    assert "secret" not in server.log.read_text(encoding="utf8")


# ---------------------------------------------------------------------- the catalogue


def test_the_catalogue_can_be_read_and_not_changed(server):
    found = httpx.get(f"{server.url}/entities", params={"name": "paris"}).json()["entities"]
    assert [entity["id"] for entity in found][:1] == ["E1"]
    labelled = httpx.get(f"{server.url}/entities", params={"name": "mercury", "label": "GPE"}).json()
    assert labelled == {"entities": []}
    assert httpx.get(f"{server.url}/entities/E1").json()["title"] == "Paris"
    assert httpx.get(f"{server.url}/entities/a/b").status_code == 404
    assert (
        httpx.put(f"{server.url}/entities", json={"entities": [{"id": "x", "title": "x"}]}).status_code == 403
    )
    assert httpx.get(f"{server.url}/info").json()["writable"] is False


def test_changes_are_seen_by_all_workers(start_server, trained_path, index, tmp_path):
    copied = shutil.copytree(index.path, tmp_path / "index")
    nlp = spacy.load(trained_path, config={"components.elq_linker.index_path": str(copied)})
    nlp.to_disk(tmp_path / "pipeline")
    options = ["--workers", 2, "--writable", "--published-ids", "wikidata"]
    server = start_server(tmp_path / "pipeline", *options, env={"SPACY_ELQ_TOKEN": TOKEN})
    url, new = f"{server.url}/entities", {"entities": [{"id": "N1", "title": "N", "ids": {"wikidata": "Q1"}}]}
    assert httpx.put(url, json=new).status_code == 401
    assert httpx.put(url, json=new, headers={"Authorization": "Bearer x"}).status_code == 401
    bad = httpx.put(url, json={"entities": [{"id": "N2", "title": "a"}, {"id": "N3"}]}, headers=KEY)
    assert (bad.status_code, "title" in bad.json()["detail"]) == (422, True)
    assert httpx.put(url, json=new, headers=KEY).json() == {"added": 1, "replaced": 0, "entities": 11}

    def everywhere(path):
        """Answers of both workers: each connection goes to one of them."""
        return {httpx.get(f"{server.url}{path}").status_code for _ in range(30)}

    assert everywhere("/entities/N1") == {200}
    assert everywhere("/entities/N2") == {404}
    seen = httpx.post(f"{server.url}/entity_linking", content=b'{"question": "is N here"}').json()
    assert {id_ for ids_ in seen["detection_res"][0]["dbpedia_ids"] for id_ in ids_} <= {"", "Q1"}
    removed = httpx.request("DELETE", url, json={"ids": ["N1", "?"]}, headers=KEY).json()
    assert removed == {"removed": 1, "entities": 10}
    assert everywhere("/entities/N1") == {404}
    counted = httpx.get(f"{server.url}/metrics").text
    assert 'elq_requests_total{method="GET",path="/entities/{id_:path}",status="404"}' in counted
    assert TOKEN not in server.log.read_text(encoding="utf8")
    workers = {line["worker"] for line in log_of(server) if line["message"] == "ready"}
    _check_restart(server, workers)


def _check_restart(server, workers):
    """A worker that is killed is started again, and no request is lost that is asked again."""
    assert len(workers) == 2
    os.kill(min(workers), signal.SIGKILL)
    deadline = time.time() + 90
    while len({line["worker"] for line in log_of(server) if line["message"] == "ready"}) < 3:
        assert time.time() < deadline
        assert httpx.get(f"{server.url}/health").status_code == 200
        time.sleep(0.2)


# ---------------------------------------------------------------------- operations


def test_sigterm_finishes_what_is_under_way(start_server, trained_path):
    server = start_server(trained_path, "--batch-size", 8)
    answers = []

    def ask():
        answers.append(post(server, "/link", {"text": [f"{PARIS} {'and so on ' * 30}"] * 200}))

    thread = threading.Thread(target=ask)
    thread.start()
    while "elq_batch_texts_count 0.0" in httpx.get(f"{server.url}/metrics").text:
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    thread.join(60)
    assert [len(answer.json()["results"]) for answer in answers] == [200]
    assert server.process.wait(30) == 0
    assert log_of(server)[-1]["level"] == "info"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_health_and_what_it_serves(server, trained_path):
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/ready").json() == {"status": "ready"}
    info = httpx.get(f"{server.url}/info").json()
    assert (info["entities"], info["linker"], info["labels"]) == (10, "elq_linker", ["GPE"])
    assert "elq_entities 10.0" in httpx.get(f"{server.url}/metrics").text
    assert server.url.startswith("http://127.0.0.1:")


def test_other_pages_may_use_it_only_if_told_so(server, start_server, trained_path):
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in httpx.get(f"{server.url}/info", headers=origin).headers
    told = start_server(trained_path, "--origin", "https://example.org")
    answer = httpx.get(f"{told.url}/info", headers=origin)
    assert answer.headers["access-control-allow-origin"] == "https://example.org"


def test_the_page_may_load_nothing_from_elsewhere(server):
    answer = httpx.get(server.url)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert httpx.get(f"{server.url}/page/app.js").headers["Cache-Control"] == "no-cache"
    assert httpx.get(f"{server.url}/page/../app.py").status_code == 404
    assert httpx.get(f"{server.url}/nowhere").json() == {"detail": "Not Found"}

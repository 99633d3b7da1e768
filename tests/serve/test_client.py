"""`spacy_elq.client`, with a real server and with one that does what it is told."""

import asyncio
import multiprocessing
import pickle
import shutil
import socket
import sys
import threading
import time
from contextlib import ExitStack

import httpx
import pytest
import spacy
from conftest import links_of
from unreliable import CLOSE, WAIT, Unreliable, answer, no_links, unreliable

from spacy_elq import AsyncElqClient, ElqClient, Entity
from spacy_elq.errors import ELQError

PARIS, NEW_YORK = "what is the capital of france near paris", "how big is new york city"
TOKEN = "a-token"


@pytest.fixture(scope="module")
def small(start_server, trained_path, index, tmp_path_factory):
    """A server that accepts little at a time, and whose catalogue can be changed."""
    folder = tmp_path_factory.mktemp("small")
    copied = shutil.copytree(index.path, folder / "index")
    nlp = spacy.load(trained_path, config={"components.elq_linker.index_path": str(copied)})
    nlp.to_disk(folder / "pipeline")
    limits = ["--max-texts", 5, "--max-characters", 200, "--max-body", 4_000]
    return start_server(folder / "pipeline", "--writable", *limits, env={"SPACY_ELQ_TOKEN": TOKEN})


@pytest.fixture(params=["sync", "async"])
def ask(request):
    """Calls a method of a client."""

    def call(url, method, *args, client=None, **kwargs):
        if request.param == "sync":
            with ElqClient(url, **(client or {})) as own:
                return getattr(own, method)(*args, **kwargs)

        async def run():
            async with AsyncElqClient(url, **(client or {})) as own:
                return await getattr(own, method)(*args, **kwargs)

        return asyncio.run(run())

    return call


@pytest.fixture
def quick(monkeypatch):
    """Pauses that are short."""
    monkeypatch.setattr("spacy_elq.client._FIRST_PAUSE", 0.02)


def ids(links):
    return [link["id"] for link in links]


def characters(links):
    return [(link["start"], link["end"], link["id"]) for link in links]


def free_url():
    """RETURNS: An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


# ---------------------------------------------------------------------- links


def test_links_are_those_of_the_pipeline(small, ask, gold_docs, trained_path):
    nlp = spacy.load(trained_path)
    texts = [doc.text for doc in gold_docs]
    # four times as many as it accepts
    found = ask(small.url, "link", (text for text in texts))
    assert [characters(links) for links in found] == [links_of(nlp(text)) for text in texts]
    assert ask(small.url, "link", PARIS) == found[texts.index(PARIS)]
    assert set(found[0][0]) == {"start", "end", "mention", "id", "title", "label", "score", "alternatives"}
    assert ask(small.url, "link", []) == []
    assert [result["links"] for result in ask(small.url, "results", PARIS)] == [found[texts.index(PARIS)]]


def test_options(small, ask):
    (link,) = ask(small.url, "link", PARIS)
    assert (link["id"], len(link["alternatives"])) == ("E1", 3)
    assert ask(small.url, "link", PARIS, alternatives=0)[0]["alternatives"] == []
    assert ask(small.url, "link", PARIS, threshold=1.0) == []
    assert ids(ask(small.url, "link", PARIS, within={"ids": {"E2"}, "labels": ("GPE",)})) == ["E2"]
    with pytest.raises(ELQError, match="E165"):
        ask(small.url, "link", PARIS, within={"ids": "E2"})


def test_too_many_texts_are_sent_by_parts(ask):
    def few(request):
        return no_links(request) if len(request["text"]) < 3 else answer({"detail": "too many"}, 413)

    with unreliable(few) as server:
        results = ask(server.url, "results", ["a", "b", "c", "d", "e", "f"], batch_size=5)
    assert [result["text"] for result in results] == ["a", "b", "c", "d", "e", "f"]
    sent = [request["text"] for _, _, request in server.requests]
    assert sent == [["a", "b", "c", "d", "e"], ["a", "b"], ["c", "d", "e"], ["c"], ["d", "e"], ["f"]]


def test_request_has_64_texts_and_the_options_that_are_given(ask):
    with unreliable(no_links) as server:
        ask(server.url, "results", ["a"] * 65, threshold=0.0, within={"ids": ["b"], "tags": None})
        ask(server.url, "link", "a", within={}, alternatives=0)
    requests = [request for _, _, request in server.requests]
    assert [len(request.pop("text")) for request in requests] == [64, 1, 1]
    options = {"threshold": 0.0, "alternatives": 3, "within": {"ids": ["b"]}}
    assert requests == [options, options, {"alternatives": 0}]


def test_text_that_fails_does_not_touch_the_others(small, ask):
    texts = ["x" * 201, PARIS, NEW_YORK]
    results = ask(small.url, "results", texts)
    assert [result["text"] for result in results] == texts
    assert "201 characters, at most 200" in results[0]["error"]
    assert [ids(result["links"]) for result in results] == [[], ["E1"], ["E5"]]
    with pytest.raises(ELQError, match=r"E207.*could not link 'x{80} …': A text of 201"):
        ask(small.url, "link", texts)


def test_text_that_the_pipeline_cannot_link_is_named(ask):
    results = [{"text": "a", "links": [], "error": "ValueError"}]
    with unreliable(answer({"results": results})) as server:
        with pytest.raises(ELQError, match=r"E207.*could not link 'a': ValueError$"):
            ask(server.url, "link", "a")
        assert ask(server.url, "results", ["a"]) == results


def test_candidates_and_explanation(small, ask):
    start = PARIS.index("paris")
    found = ask(small.url, "candidates", PARIS, start, start + 2)
    assert (found[0]["id"], len(found)) == ("E1", 10)
    assert len(ask(small.url, "candidates", PARIS, start, start + 5, alternatives=2)) == 2
    within = {"ids": ["E2"]}
    assert ids(ask(small.url, "candidates", PARIS, start, start + 5, within=within)) == ["E2"]
    (explained,) = ask(small.url, "explain", PARIS)
    assert explained["text"] == "paris"
    assert explained["is_link"] is True
    (explained,) = ask(small.url, "explain", PARIS, threshold=1.0, within=within)
    assert (explained["is_link"], ids(explained["candidates"])) == (False, ["E2"])
    with pytest.raises(ELQError, match=r"E206.*400.*E203"):
        ask(small.url, "candidates", PARIS, 3, 3)


# ---------------------------------------------------------------------- the catalogue


def test_entities_are_found(small, ask):
    assert ask(small.url, "entity", "E1")["title"] == "Paris"
    assert ids(ask(small.url, "find", "mercury")) == ["E3", "E4"]
    assert ids(ask(small.url, "find", "mercury", limit=1)) == ["E3"]
    assert ask(small.url, "find", "mercury", labels=["GPE"]) == []
    assert ids(ask(small.url, "find", "city of light", labels="GPE")) == ["E1"]
    assert ids(ask(small.url, "find", "paris", labels=["GPE", "X"])) == ["E1", "E2"]


@pytest.mark.parametrize("id_", ["?", "", "..", ".", "a/../E1", "x?y#z", "%2e", "é ü"])
def test_unknown_entity(small, ask, id_):
    with pytest.raises(KeyError) as caught:
        ask(small.url, "entity", id_)
    assert caught.value.args == (id_,)


def test_catalogue_is_changed(small, ask):
    client = {"token": TOKEN}
    # more than a request may have, by number and by bytes
    new = [{"id": f"N{i}/.", "title": f"New {i}", "description": "x" * 90} for i in range(70)]
    assert ask(small.url, "put", new, client=client) == {"added": 70, "replaced": 0}
    odd = "/M/../é?a=b#%2F."
    again = [Entity("N0/.", "Newer", aliases=("zero",)), {"id": odd, "title": "M"}]
    assert ask(small.url, "put", iter(again), client=client) == {"added": 1, "replaced": 1}
    assert ask(small.url, "entity", "N0/.") == {"id": "N0/.", "title": "Newer", "aliases": ["zero"]}
    assert ask(small.url, "entity", odd) == {"id": odd, "title": "M"}
    assert ask(small.url, "info")["entities"] == 81
    assert ask(small.url, "remove", odd, client=client) == 1
    assert ask(small.url, "remove", (f"N{i}/." for i in range(-500, 500)), client=client) == 70
    assert ask(small.url, "put", [], client=client) == {"added": 0, "replaced": 0}
    assert ask(small.url, "remove", [], client=client) == 0


def test_catalogue_is_not_changed_without_token_or_by_invalid_entities(small, ask):
    with pytest.raises(ELQError, match=r"E206.*401.*Bearer TOKEN"):
        ask(small.url, "put", [{"id": "N", "title": "N"}])
    with pytest.raises(ELQError, match=r"E206.*401"):
        ask(small.url, "remove", ["E1"], client={"token": "another"})
    # the last of three requests would be refused
    with pytest.raises(ELQError, match=r"E020.*entity 151"):
        ask(small.url, "put", [*({"id": f"N{i}", "title": "N"} for i in range(150)), {"id": "N"}])
    assert ask(small.url, "info")["entities"] == 10


def test_requests_that_change_the_catalogue_are_of_limited_size(ask):
    def count(request):
        return answer({"added": len(request.get("entities", ())), "replaced": 1, "removed": 2})

    client = {"token": TOKEN}
    with unreliable(count) as server:
        entities = [{"id": str(i), "title": "a"} for i in range(65)]
        assert ask(server.url, "put", entities, client=client) == {"added": 65, "replaced": 2}
        assert ask(server.url, "remove", map(str, range(1001)), client=client) == 4
        assert [len(request.popitem()[1]) for _, _, request in server.requests] == [64, 1, 1000, 1]
        ask(server.url, "put", entities[:1])
    sent = [headers.get("authorization") for _, headers, _ in server.requests]
    assert sent == [f"Bearer {TOKEN}"] * 4 + [None]


def test_token_is_not_sent_where_it_is_not_needed(ask):
    with unreliable(answer({"a": 1})) as server:
        assert ask(server.url, "info", client={"token": TOKEN}) == {"a": 1}
    assert "authorization" not in server.requests[0][1]


# ---------------------------------------------------------------------- whether it is there


def test_server_is_ready(small, ask, quick):
    assert ask(small.url, "is_ready") is True
    assert ask(small.url, "info")["linker"] == "elq_linker"
    assert ask(free_url(), "is_ready") is False
    with unreliable(answer({}, 503), CLOSE) as server:
        assert ask(server.url, "is_ready") is False
        assert ask(server.url, "is_ready") is False
    assert [first for first, _, _ in server.requests] == ["GET /ready"] * 2


def test_server_behind_a_path(ask):
    with unreliable(answer({"a": 1})) as server:
        ask(f"{server.url}/elq/", "info")
    assert server.requests[0][0] == "GET /elq/info"


# ---------------------------------------------------------------------- again


@pytest.mark.parametrize(
    "things", [[CLOSE, CLOSE], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], [answer("x", 502)]]
)
def test_broken_connection_is_tried_again(ask, quick, things):
    with unreliable(*things, answer({"a": 1})) as server:
        assert ask(server.url, "info") == {"a": 1}
    assert len(server.requests) == len(things) + 1


@pytest.mark.parametrize(("method", "given"), [("put", [{"id": "a", "title": "b"}]), ("remove", ["a"])])
def test_changes_are_tried_again(ask, quick, method, given):
    with unreliable(CLOSE, answer({"added": 1, "replaced": 0, "removed": 1})) as server:
        ask(server.url, method, given)
    assert server.requests[0] == server.requests[1]


def test_server_that_is_not_there_yet_is_waited_for(ask, monkeypatch):
    monkeypatch.setattr("spacy_elq.client._FIRST_PAUSE", 0.1)
    url, started = free_url(), []

    def start_later():
        time.sleep(0.15)
        started.append(Unreliable([answer({"a": 1})], port=int(url.rsplit(":", 1)[1])))

    thread = threading.Thread(target=start_later)
    thread.start()
    assert ask(url, "info") == {"a": 1}
    thread.join()
    started[0].end()


def test_pauses_grow(ask, monkeypatch):
    monkeypatch.setattr("spacy_elq.client._FIRST_PAUSE", 0.05)
    with unreliable(CLOSE) as server, pytest.raises(ELQError, match=r"E205.*disconnected"):
        ask(server.url, "info", client={"retries": 3})
    first, second, third = (b - a for a, b in zip(server.times, server.times[1:], strict=False))
    assert 0.05 <= first < second < third
    assert third >= 0.2


def test_busy_server_says_how_long_to_wait(ask, quick):
    with unreliable(answer({}, 503, Retry_After=1), answer({"a": 1})) as server:
        assert ask(server.url, "info") == {"a": 1}
    assert 1.0 <= server.times[1] - server.times[0] < 3


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "soon"}, {"Retry_After": 0}, {"Retry_After": 3600}])
def test_busy_server_is_not_waited_for_longer_than_for_an_answer(ask, monkeypatch, headers):
    monkeypatch.setattr("spacy_elq.client._FIRST_PAUSE", 0.1)
    with unreliable(answer({}, 503, **headers), answer({"a": 1})) as server:
        assert ask(server.url, "info", client={"timeout": 0.5}) == {"a": 1}
    assert 0.1 <= server.times[1] - server.times[0] < 5


def test_server_that_stays_busy(ask, quick):
    busy = answer({"detail": "Too many texts."}, 503)
    with unreliable(busy) as server, pytest.raises(ELQError, match=r"E206.*503: Too many texts\.$"):
        ask(server.url, "info", client={"retries": 2})
    assert len(server.requests) == 3


def test_what_is_wrong_is_not_tried_again(ask):
    with (
        unreliable(answer({"detail": "No."}, 400)) as server,
        pytest.raises(ELQError, match=r"E206.*400: No"),
    ):
        ask(server.url, "link", "a")
    assert len(server.requests) == 1


def test_no_answer_in_time(ask, quick):
    begin = time.monotonic()
    with unreliable(WAIT) as server, pytest.raises(ELQError, match=r"E205.*ReadTimeout"):
        ask(server.url, "info", client={"timeout": 0.2})
    assert len(server.requests) == 1
    assert time.monotonic() - begin < 4


def test_nobody_there(ask, quick):
    url = free_url()
    with pytest.raises(ELQError, match=rf"E205.*{url}.*ConnectError.*spacy elq serve") as caught:
        ask(url, "info")
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


def test_last_failure_is_told_at_once(ask, monkeypatch):
    monkeypatch.setattr("spacy_elq.client._FIRST_PAUSE", 20.0)
    begin = time.monotonic()
    with pytest.raises(ELQError, match="E205"):
        ask(free_url(), "info", client={"retries": 0})
    assert time.monotonic() - begin < 10


def test_connection_that_nobody_takes_is_tried_again(ask, quick):
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(5):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        begin = time.monotonic()
        with pytest.raises(ELQError, match=r"E205.*ConnectTimeout"):
            ask(f"http://127.0.0.1:{full.getsockname()[1]}", "info", client={"timeout": 0.2, "retries": 1})
    assert time.monotonic() - begin >= 0.4


@pytest.mark.parametrize(
    ("body", "detail"),
    [("<html>" + 200 * "x", "<html>x{194} …$"), ("[1]", r"\[1\]"), ("{}", "{}"), ("", "Reason")],
)
@pytest.mark.parametrize("method", ["link", "find"])
def test_another_kind_of_server(ask, body, detail, method):
    with unreliable(answer(body)) as server, pytest.raises(ELQError, match=f"E206.*answered 200: {detail}"):
        ask(server.url, method, "a")


# ---------------------------------------------------------------------- the client itself


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"url": "localhost:8000"}, "url"), ({"timeout": 0}, "timeout"), ({"retries": -1}, "retries")],
)
@pytest.mark.parametrize("kind", [ElqClient, AsyncElqClient])
def test_settings_are_checked(kind, settings, named):
    with pytest.raises(ELQError, match=rf"E002.*`{named}` of '{kind.__name__}'"):
        kind(**settings)


def test_address_that_is_none(ask):
    with pytest.raises(ELQError, match=r"E205.*http://a:b.*InvalidURL"):
        ask("http://a:b", "info")


def test_httpx_is_missing(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ELQError, match=r"E208.*spacy-elq\[client\]"):
        ask(free_url(), "info")


def test_client_can_be_used_again_when_closed():
    with unreliable(answer({"a": 1})) as server:
        client = ElqClient(server.url)
        client.close()
        client.info()
        http = client._http
        client.close()
        assert http.is_closed
        assert client.info() == {"a": 1}


def test_async_client_can_be_used_again_when_closed():
    async def run(url):
        client = AsyncElqClient(url)
        await client.close()
        await client.info()
        http = client._http
        await client.close()
        assert http.is_closed
        return await client.info()

    with unreliable(answer({"a": 1})) as server:
        assert asyncio.run(run(server.url)) == {"a": 1}


@pytest.mark.parametrize("kind", [ElqClient, AsyncElqClient])
def test_client_can_be_pickled_without_its_connections(kind):
    client = kind("http://127.0.0.1:1", token=TOKEN, timeout=2.0, retries=1)
    assert client._http is client._http
    copy = pickle.loads(pickle.dumps(client))
    assert (copy.url, copy._token, copy.timeout, copy.retries) == ("http://127.0.0.1:1", TOKEN, 2.0, 1)
    assert copy._http is not client._http


def test_forked_process_has_its_own_connections(small):
    with ElqClient(small.url) as client, ElqClient(small.url) as other:
        https, context = (client._http, other._http), multiprocessing.get_context("fork")
        assert ids(client.link(PARIS)) == ["E1"]
        receiver, sender = context.Pipe()

        def work():
            found = ids(client.link(NEW_YORK))
            other.close()
            sender.send((found, client._http is https[0], https[1].is_closed))

        process = context.Process(target=work)
        process.start()
        assert receiver.poll(30)
        assert receiver.recv() == (["E5"], False, False)
        process.join()
        assert (client._http, other._http) == https
        assert ids(client.link(PARIS)) == ["E1"]

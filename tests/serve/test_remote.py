"""`elq_remote`: a process without models has the links of one that has them."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import spacy
from conftest import run_spacy
from spacy.tokenizer import Tokenizer
from unreliable import CLOSE, answer, no_links, unreliable

from spacy_elq import update_settings
from spacy_elq.errors import ELQError

ROOT = Path(__file__).parent.parent.parent
PARIS, NEW_YORK = "what is the capital of france near paris", "how big is new york city"
NOBODY = "http://127.0.0.1:9"


def make(url, **settings):
    """RETURNS: A pipeline whose texts a server links, and nothing else."""
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_remote", config={"url": url, **settings})
    return nlp


def links_in(doc):
    """RETURNS: All that a linker writes to a doc, but for the place of the catalogue."""
    return [
        {
            "place": (ent.start_char, ent.end_char, ent.text),
            "entity": (ent.kb_id_, ent._.elq_title, ent.label_),
            "score": pytest.approx(ent._.elq_score, abs=1e-6),
            "alternatives": [
                {**own, "score": pytest.approx(own["score"], abs=1e-6)} for own in ent._.elq_alternatives
            ],
        }
        for ent in doc.ents
    ]


def places(doc):
    return [(ent.text, ent.kb_id_) for ent in doc.ents]


@pytest.fixture(scope="module")
def nlp(trained_path):
    """The pipeline that the server has."""
    return spacy.load(trained_path)


@pytest.fixture(scope="module")
def expected(nlp, gold_docs):
    """What it writes to the docs of the questions."""
    docs = [nlp(doc.text) for doc in gold_docs]
    assert sum(len(doc.ents) for doc in docs) > 20
    return [links_in(doc) for doc in docs]


# ---------------------------------------------------------------------- the same links


@pytest.mark.parametrize("settings", [{}, {"n_process": 2, "batch_size": 3}, {"batch_size": 1}])
def test_stream_has_the_links_of_the_pipeline(server, gold_docs, expected, settings):
    remote = make(server.url, batch_size=4)
    docs = list(remote.pipe([doc.text for doc in gold_docs], **settings))
    assert [links_in(doc) for doc in docs] == expected
    assert {ent._.elq_catalogue for doc in docs for ent in doc.ents} == {server.url}


def test_doc_has_the_links_of_the_pipeline(server, gold_docs, expected):
    remote = make(server.url)
    assert [links_in(remote(doc.text)) for doc in gold_docs] == expected


def test_texts_without_links(server):
    assert [doc.ents for doc in make(server.url).pipe(["", " ", "what time is it"])] == [()] * 3


def test_part_of_the_catalogue_counts_for_a_doc(server, nlp):
    withins = [{"ids": ["E2"]}, None, {"labels": {"GPE"}}, {}, {"ids": ("E2", "E3")}, {"ids": ["E2"]}]
    remote = make(server.url)

    def link(pipeline):
        docs = [pipeline.make_doc(text) for text in [PARIS, NEW_YORK] for _ in withins]
        for doc, within in zip(docs, withins * 2, strict=True):
            doc._.elq_within = within
        return [links_in(doc) for doc in pipeline.pipe(docs)]

    found = link(remote)
    assert found == link(nlp)
    assert [links[0]["entity"][0] for links in found[:6]] == ["E2", "E1", "E1", "E1", "E2", "E2"]


def test_docs_for_which_the_same_counts_are_sent_together():
    with unreliable(no_links) as server:
        remote = make(server.url)
        docs = [remote.make_doc(text) for text in "abcd"]
        docs[1]._.elq_within, docs[3]._.elq_within = {"ids": ["y", "x"]}, {"ids": {"x", "y"}}
        assert [doc.text for doc in remote.pipe(docs)] == ["a", "b", "c", "d"]
    sent = [(request["text"], request.get("within")) for _, _, request in server.requests]
    assert sent == [(["a", "c"], None), (["b", "d"], {"ids": ["x", "y"]})]


def test_restriction_that_is_none(server):
    remote = make(server.url)
    doc = remote.make_doc(PARIS)
    doc._.elq_within = {"ids": "E2"}
    with pytest.raises(ELQError, match="E165"):
        remote(doc)


def test_threshold_and_alternatives(server):
    assert make(server.url, threshold=1.0)(PARIS).ents == ()
    (ent,) = make(server.url, threshold=0.0, alternatives=2)(PARIS).ents[-1:]
    assert [own["id"] for own in ent._.elq_alternatives] == ["E1", "E2"]


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(1000, [3, 3, 1]), (2, [2, 2, 2, 1])], ids=["setting", "argument"]
)
def test_size_of_requests(batch_size, sizes):
    with unreliable(no_links) as server:
        docs = list(make(server.url, batch_size=3).pipe("abcdefg", batch_size=batch_size))
    assert [doc.text for doc in docs] == list("abcdefg")
    assert [len(request["text"]) for _, _, request in server.requests] == sizes


def test_setting_allows_requests_larger_than_those_of_a_client():
    with unreliable(no_links) as server:
        list(make(server.url, batch_size=100).pipe(["a"] * 100))
    assert len(server.requests) == 1


# ---------------------------------------------------------------------- other tokens, other entities


def link(start, end, id_):
    return {
        "start": start,
        "end": end,
        "id": id_,
        "title": id_,
        "label": "X",
        "score": 0.5,
        "alternatives": [],
    }


def crafted(text, *links):
    """RETURNS: An answer with links of a text."""
    return answer({"results": [{"text": text, "links": list(links), "error": None}]})


def test_link_gets_whole_tokens(server):
    remote = make(server.url)
    remote.tokenizer = Tokenizer(remote.vocab)  # at whitespace only
    assert places(remote(f"{PARIS}?")) == [("paris?", "E1")]
    assert places(remote(NEW_YORK)) == [("new york city", "E5")]


def test_later_link_that_would_overlap_is_dropped():
    text = "ab cd-ef gh ij"
    links = [link(0, 5, "A"), link(6, 11, "B"), link(9, 14, "C"), link(12, 14, "D")]
    with unreliable(crafted(text, *links)) as server:
        remote = make(server.url)
        remote.tokenizer = Tokenizer(remote.vocab)
        assert places(remote(text)) == [("ab cd-ef", "A"), ("gh ij", "C")]


def test_link_that_touches_no_token_is_dropped():
    with unreliable(crafted("ab", link(9, 12, "A"), link(0, 2, "B"))) as server:
        assert places(make(server.url)("ab")) == [("ab", "B")]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("overwrite", [("what", ""), ("paris", "E1")]),
        ("keep", [("what", ""), ("near paris", "")]),
        ("replace", [("paris", "E1")]),
    ],
)
def test_entities_of_earlier_components(server, how, expected):
    remote = make(server.url, existing_ents=how)
    ruler = remote.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "X", "pattern": text} for text in ("what", "near paris")])
    assert places(remote(PARIS)) == expected


# ---------------------------------------------------------------------- what goes wrong


@pytest.fixture
def failures(monkeypatch):
    """Short pauses; and what an error handler was given."""
    monkeypatch.setattr("spacy_elq.client._FIRST_PAUSE", 0.01)
    return []


def catch(nlp, failures):
    def handle(name, proc, docs, err):
        failures.append((name, [doc.text for doc in docs], str(err)))

    nlp.set_error_handler(handle)
    return nlp


def test_nobody_there(failures):
    remote = make(NOBODY, retries=0, batch_size=2)
    with pytest.raises(ELQError, match="E205"):
        remote(PARIS)
    with pytest.raises(ELQError, match="E205"):
        list(remote.pipe([PARIS]))
    # those of a request, not all that spaCy gives at a time
    assert list(catch(remote, failures).pipe("abc")) == []
    assert [(name, docs) for name, docs, _ in failures] == [("elq_remote", ["a", "b"]), ("elq_remote", ["c"])]
    # as with all components, a single doc goes on to the next one
    assert remote(PARIS).ents == ()


def test_text_that_fails_does_not_touch_the_others(server, failures):
    remote, long = make(server.url), "x" * 5001
    docs = list(catch(remote, failures).pipe([PARIS, long, NEW_YORK]))
    assert [places(doc) for doc in docs] == [[("paris", "E1")], [("new york city", "E5")]]
    ((name, texts, problem),) = failures
    assert (name, texts) == ("elq_remote", [long])
    assert "E207" in problem
    assert "at most 5000" in problem
    remote = make(server.url)
    with pytest.raises(ELQError, match="E207"):
        list(remote.pipe([PARIS, long]))
    with pytest.raises(ELQError, match="E207"):
        remote(long)


def test_broken_connection_is_tried_again(failures):
    with unreliable(CLOSE, no_links) as server:
        assert len(list(make(server.url).pipe("ab"))) == 2
    assert len(server.requests) == 2
    with unreliable(CLOSE) as server, pytest.raises(ELQError, match="E205"):
        make(server.url, retries=1)("a")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("url", "localhost"),
        ("threshold", 1.1),
        ("alternatives", 101),
        ("alternatives", 0.5),
        ("batch_size", 0),
        ("timeout", 0),
        ("retries", -1),
        ("existing_ents", "drop"),
    ],
)
def test_settings_are_checked(setting, value):
    remote = make(NOBODY).get_pipe("elq_remote")
    with pytest.raises(ELQError, match=rf"E002.*`{setting}` of 'elq_remote'"):
        setattr(remote, setting, value)


# ---------------------------------------------------------------------- a component like others


def test_saved_and_loaded(server, tmp_path):
    remote = make(server.url, batch_size=7)
    remote.to_disk(tmp_path / "remote")
    assert not (tmp_path / "remote" / "elq_remote").exists()
    for loaded in (
        spacy.load(tmp_path / "remote"),
        spacy.blank("en").from_config(remote.config).from_bytes(remote.to_bytes()),
    ):
        assert loaded.get_pipe("elq_remote").batch_size == 7
        assert places(loaded(PARIS)) == [("paris", "E1")]


def test_copies_have_their_own_connections(server):
    remote = make(server.url)
    remote(PARIS)
    http = remote.get_pipe("elq_remote").client._http
    for copied in (pickle.loads(pickle.dumps(remote)), copy.deepcopy(remote)):
        assert places(copied(PARIS)) == [("paris", "E1")]
        assert copied.get_pipe("elq_remote").client._http is not http
    assert remote.get_pipe("elq_remote").client._http is http


def test_settings_that_are_changed_take_effect(server, tmp_path):
    remote = make(NOBODY, retries=0)
    component = remote.get_pipe("elq_remote")
    with pytest.raises(ELQError, match="E205"):
        remote(PARIS)
    component.url = server.url
    assert places(remote(PARIS)) == [("paris", "E1")]
    with pytest.warns(UserWarning, match=r"W006.*'elq_remote'.*: url"):
        remote.to_disk(tmp_path / "remote")
    update_settings(remote, "elq_remote", {"url": server.url, "timeout": 5.0, "retries": 1})
    assert (component.client.timeout, component.client.retries) == (5.0, 1)
    assert remote.config["components"]["elq_remote"]["url"] == server.url


def test_pipeline_is_described():
    analysis = make(NOBODY).analyze_pipes()["summary"]["elq_remote"]
    assert {"doc.ents", "token.ent_kb_id", "span._.elq_score"} <= set(analysis["assigns"])


def test_config_is_filled(tmp_path):
    (tmp_path / "a.cfg").write_text(
        '[nlp]\nlang = "en"\npipeline = ["elq_remote"]\n\n'
        '[components]\n\n[components.elq_remote]\nfactory = "elq_remote"\n',
        encoding="utf8",
    )
    done = run_spacy("init", "fill-config", tmp_path / "a.cfg", tmp_path / "b.cfg")
    assert done.returncode == 0, done.stdout + done.stderr
    filled = spacy.util.load_config(tmp_path / "b.cfg")["components"]["elq_remote"]
    assert filled == {
        "factory": "elq_remote",
        "url": "http://127.0.0.1:8000",
        "threshold": None,
        "alternatives": 10,
        "batch_size": 64,
        "timeout": 30.0,
        "retries": 3,
        "existing_ents": "overwrite",
    }


# ---------------------------------------------------------------------- a light process

HEAVY = ("torch", "faiss", "transformers", "tokenizers", "spacy_transformers", "threadpoolctl")
# before spaCy is imported: no heavy library is there, nor what its entry points register
HIDE = f"""
import importlib.metadata
import sys

class Hidden:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden)
find = importlib.metadata.entry_points
shown = {{
    name: [point for point in find(group=name) if not point.value.startswith("spacy_transformers")]
    for name in find().groups
}}
importlib.metadata.entry_points = lambda **params: find(**params) if params else shown
"""
LINK = """
import json
import sys
import spacy
nlp = spacy.blank("en")
nlp.add_pipe("elq_remote", config={"url": sys.argv[1]})
nlp.to_disk(sys.argv[2])
nlp = spacy.load(sys.argv[2])
docs = list(nlp.pipe(json.loads(sys.argv[3])))
print(json.dumps([[(ent.text, ent.kb_id_, ent._.elq_title) for ent in doc.ents] for doc in docs]))
"""


def run(command, **settings):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, **settings)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def link_elsewhere(python, code, server, folder, gold_docs, **settings):
    """RETURNS: The links of the questions, as another process has them."""
    texts = json.dumps([doc.text for doc in gold_docs])
    return json.loads(run([python, "-c", code, server.url, folder, texts], **settings).splitlines()[-1])


def as_lists(expected):
    return [[[own["place"][2], *own["entity"][:2]] for own in links] for links in expected]


def test_process_without_heavy_libraries(server, gold_docs, expected, tmp_path):
    code = f"{HIDE}\n{LINK}\nassert not set(sys.modules) & set({HEAVY})"
    found = link_elsewhere(sys.executable, code, server, tmp_path / "light", gold_docs)
    assert found == as_lists(expected)


def test_heavy_libraries_are_hidden():
    code = f"{HIDE}\nimport spacy\nspacy.blank('en').add_pipe('elq_linker')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert "No module named" in done.stderr


@pytest.mark.slow
def test_environment_without_heavy_libraries(server, gold_docs, expected, tmp_path):
    venv.create(tmp_path / "light", with_pip=True)
    python = tmp_path / "light" / ("Scripts" if os.name == "nt" else "bin") / "python"
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    clean = {"cwd": tmp_path, "env": {key: own for key, own in os.environ.items() if key not in hidden}}
    run([python, "-m", "pip", "install", "--quiet", f"spacy=={spacy.__version__}", "httpx"], **clean)
    # a copy, since building writes into its source
    for name in ("configs", "spacy_elq"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name)
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.cfg", "setup.py"):
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", tmp_path / "source"], **clean)
    installed = {line.partition("==")[0] for line in run([python, "-m", "pip", "freeze"], **clean).split()}
    assert not installed & {"torch", "faiss-cpu", "transformers", "spacy-transformers"}
    found = link_elsewhere(python, LINK, server, tmp_path / "pipeline", gold_docs, **clean)
    assert found == as_lists(expected)

import pytest
import spacy
from spacy.tokens import DocBin
from spacy.util import registry

from spacy_elq.corpora.chunks import build_chunked_corpus
from spacy_elq.corpora.mixed import build_mixed_corpus


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


@pytest.fixture
def folder(tmp_path, nlp):
    """A file of 20 questions, and two chunks of 15 sentences."""
    (tmp_path / "chunks").mkdir()
    for name, size in (("questions", 20), ("chunks/0", 15), ("chunks/1", 15)):
        DocBin(docs=[nlp.make_doc(f"{name} {i}") for i in range(size)]).to_disk(tmp_path / f"{name}.spacy")
    return tmp_path


@pytest.fixture
def mix(folder, nlp):
    def make(**settings):
        questions = build_chunked_corpus(folder / "questions.spacy")
        read = build_mixed_corpus(questions, build_chunked_corpus(folder / "chunks"), **settings)
        return lambda: [example.text for example in read(nlp)]

    return make


@pytest.mark.parametrize(("share", "n_other"), [(0.0, 0), (0.5, 10), (2.0, 15)])
def test_every_epoch_has_all_of_the_one_and_a_share_of_the_other(mix, share, n_other):
    read = mix(share=share)
    for chunk in ("chunks/0", "chunks/1", "chunks/0"):
        texts = read()
        assert sorted(t for t in texts if t[0] == "q") == sorted(f"questions {i}" for i in range(20))
        others = [text for text in texts if text[0] == "c"]
        assert len(set(others)) == len(others) == n_other
        assert all(text.startswith(chunk) for text in others)


def test_they_are_mixed_another_way_every_epoch(mix):
    read = mix(share=0.5)
    first, second = ([text[0] for text in read()] for _ in range(2))
    assert "c" in first[:20]
    assert first != second


def test_the_seed_decides_the_order(mix):
    assert mix(seed=1)() == mix(seed=1)() != mix(seed=2)()
    assert mix()() == mix(seed=0, share=1.0)()


def test_a_config_can_name_it(folder, nlp):
    config = {
        "@readers": "spacy-elq.MixedCorpus.v1",
        "share": 0.1,
        "corpus": {"@readers": "spacy-elq.ChunkedCorpus.v1", "path": str(folder / "questions.spacy")},
        "other": {"@readers": "spacy-elq.ChunkedCorpus.v1", "path": str(folder / "chunks")},
    }
    read = registry.resolve({"corpus": config})["corpus"]
    assert len(list(read(nlp))) == 22

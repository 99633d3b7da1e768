import pytest
import spacy
from spacy.tokens import DocBin
from spacy.util import registry

from spacy_elq.corpora.chunks import build_chunked_corpus
from spacy_elq.errors import ELQError


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


@pytest.fixture
def folder(tmp_path, nlp):
    """Three files, of 20, 12 and 1 questions; the text of each has the name of its file."""
    for name, size in (("b", 12), ("a", 20), ("c", 1)):
        docs = [nlp.make_doc(f"{name} {i}") for i in range(size)]
        DocBin(docs=docs).to_disk(tmp_path / f"{name}.spacy")
    (tmp_path / "notes.txt").write_text("not a chunk")
    return tmp_path


def texts(read, nlp):
    return [example.text for example in read(nlp)]


def test_each_call_gives_the_next_file_and_after_the_last_the_first(folder, nlp):
    read = build_chunked_corpus(folder)
    calls = [texts(read, nlp) for _ in range(5)]
    assert [{text[0] for text in call} for call in calls] == [{"a"}, {"b"}, {"c"}, {"a"}, {"b"}]
    assert [len(call) for call in calls] == [20, 12, 1, 20, 12]
    assert sorted(calls[0]) == sorted(calls[3]) == sorted(f"a {i}" for i in range(20))


def test_folders_in_the_folder_take_turns(tmp_path, nlp):
    for name in ("wiki/00001", "wiki/00000", "web/00000"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        DocBin(docs=[nlp.make_doc(name)]).to_disk(tmp_path / f"{name}.spacy")
    read = build_chunked_corpus(tmp_path)
    assert [texts(read, nlp) for _ in range(3)] == [["web/00000"], ["wiki/00000"], ["wiki/00001"]]


def test_a_chunk_is_shuffled_and_another_way_the_next_time(folder, nlp):
    read = build_chunked_corpus(folder)
    first, _, _, again = (texts(read, nlp) for _ in range(4))
    assert first != [f"a {i}" for i in range(20)]
    assert first != again


def test_the_seed_decides_the_order(folder, nlp):
    def first(**seed):
        return texts(build_chunked_corpus(folder, **seed), nlp)

    assert first(seed=1) == first(seed=1) != first(seed=2)
    assert first() == first(seed=0)


def test_a_corpus_counts_its_own_turns(folder, nlp):
    one, other = build_chunked_corpus(folder), build_chunked_corpus(folder)
    texts(one, nlp)
    assert texts(other, nlp)[0].startswith("a")


def test_gold_links_are_on_the_reference(tmp_path, nlp, gold_docs):
    DocBin(docs=gold_docs, store_user_data=True).to_disk(tmp_path / "00000.spacy")
    examples = list(build_chunked_corpus(str(tmp_path))(nlp))
    assert sum(len(example.reference.spans["gold_links"]) for example in examples) == 22
    assert not any(example.predicted.ents for example in examples)


def test_a_folder_without_chunks_is_an_error_that_names_it(tmp_path, nlp):
    with pytest.raises(ELQError, match=r"E022.*Expected a folder of \.spacy files") as error:
        list(build_chunked_corpus(tmp_path)(nlp))
    assert str(tmp_path) in str(error.value)


def test_a_config_can_name_it(folder, nlp):
    config = {"@readers": "spacy-elq.ChunkedCorpus.v1", "path": str(folder), "seed": 3}
    corpus = registry.resolve({"corpus": config})["corpus"]
    assert texts(corpus, nlp) == texts(build_chunked_corpus(folder, seed=3), nlp)


def test_a_single_file_is_augmented_anew_every_epoch(folder, nlp):
    seen = []

    def augment(nlp, example):
        seen.append(example.text)
        yield example
        yield example

    read = build_chunked_corpus(folder / "c.spacy", augmenter=augment)
    assert [texts(read, nlp) for _ in range(2)] == [["c 0", "c 0"]] * 2
    assert seen == ["c 0", "c 0"]

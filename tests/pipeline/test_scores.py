"""The scores in a pipeline's meta were measured with one catalogue: with another one they go."""

import json
import pickle

import pytest
import spacy
from conftest import ENTITIES, run_spacy
from index_world import make_entity, make_index
from spacy.tokens import DocBin

from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, encode_catalogue

OTHERS = {"tag_acc": 0.5, "elq_linker_loss": 3.5, "elq_pairs_acc": 0.25, "elq_spans_r": 0.75}
SCORES = {**OTHERS, "elq_weak_f": 0.5, "elq_weak_p": 0.5, "elq_strong_f": 0.25, "elq_links_f": 0.75}
PATH = "components.elq_linker.index_path"


@pytest.fixture(scope="module")
def other_index(entity_encoder, tmp_path_factory):
    """An index of the same encoder with other entities."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "entities.jsonl").write_text("".join(json.dumps(e) + "\n" for e in ENTITIES[:7]))
    encode_catalogue(folder / "entities.jsonl", folder / "vectors", entity_encoder)
    return build_index(folder / "vectors", folder / "index")


@pytest.fixture
def saved(make_pipeline, tmp_path):
    """A pipeline on disk, with scores."""
    nlp = make_pipeline("tok2vec")
    nlp.meta["performance"] = dict(SCORES)
    nlp.to_disk(tmp_path / "pipeline")
    return tmp_path / "pipeline"


def scores_of(nlp, folder):
    """RETURNS: The scores that are saved with a pipeline."""
    nlp.to_disk(folder)
    return json.loads((folder / "meta.json").read_text(encoding="utf8"))["performance"]


def test_scores_stay_with_their_catalogue(saved, index, tmp_path):
    assert scores_of(spacy.load(saved), tmp_path / "again") == SCORES
    same = spacy.load(saved, config={PATH: str(index.path)})
    assert scores_of(same, tmp_path / "again") == SCORES
    same.get_pipe("elq_linker").set_index(EntityIndex.open(index.path))
    assert scores_of(same, tmp_path / "again") == SCORES


def test_scores_go_when_a_pipeline_is_loaded_with_another_catalogue(saved, other_index, tmp_path):
    nlp = spacy.load(saved, config={PATH: str(other_index.path)})
    assert nlp.meta["performance"] == OTHERS
    assert scores_of(nlp, tmp_path / "new") == OTHERS
    # the scores of another evaluation are those of the new catalogue
    nlp.meta["performance"] = dict(SCORES)
    assert scores_of(nlp, tmp_path / "newer") == SCORES
    assert spacy.load(tmp_path / "newer").meta["performance"] == SCORES


@pytest.mark.parametrize("how", ["method", "attribute"])
def test_scores_go_when_another_catalogue_is_attached(saved, other_index, tmp_path, how):
    nlp = spacy.load(saved)
    linker = nlp.get_pipe("elq_linker")
    if how == "method":
        linker.set_index(other_index)
    else:
        linker.index = other_index
    assert linker.index is other_index
    assert scores_of(nlp, tmp_path / "new") == OTHERS


def test_an_index_is_checked_however_it_is_attached(saved, quick_path):
    linker = spacy.load(saved).get_pipe("elq_linker")
    before = linker.index
    with pytest.raises(ELQError, match="E003"):
        linker.index = make_index(quick_path, [make_entity(1)])
    assert linker.index is before
    linker.index = None
    assert linker.index is None


def test_scores_go_when_the_catalogue_at_the_path_was_replaced(saved, index, other_index, tmp_path):
    (tmp_path / "place").symlink_to(index.path)
    place = {PATH: str(tmp_path / "place")}
    assert scores_of(spacy.load(saved, config=place), tmp_path / "pointing") == SCORES
    (tmp_path / "place").unlink()
    (tmp_path / "place").symlink_to(other_index.path)
    record = tmp_path / "pointing" / "elq_linker" / "index.json"
    record.write_text(record.read_text().replace(str(index.path.resolve()), str(other_index.path)))
    assert "elq_weak_f" not in spacy.load(tmp_path / "pointing", config=place).meta["performance"]


@pytest.mark.parametrize("how", ["pickle", "bytes"])
def test_a_copy_drops_its_own_scores(saved, other_index, tmp_path, how):
    nlp = spacy.load(saved)
    if how == "pickle":
        copy = pickle.loads(pickle.dumps(nlp))
    else:
        copy = spacy.util.load_model_from_config(nlp.config, auto_fill=True).from_bytes(nlp.to_bytes())
    copy.get_pipe("elq_linker").set_index(other_index)
    assert scores_of(copy, tmp_path / "copy") == OTHERS
    assert scores_of(nlp, tmp_path / "original") == SCORES


def test_a_new_pipeline_without_scores(make_pipeline, other_index):
    nlp = make_pipeline("tok2vec")
    nlp.get_pipe("elq_linker").set_index(other_index)
    assert "performance" not in nlp.meta


def test_a_component_without_a_pipeline(make_pipeline, other_index):
    linker = pickle.loads(pickle.dumps(make_pipeline("tok2vec").get_pipe("elq_linker")))
    linker.set_index(other_index)
    assert linker.index is other_index


def test_scores_go_with_the_command(train_once, other_index, gold_docs, tmp_path):
    nlp = spacy.load(train_once("tok2vec"))
    nlp.meta["performance"] = dict(SCORES)
    nlp.to_disk(tmp_path / "pipeline")
    DocBin(docs=gold_docs, store_user_data=True).to_disk(tmp_path / "gold.spacy")
    options = ["--index", other_index.path, "--output", tmp_path / "new"]
    done = run_spacy("elq", "threshold", tmp_path / "pipeline", tmp_path / "gold.spacy", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "new" / "meta.json").read_text())["performance"] == OTHERS

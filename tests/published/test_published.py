"""A checkpoint in the published layout, with random weights: what the pipeline made of it computes is
compared with the formulas of the paper, written out once more with torch."""

import math
import shutil
from pathlib import Path

import faiss
import numpy as np
import pytest
import spacy
import srsly
import torch
from conftest import PUBLISHED_FILES, change, published_links
from conftest import PUBLISHED_PARAMS as PARAMS
from conftest import PUBLISHED_QUESTIONS as QUESTIONS
from conftest import PUBLISHED_TITLES as TITLES

from spacy_elq.errors import ELQError
from spacy_elq.index import build_index, encode_catalogue
from spacy_elq.model.entity_encoder import EntityEncoder, open_encoder
from spacy_elq.published.importer import import_, open_published, read_params


def run_import(published, output, **changes):
    arguments = {option: published / name for option, name in PUBLISHED_FILES.items()}
    arguments.update(changes)
    import_(arguments.pop("checkpoint"), output, **arguments)
    return output


@pytest.fixture(scope="module")
def imported(published, tmp_path_factory):
    return run_import(published, tmp_path_factory.mktemp("imported") / "pipeline")


@pytest.mark.parametrize("threshold", [-6.0, -2.9, -1.5])
@pytest.mark.parametrize("text", QUESTIONS)
def test_links_and_scores_are_those_of_the_formulas(published, imported, text, threshold):
    nlp = spacy.load(imported)
    nlp.get_pipe("elq_linker").threshold = math.exp(threshold)
    index = nlp.get_pipe("elq_linker").index
    found = {
        (ent.start_char, ent.end_char, int(index.positions([ent.kb_id_])[0])): math.log(ent._.elq_score)
        for ent in nlp(text).ents
    }
    expected = published_links(published, text, threshold)
    assert found == {key: pytest.approx(score, abs=3e-4) for key, score in expected.items()}


def test_the_questions_have_links(published):
    assert all(published_links(published, text, -6.0) for text in QUESTIONS)


def test_only_the_best_mentions_compete(published, imported):
    nlp = spacy.load(imported)
    linker = nlp.get_pipe("elq_linker")
    assert linker.mention_limit == 50
    change(linker, mention_limit=3, threshold=math.exp(-6.0))
    found = {(ent.start_char, ent.end_char) for ent in nlp(QUESTIONS[-1]).ents}
    limited = published_links(published, QUESTIONS[-1], -6.0, limit=3)
    assert found == {key[:2] for key in limited}
    assert len(limited) < len(published_links(published, QUESTIONS[-1], -6.0))


def test_mentions_are_one_piece_longer_than_the_params_say(imported):
    assert spacy.load(imported).get_pipe("elq_linker").max_length == PARAMS["max_mention_length"] + 1


def test_the_entity_encoder_is_kept_and_gives_the_same_vectors(published, imported):
    encoder = EntityEncoder(str(imported / "entity_encoder"))
    assert (encoder.settings["pooling"], encoder.settings["max_length"]) == ("cls", 48)
    index = spacy.load(imported).get_pipe("elq_linker").index
    vectors = encoder.encode([index.entity(i) for i in range(len(index))], batch_size=4)
    np.testing.assert_allclose(vectors, torch.load(published / PUBLISHED_FILES["vectors"]).numpy(), atol=1e-5)
    assert index.stamp["encoder"] == encoder.fingerprint


def test_entities_can_be_added_later(imported, tmp_path):
    index = spacy.load(imported).get_pipe("elq_linker").index
    encoder = open_encoder(index.meta["encoder"], index.path)
    (tmp_path / "more.jsonl").write_text('{"id": "new", "title": "Paris"}\n', encoding="utf8")
    encode_catalogue(tmp_path / "more.jsonl", tmp_path / "vectors", encoder)
    nlp = spacy.load(imported)
    linker = nlp.get_pipe("elq_linker")
    linker.set_index(build_index(tmp_path / "vectors", tmp_path / "index"))
    linker.threshold = 0.001
    assert {ent.kb_id_ for ent in nlp(QUESTIONS[0]).ents} == {"new"}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ("wikidata", ["Q0", "Q1", "Q2", "curid:103", "curid:104", "curid:105", "Q6", "Q7", "Q8", "Q9"]),
        ("title", TITLES),
        ("curid", [str(100 + i) for i in range(10)]),
    ],
)
def test_ids_are_as_chosen_and_the_others_beside(published, tmp_path, ids, expected):
    index = spacy.load(run_import(published, tmp_path / "out", ids=ids)).get_pipe("elq_linker").index
    entities = [index.entity(i) for i in range(len(index))]
    assert [entity.id for entity in entities] == expected
    others = {"wikidata": "Q2", "title": "New York City", "curid": "102"}
    assert entities[2].ids == {key: value for key, value in others.items() if key != ids}
    assert entities[1].description == "Mercury is a thing."
    assert entities[0].description == ""


def test_an_index_is_built_where_none_is_given(published, tmp_path):
    nlp = spacy.load(run_import(published, tmp_path / "out", index=None, factory="HNSW16"))
    assert nlp.get_pipe("elq_linker").index.meta["backend"]["factory"] == "HNSW16"
    assert nlp(QUESTIONS[0]).text == QUESTIONS[0]


def test_the_published_index_is_used_in_place(published, imported):
    index = spacy.load(imported).get_pipe("elq_linker").index
    (search,) = index.path.glob("search-*.faiss")
    assert search.samefile(published / PUBLISHED_FILES["index"])
    assert index.meta["backend"] == {"factory": "HNSW128", "efConstruction": 40, "efSearch": 16}


def test_a_text_longer_than_the_encoder_has_positions(published, encoder_path, tmp_path):
    folder = shutil.copytree(encoder_path, tmp_path / "bert")
    settings = srsly.read_json(folder / "tokenizer_config.json")
    assert settings.pop("model_max_length")
    srsly.write_json(folder / "tokenizer_config.json", settings)
    nlp = spacy.load(run_import(published, tmp_path / "out", bert=str(folder)))
    nlp.get_pipe("elq_linker").threshold = 0.001
    assert nlp("paris mercury " * 100).ents


def changed(published, tmp_path, change):
    state = dict(torch.load(published / PUBLISHED_FILES["checkpoint"], weights_only=True))
    change(state)
    torch.save(state, tmp_path / "changed.bin")
    return tmp_path / "changed.bin"


KEY = "cand_encoder.bert_model.encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop(KEY), r"encoder.layer.1.output.dense.weight is missing"),
        (lambda s: s.update({KEY: torch.zeros(2, 2)}), r"has shape \(2, 2\) instead of \(48, 96\)"),
        (lambda s: s.update({KEY + "2": torch.zeros(2)}), r"dense.weight2 is unknown"),
        (lambda s: s.update({"other": torch.zeros(2)}), r"unknown tensors other"),
        (
            lambda s: s.pop("classification_heads.mention_scores.bound_classifier.bias"),
            r"no tensor .*bound_classifier.bias",
        ),
        (
            lambda s: s.update(
                {"classification_heads.mention_scores.bound_classifier.weight": torch.zeros(2, 48)}
            ),
            r"of shape \(2, 48\)",
        ),
    ],
    ids=["missing", "shape", "unknown in encoder", "unknown", "no head", "head of two"],
)
def test_a_checkpoint_with_other_tensors_is_refused(published, tmp_path, change, message):
    checkpoint = changed(published, tmp_path, change)
    with pytest.raises(ELQError, match=message):
        run_import(published, tmp_path / "out", checkpoint=checkpoint)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["changed.bin"]


def test_a_buffer_of_old_versions_is_no_unknown_tensor(published, tmp_path):
    buffer = {
        f"{p}_encoder.bert_model.embeddings.position_ids": torch.arange(64)[None] for p in ("context", "cand")
    }
    checkpoint = changed(published, tmp_path, lambda state: state.update(buffer))
    assert spacy.load(run_import(published, tmp_path / "out", checkpoint=checkpoint))("paris").text == "paris"


def write(path: Path, value):
    torch.save(value, path)
    return path


def hnsw(path: Path, count):
    index = faiss.IndexHNSWFlat(48, 16, faiss.METRIC_INNER_PRODUCT)
    index.add(np.random.default_rng(0).random((count, 48), dtype="float32"))
    faiss.write_index(index, str(path))
    return path


def flat(path: Path):
    faiss.write_index(faiss.IndexFlatIP(48), str(path))
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda p: {"vectors": write(p / "v", torch.zeros(10, 48).double())},
            "something else than a float32 matrix",
        ),
        (lambda p: {"index": hnsw(p / "i", 7)}, "an index of 7 vectors of width 48 for 10 of width 48"),
        (lambda p: {"index": write(p / "i", torch.zeros(3))}, "no FAISS index, or only a part of one"),
        (lambda p: {"index": flat(p / "i")}, "a FAISS index of the type IndexFlatIP, not IndexHNSWFlat"),
        (lambda p: {"checkpoint": write(p / "c", torch.zeros(3))}, "a single tensor, not a checkpoint"),
        (lambda p: {"bert": str(p / "nowhere")}, "nowhere"),
    ],
    ids=["dtype", "count", "no index", "other index", "no checkpoint", "no bert"],
)
def test_files_that_do_not_fit_are_refused_and_leave_nothing(published, tmp_path, make, message):
    changes = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ELQError, match=message):
        run_import(published, tmp_path / "out", **changes)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.99])
def test_a_part_of_an_index_is_refused(published, tmp_path, share):
    data = (published / PUBLISHED_FILES["index"]).read_bytes()
    (tmp_path / "cut.pkl").write_bytes(data[: int(share * len(data))])
    with pytest.raises(ELQError, match=r"no FAISS index, or only a part of one .*fetch it again"):
        run_import(published, tmp_path / "out", index=tmp_path / "cut.pkl")


def test_a_folder_that_is_there_is_not_touched(published, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(ELQError, match="E053"):
        run_import(published, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'bert_model': open('x')}", "no Python; expected the one-line Python dict"),
        ("['bert_model']", "no `bert_model` in it"),
        ("{'a': 1}", "no `bert_model` in it"),
        (repr({**PARAMS, "mention_aggregation_type": "fl_avg"}), "mention_aggregation_type is 'fl_avg'"),
    ],
)
def test_params_of_another_kind_are_refused(tmp_path, text, message):
    (tmp_path / "params.txt").write_text(text, encoding="utf8")
    with pytest.raises(ELQError, match=message):
        read_params(tmp_path / "params.txt")


@pytest.mark.parametrize("option", PUBLISHED_FILES)
def test_a_missing_file_is_an_error_that_names_it(published, tmp_path, option):
    with pytest.raises(ELQError, match=r"E022.*nothing"):
        run_import(published, tmp_path / "out", **{option: tmp_path / "nothing"})


def test_encoders_can_come_from_another_folder(published, encoder_path, tmp_path):
    (tmp_path / "params.txt").write_text(
        repr({**PARAMS, "bert_model": "bert-large-uncased"}), encoding="utf8"
    )
    arguments = [published / PUBLISHED_FILES[key] for key in ("checkpoint", "entities", "vectors")]
    arguments.insert(1, tmp_path / "params.txt")
    assert open_published(*arguments).bert == "bert-large-uncased"
    assert open_published(*arguments, bert=str(encoder_path)).bert == str(encoder_path)

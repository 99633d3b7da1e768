"""A checkpoint in the published layout, with random weights: what the pipeline made of it computes is
compared with the formulas of the paper, written out once more with torch."""

import json
import math
from pathlib import Path

import faiss
import numpy as np
import pytest
import spacy
import torch
from transformers import AutoModel, AutoTokenizer

from spacy_elq.cli.import_ import import_
from spacy_elq.entity_encoder import EntityEncoder
from spacy_elq.errors import ELQError
from spacy_elq.index import build_index, encode_catalogue
from spacy_elq.published import check_hnsw_file, open_published, read_params

PARAMS = {
    "bert_model": "bert",
    "max_context_length": 64,
    "max_cand_length": 48,
    "max_mention_length": 3,
    "mention_aggregation_type": "all_avg",
    "mention_scoring_method": "qa_linear",
    "no_mention_bounds": True,
    "add_linear": False,
    "pull_from_layer": -1,
    "lowercase": True,
}
TITLES = [
    "Paris",
    "Mercury",
    "New York City",
    "Georgia",
    "Jaguar Cars",
    "Shaq",
    "Texas",
    "Light",
    "Metal",
    "Atlanta",
]
QUESTIONS = [
    "what is the capital near paris",
    "is mercury a metal",
    "shaq's jaguar in new-york city",
    "georgia",
    "from texas to atlanta and paris and georgia and mercury and the city of light",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory, encoder_path):
    """A folder with every file of a published model."""
    folder = tmp_path_factory.mktemp("published")
    torch.manual_seed(3)
    state = {}
    for prefix in ("context_encoder", "cand_encoder"):
        bert = AutoModel.from_pretrained(encoder_path)
        for key, value in bert.state_dict().items():
            noise = 0.05 * torch.randn_like(value) if value.is_floating_point() else 0
            state[f"{prefix}.bert_model.{key}"] = value + noise
    state["classification_heads.mention_scores.bound_classifier.weight"] = 0.3 * torch.randn(3, 48)
    state["classification_heads.mention_scores.bound_classifier.bias"] = torch.tensor([-0.5, 0.2, -0.3])
    torch.save(state, folder / "elq.bin")
    (folder / "params.txt").write_text(repr(PARAMS), encoding="utf8")
    (folder / "bert").symlink_to(encoder_path)
    lines = [
        {"text": f" {title} is a thing." if i else "", "idx": f"https://x.org/wiki?curid={100 + i}"}
        | {"title": title, "entity": title}
        | ({"kb_idx": f"Q{i}"} if i not in (3, 4) else {})
        for i, title in enumerate(TITLES)
    ]
    lines[5]["kb_idx"] = "Q1"
    (folder / "entity.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf8")
    vectors = reference_vectors(folder, state, lines)
    torch.save(vectors, folder / "vectors.t7")
    index = faiss.IndexHNSWFlat(48, 128, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors.numpy())
    faiss.write_index(index, str(folder / "hnsw.pkl"))
    return folder


def load_bert(folder, state, prefix):
    bert = AutoModel.from_pretrained(folder / "bert")
    bert.load_state_dict({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})
    return bert.eval()


@torch.inference_mode()
def reference_vectors(folder, state, lines):
    tokenizer = AutoTokenizer.from_pretrained(folder / "bert")
    bert = load_bert(folder, state, "cand_encoder.bert_model.")
    rows = []
    for line in lines:
        pieces = [*tokenizer.tokenize(line["title"]), "[unused2]", *tokenizer.tokenize(line["text"])][:46]
        ids = tokenizer.convert_tokens_to_ids(["[CLS]", *pieces, "[SEP]"])
        rows.append(bert(torch.tensor([ids])).last_hidden_state[0, 0])
    return torch.stack(rows)


@torch.inference_mode()
def reference_links(folder, text, threshold, limit=50):
    """Spans of whole words, the best `limit` of them, joint scores, greedy."""
    state = torch.load(folder / "elq.bin", weights_only=True)
    vectors = torch.load(folder / "vectors.t7", weights_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder / "bert")
    encoded = tokenizer(text, return_offsets_mapping=True)
    words, offsets = encoded.word_ids()[1:-1], encoded["offset_mapping"][1:-1]
    bert = load_bert(folder, state, "context_encoder.bert_model.")
    states = bert(torch.tensor([encoded["input_ids"]])).last_hidden_state[0, 1:-1]
    head = "classification_heads.mention_scores.bound_classifier."
    start, end, inside = (states @ state[head + "weight"].T + state[head + "bias"]).T
    spans = []
    for i in range(len(words)):
        for j in range(i, min(i + PARAMS["max_mention_length"] + 1, len(words))):
            starts = i == 0 or words[i - 1] != words[i]
            ends = j == len(words) - 1 or words[j + 1] != words[j]
            if starts and ends:
                spans.append((float(start[i] + end[j] + inside[i : j + 1].sum()), i, j))
    links = []
    for logit, i, j in sorted(spans, reverse=True)[:limit]:
        similarities = states[i : j + 1].mean(0) @ vectors.T
        best = similarities.topk(10)
        score = float(torch.log_softmax(best.values, 0)[0]) - math.log1p(math.exp(-logit))
        if score >= threshold:
            links.append((score, i, j, int(best.indices[0])))
    chosen = []
    for score, i, j, row in sorted(links, reverse=True):
        if all(j < a or b < i for _, a, b, _ in chosen):
            chosen.append((score, i, j, row))
    return {(offsets[i][0], offsets[j][1], row): score for score, i, j, row in chosen}


def run_import(files, output, **changes):
    arguments = {
        "params": files / "params.txt",
        "entities": files / "entity.jsonl",
        "vectors": files / "vectors.t7",
        "index": files / "hnsw.pkl",
        **changes,
    }
    checkpoint = arguments.pop("checkpoint", files / "elq.bin")
    import_(checkpoint, output, **arguments)
    return output


@pytest.fixture(scope="module")
def imported(files, tmp_path_factory):
    return run_import(files, tmp_path_factory.mktemp("imported") / "pipeline")


@pytest.mark.parametrize("threshold", [-6.0, -2.9, -1.5])
@pytest.mark.parametrize("text", QUESTIONS)
def test_links_and_scores_are_those_of_the_formulas(files, imported, text, threshold):
    nlp = spacy.load(imported)
    nlp.get_pipe("elq_linker").cfg["threshold"] = math.exp(threshold)
    index = nlp.get_pipe("elq_linker").index
    found = {
        (ent.start_char, ent.end_char, int(index.positions([ent.kb_id_])[0])): math.log(ent._.elq_score)
        for ent in nlp(text).ents
    }
    expected = reference_links(files, text, threshold)
    assert found == {key: pytest.approx(score, abs=3e-4) for key, score in expected.items()}


def test_the_questions_have_links(files):
    assert all(reference_links(files, text, -6.0) for text in QUESTIONS)


def test_only_the_best_mentions_compete(files, imported):
    nlp = spacy.load(imported)
    linker = nlp.get_pipe("elq_linker")
    assert linker.cfg["mention_limit"] == 50
    linker.cfg.update(mention_limit=3, threshold=math.exp(-6.0))
    found = {(ent.start_char, ent.end_char) for ent in nlp(QUESTIONS[-1]).ents}
    limited = reference_links(files, QUESTIONS[-1], -6.0, limit=3)
    assert found == {key[:2] for key in limited}
    assert len(limited) < len(reference_links(files, QUESTIONS[-1], -6.0))


def test_mentions_are_one_piece_longer_than_the_params_say(imported):
    assert spacy.load(imported).get_pipe("elq_linker").cfg["max_length"] == PARAMS["max_mention_length"] + 1


def test_the_entity_encoder_is_kept_and_gives_the_same_vectors(files, imported):
    encoder = EntityEncoder(str(imported / "entity_encoder"), pooling="cls", max_length=48)
    index = spacy.load(imported).get_pipe("elq_linker").index
    vectors = encoder.encode([index.entity(i) for i in range(len(index))], batch_size=4)
    np.testing.assert_allclose(vectors, torch.load(files / "vectors.t7").numpy(), atol=1e-5)
    assert index.stamp["encoder"] == encoder.fingerprint


def test_entities_can_be_added_later(imported, tmp_path):
    encoder = EntityEncoder(str(imported / "entity_encoder"), pooling="cls", max_length=48)
    (tmp_path / "more.jsonl").write_text('{"id": "new", "title": "Paris"}\n', encoding="utf8")
    encode_catalogue(tmp_path / "more.jsonl", tmp_path / "vectors", encoder)
    nlp = spacy.load(imported)
    linker = nlp.get_pipe("elq_linker")
    linker.set_index(build_index(tmp_path / "vectors", tmp_path / "index"))
    linker.cfg["threshold"] = 0.001
    assert {ent.kb_id_ for ent in nlp(QUESTIONS[0]).ents} == {"new"}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ("wikidata", ["Q0", "Q1", "Q2", "curid:103", "curid:104", "curid:105", "Q6", "Q7", "Q8", "Q9"]),
        ("title", TITLES),
        ("curid", [str(100 + i) for i in range(10)]),
    ],
)
def test_ids_are_as_chosen_and_the_others_beside(files, tmp_path, ids, expected):
    index = spacy.load(run_import(files, tmp_path / "out", ids=ids)).get_pipe("elq_linker").index
    entities = [index.entity(i) for i in range(len(index))]
    assert [entity.id for entity in entities] == expected
    others = {"wikidata": "Q2", "title": "New York City", "curid": "102"}
    assert entities[2].ids == {key: value for key, value in others.items() if key != ids}
    assert entities[1].description == "Mercury is a thing."
    assert entities[0].description == ""


def test_an_index_is_built_where_none_is_given(files, tmp_path):
    nlp = spacy.load(run_import(files, tmp_path / "out", index=None, factory="HNSW16"))
    assert nlp.get_pipe("elq_linker").index.meta["backend"]["factory"] == "HNSW16"
    assert nlp(QUESTIONS[0]).text == QUESTIONS[0]


def test_the_published_index_is_used_as_it_is(files, imported):
    index = spacy.load(imported).get_pipe("elq_linker").index
    search = index.path / index.meta["files"]["search.faiss"]["name"]
    assert search.read_bytes() == (files / "hnsw.pkl").read_bytes()


def changed(files, tmp_path, change):
    state = dict(torch.load(files / "elq.bin", weights_only=True))
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
def test_a_checkpoint_with_other_tensors_is_refused(files, tmp_path, change, message):
    checkpoint = changed(files, tmp_path, change)
    with pytest.raises(ELQError, match=message):
        run_import(files, tmp_path / "out", checkpoint=checkpoint)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["changed.bin"]


def test_a_buffer_of_old_versions_is_no_unknown_tensor(files, tmp_path):
    buffer = {
        f"{p}_encoder.bert_model.embeddings.position_ids": torch.arange(64)[None] for p in ("context", "cand")
    }
    checkpoint = changed(files, tmp_path, lambda state: state.update(buffer))
    assert (
        spacy.load(run_import(files, tmp_path / "out", checkpoint=checkpoint)).pipe_names[-1] == "elq_linker"
    )


def write(path: Path, value):
    torch.save(value, path)
    return path


def hnsw(path: Path, width, count, metric):
    index = faiss.IndexHNSWFlat(width, 16, metric)
    index.add(np.random.default_rng(0).random((count, width), dtype="float32"))
    faiss.write_index(index, str(path))
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda p: {"vectors": write(p / "v", torch.zeros(10, 32))},
            "vectors of width 32, but .* has width 48",
        ),
        (
            lambda p: {"vectors": write(p / "v", torch.zeros(9, 48)), "index": None},
            "9 vectors for 10 entities",
        ),
        (lambda p: {"vectors": write(p / "v", torch.zeros(10, 48).double())}, "not a float32 matrix"),
        (lambda p: {"index": hnsw(p / "i", 49, 10, faiss.METRIC_L2)}, "by L2 distance, of width 49"),
        (lambda p: {"index": hnsw(p / "i", 48, 7, faiss.METRIC_INNER_PRODUCT)}, "an index of 7 vectors"),
        (lambda p: {"index": write(p / "i", torch.zeros(3))}, "not a FAISS HNSW index"),
        (lambda p: {"checkpoint": write(p / "c", torch.zeros(3))}, "a single tensor, not a checkpoint"),
        (lambda p: {"bert": str(p / "nowhere")}, "nowhere"),
    ],
    ids=["width", "fewer vectors", "dtype", "L2", "count", "no index", "no checkpoint", "no bert"],
)
def test_files_that_do_not_fit_are_refused_and_leave_nothing(files, tmp_path, make, message):
    changes = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ELQError, match=message):
        run_import(files, tmp_path / "out", **changes)
    assert sorted(tmp_path.iterdir()) == before


def test_a_truncated_checkpoint_is_refused(files, tmp_path):
    data = (files / "elq.bin").read_bytes()
    (tmp_path / "cut.bin").write_bytes(data[: len(data) // 2])
    with pytest.raises(ELQError, match="E049"):
        run_import(files, tmp_path / "out", checkpoint=tmp_path / "cut.bin")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_not_touched(files, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(ELQError, match="E053"):
        run_import(files, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(PARAMS), "JSON, not the one-line Python dict"),
        ("{'bert_model': open('x')}", "not the one-line Python dict"),
        ("['bert_model']", "no `bert_model` in it"),
        ("{'a': 1}", "no `bert_model` in it"),
        (repr({**PARAMS, "mention_aggregation_type": "fl_avg"}), "mention_aggregation_type is 'fl_avg'"),
    ],
)
def test_params_of_another_kind_are_refused(tmp_path, text, message):
    (tmp_path / "params.txt").write_text(text, encoding="utf8")
    with pytest.raises(ELQError, match=message):
        read_params(tmp_path / "params.txt")


def test_missing_files_are_errors_that_name_them(files, tmp_path):
    with pytest.raises(ELQError, match=r"E022.*nothing"):
        read_params(tmp_path / "nothing")
    with pytest.raises(ELQError, match=r"E022.*nothing"):
        check_hnsw_file(tmp_path / "nothing", (10, 48))


def test_encoders_can_come_from_another_folder(files, encoder_path, tmp_path):
    (tmp_path / "params.txt").write_text(
        repr({**PARAMS, "bert_model": "bert-large-uncased"}), encoding="utf8"
    )
    arguments = (files / "elq.bin", tmp_path / "params.txt", files / "vectors.t7", None)
    assert open_published(*arguments).bert == "bert-large-uncased"
    assert open_published(*arguments, bert=str(encoder_path)).bert == str(encoder_path)

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import ENTITIES
from thinc.api import Adam
from transformers import AutoModel, AutoTokenizer, BertModel, BertTokenizerFast

from spacy_elq.catalogue import entity_from_dict
from spacy_elq.errors import ELQError
from spacy_elq.model.entity_encoder import EntityEncoder, build_entity_tower
from spacy_elq.types import Entity

PARIS = Entity("E1", "Paris", "Capital of France.", aliases=("City of Light", "Texas"))
CATALOGUE = [entity_from_dict(entity) for entity in ENTITIES]


@pytest.fixture(scope="module")
def load(encoder_path):
    def make(path=encoder_path, **settings):
        return EntityEncoder(str(path), **{"max_length": 48, **settings})

    return make


@pytest.fixture(scope="module")
def pieces(encoder_path):
    """The word pieces of one entity as text."""
    tokenizer = AutoTokenizer.from_pretrained(encoder_path)

    def convert(encoder, entity):
        return " ".join(tokenizer.convert_ids_to_tokens(encoder.word_pieces([entity])[0]))

    return convert


def copy_of(encoder_path, tmp_path):
    return shutil.copytree(encoder_path, tmp_path / "encoder")


def test_word_pieces_are_title_ent_description(load, pieces):
    assert pieces(load(), PARIS) == "[CLS] paris [unused2] capital of france . [SEP]"


def test_an_empty_description_leaves_the_ent_piece(load, pieces):
    assert pieces(load(), Entity("E1", "Paris")) == "[CLS] paris [unused2] [SEP]"


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        (8, "[CLS] paris [unused2] capital of france . [SEP]"),
        (7, "[CLS] paris [unused2] capital of france [SEP]"),
        (4, "[CLS] paris [unused2] [SEP]"),
    ],
)
def test_a_long_text_is_cut_before_the_last_separator(load, pieces, max_length, expected):
    assert pieces(load(max_length=max_length), PARIS) == expected


def test_a_long_title_leaves_no_room_for_the_description(load, pieces):
    entity = Entity("E1", "new york city of light", "Capital of France.")
    assert pieces(load(max_length=5), entity) == "[CLS] new york city [SEP]"


def test_aliases_stand_before_the_description_if_asked_for(load, pieces):
    text = "[CLS] paris [unused2] city of light , texas . capital of france . [SEP]"
    assert pieces(load(aliases=True), PARIS) == text


def test_an_entity_without_aliases_reads_the_same_with_the_setting(load, pieces):
    entity = Entity("E1", "Paris", "Capital of France.")
    assert pieces(load(aliases=True), entity) == pieces(load(), entity)


def test_ent_token_can_be_chosen(load, pieces):
    assert pieces(load(ent_token="[unused0]"), PARIS).startswith("[CLS] paris [unused0] capital")


def test_the_separator_stands_in_where_the_vocabulary_has_no_unused2(load, encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    vocab = (folder / "vocab.txt").read_text(encoding="utf8").replace("[unused2]", "[unused9]")
    (folder / "vocab.txt").write_text(vocab, encoding="utf8")
    tokenizer = BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    ids = load(folder).word_pieces([PARIS])[0]
    assert tokenizer.decode(ids) == "[CLS] paris [SEP] capital of france. [SEP]"


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_equals_a_plain_forward_pass(load, encoder_path, pooling):
    encoder = load(pooling=pooling)
    model = AutoModel.from_pretrained(encoder_path).eval()
    with torch.inference_mode():
        states = model(torch.tensor(encoder.word_pieces([PARIS]))).last_hidden_state[0].numpy()
    expected = states.mean(axis=0) if pooling == "mean" else states[0]
    # in a batch with longer and shorter texts, so that it is padded
    vectors = encoder.encode([*CATALOGUE, PARIS, Entity("X", "x")], batch_size=64)
    np.testing.assert_allclose(vectors[-2], expected, atol=1e-5)


def test_vectors_are_float32_of_the_width(load):
    encoder = load()
    vectors = encoder.encode(CATALOGUE, batch_size=4)
    assert vectors.shape == (len(CATALOGUE), encoder.width) == (10, 48)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_batches_change_neither_vectors_nor_order(load, batch_size, pooling):
    encoder = load(pooling=pooling)
    one_by_one = np.concatenate([encoder.encode([entity], batch_size=1) for entity in CATALOGUE])
    assert len({len(ids) for ids in encoder.word_pieces(CATALOGUE)}) > 5
    np.testing.assert_allclose(encoder.encode(CATALOGUE, batch_size=batch_size), one_by_one, atol=1e-5)


def test_norm_changes_the_length_of_vectors_and_nothing_else(load):
    plain, scaled = (load(norm=norm).encode(CATALOGUE, batch_size=4) for norm in (0.0, 3.0))
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert lengths.std() > 0.01
    np.testing.assert_allclose(scaled, plain * 3.0 / lengths, rtol=1e-5)
    assert scaled.dtype == np.float32


def test_texts_of_similar_length_share_a_batch(load):
    encoder, widths = load(), []
    encoder._model.embeddings.word_embeddings.register_forward_hook(
        lambda layer, inputs, output: widths.append(inputs[0].shape[1])
    )
    encoder.encode(CATALOGUE, batch_size=2)
    lengths = sorted(len(ids) for ids in encoder.word_pieces(CATALOGUE))
    assert sorted(widths) == lengths[1::2]


def test_fingerprint_is_the_same_after_loading_again(load):
    assert load().fingerprint == load().fingerprint


def test_fingerprint_does_not_depend_on_the_place(load, encoder_path, tmp_path):
    assert load(copy_of(encoder_path, tmp_path)).fingerprint == load().fingerprint


@pytest.mark.parametrize(
    "settings",
    [{"pooling": "cls"}, {"max_length": 47}, {"aliases": True}, {"ent_token": "[unused0]"}, {"norm": 1.0}],
)
def test_fingerprint_tells_settings_apart(load, settings):
    assert load(**settings).fingerprint != load().fingerprint


def test_fingerprint_tells_weights_apart(load, encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    model = BertModel.from_pretrained(folder)
    with torch.no_grad():
        model.encoder.layer[1].output.dense.bias[0] += 1e-3
    model.save_pretrained(folder)
    assert load(folder).fingerprint != load().fingerprint


def test_fingerprint_tells_vocabularies_apart(load, encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    vocab = (folder / "vocab.txt").read_text(encoding="utf8").replace("\nparis\n", "\nrome\n")
    (folder / "vocab.txt").write_text(vocab, encoding="utf8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    assert load(folder).fingerprint != load().fingerprint


def test_fingerprint_tells_cased_from_uncased(load, encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    tokenizer = BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), do_lower_case=False)
    tokenizer.save_pretrained(folder)
    assert load(folder).word_pieces([PARIS]) != load().word_pieces([PARIS])
    assert load(folder).fingerprint != load().fingerprint


def test_settings_say_how_it_was_made(load, encoder_path):
    assert load(pooling="cls", aliases=True).settings == {
        "name": str(encoder_path),
        "pooling": "cls",
        "max_length": 48,
        "aliases": True,
        "ent_token": "[unused2]",
        "norm": 0.0,
    }


def test_unknown_pooling_is_an_error_that_names_the_known(load):
    with pytest.raises(ELQError, match=r"`pooling` .* 'max', expected 'mean' or 'cls'"):
        load(pooling="max")


def test_max_length_needs_room_for_a_word(load):
    with pytest.raises(ELQError, match="`max_length` is 3, expected 4 to 64"):
        load(max_length=3)


def test_a_missing_folder_is_an_error_that_names_it(load, tmp_path):
    with pytest.raises(ELQError, match=r"could not be loaded from '.*/nowhere'"):
        load(tmp_path / "nowhere")


def test_a_folder_without_weights_is_an_error_of_one_line(load, encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ELQError, match=r"could not be loaded from .* no file named") as error:
        load(folder)
    assert "\n" not in str(error.value)


def test_tensors_are_padded_and_say_which_pieces_are_real(load):
    ids, mask = load().to_tensors([[5, 9, 6], [5, 6]])
    assert ids.tolist() == [[5, 9, 6], [5, 6, 0]]
    assert mask.tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize("settings", [{}, {"pooling": "cls"}, {"norm": 3.0}], ids=str)
def test_the_module_gives_the_vectors(load, settings):
    encoder = load(**settings)
    with torch.no_grad():
        vectors = encoder.module(*encoder.to_tensors(encoder.word_pieces(CATALOGUE)))
    np.testing.assert_allclose(vectors.numpy(), encoder.encode(CATALOGUE, batch_size=3), atol=1e-5)


def test_the_module_gives_float32_whatever_the_weights_are(load):
    encoder = load()
    encoder.module.bfloat16()
    assert encoder.module(*encoder.to_tensors([[5, 9, 6]])).dtype == torch.float32


def test_disk_round_trip_gives_the_same_vectors(load, tmp_path):
    encoder = load()
    with torch.no_grad():
        encoder.module.transformer.encoder.layer[1].output.dense.bias[0] += 2.0
    expected = encoder.encode(CATALOGUE, batch_size=4)
    encoder.to_disk(tmp_path / "saved")
    assert np.abs(expected - load().encode(CATALOGUE, batch_size=4)).max() > 0.1
    np.testing.assert_array_equal(load(tmp_path / "saved").encode(CATALOGUE, batch_size=4), expected)


# The tower


@pytest.fixture
def tower(encoder_path):
    def build(**settings):
        return build_entity_tower(str(encoder_path), **{"max_length": 48, **settings})

    return build


@pytest.mark.parametrize(
    "settings",
    [{}, {"pooling": "cls"}, {"max_length": 6}, {"aliases": True}, {"norm": 3.0}, {"frozen_layers": 1}],
    ids=str,
)
def test_a_tower_predicts_the_vectors_of_the_encoder(load, tower, settings):
    model = tower(**settings)
    encoder = load(**{key: value for key, value in settings.items() if key != "frozen_layers"})
    assert model.get_dim("nO") == encoder.width
    assert model.attrs["encoder"].fingerprint == encoder.fingerprint
    found = model.predict([*CATALOGUE, PARIS])
    np.testing.assert_allclose(found, encoder.encode([*CATALOGUE, PARIS], batch_size=4), atol=1e-5)


@pytest.mark.parametrize(
    ("frozen_layers", "stays", "learns"),
    [
        (0, ["embeddings."], ["encoder.layer.0.", "encoder.layer.1."]),
        (1, ["embeddings.", "encoder.layer.0."], ["encoder.layer.1."]),
    ],
)
def test_frozen_layers_stay_and_the_others_learn(tower, frozen_layers, stays, learns):
    model = tower(frozen_layers=frozen_layers)
    transformer = model.attrs["encoder"].module.transformer
    before = {name: value.detach().clone() for name, value in transformer.named_parameters()}
    vectors, backprop = model.begin_update(CATALOGUE)
    backprop(vectors)
    model.finish_update(Adam(0.01))
    changed = {name for name, value in transformer.named_parameters() if not value.equal(before[name])}
    assert not any(name.startswith(tuple(stays)) for name in changed)
    assert all(any(name.startswith(layer) for name in changed) for layer in learns)


@pytest.mark.parametrize("frozen_layers", [-1, 2, 3])
def test_a_tower_of_which_nothing_could_learn_is_refused(tower, frozen_layers):
    with pytest.raises(ELQError, match=f"E002.*`frozen_layers`.*is {frozen_layers}, .*the 2 layers"):
        tower(frozen_layers=frozen_layers)


def test_a_tower_learns_what_its_gradient_says(tower):
    model, optimizer = tower(), Adam(0.002)
    lengths = []
    for _ in range(5):
        vectors, backprop = model.begin_update(CATALOGUE)
        lengths.append(float(np.linalg.norm(vectors)))
        backprop(vectors)
        model.finish_update(optimizer)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0]


def test_mixed_precision_is_bfloat16_and_for_training_only(tower, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    model = tower(mixed_precision=True, norm=3.0)
    kinds = []
    module = model.attrs["encoder"].module
    for part in module.transformer.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    dense = module.transformer.encoder.layer[1].output.dense
    dense.register_forward_hook(lambda m, args, output: kinds.append(output.dtype))
    expected = tower(norm=3.0).predict(CATALOGUE)
    np.testing.assert_array_equal(model.predict(CATALOGUE), expected)
    vectors, backprop = model.begin_update(CATALOGUE)
    backprop(vectors)
    assert vectors.dtype == dense.weight.grad.numpy().dtype == "float32"
    assert kinds == [torch.float32, torch.bfloat16]
    np.testing.assert_allclose(vectors, expected, atol=0.1)
    assert not np.allclose(vectors, expected, atol=1e-6)


def test_dropout_is_for_training_only(encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.5}))
    model = build_entity_tower(str(folder), max_length=48)
    expected = model.predict(CATALOGUE)
    trained, _ = model.begin_update(CATALOGUE)
    assert np.abs(trained - expected).max() > 0.1
    np.testing.assert_allclose(model.attrs["encoder"].encode(CATALOGUE, batch_size=64), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict(CATALOGUE), expected, atol=1e-5)


def test_what_a_tower_learned_is_in_its_encoder_and_in_its_bytes(tower):
    model = tower()
    vectors, backprop = model.begin_update(CATALOGUE)
    backprop(vectors)
    model.finish_update(Adam(0.01))
    expected = model.predict(CATALOGUE)
    assert np.abs(expected - vectors).max() > 0.01
    np.testing.assert_allclose(model.attrs["encoder"].encode(CATALOGUE, batch_size=64), expected, atol=1e-5)
    copy = tower().from_bytes(model.to_bytes())
    np.testing.assert_array_equal(copy.predict(CATALOGUE), expected)
    np.testing.assert_allclose(copy.attrs["encoder"].encode(CATALOGUE, batch_size=64), expected, atol=1e-5)


def test_int8_gives_nearly_the_same_vectors(encoder_path):
    entities = [Entity("E1", "Paris", "Capital of France."), Entity("E2", "Jaguar", "A big cat.")]
    exact, int8 = (EntityEncoder(str(encoder_path), max_length=48, int8=x) for x in (False, True))
    vectors = [encoder.encode(entities, batch_size=2) for encoder in (exact, int8)]
    norms = [np.linalg.norm(v, axis=1) for v in vectors]
    assert ((vectors[0] * vectors[1]).sum(1) / norms[0] / norms[1]).min() > 0.98
    assert not np.allclose(*vectors, atol=1e-6)
    # for questions they are vectors of the same encoder; an encoding that was begun is not gone on with
    assert int8.fingerprint == exact.fingerprint
    assert {**exact.settings, "int8": True} == int8.settings

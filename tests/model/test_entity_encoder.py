import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ENTITIES
from thinc.api import Adam
from transformers import AutoModel, AutoTokenizer, BertModel, BertTokenizerFast

from spacy_elq.catalogue import entity_from_dict
from spacy_elq.errors import ELQError
from spacy_elq.model import entity_encoder, fetch
from spacy_elq.model.entity_encoder import EntityEncoder, build_entity_tower, open_encoder
from spacy_elq.model.pretrained import INT8
from spacy_elq.model.recipe import RECIPE, Recipe, read_recipe, write_recipe
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


@pytest.mark.parametrize("has_instructions", [True, False])
def test_bfloat16_gives_nearly_the_same_vectors(encoder_path, monkeypatch, has_instructions):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_instructions})
    exact = EntityEncoder(str(encoder_path), max_length=48, norm=4.0)
    fast = EntityEncoder(str(encoder_path), max_length=48, norm=4.0, bfloat16=True)
    entities = [Entity("Q1", "Georgia", "State in the south-east"), Entity("Q2", "Venus", "Planet")]
    vectors = [encoder.encode(entities, batch_size=2) for encoder in (exact, fast)]
    assert np.allclose(*vectors, atol=0.1)
    # without instructions for it, it is the same computation
    assert np.array_equal(*vectors) is not has_instructions
    assert vectors[1].dtype == "float32"
    assert fast.fingerprint == exact.fingerprint
    assert fast.settings == exact.settings


def test_bfloat16_and_int8_exclude_each_other(encoder_path):
    with pytest.raises(ELQError, match=r"bfloat16.*false, or int8 false"):
        EntityEncoder(str(encoder_path), int8=True, bfloat16=True)


# The recipe


def test_the_recipe_of_the_folder_is_the_default_and_what_is_given_wins(encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    recipe = Recipe(pooling="cls", max_length=20, aliases=True, ent_token="[unused0]", norm=3.0)
    write_recipe(folder, recipe)
    assert EntityEncoder(str(folder)).settings == {"name": str(folder), **recipe.texts}
    given = {"pooling": "mean", "max_length": 30, "aliases": False, "ent_token": "[unused1]", "norm": 0.0}
    assert EntityEncoder(str(folder), **given).settings == {"name": str(folder), **given}


def test_without_a_recipe_there_are_defaults(encoder_path, tmp_path):
    with pytest.raises(ELQError, match="`max_length` is 128, expected 4 to 64"):
        EntityEncoder(str(encoder_path))
    settings = EntityEncoder(str(encoder_path), max_length=48).settings
    assert {**settings, "max_length": 128} == {
        "name": str(encoder_path),
        **Recipe(ent_token="[unused2]").texts,
    }


def test_what_was_saved_has_its_recipe(load, tmp_path):
    encoder = load(pooling="cls", aliases=True, norm=2.0)
    encoder.to_disk(tmp_path / "saved")
    loaded = EntityEncoder(str(tmp_path / "saved"))
    assert loaded.settings == {**encoder.settings, "name": str(tmp_path / "saved")}
    assert loaded.fingerprint == encoder.fingerprint


def test_the_recipe_can_be_written_alone(load, tmp_path):
    load(norm=2.0).write_recipe(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RECIPE]
    assert read_recipe(str(tmp_path)) == Recipe(max_length=48, ent_token="[unused2]", norm=2.0)


def test_name_of_a_local_folder_is_its_absolute_path(load, encoder_path, tmp_path, monkeypatch):
    copy_of(encoder_path, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load("encoder").settings["name"] == str(tmp_path / "encoder")


def test_fingerprint_is_the_same_when_a_used_encoder_was_saved(load, encoder_path, tmp_path):
    """Transformers changes the tokenizer when it is used, and the configuration when it is saved."""
    folder = copy_of(encoder_path, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    truncation = {"direction": "Right", "max_length": 20, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "truncation": truncation}))
    expected = load(folder).fingerprint
    encoder = load(folder)
    encoder.encode(CATALOGUE, batch_size=4)
    for name in ("saved", "again"):
        encoder.to_disk(tmp_path / name)
        assert load(tmp_path / name).fingerprint == expected
    assert encoder.fingerprint == expected


def test_weights_that_the_encoder_was_saved_without_do_not_count(load, encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    model = BertModel.from_pretrained(folder)
    weights = {key: value for key, value in model.state_dict().items() if not key.startswith("pooler")}
    model.save_pretrained(folder, state_dict=weights)
    encoder = load(folder)
    assert encoder.fingerprint == load(folder).fingerprint != load().fingerprint
    encoder.to_disk(tmp_path / "saved")
    assert load(tmp_path / "saved").fingerprint == encoder.fingerprint


def test_fingerprint_is_computed_once(load, monkeypatch):
    encoder = load()
    expected = encoder.fingerprint
    monkeypatch.setattr(encoder, "_compute_fingerprint", lambda: pytest.fail("computed again"))
    assert encoder.fingerprint == expected


def test_fingerprint_of_an_encoder_in_training_is_always_that_of_its_weights(tower, tmp_path):
    model = tower()
    encoder = model.attrs["encoder"]
    seen = {encoder.fingerprint}
    for number in range(2):
        vectors, backprop = model.begin_update(CATALOGUE)
        backprop(vectors)
        model.predict(CATALOGUE)
        seen.add(encoder.fingerprint)
        model.finish_update(Adam(0.01))
        seen.add(encoder.fingerprint)
        assert len(seen) == number + 2
    encoder.to_disk(tmp_path / "saved")
    assert EntityEncoder(str(tmp_path / "saved")).fingerprint == encoder.fingerprint


# In int8


@pytest.fixture(scope="module")
def int8_path(load, tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8") / "encoder"
    load(norm=3.0, aliases=True).to_disk(folder, int8=True)
    return folder


def test_folder_in_int8_has_no_other_weights(int8_path):
    names = {path.name for path in int8_path.iterdir()}
    assert {INT8, RECIPE, "config.json", "tokenizer.json"} <= names
    assert not [name for name in names if name.endswith((".safetensors", ".bin"))]


def test_folder_in_int8_gives_the_vectors_of_the_original_in_int8(load, int8_path):
    original, loaded = load(norm=3.0, aliases=True, int8=True), EntityEncoder(str(int8_path))
    expected = original.encode(CATALOGUE, batch_size=4)
    np.testing.assert_array_equal(loaded.encode(CATALOGUE, batch_size=4), expected)
    assert loaded.fingerprint == original.fingerprint == load(norm=3.0, aliases=True).fingerprint
    assert loaded.settings == {**original.settings, "name": str(int8_path)}
    assert loaded.settings["int8"] is True
    assert loaded.width == original.width


def test_encoder_in_int8_is_saved_in_int8(load, int8_path, tmp_path):
    # loaded from a folder, and made by `int8=True`, which has its weights
    EntityEncoder(str(int8_path)).to_disk(tmp_path / "again")
    load(norm=3.0, aliases=True, int8=True).to_disk(tmp_path / "made", int8=True)
    for name in ("again", "made"):
        assert (tmp_path / name / INT8).read_bytes() == (int8_path / INT8).read_bytes()
        assert read_recipe(str(tmp_path / name)) == read_recipe(str(int8_path))


def test_encoder_that_computes_in_int8_is_saved_with_its_weights_and_does_so_again(load, tmp_path):
    load(int8=True).to_disk(tmp_path / "saved")
    assert not (tmp_path / "saved" / INT8).exists()
    loaded = EntityEncoder(str(tmp_path / "saved"))
    assert loaded.settings["int8"] is True
    assert "int8" not in EntityEncoder(str(tmp_path / "saved"), int8=False).settings


def test_folder_in_int8_that_is_overwritten_is_no_longer_one(load, int8_path, tmp_path):
    folder = shutil.copytree(int8_path, tmp_path / "encoder")
    load(norm=1.0).to_disk(folder)
    assert "int8" not in EntityEncoder(str(folder)).settings


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"norm": 1.0}, "norm: 1.0 here, 3.0 expected"), ({"int8": False}, "int8: False here, True expected")],
)
def test_int8_weights_are_for_the_settings_they_were_made_for(int8_path, settings, problem):
    with pytest.raises(ELQError, match=f"E153.*{problem}"):
        EntityEncoder(str(int8_path), **settings)
    assert EntityEncoder(str(int8_path), norm=3.0, int8=True).settings["norm"] == 3.0


def test_int8_weights_cannot_be_trained(int8_path):
    with pytest.raises(ELQError, match="E153"):
        build_entity_tower(str(int8_path), max_length=48, aliases=True, norm=3.0)


def test_folder_in_int8_needs_onnx_runtime_when_it_is_loaded(int8_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ELQError, match="E091"):
        EntityEncoder(str(int8_path))


@pytest.mark.parametrize("is_missing", [True, False])
def test_damaged_int8_weights_are_seen(int8_path, tmp_path, is_missing):
    folder = shutil.copytree(int8_path, tmp_path / "encoder")
    data = bytearray((folder / INT8).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / INT8).write_bytes(data)
    if is_missing:
        (folder / INT8).unlink()
    problem = "No such file" if is_missing else "is damaged"
    with pytest.raises(ELQError, match=f"E036.*{INT8}.*{problem}"):
        EntityEncoder(str(folder))


# The encoder of an index


def stamp_of(encoder, **other):
    return {**encoder.settings, "fingerprint": encoder.fingerprint, **other}


def test_encoder_is_opened_with_the_settings_of_the_stamp(load, encoder_path):
    stamp = stamp_of(load(pooling="cls", norm=2.0))
    encoder = open_encoder(stamp, None)
    assert stamp_of(encoder) == stamp


@pytest.mark.parametrize(
    ("place", "paths"),
    [
        ("index/encoder", []),
        ("encoder", ["../encoder"]),
        ("elsewhere", ["../encoder", "ROOT/elsewhere"]),
        ("project/index/encoder", None),
    ],
)
def test_encoder_is_found_where_it_may_be(load, encoder_path, tmp_path, place, paths):
    stamp = stamp_of(load(), name="/nowhere/encoder")
    if paths is not None:
        stamp["paths"] = [path.replace("ROOT", str(tmp_path)) for path in paths]
    folder = tmp_path / place.removesuffix("/encoder") if "index" in place else tmp_path / "index"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(encoder_path, tmp_path / place)
    assert open_encoder(stamp, folder).settings["name"] == str(tmp_path / place)


def test_encoder_that_was_imported_is_beside_the_linker(load, encoder_path, tmp_path):
    folder = tmp_path / "pipeline" / "elq_linker" / "index"
    folder.mkdir(parents=True)
    shutil.copytree(encoder_path, tmp_path / "pipeline" / "entity_encoder")
    encoder = open_encoder(stamp_of(load(), name="/nowhere"), folder)
    assert encoder.settings["name"] == str(tmp_path / "pipeline" / "entity_encoder")


def test_bundled_encoder_comes_first(load, encoder_path, tmp_path):
    folder = copy_of(encoder_path, tmp_path)
    assert open_encoder(stamp_of(load()), tmp_path).settings["name"] == str(folder)


def test_bundled_encoder_may_be_in_int8(int8_path, load):
    stamp = stamp_of(load(norm=3.0, aliases=True))
    assert open_encoder(stamp, int8_path.parent).settings["int8"] is True


def test_encoder_that_made_the_vectors_in_int8_does_so_again(load):
    assert open_encoder(stamp_of(load(int8=True)), None).settings["int8"] is True


@pytest.fixture
def other_path(encoder_path, tmp_path):
    """A folder of an index with another encoder inside."""
    folder = tmp_path / "other" / "encoder"
    shutil.copytree(encoder_path, folder)
    model = BertModel.from_pretrained(folder)
    with torch.no_grad():
        model.encoder.layer[1].output.dense.bias[0] += 1e-3
    model.save_pretrained(folder)
    return folder.parent


def test_other_encoder_is_passed_over(load, encoder_path, other_path):
    assert open_encoder(stamp_of(load()), other_path).settings["name"] == str(encoder_path)


def test_other_encoder_alone_is_an_error_that_names_it(load, other_path):
    stamp = stamp_of(load(), name="/nowhere")
    expected = f"E152.*weights differ: {other_path}/encoder here, /nowhere expected.*--encoder"
    with pytest.raises(ELQError, match=expected):
        open_encoder(stamp, other_path)


def test_encoder_that_is_nowhere_is_an_error_that_says_where_it_was_looked_for(load, tmp_path, monkeypatch):
    stamp = stamp_of(load(), name="/nowhere/a", paths=["../b", "/nowhere/a"])
    with pytest.raises(ELQError, match="E151") as error:
        open_encoder(stamp, tmp_path / "index")
    places = [
        tmp_path / "index" / "encoder",
        tmp_path.parent / "entity_encoder",
        tmp_path / "b",
        "/nowhere/a",
    ]
    assert f"Looked in: {', '.join(map(str, places))}. Name its folder with --encoder FOLDER" in str(
        error.value
    )


def test_place_that_is_given_is_the_only_one(load, encoder_path, other_path):
    stamp = stamp_of(load())
    with pytest.raises(ELQError, match="E152"):
        open_encoder(stamp, None, name=str(other_path / "encoder"))
    with pytest.raises(ELQError, match="E036"):
        open_encoder(stamp, None, name="/nowhere/at/all")
    found = open_encoder({**stamp, "name": "/nowhere"}, other_path, name=str(encoder_path))
    assert found.settings["name"] == str(encoder_path)


def test_model_of_the_hub_is_loaded_if_the_hub_or_the_cache_has_it(load, monkeypatch):
    asked = []

    def make(name, **settings):
        asked.append((name, settings))
        return SimpleNamespace(fingerprint="f")

    monkeypatch.setattr(entity_encoder, "EntityEncoder", make)
    stamp = {"name": "some/encoder", "pooling": "cls", "fingerprint": "f"}
    monkeypatch.setattr(fetch, "can_reach_hub", lambda: True)
    assert open_encoder(stamp, None).fingerprint == "f"
    assert asked == [("some/encoder", {"pooling": "cls"})]
    monkeypatch.setattr(fetch, "can_reach_hub", lambda: False)
    with pytest.raises(ELQError, match=r"E151.*Looked in: some/encoder"):
        open_encoder(stamp, None)


@pytest.mark.parametrize(
    "stamp", [{"name": "/etc", "paths": 5}, {"name": "/etc", "paths": ["a", 5]}, {"name": 5}, {"name": None}]
)
def test_places_that_are_no_strings_are_an_error_that_shows_them(tmp_path, stamp):
    with pytest.raises(ELQError, match="E194") as error:
        open_encoder({**stamp, "fingerprint": "x"}, tmp_path)
    assert f"'name': {stamp['name']!r}" in str(error.value)
    assert "--encoder FOLDER" in str(error.value)


def test_encoder_without_a_name_is_looked_for_in_the_index(load, encoder_path, tmp_path):
    stamp = stamp_of(load())
    del stamp["name"]
    folder = copy_of(encoder_path, tmp_path)
    assert open_encoder(stamp, tmp_path).settings["name"] == str(folder)

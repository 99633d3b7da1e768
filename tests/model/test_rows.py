import numpy as np
import pytest
import spacy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy_transformers.data_classes import TransformerData
from thinc.api import Model, NumpyOps

from spacy_elq.errors import ELQError
from spacy_elq.model.rows import with_rows

WORDS = st.sampled_from(["paris", "can't", "new", "york", "  ", "é", "🦊", "x" * 12, "shaq", "​", "日本"])


@pytest.fixture(scope="module")
def transformer(make_pipeline):
    """The transformer of a pipeline, with windows of 24 tokens that overlap."""
    return make_pipeline("transformer").get_pipe("transformer").model


@pytest.fixture(scope="module")
def rows_of(transformer):
    layer = with_rows(transformer)
    layer.set_dim("nO", transformer.get_dim("nO"))
    return layer


def docs_of(*texts):
    nlp = spacy.blank("en")
    return [nlp.make_doc(text) for text in texts]


def tok2vec_of(arrays):
    """A tok2vec whose output is known, and that notes the gradient it gets."""

    def forward(model, docs, is_train):
        def backprop(d_outputs):
            model.attrs["gradient"] = d_outputs
            return docs

        return arrays, backprop

    return Model("known", forward, dims={"nO": arrays[0].shape[1]}, attrs={"gradient": None})


def test_tokens_are_the_rows_of_a_tok2vec():
    arrays = [np.arange(6, dtype="f").reshape(3, 2), np.zeros((0, 2), "f"), np.ones((2, 2), "f")]
    layer = with_rows(tok2vec_of(arrays))
    layer.initialize()
    rows, backprop = layer(docs_of("a b c", "", "d e"), is_train=True)
    np.testing.assert_array_equal(rows.vectors, np.concatenate(arrays))
    assert rows.starts.tolist() == [0, 1, 2, 3, 4]
    assert rows.ends.tolist() == [1, 2, 3, 4, 5]
    assert rows.lengths.tolist() == [3, 0, 2]
    backprop(NumpyOps().asarray2f(rows.vectors * 2))
    for given_, array in zip(layer.layers[0].attrs["gradient"], arrays, strict=True):
        np.testing.assert_array_equal(given_, array * 2)


def test_a_mention_never_starts_or_ends_with_white_space():
    layer = with_rows(tok2vec_of([np.ones((3, 2), "f")]))
    layer.initialize()
    rows = layer.predict(docs_of("new  york"))
    assert rows.bounds.tolist() == [True, False, True]
    assert not rows.blocks.any()


def test_word_pieces_are_the_rows_of_a_transformer(rows_of, transformer):
    doc = docs_of("mars is new")[0]  # m ##a ##r ##s | is | new
    rows = rows_of.predict([doc])
    assert (rows.starts.tolist(), rows.ends.tolist()) == ([0, 4, 5], [4, 5, 6])
    output = transformer.predict([doc]).doc_data[0]
    pieces = output.model_output["last_hidden_state"][0]
    np.testing.assert_allclose(rows.vectors, pieces[1:-1], atol=1e-5)  # no [CLS], no [SEP]


def test_a_word_piece_of_two_tokens_belongs_to_both(rows_of):
    doc = Doc(spacy.blank("en").vocab, words=["ne", "w", "york"], spaces=[False, True, False])
    rows = rows_of.predict([doc])
    assert rows.starts.tolist() == [0, 0, 1]
    assert rows.ends.tolist() == [1, 1, 2]


def test_white_space_without_rows_can_stand_inside_a_mention(rows_of):
    rows = rows_of.predict(docs_of("new  york"))
    assert rows.bounds.tolist() == [True, False, True]
    assert rows.blocks.tolist() == [False, False, False]
    assert (rows.starts.tolist(), rows.ends.tolist()) == ([0, 1, 1], [1, 1, 2])


def test_a_token_that_the_encoder_does_not_see_blocks_mentions(rows_of):
    # 24 tokens of 4 pieces are more than the 64 pieces the encoder takes: the end is cut off
    rows = rows_of.predict(docs_of(" ".join(["mars"] * 24)))
    seen = rows.ends > rows.starts
    assert seen.sum() == 16
    np.testing.assert_array_equal(rows.blocks, ~seen)
    np.testing.assert_array_equal(rows.bounds, seen)


def test_a_token_in_two_windows_is_taken_from_the_middle_of_one(rows_of, transformer):
    doc = docs_of(" ".join(["paris"] * 40))[0]  # windows 0-24, 16-40
    rows = rows_of.predict([doc])
    assert rows.vectors.shape[0] == 40
    first, second = transformer.predict([doc]).doc_data[0].model_output["last_hidden_state"]
    expected = [*first[1:21], *second[5:25]]  # token 20 stands as near to one edge as to the other
    np.testing.assert_allclose(rows.vectors, expected, atol=1e-5)


def test_docs_of_a_batch_have_the_rows_they_have_alone(rows_of):
    texts = ["who is shaq", "", "  ", " ".join(["new york"] * 30), "🦊"]
    batch = rows_of.predict(docs_of(*texts))
    alone = [rows_of.predict(docs_of(text)) for text in texts if text]
    np.testing.assert_allclose(batch.vectors, np.concatenate([r.vectors for r in alone]), atol=1e-4)
    np.testing.assert_array_equal(batch.bounds, np.concatenate([r.bounds for r in alone]))


@given(st.lists(st.lists(WORDS, max_size=30), min_size=1, max_size=3))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_alignment_is_in_reading_order_and_complete(rows_of, texts):
    docs = docs_of(*(" ".join(words) for words in texts))
    if not any(len(doc) for doc in docs):
        return
    rows = rows_of.predict(docs)
    assert rows.lengths.tolist() == [len(doc) for doc in docs]
    assert (np.diff(rows.ends) >= 0).all()
    assert (np.diff(rows.starts) >= 0).all()
    covered = {row for s, e in zip(rows.starts, rows.ends, strict=True) for row in range(s, e)}
    assert covered == set(range(len(rows.vectors)))
    assert not (rows.bounds & rows.blocks).any()


def test_gradients_go_back_to_the_word_pieces_they_came_from():
    tensor = np.arange(24, dtype="f").reshape(1, 6, 4)
    data = TransformerData.zeros(6, 4)
    data.model_output["last_hidden_state"] = tensor
    data.align.data, data.align.lengths = np.asarray([1, 2, 2, 3]), np.asarray([2, 1, 1, 0])

    def forward(model, docs, is_train):
        def backprop(d_data):
            model.attrs["gradient"] = d_data
            return docs

        return [data, TransformerData.empty()], backprop

    source = Model("source", forward, dims={"nO": 4}, attrs={"gradient": None})
    layer = with_rows(source)
    layer.initialize()
    rows, backprop = layer(docs_of("a b c d", ""), is_train=True)
    np.testing.assert_array_equal(rows.vectors, tensor[0, 1:4])
    backprop(rows.vectors * 10)
    (gradient,) = source.attrs["gradient"]  # none for the doc without tokens
    expected = np.zeros_like(tensor)
    expected[0, 1:4] = tensor[0, 1:4] * 10
    np.testing.assert_array_equal(gradient.model_output["last_hidden_state"], expected)


def test_output_of_another_kind_is_refused():
    layer = with_rows(Model("odd", lambda model, docs, is_train: (["?"], lambda d: d), dims={"nO": 1}))
    layer.initialize()
    with pytest.raises(ELQError, match="E010"):
        layer.predict(docs_of("a"))

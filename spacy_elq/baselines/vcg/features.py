"""What the network reads: n-grams with their questions and candidates, as arrays."""

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc

from ...core.spans import ranges
from ...types import Array
from ..tagme.spotting import hash_words, tokens_of_words
from .characters import encode_characters
from .mentions import Ngrams, are_function_words
from .relations import Relations
from .words import mark_texts

# tokens of a question, the marks before and behind it included
TOKENS = 15
# tokens on either side of an n-gram whose characters are read
_CONTEXT = 2
# what a token can be: none, outside of the n-gram, inside
_NONE, _OUTSIDE, _INSIDE = range(3)
# as many words in common count as 1
_MANY_WORDS = 10
NUMBERS = 3


@dataclass(frozen=True)
class Features:
    """The n-grams of a batch as the network reads them. Entities that are candidates of several n-grams are
    there once, and relations only as many as an entity has.

    words (Array): (n-grams, TOKENS, width) word vectors of the question around each n-gram.
    places (Array): (n-grams, TOKENS) where each is: 0 nowhere, 1 outside of the n-gram, 2 inside.
    contexts (Array): (n-grams, characters) the n-gram with two tokens on either side.
    sizes (Array): (n-grams,) how many candidates each has, at least one.
    candidates (Array): (candidates,) which entity each is, those of each n-gram together.
    numbers (Array): (candidates, NUMBERS) how many entities are related to it, how many relations it has, and
        how many words it shares with the question, from 0 to 1.
    labels (Array): (entities, characters) titles.
    entities (Array): (entities, width) their vectors.
    owners (Array): (edges,) the entity of each relation.
    kinds, phrases, others (Array): (edges, width) the vectors of each relation, of its words and of an entity
        that it leads to.
    """

    words: Array
    places: Array
    contexts: Array
    sizes: Array
    candidates: Array
    numbers: Array
    labels: Array
    entities: Array
    owners: Array
    kinds: Array
    phrases: Array
    others: Array


def read_features(docs: Sequence[Doc], ngrams: Ngrams, relations: Relations) -> Features:
    """RETURNS (Features): What the network reads of the n-grams of a batch."""
    entities, candidates = np.unique(ngrams.entities, return_inverse=True)
    sizes, kinds, others = relations.edges(entities)
    vectors, phrases = relations.kinds(kinds)
    words, places = read_questions(docs, ngrams, relations)
    shared = count_shared_words(docs, ngrams, relations)
    numbers = np.concatenate([relations.degrees(ngrams.entities), shared[:, None]], axis=1)
    return Features(
        words=words,
        places=places,
        contexts=read_contexts(docs, ngrams.spans),
        sizes=ngrams.sizes,
        candidates=candidates,
        numbers=numbers.astype("float32"),
        labels=relations.labels(entities),
        entities=relations.vectors(entities),
        owners=np.repeat(np.arange(len(entities)), sizes),
        kinds=vectors,
        phrases=phrases,
        others=relations.vectors(others),
    )


def read_questions(docs: Sequence[Doc], ngrams: Ngrams, relations: Relations) -> Tuple[Array, Array]:
    """Read the words of each question; of a longer text, those around the n-gram.

    RETURNS (Tuple[Array, Array]): (n-grams, TOKENS, width) word vectors, zeros where there is no token, and
        (n-grams, TOKENS) whether each is none (0), outside of the n-gram (1) or inside (2).
    """
    words, lengths = mark_texts([[token.lower_ for token in doc] for doc in docs])
    vectors = relations.words.vectors(words)
    # two marks before every doc but the first, and one in the first
    starts, ends = (ngrams.spans + 2 * ngrams.docs[:, None] + 1).T
    begins = np.cumsum(lengths) - lengths
    first, length = begins[ngrams.docs], lengths[ngrams.docs]
    latest = first + np.maximum(length - TOKENS, 0)
    window = np.clip((starts + ends) // 2 - TOKENS // 2, first, latest)
    tokens = window[:, None] + np.arange(TOKENS)
    is_token = tokens < (first + length)[:, None]
    is_inside = (tokens >= starts[:, None]) & (tokens < ends[:, None])
    places = np.where(is_inside, _INSIDE, np.where(is_token, _OUTSIDE, _NONE))
    found = vectors[np.minimum(tokens, len(vectors) - 1)]
    return np.where(is_token[:, :, None], found, np.float32(0)), places


def read_contexts(docs: Sequence[Doc], spans: Array) -> Array:
    """RETURNS (Array): (n-grams, characters) each n-gram with two tokens on either side, as far as they are
    in its doc; see `encode_characters`.
    """
    lengths = np.asarray([len(doc) for doc in docs], dtype="int64")
    sizes = np.asarray([len(doc.text) for doc in docs], dtype="int64")
    offsets, places = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(docs)), lengths)
    tokens = np.concatenate([doc.to_array([IDX, LENGTH]) for doc in docs]).astype("int64")
    starts = tokens[:, 0] + offsets[places]
    stops = starts + tokens[:, 1]
    ends = np.cumsum(lengths)
    own = places[spans[:, 0]]
    first = np.maximum(spans[:, 0] - _CONTEXT, (ends - lengths)[own])
    last = np.minimum(spans[:, 1] + _CONTEXT, ends[own]) - 1
    return encode_characters("".join(doc.text for doc in docs), starts[first], stops[last])


def count_shared_words(docs: Sequence[Doc], ngrams: Ngrams, relations: Relations) -> Array:
    """Count the words of an n-gram, and the other words of the question that are in the signature of a
    candidate: in the names of its relations, or of what they lead to. Function words do not count.

    RETURNS (Array): (candidates,) from 0 to 1.
    """
    lengths = ngrams.spans[:, 1] - ngrams.spans[:, 0]
    counts = lengths[ngrams.owners].astype("float64")
    hashes, texts, tokens = _content_words(docs)
    sizes = np.bincount(texts, minlength=len(docs))
    begins = np.cumsum(sizes) - sizes
    # only those with relations can share a word
    asking = np.flatnonzero(relations.degrees(ngrams.entities)[:, 1] > 0)
    owners = ngrams.owners[asking]
    own = ngrams.docs[owners]
    words = ranges(begins[own], sizes[own])
    places = np.repeat(np.arange(len(asking)), sizes[own])
    spans = ngrams.spans[owners[places]]
    is_outside = (tokens[words] < spans[:, 0]) | (tokens[words] >= spans[:, 1])
    words, asking = words[is_outside], asking[places[is_outside]]
    are_shared = relations.have_words(ngrams.entities[asking], hashes[words])
    counts += np.bincount(asking, are_shared, minlength=len(counts))
    return np.minimum(counts / _MANY_WORDS, 1.0)


def _content_words(docs: Sequence[Doc]) -> Tuple[Array, Array, Array]:
    """RETURNS (Tuple[Array, Array, Array]): (words,) what each is looked up by, its doc and its token,
    counted over the batch, without function words; each once in a doc.
    """
    texts: List[str] = [doc.text for doc in docs]
    hashes, owners, places = hash_words(texts)
    tokens, _ = tokens_of_words(docs, texts, owners, places)
    kept = np.flatnonzero(~are_function_words(docs)[tokens])
    _, first = np.unique(np.stack([owners[kept].astype("uint64"), hashes[kept]]), axis=1, return_index=True)
    kept = kept[np.sort(first)]
    return hashes[kept], owners[kept], tokens[kept]

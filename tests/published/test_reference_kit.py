"""Parity with the published code, on the reference kit: `../shared/data/reference_kit`, or the folder that
ELQ_REFERENCE_KIT names. Run with --log-cli-level INFO to see the largest differences and what was left out.

The published code cuts a question at `max_context_length` word pieces, our pipeline reads on. Records marked
`truncated` are therefore compared on the text that the published code read of them.
"""

import json
import logging
import math
import os
from bisect import bisect_right
from pathlib import Path

import numpy as np
import pytest
import spacy

from spacy_elq.core.spans import enumerate_spans, score_spans, to_row_spans
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.published.importer import import_, read_params
from spacy_elq.published.tensors import read_tensors

BESIDE = Path(__file__).parents[3] / "shared" / "data" / "reference_kit"
KIT = Path(os.environ.get("ELQ_REFERENCE_KIT", BESIDE))
TOLERANCE = 3e-4
# BERT does not see it: it makes half a word a lexeme of its own
INVISIBLE = "\u200b"
LOGGER = logging.getLogger(__name__)

pytestmark = pytest.mark.skipif(not KIT.is_dir(), reason=f"no reference kit in {KIT}")


def kit_file(pattern):
    """A file of the kit by what it is, whatever its size is called."""
    return next(KIT.glob(pattern))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    output = tmp_path_factory.mktemp("kit") / "pipeline"
    import_(
        kit_file("elq_*.bin"),
        output,
        params=kit_file("*_params.txt"),
        vectors=kit_file("all_entities_*.t7"),
        entities=KIT / "entity.jsonl",
        index=KIT / "faiss_hnsw_index.pkl",
    )
    return output


@pytest.fixture(scope="module")
def nlp(pipeline):
    return spacy.load(pipeline)


@pytest.fixture(scope="module")
def records():
    lines = (KIT / "expected.jsonl").read_text(encoding="utf8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def docs(nlp, records):
    """The questions, encoded."""
    return list(nlp.get_pipe("transformer").pipe(make_doc(nlp, record) for record in records))


def make_doc(nlp, record):
    """The doc of the text that the published code read."""
    doc = nlp.make_doc(record["text"])
    if record["truncated"]:
        end = record["offsets"][-1][1]
        if any(token.idx < end < token.idx + len(token) for token in doc):
            # no mention can begin or end with half a word
            doc = nlp.make_doc(record["text"][:end] + INVISIBLE)
            doc[-1].lex.is_space = True
        else:
            doc = nlp.make_doc(record["text"][:end])
    return doc


def word_ranges(record):
    """Characters of the words of the BERT tokenizer."""
    ranges = {}
    for (begin, end), word in zip(record["offsets"], record["word_ids"], strict=True):
        ranges[word] = (ranges.get(word, (begin,))[0], end)
    return list(ranges.values())


def has_other_tokens(doc, record):
    words = word_ranges(record)[: -1 if ends_in_half_a_word(doc) else None]
    return [(token.idx, token.idx + len(token)) for token in doc if not token.is_space] != words


def ends_in_half_a_word(doc):
    return doc.text.endswith(INVISIBLE)


def whole_words(doc, record):
    """Half-open ranges of the pieces of one or more words, of the spans that the record lists."""
    words = record["word_ids"]
    starts = [i == 0 or words[i - 1] != words[i] for i in range(len(words))]
    ends = [*starts[1:], not ends_in_half_a_word(doc)]
    return {(start, end + 1) for start, end, _ in record["spans"] if starts[start] and ends[end]}


def test_entity_vectors(pipeline, nlp):
    index = nlp.get_pipe("elq_linker").index
    entities = [index.entity(i) for i in range(len(index))]
    max_length = read_params(kit_file("*_params.txt"))["max_cand_length"]
    encoder = EntityEncoder(str(pipeline / "entity_encoder"), pooling="cls", max_length=max_length)
    pieces = read_tensors(kit_file("entity_token_ids_*.t7"))
    assert encoder.word_pieces(entities) == [[int(x) for x in row if x] for row in pieces]
    expected = read_tensors(kit_file("all_entities_*.t7"))
    difference = np.abs(encoder.encode(entities, batch_size=64) - expected).max()
    LOGGER.info(f"{len(entities)} entity vectors: largest difference {difference:.1e}")
    assert difference <= TOLERANCE


def test_words(nlp, records):
    """Counts only: a token may end elsewhere (an accent that BERT drops is part of it)."""
    english = spacy.blank("en").tokenizer
    whole = [record for record in records if not record["truncated"]]
    own, plain = (
        sum(has_other_tokens(tokenizer(record["text"]), record) for record in whole)
        for tokenizer in (nlp.tokenizer, english)
    )
    LOGGER.info(
        f"{len(whole)} questions: {own} with other tokens than the words of BERT, {plain} with the plain "
        f"English tokenizer; {len(records) - len(whole)} more that the published code cuts"
    )
    assert own <= plain


def test_mention_logits_and_candidates(nlp, records, docs):
    linker = nlp.get_pipe("elq_linker")
    spans_seen = queries_seen = other_candidates = missed_by_index = 0
    logits_off, similarities_off = 0.0, 0.0
    for record, doc in zip(records, docs, strict=True):
        rows, logits = linker.model.predict([doc])
        row_spans = to_row_spans(rows, enumerate_spans(rows, max_length=linker.max_length))
        if not has_other_tokens(doc, record):
            assert set(map(tuple, row_spans.tolist())) == whole_words(doc, record)
        known = {(start, end + 1): logit for start, end, logit in record["spans"]}
        scores, _ = score_spans(logits, row_spans)
        for row_span, score in zip(row_spans.tolist(), scores, strict=True):
            logits_off = max(logits_off, abs(known[tuple(row_span)] - score))
        spans_seen += len(row_spans)
        for top in record["top_spans"]:
            query = rows.vectors[top["start"] : top["end"] + 1].mean(axis=0, keepdims=True)
            similarities = (query @ linker.index.vectors.T)[0]
            best = np.argsort(-similarities, kind="stable")[: len(top["rows"])]
            off = np.abs(similarities[[*best, *top["rows"]]] - [*top["entity_logits"]] * 2)
            similarities_off = max(similarities_off, off.max())
            other_candidates += best.tolist() != top["rows"]
            found, _ = linker.index.search(query, len(top["rows"]))
            missed_by_index += found[0].tolist() != best.tolist()
            queries_seen += 1
    LOGGER.info(
        f"{spans_seen} spans: largest difference of logits {logits_off:.1e}; {queries_seen} of them with "
        f"candidates: similarities {similarities_off:.1e}, other order of candidates {other_candidates}, "
        f"other candidates by the HNSW file than by exact search {missed_by_index}"
    )
    assert spans_seen > 0
    assert queries_seen > 0
    assert logits_off <= TOLERANCE
    assert similarities_off <= TOLERANCE


def test_links_of_whole_words(nlp, records, docs):
    for gamma in records[0]["expected_whole_word"]["hnsw"]:
        compare_links(nlp, records, docs, gamma)


def compare_links(nlp, records, docs, gamma):
    linker = nlp.get_pipe("elq_linker")
    linker.threshold = math.exp(float(gamma))
    compared = [
        (record, doc)
        for record, doc in zip(records, docs, strict=True)
        if ["expected_whole_word", float(gamma)] not in record["fragile"]
    ]
    links = 0
    scores_off = [0.0]
    differing = []
    for record, doc in compared:
        doc.ents = ()
        found, wanted = links_found(linker, linker(doc), record), links_wanted(record, gamma)
        links += len(wanted)
        scores_off += [abs(found[key] - wanted[key]) for key in set(found) & set(wanted)]
        if set(found) != set(wanted):
            differing.append((record["text"], set(found) ^ set(wanted)))
    differ = sum(len(links) for _, links in differing)
    fragile = len(records) - len(compared)
    truncated = sum(record["truncated"] for record, _ in compared)
    other_tokens = sum(has_other_tokens(doc, record) for record, doc in compared)
    LOGGER.info(
        f"γ {gamma}: {len(compared)} questions with {links} links, {differ} differ; largest difference of "
        f"scores {max(scores_off):.1e}; {fragile} left out as fragile; {truncated} compared on what "
        f"the published code read, which cuts them; {other_tokens} with other tokens than the words of BERT"
    )
    assert links > 0
    assert differing == []
    assert max(scores_off) <= TOLERANCE


def links_found(linker, doc, record):
    """Words, rows and log scores of the links of a doc."""
    begins = [begin for begin, _ in word_ranges(record)]

    def word(token):
        return bisect_right(begins, token.idx) - 1

    positions = linker.index.positions([ent.kb_id_ for ent in doc.ents]).tolist()
    return {
        (word(ent[0]), word(ent[-1]), position): math.log(ent._.elq_score)
        for ent, position in zip(doc.ents, positions, strict=True)
    }


def links_wanted(record, gamma):
    words = record["word_ids"]
    return {
        (words[link["start"]], words[link["end"] - 1], link["row"]): link["score"]
        for link in record["expected_whole_word"]["hnsw"][gamma]
    }

"""Parity with the published code, on the reference kit: `../shared/data/reference_kit`, or the folder that
ELQ_REFERENCE_KIT names. Run with --log-cli-level INFO to see the largest differences.
"""

import json
import logging
import math
import os
from pathlib import Path

import numpy as np
import pytest
import spacy

from spacy_elq.cli.import_ import import_
from spacy_elq.entity_encoder import EntityEncoder
from spacy_elq.spans import enumerate_spans, score_spans, to_row_spans
from spacy_elq.tensors import read_tensors

BESIDE = Path(__file__).parents[2] / "shared" / "data" / "reference_kit"
KIT = Path(os.environ.get("ELQ_REFERENCE_KIT", BESIDE))
TOLERANCE = 3e-4
LOGGER = logging.getLogger(__name__)

pytestmark = pytest.mark.skipif(not KIT.is_dir(), reason=f"no reference kit in {KIT}")


@pytest.fixture(scope="module")
def files():
    """The files of the kit by what they are, whatever its size is called."""
    checkpoint, params, vectors = (
        next(KIT.glob(x)) for x in ("elq_*.bin", "*_params.txt", "all_entities_*.t7")
    )
    return {"checkpoint": checkpoint, "params": params, "vectors": vectors}


@pytest.fixture(scope="module")
def pipeline(files, tmp_path_factory):
    output = tmp_path_factory.mktemp("kit") / "pipeline"
    import_(
        files["checkpoint"],
        output,
        params=files["params"],
        vectors=files["vectors"],
        entities=KIT / "entity.jsonl",
        index=KIT / "faiss_hnsw_index.pkl",
    )
    return output


@pytest.fixture(scope="module")
def nlp(pipeline):
    return spacy.load(pipeline)


@pytest.fixture(scope="module")
def expected():
    lines = (KIT / "expected.jsonl").read_text(encoding="utf8").splitlines()
    return [json.loads(line) for line in lines]


def word_ranges(record):
    """Characters of the words of the BERT tokenizer; those of an accent that it drops belong to the word."""
    ranges = {}
    for (begin, end), word in zip(record["offsets"], record["word_ids"], strict=True):
        ranges[word] = (ranges.get(word, (begin,))[0], end)
    return list(ranges.values())


def encode(nlp, text):
    doc = nlp.make_doc(text)
    return nlp.get_pipe("transformer")(doc)


def test_entity_vectors(files, pipeline, nlp):
    index = nlp.get_pipe("elq_linker").index
    entities = [index.entity(i) for i in range(len(index))]
    encoder = EntityEncoder(str(pipeline / "entity_encoder"), pooling="cls", max_length=128)
    pieces = read_tensors(KIT / "entity_token_ids_128.t7")
    assert encoder.word_pieces(entities) == [[int(x) for x in row if x] for row in pieces]
    difference = np.abs(encoder.encode(entities, batch_size=64) - read_tensors(files["vectors"])).max()
    LOGGER.info(f"{len(entities)} entity vectors: largest difference {difference:.1e}")
    assert difference <= TOLERANCE


def test_mention_logits_and_candidates(nlp, expected):
    linker = nlp.get_pipe("elq_linker")
    spans_seen = differing = 0
    logits_off, similarities_off = 0.0, 0.0
    for record in expected:
        if record["truncated"]:
            continue
        rows, logits = linker.model.predict([encode(nlp, record["text"])])
        spans = enumerate_spans(rows, max_length=linker.cfg["max_length"])
        row_spans = to_row_spans(rows, spans)
        known = {(start, end + 1): logit for start, end, logit in record["spans"]}
        scores, _ = score_spans(logits, row_spans)
        for row_span, score in zip(row_spans.tolist(), scores, strict=True):
            logits_off = max(logits_off, abs(known[tuple(row_span)] - score))
        spans_seen += len(spans)
        for top in record["top_spans"]:
            query = rows.vectors[top["start"] : top["end"] + 1].mean(axis=0, keepdims=True)
            positions, similarities = linker.index.search(query, 10)
            differing += positions[0].tolist() != top["rows"]
            similarities_off = max(similarities_off, np.abs(similarities[0] - top["entity_logits"]).max())
    LOGGER.info(f"{spans_seen} spans: logits {logits_off:.1e}, similarities {similarities_off:.1e}")
    assert spans_seen > 0
    assert logits_off <= TOLERANCE
    assert similarities_off <= TOLERANCE
    assert differing == 0


@pytest.mark.parametrize("gamma", ["-4.5", "-2.9", "-1.5"])
def test_links_of_whole_words(nlp, expected, gamma):
    linker = nlp.get_pipe("elq_linker")
    linker.cfg["threshold"] = math.exp(float(gamma))
    links = 0
    scores_off, other_tokens = 0.0, 0
    for record in expected:
        fragile = [str(value) for field, value in record["fragile"] if field == "expected_whole_word"]
        if record["truncated"] or gamma in fragile:
            continue
        doc = nlp(record["text"])
        words = word_ranges(record)
        tokens = [token for token in doc if not token.is_space]
        other_tokens += [(t.idx, t.idx + len(t)) for t in tokens] != words
        assert [t.idx for t in tokens] == [begin for begin, _ in words]
        starts = {t.i: number for number, t in enumerate(tokens)}
        found = {
            (starts[e.start], starts[e.end - 1], int(linker.index.positions([e.kb_id_])[0])): e._.elq_score
            for e in doc.ents
        }
        wanted = {
            (record["word_ids"][x["start"]], record["word_ids"][x["end"] - 1], x["row"]): x["score"]
            for x in record["expected_whole_word"]["hnsw"][gamma]
        }
        assert set(found) == set(wanted), record["text"]
        links += len(wanted)
        off = [abs(math.log(found[key]) - wanted[key]) for key in wanted]
        scores_off = max([scores_off, *off])
    LOGGER.info(
        f"γ {gamma}: {links} links, scores {scores_off:.1e}, questions with other tokens {other_tokens}"
    )
    assert links > 0
    assert scores_off <= TOLERANCE

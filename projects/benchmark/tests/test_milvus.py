"""`milvus.py`, on the tiny world and with Milvus Lite."""

import json

import pytest
from spacy.tokens import DocBin
from typer.testing import CliRunner

pytest.importorskip("pymilvus", reason="needs spacy-elq[milvus]")
pytest.importorskip("milvus_lite", reason="needs spacy-elq[milvus]")

import milvus
import typer

from spacy_elq.index.search import search_collection


@pytest.fixture
def compare(trained_path, gold_docs, tmp_path):
    app = typer.Typer()
    app.command()(milvus.main)
    DocBin(docs=gold_docs, store_user_data=True).to_disk(tmp_path / "dev.spacy")
    words = [trained_path, tmp_path / "dev.spacy", tmp_path / "milvus.db", "--work", tmp_path / "work"]

    def run():
        result = CliRunner().invoke(app, [*map(str, words), "--results", str(tmp_path)])
        return result.exit_code, json.loads((tmp_path / "milvus.json").read_text())

    return run


def test_links_are_the_same(compare, gold_docs):
    code, record = compare()
    assert code == 0
    assert record["identical"] == record["questions"] == len(gold_docs)
    assert record["links"] > 0
    assert record["unexplained"] == []


def test_other_candidates_are_counted(compare, monkeypatch):
    def blind(view, queries, k, subset, **settings):
        positions, similarities = search_collection(view, queries, k, subset, **settings)
        return positions[:, 1:], similarities[:, 1:]

    monkeypatch.setattr("spacy_elq.index.search.search_collection", blind)
    code, record = compare()
    assert code == 0
    assert record["other_candidates"] == record["questions"] - record["identical"] > 0


def test_other_scores_are_not_explained(compare, monkeypatch):
    def wrong(view, queries, k, subset, **settings):
        positions, similarities = search_collection(view, queries, k, subset, **settings)
        return positions, similarities[:, ::-1] if similarities.shape[1] > 1 else similarities + 9

    monkeypatch.setattr("spacy_elq.index.search.search_collection", wrong)
    code, record = compare()
    assert code == 1
    assert record["unexplained"]


def test_links_are_compared_by_place_entity_and_score():
    link = (0, 1, "Q1", 0.5)
    assert milvus.are_equal([link], [(0, 1, "Q1", 0.50001)])
    for other in ([], [(0, 2, "Q1", 0.5)], [(0, 1, "Q2", 0.5)], [(0, 1, "Q1", 0.6)]):
        assert not milvus.are_equal([link], other)

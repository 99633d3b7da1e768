"""The catalogue of a running pipeline: entities come and go, parts of it count, several indexes are one."""

import json
import threading

import pytest
import spacy
from conftest import ENTITIES, change
from spacy.tokens import Doc
from spacy.training import Example

from spacy_elq.catalogue import entity_from_dict
from spacy_elq.errors import ELQError
from spacy_elq.index import EntityIndex, build_index, copy_index, encode_catalogue
from spacy_elq.model.entity_encoder import EntityEncoder
from spacy_elq.pipeline import base
from spacy_elq.pipeline.settings import update_settings
from spacy_elq.types import Entity

NIMBUS = {"id": "P9", "title": "Nimbus", "description": "A phone.", "label": "PRODUCT", "tags": ["shop-7"]}
TEXT = "is nimbus in paris or georgia"
# nothing is trained: what is a name is a mention, and the name decides
BY_NAME = {"name_weight": 500.0, "mention_name_weight": 90.0, "threshold": 0.3}


@pytest.fixture
def index_path(index, tmp_path):
    copy_index(index, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def nlp(make_pipeline, index_path):
    """A pipeline with an index of its own."""
    nlp = make_pipeline("tok2vec", **BY_NAME)
    nlp.get_pipe("elq_linker").set_index(EntityIndex.open(index_path))
    return nlp


@pytest.fixture
def linker(nlp):
    return nlp.get_pipe("elq_linker")


def ids_of(doc):
    return [ent.kb_id_ for ent in doc.ents]


def test_the_next_doc_is_linked_to_what_was_added(nlp, linker):
    assert "P9" not in ids_of(nlp(TEXT))
    assert linker.add_entities([NIMBUS]) == 1
    doc = nlp(TEXT)
    assert ids_of(doc)[0] == "P9"
    assert doc.ents[0].label_ == "PRODUCT"
    assert doc.ents[0]._.elq_title == "Nimbus"
    assert linker.index["P9"] == entity_from_dict(NIMBUS)


def test_entities_may_be_records_or_objects(nlp, linker):
    assert linker.add_entities(iter([Entity("P1", "Cumulus"), {"id": "P2", "title": "Stratus"}])) == 2
    assert {"P1", "P2"} <= set(ids_of(nlp("cumulus or stratus")))


def test_an_unknown_field_is_named_once(linker):
    with pytest.warns(UserWarning, match="W007.*descripton") as warned:
        linker.add_entities([{"id": f"P{i}", "title": "x", "descripton": "A phone."} for i in range(5)])
    assert len(warned) == 1


def test_what_is_replaced_is_linked_by_its_new_name(nlp, linker):
    linker.add_entities([NIMBUS])
    linker.add_entities([{**NIMBUS, "title": "Cirrus"}])
    assert "P9" not in ids_of(nlp("nimbus"))
    assert ids_of(nlp("cirrus")) == ["P9"]
    assert len(linker.index) == len(ENTITIES) + 1


def test_what_was_removed_is_linked_no_more(nlp, linker):
    assert "E1" in ids_of(nlp(TEXT))
    assert linker.remove_entities(["E1", "E404"]) == 1
    assert "E1" not in ids_of(nlp(TEXT))
    assert "E2" in ids_of(nlp(TEXT)), "the other Paris"


def test_if_one_is_not_valid_none_is_added(linker):
    with pytest.raises(ELQError, match=r"E020.*entity 2: `title`"):
        linker.add_entities([NIMBUS, {"id": "P8"}])
    with pytest.raises(ELQError, match=r"E020.*entity 2: `popularity`"):
        linker.add_entities([NIMBUS, Entity("P8", "Cumulus", popularity=float("nan"))])
    with pytest.raises(ELQError, match="E166"):
        linker.add_entities([NIMBUS, NIMBUS])
    assert "P9" not in linker.index


def test_without_an_index_nothing_can_be_changed():
    linker = spacy.blank("en").add_pipe("elq_linker")
    for use in (lambda: linker.add_entities([NIMBUS]), lambda: linker.remove_entities(["E1"])):
        with pytest.raises(ELQError, match="E001"):
            use()


def test_the_encoder_is_loaded_once_and_again_for_another_index(linker, monkeypatch):
    opened = []
    original = base.open_encoder
    monkeypatch.setattr(base, "open_encoder", lambda *args: opened.append(args) or original(*args))
    linker.add_entities([NIMBUS])
    linker.add_entities([NIMBUS])
    assert len(opened) == 1
    linker._encoder = EntityEncoder(linker.index.meta["encoder"]["name"], max_length=48, pooling="cls")
    linker.add_entities([NIMBUS])
    assert len(opened) == 2


def test_other_pipelines_see_it_too(nlp, linker, index_path, tmp_path):
    nlp.to_disk(tmp_path / "pipeline")
    other = spacy.load(tmp_path / "pipeline")
    assert "P9" not in ids_of(other(TEXT))
    linker.add_entities([NIMBUS])
    assert "P9" in ids_of(other(TEXT))
    linker.index.compact()
    linker.remove_entities(["P9"])
    assert "P9" not in ids_of(other(TEXT))


def test_a_pipeline_can_be_saved_and_loaded_after_changes(nlp, linker, tmp_path):
    linker.add_entities([NIMBUS])
    nlp.to_disk(tmp_path / "pipeline")
    assert "P9" in ids_of(spacy.load(tmp_path / "pipeline")(TEXT))


def test_workers_have_the_changes(nlp, linker):
    linker.add_entities([NIMBUS])
    docs = nlp.pipe([TEXT] * 4, n_process=2, batch_size=2)
    assert ["P9" in ids_of(doc) for doc in docs] == [True] * 4


# Parts of the catalogue


@pytest.fixture
def labelled(nlp, linker):
    linker.add_entities([NIMBUS, {**NIMBUS, "id": "P10", "tags": ["shop-8"], "popularity": 3}])
    return nlp


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"labels": ["PRODUCT"]}, {"P9", "P10"}),
        ({"tags": ["shop-8"]}, {"P10"}),
        ({"ids": ["E1", "P9"]}, {"E1", "P9"}),
        ({"ids": ["E1", "P9"], "labels": ["GPE"]}, {"E1"}),
        ({"labels": ["NOBODY"]}, set()),
    ],
)
@pytest.mark.parametrize("how", ["block", "doc", "setting"])
def test_only_a_part_of_the_catalogue_counts(labelled, conditions, expected, how):
    linker = labelled.get_pipe("elq_linker")
    change(linker, threshold=0.0)
    if how == "block":
        with linker.within(**conditions):
            doc = labelled(TEXT)
    elif how == "doc":
        doc = labelled.make_doc(TEXT)
        doc._.elq_within = conditions
        doc = labelled(doc)
    else:
        change(linker, **{f"only_{key}": values for key, values in conditions.items()})
        doc = labelled(TEXT)
    found = {alternative["id"] for ent in doc.ents for alternative in ent._.elq_alternatives}
    assert found == expected


def test_each_doc_of_a_batch_has_its_own_part(labelled):
    parts = [None, {"tags": ["shop-7"]}, {"tags": ["shop-8"]}, {"labels": ["GPE"]}, {"labels": ["NOBODY"]}]
    docs = [labelled.make_doc(TEXT) for _ in parts]
    for doc, part in zip(docs, parts, strict=True):
        doc._.elq_within = part
    linked = list(labelled.pipe(docs))
    found = [set(ids_of(doc)) for doc in linked]
    assert found[1:3] == [{"P9"}, {"P10"}]
    assert "E1" in found[3] <= {"E1", "E2"}
    assert found[4] == set()
    alone = [ids_of(labelled(_copy(labelled, part))) for part in parts]
    assert [ids_of(doc) for doc in linked] == alone


def _copy(nlp, part):
    doc = nlp.make_doc(TEXT)
    doc._.elq_within = part
    return doc


def test_setting_block_and_doc_must_all_hold(labelled):
    linker = labelled.get_pipe("elq_linker")
    change(linker, only_labels=["PRODUCT", "GPE"])
    doc = labelled.make_doc(TEXT)
    doc._.elq_within = {"ids": ["P9", "E1", "E6"]}
    with linker.within(tags=["shop-7", "shop-8"]), linker.within(ids={"P9", "P10"}):
        assert set(ids_of(labelled(doc))) == {"P9"}


def test_a_block_ends_also_after_an_error(labelled):
    linker = labelled.get_pipe("elq_linker")

    def fail():
        with linker.within(labels=["PRODUCT"]):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert "E1" in ids_of(labelled(TEXT))
    with linker.within():
        assert "E1" in ids_of(labelled(TEXT))


def test_other_threads_do_not_see_a_block(labelled):
    found = []
    with labelled.get_pipe("elq_linker").within(labels=["PRODUCT"]):
        thread = threading.Thread(target=lambda: found.append(ids_of(labelled(TEXT))))
        thread.start()
        thread.join()
        assert "E1" not in ids_of(labelled(TEXT))
    assert "E1" in found[0]


def test_another_linker_does_not_see_a_block(labelled, tmp_path):
    labelled.to_disk(tmp_path / "pipeline")
    other = spacy.load(tmp_path / "pipeline")
    with labelled.get_pipe("elq_linker").within(labels=["PRODUCT"]):
        assert "E1" in ids_of(other(TEXT))


@pytest.mark.parametrize("found", ["shop-7", {"tag": ["x"]}, {"tags": "shop-7"}, 7])
def test_what_is_no_restriction_is_an_error(nlp, found):
    doc = nlp.make_doc(TEXT)
    doc._.elq_within = found
    with pytest.raises(ELQError, match="E165"):
        nlp.get_pipe("elq_linker").predict([doc])


def test_given_mentions_are_linked_inside_the_part(labelled):
    linker = labelled.get_pipe("elq_linker")
    doc = labelled.make_doc("paris")
    with linker.within(ids=["E9"]):
        ((link,),) = linker.link_spans([doc], [[doc[0:1]]])
    assert link.entity_id == "E9"
    with linker.within(ids=["E404"]):
        assert linker.link_spans([doc], [[doc[0:1]]]) == [[]]


def test_a_setting_is_saved_with_the_pipeline(make_pipeline, index_path, tmp_path):
    nlp = make_pipeline("tok2vec", **BY_NAME)
    update_settings(nlp, "elq_linker", {"decoder.only_labels": ["GPE"]})
    nlp.to_disk(tmp_path / "pipeline")
    loaded = spacy.load(tmp_path / "pipeline")
    assert loaded.get_pipe("elq_linker").decoder.only_labels == ["GPE"]
    assert "E1" in ids_of(loaded(TEXT))
    assert set(ids_of(loaded(TEXT))) <= {"E1", "E2"}


# Several indexes


@pytest.fixture
def shop(tmp_path, entity_encoder):
    """A second catalogue: a product, and another Paris with the id of the first."""
    catalogue = tmp_path / "shop.jsonl"
    records = [NIMBUS, {"id": "E1", "title": "Paris", "description": "A perfume.", "label": "PRODUCT"}]
    catalogue.write_text("".join(json.dumps(record) + "\n" for record in records))
    encode_catalogue(catalogue, tmp_path / "vectors", entity_encoder)
    build_index(tmp_path / "vectors", tmp_path / "shop")
    return tmp_path / "shop"


@pytest.fixture
def both(make_pipeline, index_path, shop):
    nlp = make_pipeline("tok2vec", **BY_NAME)
    linker = nlp.get_pipe("elq_linker")
    linker.index_path = [str(index_path), str(shop)]
    nlp.config["components"]["elq_linker"]["index_path"] = linker.index_path
    nlp.initialize(lambda: [Example(nlp.make_doc("hello"), nlp.make_doc("hello"))])
    # what is not trained yet must not refuse a link
    linker.model.layers[2].get_param("b")[3] = -100.0
    return nlp


def test_links_say_where_their_entity_comes_from(both, index_path, shop):
    doc = both(TEXT)
    places = {ent.kb_id_: ent._.elq_catalogue for ent in doc.ents}
    assert places["P9"] == places["E1"] == str(shop)
    assert {places[id_] for id_ in places if id_ in ("E6", "E7")} == {str(index_path)}
    assert next(ent.label_ for ent in doc.ents if ent.kb_id_ == "E1") == "PRODUCT"


def test_one_index_is_named_too(nlp, index_path):
    assert {ent._.elq_catalogue for ent in nlp(TEXT).ents} == {str(index_path)}


def test_changes_go_to_the_last_of_several(both, index_path, shop):
    linker = both.get_pipe("elq_linker")
    linker.add_entities([{"id": "P11", "title": "Georgia", "label": "PRODUCT"}])
    assert "P11" in EntityIndex.open(shop)
    assert "P11" not in EntityIndex.open(index_path)
    assert linker.remove_entities(["E1"]) == 1
    assert "E1" not in ids_of(both(TEXT))


def test_several_indexes_are_saved_and_found_again(both, index_path, shop, tmp_path):
    expected = ids_of(both(TEXT))
    both.to_disk(tmp_path / "pipeline")
    loaded = spacy.load(tmp_path / "pipeline")
    assert loaded.get_pipe("elq_linker").index.paths == [index_path, shop]
    assert ids_of(loaded(TEXT)) == expected
    docs = loaded.pipe([TEXT] * 4, n_process=2, batch_size=2)
    assert [ids_of(doc) for doc in docs] == [expected] * 4


def test_several_indexes_are_bundled(both, tmp_path):
    expected = ids_of(both(TEXT))
    linker = both.get_pipe("elq_linker")
    linker.bundled = True
    linker.index_path = both.config["components"]["elq_linker"]["index_path"] = None
    (tmp_path / "a").mkdir()
    both.to_disk(tmp_path / "a" / "pipeline")
    (tmp_path / "a").rename(tmp_path / "b")
    loaded = spacy.load(tmp_path / "b" / "pipeline")
    folder = tmp_path / "b" / "pipeline" / "elq_linker"
    assert loaded.get_pipe("elq_linker").index.paths == [folder / "index", folder / "index-2"]
    assert loaded.get_pipe("elq_linker").bundled
    assert ids_of(loaded(TEXT)) == expected


def test_a_path_that_is_none_is_an_error(nlp):
    linker = nlp.get_pipe("elq_linker")
    for wrong in ([], 7, [1], ""):
        with pytest.raises(ELQError, match=r"E002.*index_path"):
            linker.index_path = wrong


# Docs


def test_a_part_of_a_doc_goes_to_a_worker_and_back(labelled):
    docs = [labelled.make_doc(TEXT) for _ in range(4)]
    for doc in docs:
        doc._.elq_within = {"tags": ["shop-8"]}
    linked = list(labelled.pipe(docs, n_process=2, batch_size=2))
    assert [set(ids_of(doc)) for doc in linked] == [{"P10"}] * 4


def test_a_doc_has_no_restriction_by_default(nlp):
    assert nlp.make_doc("x")._.elq_within is None
    assert Doc.has_extension("elq_within")

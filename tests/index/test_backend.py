import faiss
import numpy as np
import pytest

from spacy_elq.errors import ELQError
from spacy_elq.index.backend import (
    EXACT_UP_TO,
    LARGE_FROM,
    Among,
    FaissBackend,
    build_backend,
    default_factory,
    plan_backend,
)


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(300, 16)).astype("float32")


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).normal(size=(20, 16)).astype("float32")


def build(vectors, path, factory, **widths):
    settings, _ = plan_backend(vectors.shape, factory=factory, widths=widths)
    build_backend(vectors, path, settings=settings, progress=False)
    return settings


def search(vectors, path, factory, queries, k, **widths):
    settings = build(vectors, path, factory, **widths)
    return FaissBackend(vectors, path if path.exists() else None, settings).search(queries, k)


def best(queries, vectors, k):
    return np.argsort(-(queries @ vectors.T), axis=1)[:, :k]


@pytest.mark.parametrize(
    ("count", "width", "factory"),
    [
        (1, 384, "Flat"),
        (EXACT_UP_TO, 384, "Flat"),
        (EXACT_UP_TO + 1, 384, "PCAR160,PQ80x4fs,Refine(PCA224,SQ4)"),
        (LARGE_FROM - 1, 384, "PCAR160,PQ80x4fs,Refine(PCA224,SQ4)"),
        (LARGE_FROM, 384, "PCAR128,IVF8192,PQ64x4fsr,Refine(PCA192,SQ4)"),
        (5_903_527, 384, "PCAR128,IVF16384,PQ64x4fsr,Refine(PCA192,SQ4)"),
        (5_903_527, 1024, "PCAR352,IVF16384,PQ176x4fsr,Refine(PCA512,SQ4)"),
        (EXACT_UP_TO + 1, 16, "PCAR16,PQ8x4fs,Refine(PCA16,SQ4)"),
        (LARGE_FROM, 15, "PCAR14,IVF8192,PQ7x4fsr,Refine(PCA14,SQ4)"),
    ],
)
def test_the_default_goes_by_size(count, width, factory):
    assert default_factory(count, width) == factory


def test_flat_needs_no_file(vectors, queries, tmp_path):
    assert build(vectors, tmp_path / "x", "Flat") == {"factory": "Flat"}
    assert list(tmp_path.iterdir()) == []
    assert plan_backend(vectors.shape, factory="Flat")[1] == 0
    found = FaissBackend(vectors, None, {}).search(queries, 7)
    np.testing.assert_array_equal(found, best(queries, vectors, 7))


@pytest.mark.parametrize("factory", ["HNSW128", "IVF1,Flat", "RR16,Flat"])
def test_any_factory_string_searches_by_inner_product(vectors, queries, tmp_path, factory):
    found = search(vectors, tmp_path / "x", factory, queries, 7)
    np.testing.assert_array_equal(found, best(queries, vectors, 7))


def test_hnsw_has_the_settings_of_the_paper(vectors, tmp_path):
    settings = build(vectors, tmp_path / "x", "HNSW128")
    assert settings == {"factory": "HNSW128", "efConstruction": 200, "efSearch": 256}
    hnsw = faiss.downcast_index(faiss.read_index(str(tmp_path / "x"))).hnsw
    assert (hnsw.efConstruction, hnsw.efSearch) == (200, 256)


def test_other_back_ends_have_no_hnsw_settings(vectors, tmp_path):
    assert build(vectors, tmp_path / "x", "SQ8") == {"factory": "SQ8", "rescore": 100}


def test_the_same_vectors_give_the_same_file(vectors, tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_elq.index.backend._TRAINING_VECTORS", 200)
    for name in "ab":
        build(vectors, tmp_path / name, "IVF4,SQ8")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_more_vectors_than_one_chunk_are_all_added(tmp_path, monkeypatch, vectors, queries):
    monkeypatch.setattr("spacy_elq.index.backend._CHUNK", 64)
    found = search(vectors, tmp_path / "x", "HNSW32", queries, 3)
    assert faiss.read_index(str(tmp_path / "x")).ntotal == 300
    np.testing.assert_array_equal(found, best(queries, vectors, 3))


def test_queries_of_any_layout_and_type(vectors, queries):
    backend = FaissBackend(vectors, None, {})
    expected = backend.search(queries, 5)
    np.testing.assert_array_equal(backend.search(np.asfortranarray(queries.astype("float64")), 5), expected)


def test_fewer_are_found_where_only_a_part_is_searched(vectors, queries, tmp_path):
    found = search(vectors, tmp_path / "x", "IVF7,Flat", queries, 300, nprobe=1)
    assert (found[:, 0] >= 0).all()
    assert (found[:, -1] == -1).all()


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("Nonsense", "could not parse index string Nonsense"),
        ("PQ5", "multiple"),
        ("IVF301,Flat", "Number of training points"),
    ],
)
def test_what_faiss_does_not_take_is_said_with_a_way_out(vectors, tmp_path, factory, problem):
    with pytest.raises(ELQError, match=problem) as error:
        build(vectors, tmp_path / "x", factory)
    text = str(error.value)
    assert f"'{factory}' for 300 vectors of width 16" in text
    assert "'Flat' (exact) always works" in text
    assert "\n" not in text
    assert not (tmp_path / "x").exists()


def test_what_faiss_takes_only_at_first_is_said_too(vectors, tmp_path):
    with pytest.raises(ELQError, match="add_with_ids"):
        build(vectors, tmp_path / "x", "IDMap,Flat")


@pytest.mark.parametrize("factory", ["PQ5", "IVF301,Flat", "Nonsense"])
def test_the_text_of_faiss_has_no_c_plus_plus(vectors, tmp_path, factory):
    with pytest.raises(ELQError) as error:
        build(vectors, tmp_path / "x", factory)
    assert "::" not in str(error.value)


# How wide a search is


def opened(path):
    return faiss.read_index(str(path))


def inner(index, *names):
    """The index inside of one, down these attributes."""
    for name in names:
        index = faiss.downcast_index(getattr(faiss.downcast_index(index), name))
    return faiss.downcast_index(index)


@pytest.mark.parametrize(
    ("factory", "names"),
    [
        ("HNSW16_SQ8", []),
        ("RR16,HNSW16_SQ8", ["index"]),
        ("HNSW16_SQ8,RFlat", ["base_index"]),
        ("IVF4_HNSW16,SQ8", ["quantizer"]),
        ("RR16,IVF4_HNSW16,SQ8", ["index", "quantizer"]),
    ],
)
def test_settings_reach_a_graph_wherever_it_is(vectors, tmp_path, factory, names):
    settings = build(vectors, tmp_path / "x", factory, efSearch=77)
    assert (settings["efConstruction"], settings["efSearch"]) == (200, 77)
    hnsw = inner(opened(tmp_path / "x"), *names).hnsw
    assert (hnsw.efConstruction, hnsw.efSearch) == (200, 77)


@pytest.mark.parametrize(
    ("factory", "names"),
    [
        ("IVF4,SQ8", []),
        ("RR16,IVF4,SQ8", ["index"]),
        ("IVF4,SQ8,RFlat", ["base_index"]),
        ("SQ4,Refine(IVF4,SQ8)", ["refine_index"]),
    ],
)
def test_settings_reach_lists_wherever_they_are(vectors, tmp_path, factory, names):
    assert build(vectors, tmp_path / "x", factory, nprobe=3)["nprobe"] == 3
    assert inner(opened(tmp_path / "x"), *names).nprobe == 3


def test_one_list_in_sixteen_is_looked_into_and_at_least_one():
    for lists, nprobe in ((4, 1), (64, 4)):
        assert plan_backend((300, 16), factory=f"IVF{lists},Flat")[0]["nprobe"] == nprobe


def test_of_what_is_refined_more_lists_are_looked_into():
    for lists, nprobe in ((16, 16), (64, 64), (256, 160), (1024, 320)):
        assert plan_backend((300, 16), factory=f"IVF{lists},SQ8,Refine(SQ8)")[0]["nprobe"] == nprobe


def test_the_lists_of_lists_have_the_setting_of_the_outer_ones():
    assert plan_backend((300, 16), factory="IVF64(IVF32,Flat),SQ8")[0]["nprobe"] == 4


@pytest.mark.parametrize(
    ("factory", "is_lossy"),
    [
        ("HNSW16", False),
        ("IVF4,Flat", False),
        ("RR16,Flat", False),
        ("HNSW16_SQ8", True),
        ("PCA8,Flat", True),
        ("PQ4", True),
        ("IVF4,RaBitQ", True),
    ],
)
def test_only_what_compresses_is_scored_again(factory, is_lossy):
    settings, _ = plan_backend((300, 16), factory=factory)
    assert settings.get("rescore") == (100 if is_lossy else None)
    if "efSearch" in settings:
        assert settings["efSearch"] == (400 if is_lossy else 256)


def test_what_is_refined_is_looked_at_more_widely(vectors, tmp_path):
    settings = build(vectors, tmp_path / "x", "SQ4,Refine(SQ8)")
    assert (settings["k_factor"], settings["rescore"]) == (5, 200)
    assert opened(tmp_path / "x").k_factor == 5
    assert "k_factor" not in plan_backend((300, 16), factory="SQ4")[0]
    large = plan_backend((LARGE_FROM, 16), factory="SQ4,Refine(SQ8)")[0]
    assert (large["k_factor"], large["rescore"]) == (20, 100)


@pytest.mark.parametrize("count", [EXACT_UP_TO + 1, LARGE_FROM])
def test_the_defaults_of_large_catalogues_find_nearly_all_in_a_fifth_of_the_memory(tmp_path, count):
    """On vectors with a few main directions, as those of encoders have; scored by the vectors themselves."""
    rng = np.random.default_rng(4)
    scale = np.linspace(1.0, 0.1, 192)
    vectors = (rng.normal(size=(3000, 192)) * scale).astype("float32")
    queries = (vectors[:100] + 0.5 * rng.normal(size=(100, 192)) * scale).astype("float32")
    factory = default_factory(count, 192).replace("IVF8192", "IVF64")
    settings = build(vectors, tmp_path / "x", factory)
    found = FaissBackend(vectors, tmp_path / "x", settings).search(queries, settings["rescore"])
    expected = best(queries, vectors, 10)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, expected, strict=True)]) >= 0.99
    _, bytes_ = plan_backend((count, 1024), factory=default_factory(count, 1024))
    assert bytes_ <= 0.2 * count * 1024 * 4


def test_the_settings_of_the_meta_data_count(vectors, queries, tmp_path):
    settings = build(vectors, tmp_path / "x", "IVF7,Flat", nprobe=1)
    wider = FaissBackend(vectors, tmp_path / "x", {**settings, "nprobe": 7}).search(queries, 300)
    assert (wider >= 0).all()
    assert (FaissBackend(vectors, tmp_path / "x", settings).search(queries, 300)[:, -1] == -1).all()
    graph = build(vectors, tmp_path / "y", "HNSW4", efSearch=1)
    narrow = FaissBackend(vectors, tmp_path / "y", graph).search(queries, 3)
    wide = FaissBackend(vectors, tmp_path / "y", {**graph, "efSearch": 300}).search(queries, 3)
    expected = best(queries, vectors, 3)
    assert (wide == expected).mean() > (narrow == expected).mean()


def test_a_file_whose_settings_are_not_known_keeps_its_own(vectors, queries, tmp_path):
    build(vectors, tmp_path / "x", "IVF7,Flat", nprobe=7)
    assert (FaissBackend(vectors, tmp_path / "x", {}).search(queries, 300) >= 0).all()


@pytest.mark.parametrize(
    ("factory", "widths", "known"),
    [
        ("Flat", {"rescore": 9}, "none"),
        ("HNSW16", {"nprobe": 9}, "efSearch"),
        ("IVF4,SQ8", {"efSearch": 9}, "nprobe, rescore"),
        ("HNSW16_SQ8", {"efSearch": 0}, "efSearch, rescore"),
        ("HNSW16", {"efConstruction": 0}, "efSearch"),
    ],
)
def test_settings_that_are_not_there_or_too_small_are_errors(factory, widths, known):
    with pytest.raises(ELQError, match=rf"E081.*{next(iter(widths))}.*{factory}.*least 1: {known}\."):
        plan_backend((300, 16), factory=factory, widths=widths)


# Compression


def test_pca_does_not_move_the_origin(tmp_path, queries):
    """Vectors of different length, far from the origin: centred, the long ones would lose their advantage."""
    rng = np.random.default_rng(3)
    vectors = (rng.normal(size=(300, 16)) + 5).astype("float32") * rng.uniform(0.5, 2, (300, 1)).astype("f4")
    for factory in ("PCA16,Flat", "SQ8,Refine(PCA16,Flat)"):
        found = search(vectors, tmp_path / "x", factory, queries, 5)
        np.testing.assert_array_equal(found, best(queries, vectors, 5))


@pytest.mark.parametrize(
    "factory", ["HNSW16_SQ4", "HNSW32", "PCA8,HNSW16_SQ4", "SQ8", "IVF4,SQ8", "RaBitQ", "SQ4,Refine(SQ8)"]
)
def test_the_size_of_the_file_is_known_before_it_is_built(tmp_path, factory):
    vectors = np.random.default_rng(0).normal(size=(3000, 16)).astype("float32")
    build(vectors, tmp_path / "x", factory)
    _, bytes_ = plan_backend(vectors.shape, factory=factory)
    assert 0.8 < bytes_ / (tmp_path / "x").stat().st_size < 1.2


def test_a_file_that_cannot_be_written_is_no_fault_of_the_factory_string(vectors, tmp_path):
    with pytest.raises(ELQError, match=r"E082.*no/x") as error:
        build(vectors, tmp_path / "no" / "x", "SQ8")
    assert "factory" not in str(error.value)


@pytest.mark.parametrize(
    ("factory", "is_centred"),
    [
        ("PCA16,IVF4,Flat", True),
        ("PCA16,SQ8", True),
        ("PCA16,HNSW16", False),
        ("PCA16,NSG16", False),
    ],
)
def test_codes_are_of_vectors_around_the_origin_but_for_graphs(vectors, tmp_path, factory, is_centred):
    """In a graph, neighbours are those by inner product, which the origin changes."""
    build(vectors + 5, tmp_path / "x", factory)
    index = opened(tmp_path / "x")  # which owns what is inside of it
    codes = inner(index, "index")
    if hasattr(codes, "make_direct_map"):
        codes.make_direct_map()
    mean = codes.reconstruct_n(0, 300).mean(axis=0)
    assert (np.linalg.norm(mean) < 0.1) == is_centred


# Lists


def test_vectors_are_in_the_list_whose_centre_is_nearest(tmp_path):
    """Also if they are not of one length: the longest centre has the largest inner product with most."""
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(500, 8)) * rng.uniform(0.2, 3, (500, 1))).astype("float32")
    build(vectors, tmp_path / "x", "IVF8,Flat")
    index = opened(tmp_path / "x")
    quantizer = faiss.downcast_index(index.quantizer)
    centres = quantizer.reconstruct_n(0, 8)
    nearest = np.square(vectors[:, None] - centres).sum(axis=2).argmin(axis=1)
    lists = [faiss.rev_swig_ptr(index.invlists.get_ids(i), index.invlists.list_size(i)) for i in range(8)]
    for number, rows in enumerate(lists):
        assert (nearest[rows] == number).all()
    assert quantizer.metric_type == faiss.METRIC_INNER_PRODUCT


@pytest.mark.parametrize("factory", ["IVF7,Flat", "PCA16,IVF7,Flat", "PCA16,IVF7,SQ8,Refine(SQ8)"])
def test_a_wider_search_looks_into_more_lists(vectors, queries, tmp_path, factory):
    backend = FaissBackend(vectors, tmp_path / "x", build(vectors, tmp_path / "x", factory, nprobe=2))
    found = [(backend.search(queries, 300, wider=wider) >= 0).sum() for wider in (1, 2, 4)]
    assert found[0] < found[1] < found[2] == 300 * len(queries)
    assert (backend.search(queries, 300) >= 0).sum() == found[0]


@pytest.mark.parametrize("factory", ["SQ8", "PCA16,SQ8", "SQ4,Refine(SQ8)", "HNSW16"])
def test_a_wider_search_without_lists_is_the_same(vectors, queries, tmp_path, factory):
    backend = FaissBackend(vectors, tmp_path / "x", build(vectors, tmp_path / "x", factory))
    expected = backend.search(queries, 5)
    np.testing.assert_array_equal(backend.search(queries, 5, wider=4), expected)


def test_entities_that_count_are_found_in_lists_that_are_far_away(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(2, 16) * 9, 200, axis=0)
    vectors = (rng.normal(size=(400, 16)) + centres).astype("float32")
    settings = build(vectors, tmp_path / "x", "IVF2,SQ8,Refine(SQ8)", nprobe=1, rescore=40)
    backend = FaissBackend(vectors, tmp_path / "x", settings)
    monkeypatch.setattr(FaissBackend, "_scan", None)  # which would find them as well, but slowly
    found = backend.search_among(vectors[:3], 4, Among(np.arange(200, 400)))
    assert ((found >= 200).sum(axis=1) >= 8).all()


# Too few vectors


def test_too_few_vectors_for_so_many_lists_are_said_aloud(vectors, tmp_path):
    with pytest.warns(UserWarning, match=r"W003.*64 lists.*300 vectors.*wants 2496.*IVF7 would fit"):
        build(vectors, tmp_path / "x", "RR16,IVF64,Flat")


def test_enough_vectors_are_not_worth_a_word(vectors, tmp_path, recwarn):
    build(vectors, tmp_path / "x", "IVF7,Flat")
    assert not recwarn.list


def test_many_lists_are_learned_from_more_vectors(tmp_path, monkeypatch, vectors):
    monkeypatch.setattr("spacy_elq.index.backend._TRAINING_VECTORS", 5)
    build(vectors, tmp_path / "x", "IVF7,Flat")  # 5 would not do

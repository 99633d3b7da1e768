"""The config is the truth: overrides, values set by hand, pipelines of 0.1, pickling."""

import functools
import inspect
import json
import multiprocessing
import pickle
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import spacy
from conftest import links_of
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training import Example
from spacy.util import load_config

from spacy_elq.core.decode import Decoder
from spacy_elq.core.losses import Loss
from spacy_elq.core.similarity import Prior
from spacy_elq.errors import ELQError
from spacy_elq.index import build_index
from spacy_elq.pipeline.base import bundle_index
from spacy_elq.pipeline.legacy import MOVED, move_settings
from spacy_elq.pipeline.settings import update_settings

LINKED = "is paris older than new york city"
# a valid value for every setting that is not the default
VALUES = {
    "prior.name_weight": 3.0,
    "prior.alias_share": 0.6,
    "prior.popularity_weight": 0.5,
    "prior.mention_name_weight": 1.0,
    "prior.phrase_weight": 4.0,
    "prior.text_weight": 4.0,
    "prior.temperature": 2.0,
    "decoder.threshold": 0.9,
    "decoder.first_threshold": 0.01,
    "decoder.candidates": 3,
    "decoder.max_length": 2,
    "decoder.mention_limit": 1,
    "decoder.word_edges": False,
    "decoder.slope": 0.5,
    "decoder.bias": 1.0,
    "decoder.entity_threshold": 0.4,
    "decoder.nil": True,
    "decoder.only_labels": ["GPE"],
    "decoder.only_tags": [],
    "decoder.only_ids": ["E1", "E5"],
    "loss.linking": "binary",
    "loss.mention_weight": 5.0,
    "loss.absent": 0.5,
    "loss.unmarked": "negative",
    "label": "THING",
    "existing_ents": "keep",
    "spans_key": "mentions",
    "mentions_key": "others",
    "min_link_probability": 0.5,
    "min_commonness": 0.5,
    "vote_margin": 0.9,
    "negative_weight": 0.2,
    "ramp": 7,
    "margin": 0.25,
    "top_k": 2,
    "threshold": 0.5,
    "max_length": 3,
}
INVALID = {
    "prior.name_weight": -1.0,
    "prior.alias_share": 0.4,
    "prior.popularity_weight": -1.0,
    "prior.mention_name_weight": -0.5,
    "prior.phrase_weight": -1.0,
    "prior.text_weight": -1.0,
    "prior.temperature": 0.0,
    "decoder.threshold": 7.0,
    "decoder.first_threshold": -0.1,
    "decoder.candidates": 0,
    "decoder.max_length": 0,
    "decoder.mention_limit": -1,
    "decoder.slope": 0.0,
    "decoder.entity_threshold": 0.6,
    "loss.absent": 1.5,
    "loss.linking": "hinge",
    "loss.mention_weight": -1.0,
    "loss.unmarked": "guess",
    "label": "",
    "existing_ents": "drop",
}


@pytest.fixture
def tagme_path(make_tagme, tmp_path):
    make_tagme().to_disk(tmp_path / "tagme")
    return tmp_path / "tagme"


@pytest.fixture
def path_of(request):
    """From the name of a component to a pipeline on disk that has it, trained."""
    fixtures = {"elq_linker": "trained_path", "elq_blink": "blink_path", "elq_tagme": "tagme_path"}
    fixtures["elq_vcg"] = "vcg_path"
    fixtures["elq_span_extractor"] = "blink_path"
    return lambda name: request.getfixturevalue(fixtures[name])


def get(component, path):
    return functools.reduce(getattr, path.split("."), component)


def settings_of(factory):
    """RETURNS: The names of all settings of a component, dotted for those of blocks."""
    config = spacy.blank("en").get_factory_meta(factory).default_config
    blocks = {"prior": Prior, "decoder": Decoder, "loss": Loss}
    dotted = [f"{b}.{name}" for b, kind in blocks.items() if b in config for name in vars(kind())]
    plain = [key for key in config if key not in (*blocks, "model", "negatives", "scorer", "index_path")]
    return [*dotted, *(key for key in plain if key not in ("dictionary", "relations"))]


FACTORIES = ["elq_linker", "elq_blink", "elq_tagme", "elq_vcg", "elq_span_extractor"]
EVERY = [(factory, setting) for factory in FACTORIES for setting in settings_of(factory)]


# ---------------------------------------------------------------------- overrides


@pytest.mark.parametrize(("name", "setting"), EVERY, ids=str)
def test_an_override_takes_effect_or_is_a_clear_error(name, setting, path_of):
    """Every setting of every component."""
    value = VALUES[setting]
    path, override = path_of(name), {f"components.{name}.{setting}": value}
    without_effect = getattr(type(spacy.load(path).get_pipe(name)), "without_effect", {})
    if setting in without_effect:
        with pytest.raises(ELQError, match=f"E012.*`{setting}` has no effect in '{name}'"):
            spacy.load(path, config=override)
        return
    nlp = spacy.load(path, config=override)
    assert get(nlp.get_pipe(name), setting) == value
    # and it is what is saved
    section = nlp.config["components"][name]
    assert functools.reduce(lambda config, key: config[key], setting.split("."), section) == value


@pytest.mark.parametrize("setting", ["only_labels", "only_tags", "only_ids"])
@pytest.mark.parametrize("value", ["GPE", [1], {"labels": ["GPE"]}], ids=str)
def test_a_restriction_is_a_list_of_strings(trained_path, setting, value):
    linker = spacy.load(trained_path).get_pipe("elq_linker")
    with pytest.raises(ELQError, match=rf"E002.*{setting}.*null, or a list of strings"):
        setattr(linker, setting, value)


def test_an_override_changes_the_links(trained_path):
    before = spacy.load(trained_path)(LINKED)
    scores = sorted(ent._.elq_score for ent in before.ents)
    assert len(scores) == 2
    between = {"components.elq_linker.decoder.threshold": sum(scores) / 2}
    assert len(spacy.load(trained_path, config=between)(LINKED).ents) == 1


def test_an_override_of_an_invalid_value_is_an_error(trained_path):
    with pytest.raises(ELQError, match=r"E002.*`threshold`.*7.*from 0 to 1"):
        spacy.load(trained_path, config={"components.elq_linker.decoder.threshold": 7.0})


def test_a_misspelt_override_is_an_error(trained_path):
    with pytest.raises(ValueError, match="treshold"):
        spacy.load(trained_path, config={"components.elq_linker.decoder.treshold": 0.5})


def test_nothing_is_stored_twice(trained_path, blink_path, tagme_path):
    for folder in (trained_path / "elq_linker", blink_path / "elq_blink", tagme_path / "elq_tagme"):
        assert folder.is_dir()
        assert not (folder / "cfg").exists()
        assert "threshold" not in "".join(p.read_text("utf8") for p in folder.glob("*.json"))


# ---------------------------------------------------------------------- by hand


@pytest.mark.parametrize("setting", INVALID)
def test_an_invalid_value_is_an_error_however_it_comes(setting):
    value = INVALID[setting]
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("elq_linker")
    block, _, name = setting.rpartition(".")
    before = get(linker, setting)
    for change in (
        lambda: setattr(linker, name, value),
        lambda: update_settings(nlp, "elq_linker", {setting: value}),
        lambda: nlp.add_pipe(
            "elq_linker", name="x", config={block: {name: value}} if block else {name: value}
        ),
    ):
        with pytest.raises(ELQError, match=f"E002.*`{name}`"):
            change()
    assert get(linker, setting) == before


@pytest.mark.parametrize("value", ["high", True, [0.5], object()])
def test_a_value_of_another_type_is_an_error(value):
    linker = spacy.blank("en").add_pipe("elq_linker")
    with pytest.raises(ELQError, match=r"E002.*`threshold`"):
        linker.threshold = value


def test_a_misspelt_name_is_an_error():
    linker = spacy.blank("en").add_pipe("elq_linker")
    with pytest.raises(ELQError, match=r"E013.*no setting `treshold`.*Did you mean `threshold`"):
        linker.treshold = 0.3
    with pytest.raises(ELQError, match=r"E013.*no setting `colour`. Its settings"):
        linker.colour = "red"
    with pytest.raises(AttributeError, match="treshold"):
        linker.treshold  # noqa: B018


def test_a_block_is_replaced_as_a_whole():
    linker = spacy.blank("en").add_pipe("elq_linker")
    linker.decoder = Decoder(threshold=0.4, candidates=7)
    assert (linker.threshold, linker.decoder.candidates) == (0.4, 7)
    with pytest.raises(ELQError, match=r"E002.*`decoder`.*spacy-elq.Decoder.v1"):
        linker.decoder = {"threshold": 0.4}


def test_settings_by_hand_are_used_at_once(trained_path):
    nlp = spacy.load(trained_path)
    assert nlp(LINKED).ents
    nlp.get_pipe("elq_linker").threshold = 1.0
    assert not nlp(LINKED).ents


def test_settings_are_changed_in_use_and_in_the_config(trained_path, tmp_path):
    nlp = spacy.load(trained_path)
    update_settings(
        nlp, "elq_linker", {"decoder.threshold": 0.5, "decoder.first_threshold": 0.25, "label": "X"}
    )
    nlp.to_disk(tmp_path / "changed")
    linker = spacy.load(tmp_path / "changed").get_pipe("elq_linker")
    assert (linker.threshold, linker.first_threshold, linker.label) == (0.5, 0.25, "X")


@pytest.mark.parametrize("name", FACTORIES)
def test_settings_by_hand_that_are_not_saved_are_named(name, path_of, tmp_path):
    nlp = spacy.load(path_of(name))
    nlp.get_pipe(name).label = "OTHER"
    with pytest.warns(UserWarning, match=rf"W006.*'{name}'.*: label"):
        nlp.to_disk(tmp_path / "saved")
    assert spacy.load(tmp_path / "saved").get_pipe(name).label != "OTHER"
    if name != "elq_span_extractor":
        nlp.get_pipe(name).threshold = 0.123
        with pytest.warns(UserWarning, match=r"W006.*: label, decoder\.threshold\."):
            nlp.to_disk(tmp_path / "saved")
        update_settings(nlp, name, {"decoder.threshold": 0.123})
    # to save another setting is not to save this one
    threshold = "threshold" if name == "elq_span_extractor" else "decoder.threshold"
    update_settings(nlp, name, {threshold: 0.5})
    with pytest.warns(UserWarning, match=rf"W006.*'{name}'.*: label"):
        nlp.to_disk(tmp_path / "saved")
    update_settings(nlp, name, {"label": "OTHER"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        nlp.to_disk(tmp_path / "saved")
    assert spacy.load(tmp_path / "saved").get_pipe(name).label == "OTHER"


@pytest.mark.parametrize("setting", ["colour", "decoder.colour", "colour.threshold", "threshold"])
def test_an_unknown_setting_changes_nothing(trained_path, setting):
    nlp = spacy.load(trained_path)
    before = json.dumps(nlp.config["components"]["elq_linker"])
    with pytest.raises(ELQError, match=f"E077.*{setting}"):
        update_settings(nlp, "elq_linker", {"decoder.threshold": 0.5, setting: 0.3})
    assert json.dumps(nlp.config["components"]["elq_linker"]) == before


def test_settings_of_a_component_that_is_not_ours():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    with pytest.raises(ELQError, match=r"E077"):
        update_settings(nlp, "sentencizer", {"decoder.threshold": 0.5})


@pytest.mark.parametrize(
    ("name", "wrong"), [("elq_linker", {"label": ""}), ("elq_blink", {"loss.unmarked": "negative"})]
)
def test_where_one_value_is_not_valid_nothing_is_changed(name, wrong):
    nlp = spacy.blank("en")
    linker = nlp.add_pipe(name)
    before = linker.settings, json.dumps(nlp.config["components"][name])
    with pytest.raises(ELQError, match=r"E002|E012"):
        update_settings(nlp, name, {"decoder.threshold": 0.77, "existing_ents": "keep", **wrong})
    assert (linker.settings, json.dumps(nlp.config["components"][name])) == before


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("elq_linker", "candidates"),
        ("elq_linker", "max_length"),
        ("elq_linker", "mention_limit"),
        ("elq_span_extractor", "top_k"),
        ("elq_span_extractor", "max_length"),
    ],
)
def test_a_number_of_things_is_whole(name, setting):
    component = spacy.blank("en").add_pipe(name)
    with pytest.raises(ELQError, match=rf"E002.*`{setting}`.*2\.5, expected a whole number"):
        setattr(component, setting, 2.5)
    setattr(component, setting, np.int64(3))
    # `linker.candidates` is a method
    assert getattr(getattr(component, "decoder", component), setting) == 3


@pytest.mark.parametrize("factory", [*FACTORIES, "elq_pairs"])
def test_no_signature_has_more_than_twelve_parameters(factory):
    func = spacy.util.registry.factories.get(factory)
    assert len(inspect.signature(func).parameters) <= 12


# ---------------------------------------------------------------------- the index


def test_index_path_is_attached_by_initialize(index, gold_docs, tmp_path):
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("elq_linker", config={"index_path": str(index.path)})
    assert linker.index is None
    nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in gold_docs[:2]])
    assert linker.index.path == index.path
    assert nlp(LINKED) is not None
    nlp.to_disk(tmp_path / "pipeline")
    assert spacy.load(tmp_path / "pipeline").get_pipe("elq_linker").index.path == index.path


def test_an_index_loader_counts_more_than_index_path(index, gold_docs):
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("elq_linker", config={"index_path": "nowhere"})
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in gold_docs[:2]]
    linker.initialize(lambda: examples, nlp=nlp, index_loader=lambda: index)
    assert linker.index is index


@pytest.fixture
def project(trained_path, index, tmp_path):
    """A folder with an index and a pipeline that was saved after `index_path` was set."""
    folder = tmp_path / "project"
    shutil.copytree(index.path, folder / "index")
    override = {"components.elq_linker.index_path": str(folder / "index")}
    spacy.load(trained_path, config=override).to_disk(folder / "pipeline")
    return folder


def test_a_pipeline_that_is_moved_with_its_index_opens_by_the_relative_path(project, tmp_path):
    project.rename(tmp_path / "moved")
    linker = spacy.load(tmp_path / "moved" / "pipeline").get_pipe("elq_linker")
    assert linker.index.path == tmp_path / "moved" / "index"


def test_another_index_path_counts_more_than_the_relative_path(project, index):
    override = {"components.elq_linker.index_path": str(index.path)}
    assert spacy.load(project / "pipeline", config=override).get_pipe("elq_linker").index.path == index.path


def test_index_path_takes_effect_where_the_pipeline_was_saved_without_an_index(index, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("elq_linker").model.set_dim("nO", index.width)
    nlp.get_pipe("elq_linker").model.initialize(X=[nlp.make_doc("hello world")])
    nlp.to_disk(tmp_path / "pipeline")
    override = {"components.elq_linker.index_path": str(index.path)}
    linker = spacy.load(tmp_path / "pipeline", config=override).get_pipe("elq_linker")
    assert linker.index.path == index.path


@pytest.fixture
def other_index(vectors_path, tmp_path):
    return build_index(vectors_path, tmp_path / "other")


def test_an_index_path_that_is_set_later_is_opened_when_the_pipeline_is_loaded(
    trained_path, other_index, tmp_path
):
    nlp = spacy.load(trained_path)
    update_settings(nlp, "elq_linker", {"index_path": str(other_index.path)})
    nlp.to_disk(tmp_path / "changed")
    linker = spacy.load(tmp_path / "changed").get_pipe("elq_linker")
    assert linker.index.path == other_index.path


def test_an_index_path_that_is_set_later_is_opened_by_initialize(index, other_index, gold_docs):
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("elq_linker", config={"index_path": str(index.path)})
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in gold_docs[:2]]
    nlp.initialize(lambda: examples)
    linker.index_path = str(other_index.path)
    nlp.initialize(lambda: examples)
    assert linker.index.path == other_index.path
    # one that is attached by hand after that stays
    linker.set_index(index)
    nlp.initialize(lambda: examples)
    assert linker.index is index


def test_an_index_that_is_attached_by_hand_counts_more_than_the_index_path_of_before(
    project, other_index, tmp_path
):
    nlp = spacy.load(project / "pipeline")
    nlp.get_pipe("elq_linker").set_index(other_index)
    nlp.to_disk(tmp_path / "changed")
    assert spacy.load(tmp_path / "changed").get_pipe("elq_linker").index.path == other_index.path


def test_the_index_path_from_before_bundling_can_be_named_again(project, tmp_path):
    nlp = spacy.load(project / "pipeline")
    bundle_index(nlp, "elq_linker")
    nlp.to_disk(tmp_path / "bundled")
    inside = tmp_path / "bundled" / "elq_linker" / "index"
    assert spacy.load(tmp_path / "bundled").get_pipe("elq_linker").index.path == inside
    override = {"components.elq_linker.index_path": str(project / "index")}
    linker = spacy.load(tmp_path / "bundled", config=override).get_pipe("elq_linker")
    assert linker.index.path == project / "index"


# ---------------------------------------------------------------------- pipelines of 0.1


def to_old(config):
    """RETURNS: The config of a component as 0.1 had it."""
    places = {place: key for key, place in MOVED["elq_linker"].items() if place}
    old = {key: value for key, value in config.items() if key not in ("prior", "decoder", "loss")}
    for block in ("prior", "decoder", "loss"):
        kept = {k: v for k, v in config[block].items() if f"{block}.{k}" in places}
        old.update({places[f"{block}.{k}"]: v for k, v in kept.items()})
    return {**old, "gold_key": "gold_links", "bundle_index": False, "max_mentions": 50}


@pytest.fixture
def old_path(trained_path, tmp_path):
    """A pipeline as 0.1 saved it: flat settings, and a copy of them beside the component."""
    path = tmp_path / "old"
    shutil.copytree(trained_path, path)
    config = load_config(path / "config.cfg")
    config["components"]["elq_linker"] = to_old(config["components"]["elq_linker"])
    config.to_disk(path / "config.cfg")
    record = json.loads((path / "elq_linker" / "index.json").read_text("utf8"))
    record.pop("index_path")
    # relative to the folder that it was copied from
    record["paths"] = record["paths"][1:]
    (path / "elq_linker" / "index.json").write_text(json.dumps(record), "utf8")
    stored = {k: v for k, v in config["components"]["elq_linker"].items() if not isinstance(v, dict)}
    (path / "elq_linker" / "cfg").write_text(json.dumps(stored), "utf8")
    return path


def test_a_pipeline_of_before_loads_with_a_warning(old_path, trained_path, gold_docs, tmp_path):
    with pytest.warns(UserWarning, match=r"W004.*`threshold` is now `decoder.threshold`.*`gold_key` is gone"):
        nlp = spacy.load(old_path)
    expected = spacy.load(trained_path)
    assert nlp.get_pipe("elq_linker").settings == expected.get_pipe("elq_linker").settings
    for doc in gold_docs[:5]:
        assert links_of(nlp(doc.text)) == links_of(expected(doc.text))
    # saved again, it is one of today
    nlp.to_disk(tmp_path / "new")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert spacy.load(tmp_path / "new").config["components"] == expected.config["components"]


def test_an_override_by_the_name_of_before_takes_effect(old_path, trained_path):
    for path in (old_path, trained_path):
        with pytest.warns(UserWarning, match=r"W004"):
            nlp = spacy.load(path, config={"components.elq_linker.threshold": 0.9})
        assert nlp.get_pipe("elq_linker").threshold == 0.9
        assert nlp.config["components"]["elq_linker"]["decoder"]["threshold"] == 0.9


@pytest.mark.parametrize(
    ("setting", "value", "difference"),
    [
        ("temperature", 3.0, r"`temperature` is 1\.0, not 3\.0"),
        # which has another name now
        ("linking_loss", "binary", "`linking` is 'softmax', not 'binary'"),
    ],
)
def test_the_config_counts_more_than_what_was_stored_beside_it(old_path, setting, value, difference):
    expected = spacy.load(old_path).get_pipe("elq_linker").settings
    stored = json.loads((old_path / "elq_linker" / "cfg").read_text("utf8"))
    (old_path / "elq_linker" / "cfg").write_text(json.dumps({**stored, setting: value}), "utf8")
    # what does not differ is not named
    with pytest.warns(UserWarning, match=f"W005.*config: {difference}\\."):
        assert spacy.load(old_path).get_pipe("elq_linker").settings == expected


def test_a_gold_key_of_ones_own_cannot_be_taken_over(old_path):
    with pytest.raises(ELQError, match=r"E014.*'mine'"):
        spacy.load(old_path, config={"components.elq_linker.gold_key": "mine"})


def test_a_config_of_today_is_left_alone():
    config = {"decoder": {"threshold": 0.5}, "label": "X"}
    assert move_settings("elq_linker", config) == config
    assert move_settings("ner", {"threshold": 1}) == {"threshold": 1}


def test_old_settings_are_accepted_by_add_pipe_too():
    with pytest.warns(UserWarning, match=r"W004"):
        linker = spacy.blank("en").add_pipe("elq_tagme", config={"threshold": 0.5, "max_length": 3})
    assert (linker.threshold, linker.max_length, linker.candidates) == (0.5, 3, 50)


def test_what_is_not_ours_is_left_to_spacy():
    """A component of another package, and what is not a config."""
    nlp = spacy.blank("en")
    for name in ("sentencizer", "elq_linker"):
        for config in (None, ["threshold"]):
            with pytest.raises(ValueError, match="E962"):
                nlp.create_pipe(name, config=config)
    assert nlp.create_pipe("sentencizer") is not None

    @Language.factory("elq_other", default_config={"threshold": 0.5})
    def make_other(nlp, name, threshold):
        return lambda doc: doc

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        nlp.add_pipe("elq_other", config={"threshold": 0.3})
    assert nlp.get_pipe_config("elq_other")["threshold"] == 0.3


def test_create_pipe_is_preceded_once():
    from spacy_elq.pipeline import legacy

    before = Language.create_pipe
    legacy.accept_old_configs()
    assert Language.create_pipe is before


# ---------------------------------------------------------------------- pickling and processes

LINKERS = ["elq_linker", "elq_blink", "elq_tagme", "elq_vcg"]


@pytest.mark.parametrize("name", LINKERS)
def test_a_pipeline_can_be_pickled(name, path_of, gold_docs):
    nlp = spacy.load(path_of(name))
    copy = pickle.loads(pickle.dumps(nlp))
    texts = [doc.text for doc in gold_docs[:6]]
    assert [links_of(doc) for doc in copy.pipe(texts)] == [links_of(doc) for doc in nlp.pipe(texts)]


PIPE = """
import json, multiprocessing, sys, warnings
import spacy

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    path, method = sys.argv[1:3]
    texts = json.load(sys.stdin)
    multiprocessing.set_start_method(method)
    nlp = spacy.load(path)
    docs = nlp.pipe(texts, n_process=2, batch_size=2)
    print(json.dumps([[[e.start_char, e.end_char, e.kb_id_] for e in doc.ents] for doc in docs]))
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.parametrize("name", LINKERS)
def test_worker_processes_however_they_are_started(name, method, path_of, gold_docs, tmp_path):
    path, texts = path_of(name), [doc.text for doc in gold_docs[:6]]
    script = tmp_path / "pipe.py"
    script.write_text(PIPE, "utf8")
    done = subprocess.run(
        [sys.executable, str(script), str(path), method],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    expected = [[list(link) for link in links_of(doc)] for doc in spacy.load(path).pipe(texts)]
    assert json.loads(done.stdout) == expected
    assert any(expected) or name == "elq_tagme"


# ---------------------------------------------------------------------- spaCy's own commands


@pytest.mark.parametrize("name", LINKERS)
def test_find_threshold(name, path_of, gold_docs, tmp_path):
    from spacy.cli.find_threshold import find_threshold

    docs = DocBin(docs=gold_docs[:4], store_user_data=True)
    docs.to_disk(tmp_path / "dev.spacy")
    _, _, scores = find_threshold(
        path_of(name), tmp_path / "dev.spacy", name, "decoder.threshold", "elq_weak_f", n_trials=3
    )
    assert list(scores) == [0.0, 0.5, 1.0]
    # tagme's world is another one than that of the questions
    assert scores[0.5] > scores[1.0] or name != "elq_linker"


@pytest.mark.parametrize("name", LINKERS)
def test_analyze_pipes_shows_what_is_assigned(name):
    nlp = spacy.blank("en")
    nlp.add_pipe(name)
    assigned = nlp.analyze_pipes(keys=["assigns"])["summary"][name]["assigns"]
    for attribute in ("doc.ents", "span._.elq_score", "span._.elq_title", "span._.elq_alternatives"):
        assert attribute in assigned

"""The overrides: complete configs that train, and differ from their base in what they say."""

from pathlib import Path

import make_config as script
import pytest
import typer
from make_config import make_config
from spacy.schemas import ConfigSchemaTraining
from spacy.util import dot_to_object, load_config, load_model_from_config, registry
from typer.testing import CliRunner

CONFIGS = Path(__file__).parents[1] / "configs"
ELQ = load_config(CONFIGS.parents[2] / "configs" / "elq.cfg", interpolate=False)
PIPELINES = {
    "questions": ["transformer", "elq_linker"],
    "nothing": ["transformer", "elq_linker"],
    "wikipedia": ["transformer", "elq_linker"],
    "finetune": ["transformer", "elq_linker"],
    "keep": ["transformer", "elq_linker"],
    "hard": ["transformer", "elq_pairs"],
    "spacy": ["transformer", "ner", "sentencizer", "entity_linker"],
}
each_config = pytest.mark.parametrize("name", PIPELINES)


def flat(config, prefix=""):
    """A config as a dict of dotted names."""
    found = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def changes(name, base):
    """What a config has that its base has not, or otherwise, and what it lacks."""
    own = flat(make_config(CONFIGS / f"{name}.cfg"))
    return {key: own[key] for key in own if own[key] != base.get(key, ...)}, base.keys() - own.keys()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of the complete configs."""
    app = typer.Typer()
    app.command()(script.main)
    folder = tmp_path_factory.mktemp("made") / "configs"
    result = CliRunner().invoke(app, [str(CONFIGS), str(folder)])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def load(made, index, trained_path, encoder_path):
    """Reads a complete config, its paths set to what the tests have."""

    def load_file(name):
        places = {"index": str(index.path), "pipeline": str(trained_path), "pairs": str(trained_path)}
        places["encoder"] = str(encoder_path)
        paths = load_config(made / f"{name}.cfg")["paths"]
        known: dict = {f"paths.{key}": place for key, place in places.items() if key in paths}
        if name == "hard":  # the encoder of the tests has two layers
            known["components.elq_pairs.model.entity_encoder.frozen_layers"] = 1
        return load_config(made / f"{name}.cfg", overrides=known, interpolate=True)

    return load_file


def test_every_override_is_made(made):
    assert (
        {path.stem for path in made.iterdir()} == {path.stem for path in CONFIGS.iterdir()} == set(PIPELINES)
    )


@each_config
def test_config_is_complete_and_can_train(name, load):
    nlp = load_model_from_config(load(name), auto_fill=False, validate=True)
    assert nlp.pipe_names == PIPELINES[name]
    config = load_model_from_config(load(name), auto_fill=True).config.interpolate()
    training = registry.resolve(config["training"], schema=ConfigSchemaTraining)
    corpora = registry.resolve({"corpora": config["corpora"]})
    for key in ("train_corpus", "dev_corpus"):
        assert callable(dot_to_object(corpora, training[key]))
    rate = config["training"]["optimizer"]["learn_rate"]
    assert rate["warmup_steps"] == pytest.approx(rate["total_steps"] / 10, rel=0.05)


def test_questions_differ_from_the_recipe_in_data_encoder_formula_and_schedule():
    changed, gone = changes("questions", flat(ELQ))
    paths = {key for key in changed if key.startswith("paths.")}
    assert paths == {"paths.work", "paths.train", "paths.dev", "paths.index", "paths.pairs"}
    assert {key: value for key, value in changed.items() if key not in paths} == {
        "components.transformer.source": "${paths.pairs}",
        "components.elq_linker.model.@architectures": "spacy-elq.QuestionTower.v1",
        "components.elq_linker.model.learn_case": True,
        "components.elq_linker.loss.absent": 0.0,
        "components.elq_linker.prior.mention_name_weight": 1.5,
        "components.elq_linker.prior.phrase_weight": 0.0,
        "components.elq_linker.prior.text_weight": 0.0,
        "components.elq_linker.prior.alias_share": 0.75,
        "components.elq_linker.prior.popularity_weight": 0.85,
        "components.elq_linker.prior.temperature": 2.0,
        "components.elq_linker.decoder.entity_threshold": 0.0,
        "components.elq_linker.decoder.max_length": 10,
        "corpora.train.augmenter.level": 0.1,
        "training.max_epochs": 4,
        "training.eval_frequency": 75,
        "training.optimizer.learn_rate.warmup_steps": 30,
        "training.optimizer.learn_rate.total_steps": 300,
        "initialize.after_init.layers": 4,
    }
    # a sourced component has no other settings
    assert all(key == "paths.encoder" or key.startswith("components.transformer.") for key in gone)


def test_wikipedia_differs_from_questions_in_what_it_reads():
    changed, gone = changes("wikipedia", flat(make_config(CONFIGS / "questions.cfg")))
    assert {key.rsplit(".", 1)[0] for key in changed} == {
        "paths",
        "components.elq_linker.loss",
        "corpora.train",
        "corpora.train.augmenter",
        "training",
        "training.optimizer.learn_rate",
    }
    assert changed["components.elq_linker.loss.unmarked"] == "proper"
    assert gone == {
        f"corpora.train.{key}" for key in ("max_length", "gold_preproc", "limit", "augmenter.level")
    }


def test_finetuning_sources_all_from_the_pipeline_before():
    config = make_config(CONFIGS / "finetune.cfg")
    assert config["components"] == {name: {"source": "${paths.pipeline}"} for name in PIPELINES["finetune"]}
    assert config["initialize"]["components"] == {}
    assert not {"index", "pairs"} & set(config["paths"])


def test_the_pipeline_to_keep_differs_from_setting_3_in_what_it_reads():
    changed, gone = changes("keep", flat(make_config(CONFIGS / "finetune.cfg")))
    assert all(key.startswith(("corpora.train.corpus.", "paths.")) for key in {*changed, *gone})


def test_the_second_round_goes_on_with_both_encoders_and_hard_negatives():
    changed, _ = changes("hard", flat(load_config(CONFIGS.parents[2] / "configs" / "elq_pairs.cfg")))
    first = '"${paths.work}/training/first-0/model-last'
    assert changed["components.transformer.source"] == "${paths.pairs}"
    assert changed["paths.pairs"] == f'{first}"'
    assert changed["paths.encoder"] == f'{first}/elq_pairs/encoder"'
    assert changed["components.elq_pairs.hard"] > 0


def test_nothing_of_the_linker_is_left_beside_spacys_components():
    config = make_config(CONFIGS / "spacy.cfg")
    assert set(config["components"]) == set(PIPELINES["spacy"])
    assert set(config["initialize"]["components"]) == {"entity_linker"}
    assert not any(key.startswith("elq") for key in config["training"]["score_weights"])


def test_a_complete_config_stays_as_it_is():
    assert make_config(CONFIGS.parents[2] / "configs" / "elq.cfg") == ELQ


def test_leaving_out_what_the_base_does_not_have_is_an_error(tmp_path):
    (tmp_path / "base.cfg").write_text("[paths]\na = 1\n")
    (tmp_path / "own.cfg").write_text('[base]\npath = "base.cfg"\nwithout = ["paths.b"]\n')
    with pytest.raises(KeyError):
        make_config(tmp_path / "own.cfg")

"""Every file in configs/ trains with `spacy train`, and says all that it depends on."""

from pathlib import Path

import pytest
from spacy.schemas import ConfigSchemaInit, ConfigSchemaTraining
from spacy.util import dot_to_object, load_config, load_model_from_config, registry

from spacy_elq.pipeline.factories import LINKER_CONFIG
from spacy_elq.pipeline.plan import TrainingPlan

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.cfg"))
SCORES = [f"elq_{name}_{x}" for name in ("weak", "strong", "mentions", "links") for x in "prf"]
SCORES += ["elq_pairs_acc"]
# those that make an `elq_linker`, not the two-stage baseline, the training of the encoders, or fine-tuning
LINKERS = [path for path in CONFIGS if 'factory = "elq_linker"' in path.read_text(encoding="utf8")]
OTHERS = {"elq_blink.cfg", "elq_finetune.cfg", "elq_pairs.cfg", "elq_vcg.cfg"}

each_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
each_linker_config = pytest.mark.parametrize("path", LINKERS, ids=lambda path: path.name)


@pytest.fixture
def load(encoder_path, index, trained_path):
    """Reads a config, its paths set to what the tests have."""

    def load_file(path):
        config = load_config(path)
        places = {"encoder": str(encoder_path), "index": str(index.path)}
        places |= {name: str(trained_path) for name in ("pairs", "pipeline")}
        known = {f"paths.{name}": place for name, place in places.items() if name in config["paths"]}
        if "elq_pairs" in config["components"]:
            known["components.elq_pairs.model.entity_encoder.frozen_layers"] = 1  # of the two that it has
        return load_config(path, overrides=known, interpolate=True)

    return load_file


def test_there_are_configs():
    assert "elq.cfg" in {path.name for path in LINKERS}
    assert {path.name for path in set(CONFIGS) - set(LINKERS)} == OTHERS


@each_config
def test_config_is_complete(path, load):
    nlp = load_model_from_config(load(path), auto_fill=False, validate=True)
    assert nlp.pipe_names[-1] in ("elq_linker", "elq_pairs", "elq_blink", "elq_vcg")


@each_linker_config
def test_config_builds_the_pipeline_it_names(path, load):
    config = load(path)
    nlp = load_model_from_config(config, auto_fill=True, validate=True)
    assert nlp.pipe_names == config["nlp"]["pipeline"]
    linker = nlp.get_pipe("elq_linker")
    assert linker.index is None
    given = config["components"]["elq_linker"]
    for block, settings in linker.settings.items():
        expected = (
            {**vars(linker.blocks[block]()), **{k: v for k, v in given[block].items() if k != "@misc"}}
            if block in linker.blocks
            else given[block]
        )
        assert settings == expected
    assert set(given) <= {*LINKER_CONFIG, "factory"}


@each_config
def test_config_can_train(path, load):
    config = load_model_from_config(load(path), auto_fill=True).config.interpolate()
    training = registry.resolve(config["training"], schema=ConfigSchemaTraining)
    # corpora are given by their place in the config
    corpora = registry.resolve({"corpora": config["corpora"]})
    for name in ("train_corpus", "dev_corpus"):
        assert callable(dot_to_object(corpora, training[name]))
    weights = {key: value for key, value in training["score_weights"].items() if value}
    assert set(weights) <= set(SCORES)
    assert sum(weights.values()) == pytest.approx(1.0)
    plan = registry.resolve(config["initialize"], schema=ConfigSchemaInit)["before_init"]
    if plan is None:
        assert training["max_epochs"] or training["max_steps"]
    else:
        assert isinstance(plan, TrainingPlan)
        assert training["max_epochs"] == training["max_steps"] == training["eval_frequency"] == 0


@each_linker_config
def test_config_initializes_with_the_index(path, load, index):
    config = load_model_from_config(load(path), auto_fill=True).config.interpolate()
    initialize = registry.resolve(config["initialize"], schema=ConfigSchemaInit)
    opened = initialize["components"]["elq_linker"]["index_loader"]()
    assert opened.path == index.path


@each_config
def test_linear_schedule_warms_up_for_a_tenth(path, load):
    config = load(path)
    rate = config["training"]["optimizer"]["learn_rate"]
    if not isinstance(rate, dict) or rate["@schedules"] != "warmup_linear.v1":
        pytest.skip("no linear schedule")
    if rate["total_steps"]:
        assert rate["warmup_steps"] == pytest.approx(rate["total_steps"] / 10, rel=0.05)
    else:
        assert rate["warmup_steps"] == 0
        assert config["initialize"]["before_init"]["warmup"] == 0.1

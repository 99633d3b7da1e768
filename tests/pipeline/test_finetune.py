"""`spacy train` with the shipped configs on a handful of questions: from scratch, and going on."""

import shutil

import pytest
import spacy
from conftest import links_of, run_spacy
from spacy.tokens import DocBin
from spacy.util import load_config

from spacy_elq.corpora import Report, questions_to_docs, read_questions
from spacy_elq.index import build_index, encode_catalogue
from spacy_elq.pipeline.configs import find_configs

NEW = """\
is the [shaq](E8) tower in [texas](E2)
trains from [light](E1) to [nyc](E5)
[planet](E3) or [metal](E4)
how near is [atlanta](E7)
what is the capital of [france](E1)
is the [city](E5) big
"""
# the tiny encoder has random weights and two layers, and typos are a matter of luck
TINY = {"training.optimizer.learn_rate.initial_rate": 0.002, "corpora.train.augmenter.level": 0.0}
FREEZE = "initialize.after_init.callbacks.freeze.layers"
SETTINGS = "initialize.after_init.callbacks.linker.settings"


def write_docs(docs, path):
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


@pytest.fixture(scope="module")
def new_docs(tmp_path_factory):
    path = tmp_path_factory.mktemp("new") / "questions.txt"
    path.write_text(NEW, encoding="utf8")
    return list(questions_to_docs(read_questions(path, format="marked"), spacy.blank("en"), Report()))


def run_train(config, output, docs, **settings):
    """RETURNS (str): What `spacy train` prints, with the docs for training and evaluation."""
    path = write_docs(docs, output.with_suffix(".spacy"))
    overrides = {"paths.train": path, "paths.dev": path, **TINY, **settings}
    words = [word for name, value in overrides.items() for word in (f"--{name}", value)]
    done = run_spacy("train", config, "--output", output, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def config(tmp_path_factory, trained_path):
    path = tmp_path_factory.mktemp("config") / "config.cfg"
    done = run_spacy("elq", "init-config", "finetune", path, "--pipeline", trained_path)
    assert done.returncode == 0, done.stdout
    return path


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory, config, new_docs):
    """The folder of training, and what was printed."""
    output = tmp_path_factory.mktemp("finetuned") / "training"
    return output, run_train(config, output, new_docs, **{FREEZE: 0})


def gold_of(doc):
    return [(span.start_char, span.end_char, span.kb_id_) for span in doc.spans["gold_links"]]


def test_new_questions_are_linked_exactly(finetuned, trained_path, new_docs):
    output, printed = finetuned
    before, after = spacy.load(trained_path), spacy.load(output / "model-best")
    assert sum(links_of(before(doc.text)) != gold_of(doc) for doc in new_docs) >= 3
    assert [links_of(after(doc.text)) for doc in new_docs] == [gold_of(doc) for doc in new_docs]
    assert "W010" not in printed


def test_few_questions_get_past_the_warm_up_and_the_end_is_evaluated(finetuned):
    output, printed = finetuned
    training = load_config(output / "model-last" / "config.cfg")["training"]
    rate = training["optimizer"]["learn_rate"]
    assert (training["max_steps"], training["eval_frequency"]) == (60, 10)
    assert (rate["total_steps"], rate["warmup_steps"]) == (60, 6)
    assert "60 steps, evaluated every 10" in printed
    assert [int(line.split()[1]) for line in printed.splitlines() if line.startswith(" ")] == [
        *range(0, 61, 10)
    ]


def test_settings_and_index_are_those_of_the_trained_pipeline(finetuned, trained_path):
    before, after = (
        spacy.load(path).get_pipe("elq_linker") for path in (trained_path, finetuned[0] / "model-best")
    )
    assert after.settings == before.settings
    assert after.index.path == before.index.path
    nlp = spacy.load(finetuned[0] / "model-best")
    assert nlp.config["components"]["elq_linker"]["factory"] == "elq_linker"


@pytest.fixture(scope="module")
def other_index(tmp_path_factory, catalogue_path, entity_encoder):
    """An index of another catalogue: nine of the ten entities."""
    folder = tmp_path_factory.mktemp("other")
    lines = catalogue_path.read_text(encoding="utf8").splitlines(keepends=True)
    (folder / "entities.jsonl").write_text("".join(lines[:-1]), encoding="utf8")
    encode_catalogue(folder / "entities.jsonl", folder / "vectors", entity_encoder)
    build_index(folder / "vectors", folder / "index")
    return folder / "index"


def test_another_index_and_other_settings(tmp_path, config, new_docs, other_index):
    settings = {f"{SETTINGS}.decoder.threshold": 0.5, f"{SETTINGS}.label": "THING"}
    given = {FREEZE: 0, "paths.index": other_index, "training.max_steps": 2, **settings}
    run_train(config, tmp_path / "training", new_docs, **given)
    linker = spacy.load(tmp_path / "training" / "model-last").get_pipe("elq_linker")
    assert linker.index.path == other_index
    assert (linker.threshold, linker.label) == (0.5, "THING")


def test_training_that_only_does_harm_is_reported(tmp_path, config, gold_docs, trained_path):
    """The pipeline knows these questions; steps that are far too long make it forget them."""
    given = {FREEZE: 0, "training.max_steps": 6, "training.optimizer.learn_rate.initial_rate": 0.5}
    printed = run_train(config, tmp_path / "training", gold_docs, **given)
    assert "W010" in printed
    assert "best of 7 evaluations is that of step 0 (score 1.00)" in " ".join(printed.split())
    best = spacy.load(tmp_path / "training" / "model-best")
    assert links_of(best(gold_docs[0].text)) == links_of(spacy.load(trained_path)(gold_docs[0].text))


def test_thirty_questions_are_enough_for_training_from_scratch(tmp_path, encoder_path, index, gold_docs):
    docs = [*gold_docs, *gold_docs[:10]]
    paths = {"paths.encoder": encoder_path, "paths.index": index.path, "initialize.after_init.layers": 0}
    printed = run_train(find_configs()["elq"], tmp_path / "training", docs, **paths)
    assert "102 steps, evaluated every 17" in printed
    assert "W010" not in printed
    nlp = spacy.load(tmp_path / "training" / "model-best")
    right = [links_of(nlp(doc.text)) == gold_of(doc) for doc in gold_docs]
    assert sum(right) >= 15


def test_pipeline_without_a_transformer_is_refused(tmp_path, train_once):
    path = train_once("tok2vec")
    done = run_spacy("elq", "init-config", "finetune", tmp_path / "config.cfg", "--pipeline", path)
    assert done.returncode == 1
    assert "E171" in done.stdout + done.stderr
    assert not (tmp_path / "config.cfg").exists()


def test_language_and_tokenizer_are_those_of_the_pipeline(tmp_path, trained_path):
    copy = shutil.copytree(trained_path, tmp_path / "pipeline")
    own = load_config(copy / "config.cfg")
    own["nlp"]["lang"] = "de"
    own["nlp"]["tokenizer"] = {"@tokenizers": "spacy-elq.BertTokenizer.v1", "lowercase": True}
    own.to_disk(copy / "config.cfg")
    run_spacy("elq", "init-config", "finetune", tmp_path / "config.cfg", "--pipeline", copy)
    found = load_config(tmp_path / "config.cfg")["nlp"]
    assert (found["lang"], found["tokenizer"]) == ("de", own["nlp"]["tokenizer"])
    assert found["vectors"] == {"@vectors": "spacy.Vectors.v1"}

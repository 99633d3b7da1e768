"""Whatever is registered can be pickled: worker processes that are spawned get their pipeline that way."""

import inspect
import pickle
from functools import partial
from pathlib import Path

import pytest
from spacy.training import Corpus
from spacy.util import registry
from test_entry_points import ENTRY_POINTS

from spacy_elq.pipeline.plan import TrainingPlan

GROUPS = {"misc", "scorers", "readers", "augmenters", "callbacks", "loggers", "tokenizers"}
# what has no default; any picklable callable may stand for a reader
ARGUMENTS = {
    "spacy-elq.ChunkedCorpus.v1": {"path": Path("chunks")},
    "spacy-elq.DictionaryKB.v1": {"dictionary": Path("dictionary"), "index": Path("index")},
    "spacy-elq.EntityIndexLoader.v1": {"path": Path("index")},
    "spacy-elq.IndexCandidates.v1": {"path": Path("index")},
    "spacy-elq.run_callbacks.v1": {"callbacks": {"first": TrainingPlan()}},
    "spacy-elq.MixedCorpus.v1": {"corpus": partial(Corpus, "a"), "other": partial(Corpus, "b")},
}
CASES = [
    (group.removeprefix("spacy_"), name)
    for group, name, _ in ENTRY_POINTS
    if group.removeprefix("spacy_") in GROUPS
]


def describe(value):
    """RETURNS: What makes two callables the same, as far as one can see: their code and their settings."""
    if isinstance(value, partial):
        return (
            value.func,
            [describe(x) for x in value.args],
            {k: describe(x) for k, x in value.keywords.items()},
        )
    if hasattr(value, "__dict__") and not inspect.isroutine(value):
        return type(value), {key: describe(x) for key, x in vars(value).items()}
    return value


@pytest.mark.parametrize(("group", "name"), CASES)
def test_what_is_registered_can_be_pickled(group, name):
    built = getattr(registry, group).get(name)(**ARGUMENTS.get(name, {}))
    assert describe(pickle.loads(pickle.dumps(built))) == describe(built)


def test_every_group_is_there():
    assert {group for group, _ in CASES} == GROUPS

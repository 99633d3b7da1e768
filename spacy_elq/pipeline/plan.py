"""How long to train: steps, warm-up and evaluations that fit the number of training questions."""

import logging
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Mapping

from spacy.language import Language
from spacy.util import registry, resolve_dot_names

from ..errors import ELQError, Errors, Rule, check_settings, whole_number

logger = logging.getLogger("spacy")
_RULES: Dict[str, Rule] = {
    "epochs": whole_number(1),
    "least_steps": whole_number(1),
    "most_steps": whole_number(1),
    "warmup": (lambda x: 0 <= x < 1, "a number from 0 to 1, less than 1"),
    "evaluations": whole_number(1),
}


@dataclass(frozen=True)
class TrainingPlan:
    """Count the training examples once, and compute what is 0 in `[training]`: `max_steps`, `eval_frequency`
    and, in a linear schedule of the learning rate, `total_steps` and `warmup_steps`. Numbers that are given
    are kept. The end of training is always evaluated, so that `model-best` can come from there.

    epochs (int): Number of epochs; if `[training] max_epochs` is given, that one counts.
    least_steps (int): Least number of steps: few questions are trained for more epochs.
    most_steps (int): Largest number of steps, unless one epoch has more: many questions are trained for fewer
        epochs.
    warmup (float): Share of the steps in which the learning rate rises.
    evaluations (int): Number of evaluations, without the one at step 0.
    """

    epochs: int = 6
    least_steps: int = 100
    most_steps: int = 3000
    warmup: float = 0.1
    evaluations: int = 6

    def __post_init__(self) -> None:
        """Check the values."""
        check_settings("plan_training", self, _RULES)

    def __call__(self, nlp: Language) -> Language:
        """Write the numbers into the config of a pipeline, before it is trained.

        RETURNS (Language): The same pipeline.
        """
        # what may be a variable in the one is a number in the other
        training, given = nlp.config["training"], nlp.config.interpolate()["training"]
        numbers = self.fit(given, partial(count_batches, nlp))
        logger.info("Training plan: %s", numbers)
        rate = {key: numbers.pop(key) for key in ("total_steps", "warmup_steps") if key in numbers}
        training.update(numbers)
        if rate:
            training["optimizer"]["learn_rate"].update(rate)
        return nlp

    def fit(self, training: Mapping[str, Any], count: Callable[[], int]) -> Dict[str, int]:
        """Compute what is 0 in a block `[training]`.

        training (Mapping[str, Any]): The block, without variables.
        count (Callable[[], int]): Gives the number of steps in an epoch. Called only if it is needed.
        RETURNS (Dict[str, int]): The new numbers of the block, and those of its learning rate.
        """
        every, rate = training["eval_frequency"], training["optimizer"].get("learn_rate")
        is_open = isinstance(rate, dict) and rate.get("total_steps") == 0
        if every and not is_open and (training["max_steps"] or training["max_epochs"]):
            return {}
        steps = training["max_steps"] or self._count_steps(training["max_epochs"], count)
        numbers = {"max_epochs": training["max_epochs"], "max_steps": steps, "eval_frequency": every}
        if training["max_steps"]:
            numbers["eval_frequency"] = every or max(1, steps // self.evaluations)
        else:  # rounded up, since spaCy evaluates multiples only
            every = numbers["eval_frequency"] = every or math.ceil(steps / self.evaluations)
            numbers.update(max_epochs=0, max_steps=math.ceil(steps / every) * every)
        if is_open:
            total = numbers["total_steps"] = numbers["max_steps"]
            numbers["warmup_steps"] = rate["warmup_steps"] or round(self.warmup * total)
        return numbers

    def _count_steps(self, max_epochs: int, count: Callable[[], int]) -> int:
        """RETURNS (int): How many steps to train for, unless the config says it."""
        if max_epochs < 0:
            raise ELQError(Errors.E172)
        per_epoch = count()
        if max_epochs:
            return max_epochs * per_epoch
        return max(self.least_steps, min(self.epochs * per_epoch, max(self.most_steps, per_epoch)))


def count_batches(nlp: Language) -> int:
    """RETURNS (int): How many batches the batcher of a pipeline's config makes of its training corpus."""
    config = nlp.config.interpolate()
    batcher = registry.resolve({"batcher": config["training"]["batcher"]})["batcher"]
    (corpus,) = resolve_dot_names(config, [config["training"]["train_corpus"]])
    return sum(1 for _ in batcher(corpus(nlp)))

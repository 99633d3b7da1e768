"""The logger of training: spaCy's own, which also says when training was of no use."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, Optional, Tuple, Union

from spacy.language import Language
from spacy.training.loggers import console_logger_v3
from wasabi import Printer

from ..errors import Warnings

LogStep = Callable[[Optional[Dict[str, Any]]], None]


@dataclass(frozen=True)
class ConsoleLogger:
    """Log training as `spacy.ConsoleLogger.v3` does. In addition, print how many steps there will be, and
    warn at the end if `model-best` is the pipeline of step 0.

    progress_bar (Optional[str]): "train" for a bar to the end of training, "eval" for one to the next
        evaluation, null for none.
    console_output (bool): Whether to print a line per evaluation.
    output_file (Optional[Union[str, Path]]): JSONL file with a line per evaluation.
    """

    progress_bar: Optional[str] = None
    console_output: bool = True
    output_file: Optional[Union[str, Path]] = None

    def __call__(
        self, nlp: Language, stdout: IO = sys.stdout, stderr: IO = sys.stderr
    ) -> Tuple[LogStep, Callable[[], None]]:
        """Begin to log.

        RETURNS (Tuple[LogStep, Callable[[], None]]): What is called after each step, and at the end.
        """
        training = nlp.config.interpolate()["training"]
        if self.console_output and training["max_steps"]:
            text = f"{training['max_steps']} steps, evaluated every {training['eval_frequency']}"
            stdout.write(Printer(no_print=True).info(text) + "\n")
        make = console_logger_v3(self.progress_bar, self.console_output, self.output_file)
        log_step, finish = make(nlp, stdout, stderr)
        watch = _Watch(log_step, finish, stdout)
        return watch.log_step, watch.finish


class _Watch:
    """Passes all on to a logger, and remembers the evaluations."""

    def __init__(self, log_step: LogStep, finish: Callable[[], None], stdout: IO) -> None:
        self._log_step, self._finish, self._stdout = log_step, finish, stdout
        self._results: List[Tuple[float, int]] = []

    def log_step(self, info: Optional[Dict[str, Any]]) -> None:
        """Log one step.

        info (Optional[Dict[str, Any]]): What spaCy knows about it if it was evaluated; otherwise None.
        """
        if info is not None:
            self._results = info["checkpoints"]
        self._log_step(info)

    def finish(self) -> None:
        """Close the log. Of equal scores, the last is the best for spaCy."""
        self._finish()
        score, step = max(self._results, default=(0.0, -1))
        if step == 0:
            text = Warnings.W010.format(score=score, count=len(self._results))
            self._stdout.write(Printer(no_print=True).warn(text) + "\n")

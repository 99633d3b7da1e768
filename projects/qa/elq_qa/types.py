"""What the modules pass to each other."""

from typing import Any, Dict, NamedTuple, Tuple

from numpy.typing import NDArray

Array = NDArray[Any]
Row = Dict[str, Any]


class QAError(ValueError):
    """What a user can mend: says what was found, what was expected and the next command."""


class Question(NamedTuple):
    """A question with all strings that count as its answer.

    qid, text (str): Its id and text.
    answers (Tuple[str, ...]): The answers.
    gold (str): The id of the same question in WebQSP_EL, or "".
    """

    qid: str
    text: str
    answers: Tuple[str, ...]
    gold: str = ""


class Passage(NamedTuple):
    """A passage, as a reader sees it.

    entity, title (str): Id and title of the entity whose article it is from.
    text (str): The text, which is empty if only the title is known.
    """

    entity: str
    title: str
    text: str

    @property
    def full(self) -> str:
        """RETURNS (str): The text with the title in front."""
        return f"{self.title}\n{self.text}"

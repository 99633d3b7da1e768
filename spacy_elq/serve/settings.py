"""What `spacy elq serve` can be told."""

import os
from dataclasses import asdict, dataclass
from typing import Optional, Tuple

import srsly

from ..errors import ELQError, Errors, Rule, check_settings, whole_number

# the workers are processes of their own and read it there
VARIABLE = "SPACY_ELQ_SERVE"
# the exit code of a process that could not start, as uvicorn has it
NOT_STARTED = 3
# who may change the catalogue
TOKEN = "SPACY_ELQ_TOKEN"

_POSITIVE: Rule = (lambda x: x > 0, "a number above 0")


@dataclass(frozen=True)
class ServeSettings:
    """Settings of the server.

    pipeline (str): Folder or name of the pipeline.
    batch_size (int): Texts that are linked together.
    batch_wait (float): Seconds that a text waits for others before it is linked. With 0, what comes while a
        batch is linked makes up the next one.
    max_body (int): Bytes of a request.
    max_texts (int): Texts in a request.
    max_characters (int): Characters of a text.
    max_queue (int): Texts that wait to be linked.
    timeout (float): Seconds until a request is given up.
    writable (bool): Whether entities can be added and removed, by who has the token.
    log_texts (bool): Whether texts are logged.
    published_ids (str): Which ids `/entity_linking` answers with: "id", or an id system such as "wikidata" or
        "freebase".
    origins (Tuple[str, ...]): Web pages of other hosts that may use the server.
    threads (int): Threads that a worker computes in.
    """

    pipeline: str = ""
    batch_size: int = 64
    batch_wait: float = 0.0
    max_body: int = 1_000_000
    max_texts: int = 256
    max_characters: int = 5_000
    max_queue: int = 1_024
    timeout: float = 30.0
    writable: bool = False
    log_texts: bool = False
    published_ids: str = "id"
    origins: Tuple[str, ...] = ()
    threads: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        check_settings(
            "serve",
            self,
            {
                "batch_size": whole_number(1),
                "batch_wait": (lambda x: 0 <= x <= 1, "seconds, from 0 to 1"),
                "max_body": whole_number(1),
                "max_texts": whole_number(1),
                "max_characters": whole_number(1),
                "max_queue": whole_number(1),
                "timeout": _POSITIVE,
                "published_ids": (
                    lambda x: isinstance(x, str) and bool(x),
                    '"id", or the name of an id system',
                ),
                "threads": whole_number(1),
            },
        )
        if self.writable and not os.environ.get(TOKEN):
            raise ELQError(Errors.E210.format(variable=TOKEN))

    def to_environment(self) -> None:
        """Leave the settings for the workers."""
        os.environ[VARIABLE] = srsly.json_dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> "ServeSettings":
        """RETURNS (ServeSettings): What was left for the workers."""
        left: Optional[str] = os.environ.get(VARIABLE)
        if left is None:
            raise ELQError(Errors.E211)
        values = srsly.json_loads(left)
        return cls(**{**values, "origins": tuple(values["origins"])})

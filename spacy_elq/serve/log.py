"""Logs as JSON lines."""

import json
import logging
import time
from typing import Any, Dict

LOGGER = "spacy_elq.serve"
_FIELDS = "fields"


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """RETURNS (str): The line."""
        line: Dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "worker": record.process,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            # where it happened, not with what: a message can have a text in it
            line["error"] = record.exc_info[0].__name__
            line["trace"] = _trace(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False)


def _trace(traceback: Any) -> str:
    """RETURNS (str): Where an error came from: modules and lines, the innermost last."""
    places = []
    while traceback is not None:
        frame = traceback.tb_frame
        places.append(f"{frame.f_globals.get('__name__', '?')}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return " > ".join(places)


def log(message: str, *, level: int = logging.INFO, exc_info: Any = None, **fields: Any) -> None:
    """Log a message with fields."""
    logging.getLogger(LOGGER).log(level, message, exc_info=exc_info, extra={_FIELDS: fields})


LOG_CONFIG: Dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "spacy_elq.serve.log.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {
        LOGGER: {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}

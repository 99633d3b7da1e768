"""`serve.log`."""

import json
import logging
import sys

from spacy_elq.serve.log import JsonFormatter


def line(message="hello", exc_info=None, **fields):
    record = logging.LogRecord("x", logging.INFO, "f.py", 1, message, None, exc_info)
    record.fields = fields
    return json.loads(JsonFormatter().format(record))


def test_a_line_is_json_with_fields():
    found = line("two\nlines", path="/link", texts=2)
    assert (found["message"], found["level"], found["path"], found["texts"]) == (
        "two\nlines",
        "info",
        "/link",
        2,
    )
    assert found["time"].endswith("Z")


def test_an_error_says_where_and_not_what():
    try:
        json.loads("{secret text")
    except ValueError:
        found = line(exc_info=sys.exc_info())
    assert found["error"] == "JSONDecodeError"
    assert "json" in found["trace"]
    assert "secret" not in json.dumps(found)

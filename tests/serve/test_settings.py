"""`serve.settings`."""

import pytest

from spacy_elq.errors import ELQError
from spacy_elq.serve.settings import TOKEN, VARIABLE, ServeSettings


def test_workers_get_what_was_set(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    settings = ServeSettings("models/elq", origins=("https://x.org",), timeout=2.5)
    settings.to_environment()
    assert ServeSettings.from_environment() == settings


def test_a_worker_without_settings(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ELQError, match="elq serve PIPELINE"):
        ServeSettings.from_environment()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size", 0),
        ("batch_wait", -1.0),
        ("batch_wait", 2.0),
        ("max_body", 0),
        ("max_texts", 0),
        ("max_characters", 0),
        ("max_queue", 0),
        ("timeout", 0.0),
        ("threads", 0),
        ("published_ids", ""),
    ],
)
def test_values_are_checked(setting, value):
    with pytest.raises(ELQError, match=setting):
        ServeSettings(**{setting: value})


def test_to_write_takes_a_token(monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(ELQError, match=TOKEN):
        ServeSettings(writable=True)
    monkeypatch.setenv(TOKEN, "secret")
    assert ServeSettings(writable=True).writable

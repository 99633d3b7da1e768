import re
from pathlib import Path

import pytest

from spacy_elq import errors

SOURCE = Path(errors.__file__).read_text(encoding="utf8")
CODES = re.findall(r"(?m)^    ([EW]\d{3}) =", SOURCE)


def test_no_code_is_given_twice():
    assert sorted(set(CODES)) == sorted(CODES)


@pytest.mark.parametrize("code", CODES)
def test_message_begins_with_its_code(code):
    message = getattr(errors.Errors if code[0] == "E" else errors.Warnings, code)
    assert message.startswith(f"[spacy-elq {code}] ")


STAMP = {"name": "a", "pooling": "mean", "max_length": 128, "aliases": True, "ent_token": "x", "norm": 0.0}
STAMP["fingerprint"] = "1234"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"pooling": "cls", "name": "b"}, "pooling: mean here, cls expected"),
        (
            {"max_length": 64, "aliases": False, "ent_token": "y", "norm": 4.0},
            "max_length: 128 here, 64 expected; aliases: True here, False expected; ent_token: x here, y "
            "expected; norm: 0.0 here, 4.0 expected",
        ),
        ({"name": "b"}, "the weights differ: a here, b expected"),
        ({"int8": True, "name": "b"}, "the weights differ: a here, b expected"),
        ({}, "the weights differ: a with fingerprint 1234 here, a with fingerprint 5678 expected"),
    ],
)
def test_difference_of_two_encoders_is_said_in_words(other, expected):
    assert errors.describe_difference(STAMP, {**STAMP, "fingerprint": "5678", **other}) == expected


def test_difference_to_an_encoder_of_which_only_the_fingerprint_is_known():
    text = "settings or weights differ: fingerprint 1234 here, fingerprint 5678 expected"
    assert errors.describe_difference(STAMP, {"fingerprint": "5678"}) == text


def test_setting_that_one_side_does_not_know_is_not_compared():
    older = {"name": "b", "fingerprint": "5678", "norm": 4.0}
    assert errors.describe_difference(STAMP, older) == "norm: 0.0 here, 4.0 expected"

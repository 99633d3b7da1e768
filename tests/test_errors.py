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

"""The fixtures and helpers of tests/conftest.py, for the tests of the projects."""

import importlib.util
import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1] / "tests"
# both files are called conftest: this one cannot import the other by name
_HERE = Path(__file__).parent
sys.path[:0] = [str(_TESTS), *map(str, sorted(_HERE.glob("*/scripts"))), str(_HERE / "qa")]
_spec = importlib.util.spec_from_file_location("tests_conftest", _TESTS / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({name: value for name, value in vars(_module).items() if not name.startswith("__")})

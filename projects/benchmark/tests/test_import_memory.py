"""`scripts/import_memory.py`: the import does not hold the vectors in memory."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "import_memory.py"


@pytest.mark.slow
def test_peak_is_far_below_the_size_of_the_vectors():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    # resident are also pages of mapped files, as many as the system likes to keep
    base, peak = map(int, re.findall(r"RssAnon (\d+) MB", done.stdout))
    vectors = float(re.search(r"vectors ([\d.]+) MB", done.stdout)[1])
    assert vectors == 819.2
    assert peak - base < vectors / 4

"""Measure what installing spacy-elq adds to the CPU time of other people's commands.

Runs `python -m spacy --help` with and without our entry point in turn, then `import spacy` with and without
`import spacy_elq`. Prints the median CPU times (user + system) and their ratio.
"""

import argparse
import resource
import statistics
import subprocess
import sys
from typing import Dict, List

# `python -m spacy --help` in an environment whose packages do not have a certain entry point
HELP = """
import importlib.metadata as metadata, runpy, sys
read = metadata.Distribution.entry_points.fget
hidden = ("spacy_cli", "{name}")
metadata.Distribution.entry_points = property(
    lambda self: metadata.EntryPoints(point for point in read(self) if (point.group, point.name) != hidden)
)
sys.argv = ["spacy", "--help"]
runpy.run_module("spacy", run_name="__main__")
"""
PAIRS = {
    "python -m spacy --help": (HELP.format(name="elq"), HELP.format(name="nothing")),
    "import spacy": ("import spacy", "import spacy, spacy_elq"),
}


def cpu_seconds(code: str) -> float:
    """RETURNS (float): User and system time of a Python process that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(repeats: int) -> Dict[str, List[float]]:
    """RETURNS (Dict[str, List[float]]): For each command, median seconds without us and with us."""
    figures = {}
    for name, pair in PAIRS.items():
        # in turn, since the machine is quicker now and slower then; the first round warms the disk cache
        rounds = [[cpu_seconds(code) for code in pair] for _ in range(repeats + 1)][1:]
        figures[name] = [statistics.median(times) for times in zip(*rounds, strict=True)]
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    for name, (without, with_us) in measure(parser.parse_args().repeats).items():
        print(f"{name}: {without:.2f} s without, {with_us:.2f} s with: {with_us / without:.2f}")  # noqa: T201

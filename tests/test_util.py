import ctypes
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch

from spacy_elq import util as threads

COUNT = "from test_util import count_threads; print(*count_threads())"


def count_threads():
    """RETURNS: The threads of torch, FAISS and NumPy's BLAS."""
    (library,) = (Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*.so*")
    blas = ctypes.CDLL(str(library)).scipy_openblas_get_num_threads64_()
    return torch.get_num_threads(), faiss.omp_get_max_threads(), blas


def put_threads(queue):
    queue.put((*count_threads(), os.environ.get("TOKENIZERS_PARALLELISM")))


@pytest.fixture
def two_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # what a process that is started would take, on any machine
    threads.set_threads(2)
    yield
    threads.set_threads(before)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_use_one_thread(method, two_threads):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=put_threads, args=(queue,))
    process.start()
    assert queue.get(timeout=600) == (1, 1, 1, "false")
    process.join()
    assert count_threads() == (2, 2, 2)  # the parent keeps its own
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def test_one_thread_is_one_of_the_tokenizers_too(two_threads):
    threads.set_threads(1)
    assert count_threads() == (1, 1, 1)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


def run(code, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    environment |= {**variables, "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=600, check=True
    )
    return done.stdout.split()


def test_the_number_of_torch_is_everyones():
    assert run(f"import torch; torch.set_num_threads(3); {COUNT}") == ["3", "3", "3"]


def test_the_environment_decides():
    assert run(COUNT, OMP_NUM_THREADS="2") == ["2", "2", "2"]


def test_where_the_system_does_not_say_what_is_loaded_blas_is_left_alone(monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    assert threads._find_blas.__wrapped__() == []

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import faiss
import numpy as np
import pytest
import spacy
import torch
from spacy.language import Language

from spacy_elq import util

COUNT = "from test_util import count_threads; print(*count_threads())"


def count_threads():
    """RETURNS: The threads of torch, FAISS and NumPy's BLAS."""
    (library,) = (Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*.so*")
    blas = ctypes.CDLL(str(library)).scipy_openblas_get_num_threads64_()
    return torch.get_num_threads(), faiss.omp_get_max_threads(), blas


@Language.component("count_threads")
def put_threads(doc):
    """Write the threads of this process into a doc."""
    tokenizers = os.environ.get("TOKENIZERS_PARALLELISM")
    doc.user_data["threads"] = [*map(str, count_threads()), tokenizers, str(os.getpid())]
    return doc


def pipe(path, method, architecture):
    """Load a pipeline and pipe questions through two processes.

    RETURNS: The number of processes, their threads, and those of this one afterwards.
    """
    multiprocessing.set_start_method(method)
    torch.set_num_threads(2)
    config = spacy.util.load_config(Path(path) / "config.cfg")
    config["components"]["transformer"]["model"]["@architectures"] = architecture
    nlp = spacy.util.load_model_from_config(config, auto_fill=True).from_disk(path)
    nlp.get_pipe("elq_linker").threshold = 1e-9  # it has learnt nothing
    nlp.add_pipe("count_threads", last=True)
    torch.ones(3000, 3000) @ torch.ones(3000, 3000)  # now there is a pool of threads, which a fork loses
    faiss.knn(np.ones((2000, 64), "f"), np.ones((2000, 64), "f"), 3)
    docs = list(nlp.pipe(["what is the capital of france near paris"] * 8, n_process=2, batch_size=2))
    assert all(doc.ents for doc in docs)
    found = {tuple(doc.user_data["threads"]) for doc in docs}
    workers = {process for *_, process in found} - {str(os.getpid())}
    return [len(workers), *sorted({" ".join(own[:-1]) for own in found}), *count_threads()]


@pytest.fixture
def two_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    util.set_threads(2)
    yield
    util.set_threads(before)


def run(code, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    environment |= {**variables, "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def transformer_path(make_pipeline, gold_docs, tmp_path_factory):
    path = tmp_path_factory.mktemp("pipeline")
    make_pipeline("transformer", gold_docs).to_disk(path)
    return path


OWN, THEIRS = "spacy-elq.TransformerModel.v1", "spacy-transformers.TransformerModel.v3"


@pytest.mark.parametrize(
    ("method", "architecture"), [("fork", OWN), ("fork", THEIRS), ("spawn", OWN), ("forkserver", OWN)]
)
def test_workers_of_a_pipeline_have_one_thread_and_do_not_hang(transformer_path, method, architecture):
    # what a worker would take by itself is 2, on any machine
    arguments = f"{str(transformer_path)!r}, {method!r}, {architecture!r}"
    code = f"import test_util; print(*test_util.pipe({arguments}))"
    found = run(f"if __name__ == '__main__': {code}", OMP_NUM_THREADS="2", TOKENIZERS_PARALLELISM="true")
    assert found == ["2", "1", "1", "1", "false", "2", "2", "2"]


def test_a_forked_process_has_one_thread(two_threads):
    util.settle_threads()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(
        target=lambda: queue.put((count_threads(), os.environ["TOKENIZERS_PARALLELISM"]))
    )
    process.start()
    assert queue.get(timeout=60) == ((1, 1, 1), "false")
    process.join()
    assert count_threads() == (2, 2, 2)  # the parent keeps its own
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def test_one_thread_is_one_of_the_tokenizers_too(two_threads):
    util.set_threads(1)
    assert count_threads() == (1, 1, 1)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


def test_the_number_of_torch_is_everyones(two_threads):
    torch.set_num_threads(3)
    util.settle_threads()
    assert count_threads() == (3, 3, 3)


def test_every_thread_is_settled_for_itself(two_threads):
    found = []

    def settle():
        util.settle_threads()
        found.append(count_threads())

    util.settle_threads()
    thread = threading.Thread(target=settle)
    thread.start()
    thread.join()
    assert found == [(2, 2, 2)]


def test_what_is_settled_stays(two_threads, monkeypatch):
    util.settle_threads()
    with monkeypatch.context() as patch:
        patch.setattr(util, "set_threads", None)
        util.settle_threads()


def test_the_environment_decides():
    code = f"from spacy_elq.util import settle_threads; import faiss; settle_threads(); {COUNT}"
    assert run(code, OMP_NUM_THREADS="2") == ["2", "2", "2"]


IMPORT_ALL = """
import importlib, os, pkgutil, faiss, spacy, torch
torch.set_num_threads(3)
faiss.omp_set_num_threads(2)
os.environ.pop("TOKENIZERS_PARALLELISM", None)
hooks = []
os.register_at_fork = lambda **hook: hooks.extend(hook.values())
import spacy_elq
for module in pkgutil.walk_packages(spacy_elq.__path__, "spacy_elq."):
    importlib.import_module(module.name)
own = [hook for hook in hooks if hook.__module__.startswith("spacy_elq")]
print(own, torch.get_num_threads(), faiss.omp_get_max_threads(), "TOKENIZERS_PARALLELISM" in os.environ)
"""


def test_nothing_happens_at_import():
    assert run(IMPORT_ALL) == ["[]", "3", "2", "False"]

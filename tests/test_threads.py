import multiprocessing

import faiss
import torch

from spacy_elq import linker, threads  # noqa: F401  (the linker installs it)


def count_threads(queue):
    queue.put((torch.get_num_threads(), faiss.omp_get_max_threads()))


def test_forked_processes_use_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=count_threads, args=(queue,))
    process.start()
    assert queue.get(timeout=600) == (1, 1)
    process.join()
    assert torch.get_num_threads() == 2  # the parent keeps its own
    torch.set_num_threads(before)

"""`serve.batching`: texts of many requests in one thread."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spacy_elq.serve.batching import Batcher, QueueFull
from spacy_elq.serve.service import Answer, Ask


class Work:
    """Links nothing, but remembers what it was given; waits until it may go on."""

    def __init__(self):
        self.batches = []
        self.may_go_on = threading.Event()
        self.error = None

    def __call__(self, asks):
        self.batches.append([ask.text for ask in asks])
        assert self.may_go_on.wait(10)
        if self.error is not None:
            raise self.error
        return [Answer([{"mention": ask.text}]) for ask in asks]


def run(test, **settings):
    """Run an asynchronous test with a batcher; gives what it returned and the batches."""
    work, sizes = Work(), []

    async def main():
        with ThreadPoolExecutor(1) as executor:
            given = {
                "size": 4,
                "wait": 0.0,
                "limit": 100,
                "on_batch": sizes.append,
                **settings,
            }
            batcher = Batcher(work, executor, **given)
            batcher.start()
            try:
                return await asyncio.wait_for(test(batcher, work), 20)
            finally:
                work.may_go_on.set()
                await batcher.stop()

    result = asyncio.run(main())
    assert [len(batch) for batch in work.batches] == sizes
    return result, work.batches


def asks(*texts):
    return [Ask(text) for text in texts]


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def mentions(answers):
    return [answer.links[0]["mention"] for answer in answers]


def test_what_comes_during_a_batch_makes_up_the_next_ones():
    async def test(batcher, work):
        first = asyncio.create_task(batcher.link(asks("a")))
        await until(lambda: work.batches)
        others = [asyncio.create_task(batcher.link(asks(*texts))) for texts in ("bc", "d", "efg")]
        await until(lambda: len(batcher) == 6)
        work.may_go_on.set()
        return [mentions(answers) for answers in await asyncio.gather(first, *others)]

    answers, batches = run(test)
    assert answers == [["a"], ["b", "c"], ["d"], ["e", "f", "g"]]
    assert batches == [["a"], ["b", "c", "d", "e"], ["f", "g"]]


def test_a_text_waits_for_others_only_if_asked_to():
    async def test(batcher, work):
        work.may_go_on.set()
        first = asyncio.create_task(batcher.link(asks("a")))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, batcher.link(asks("b")))

    assert run(test)[1] == [["a"], ["b"]]
    assert run(test, wait=0.5)[1] == [["a", "b"]]


def test_who_has_gone_is_not_linked():
    async def test(batcher, work):
        first = asyncio.create_task(batcher.link(asks("a")))
        await until(lambda: work.batches)
        gone, stays = (asyncio.create_task(batcher.link(asks(*texts))) for texts in ("bc", "d"))
        await until(lambda: len(batcher) == 3)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        work.may_go_on.set()
        await asyncio.gather(first, stays)

    assert run(test)[1] == [["a"], ["d"]]


def test_a_full_queue_takes_nothing_and_keeps_what_it_has():
    async def test(batcher, work):
        first = asyncio.create_task(batcher.link(asks("a")))
        await until(lambda: work.batches)
        second = asyncio.create_task(batcher.link(asks("b", "c")))
        await until(lambda: len(batcher) == 2)
        with pytest.raises(QueueFull):
            await batcher.link(asks("d", "e"))
        third = asyncio.create_task(batcher.link(asks("f")))
        await until(lambda: len(batcher) == 3)
        work.may_go_on.set()
        return [mentions(answers) for answers in await asyncio.gather(first, second, third)]

    assert run(test, limit=3) == ([["a"], ["b", "c"], ["f"]], [["a"], ["b", "c", "f"]])


def test_an_error_reaches_those_who_wait_and_nobody_else():
    async def test(batcher, work):
        work.error = ValueError("no")
        work.may_go_on.set()
        with pytest.raises(ValueError, match="no"):
            await batcher.link(asks("a"))
        work.error = None
        return mentions(await batcher.link(asks("b")))

    assert run(test)[0] == ["b"]


def test_to_stop_finishes_what_waits():
    async def test(batcher, work):
        tasks = [asyncio.create_task(batcher.link(asks(text))) for text in "abcdefgh"]
        await until(lambda: len(batcher) == 7 or work.batches)
        work.may_go_on.set()
        await batcher.stop()
        return [mentions(answers) for answers in await asyncio.gather(*tasks)]

    assert run(test)[0] == [[text] for text in "abcdefgh"]

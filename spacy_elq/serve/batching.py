"""Texts of many connections, linked together."""

import asyncio
from collections import deque
from concurrent.futures import Executor
from typing import Callable, Deque, List, Optional, Sequence, Tuple

from .service import Answer, Ask

Work = Callable[[Sequence[Ask]], List[Answer]]
_Waiting = Tuple[Ask, "asyncio.Future[Answer]"]


class QueueFull(Exception):
    """More texts wait than are allowed."""


class Batcher:
    """Collects texts while a batch is linked, in the order in which they came, and links them next. Who no
    longer waits for an answer is skipped.
    """

    def __init__(
        self,
        work: Work,
        executor: Executor,
        *,
        size: int,
        wait: float,
        limit: int,
        on_batch: Callable[[int], None],
    ) -> None:
        """Make the batcher; `run` makes it work.

        work (Work): Links texts.
        executor (Executor): What runs it: one thread.
        size (int): Texts in one batch.
        wait (float): Seconds that a text waits for others.
        limit (int): Texts that may wait.
        on_batch (Callable[[int], None]): Called with the size of every batch.
        """
        self._work = work
        self._executor = executor
        self._size = size
        self._wait = wait
        self._limit = limit
        self._on_batch = on_batch
        self._queue: Deque[_Waiting] = deque()
        self._filled = asyncio.Event()
        self._task: Optional[asyncio.Task[None]] = None

    def __len__(self) -> int:
        """RETURNS (int): Texts that wait."""
        return len(self._queue)

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish what waits, then end."""
        while self._queue:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def link(self, asks: Sequence[Ask]) -> List[Answer]:
        """Link texts together with those of others. To cancel it takes those texts out of the queue.

        RAISES (QueueFull): If too many wait already.
        """
        if len(self._queue) + len(asks) > self._limit:
            raise QueueFull
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in asks]
        self._queue.extend(zip(asks, futures, strict=True))
        self._filled.set()
        try:
            return [await future for future in futures]
        finally:
            for future in futures:
                future.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            if self._wait and len(self._queue) < self._size:
                await asyncio.sleep(self._wait)
            batch = self._take()
            if not batch:
                continue
            self._on_batch(len(batch))
            try:
                answers = await loop.run_in_executor(self._executor, self._work, [ask for ask, _ in batch])
            except Exception as err:  # whatever it is, those who wait must hear of it
                _fail(batch, err)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _take(self) -> List[_Waiting]:
        """RETURNS (List[_Waiting]): The next batch, without those whose client has gone."""
        batch: List[_Waiting] = []
        while self._queue and len(batch) < self._size:
            waiting = self._queue.popleft()
            if not waiting[1].done():
                batch.append(waiting)
        if not self._queue:
            self._filled.clear()
        return batch


def _fail(batch: Sequence[_Waiting], err: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(err)

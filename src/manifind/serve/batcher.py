"""Many clients, one solver.

A query that arrives while the solver is idle waits a few milliseconds for company; one that arrives while it is busy
waits for it, and all that have gathered meanwhile are solved together. So a batch grows with the load by itself, up to
the size that a pass over the graph is made for. Whoever stopped waiting (left, or ran out of time) is dropped before
the solve.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

from manifind.serve.metrics import Metrics

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Batcher(Generic[Job, Answer]):
    """Gathers jobs and answers them together, in one thread of its own.

    Parameters
    ----------
    solve : callable
        Takes jobs and returns an answer or an exception for each; runs in the thread.
    gather_seconds : float
        How long a job waits for company while the thread is idle.
    largest : int
        Jobs that are solved at once, at most.
    metrics : Metrics
    """

    def __init__(
        self,
        solve: Callable[[Sequence[Job]], Sequence[Answer | Exception]],
        *,
        gather_seconds: float,
        largest: int,
        metrics: Metrics,
    ) -> None:
        self._solve = solve
        self._gather = gather_seconds
        self._largest = largest
        self._metrics = metrics
        self._waiting: deque[tuple[Job, asyncio.Future[Answer]]] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="solve")
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer."""
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Answer no more; jobs that wait are cancelled."""
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop
        for _, future in self._waiting:
            future.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def answer(self, job: Job) -> Answer:
        """Wait for the answer to a job; cancelling the wait takes the job back."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        self._metrics.queue.set(len(self._waiting))
        self._arrived.set()
        return await future

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            if len(self._waiting) < self._largest:
                await asyncio.sleep(self._gather)
            batch = self._next()
            if not self._waiting:
                self._arrived.clear()
            if batch:
                await self._answer(batch)

    def _next(self) -> list[tuple[Job, "asyncio.Future[Answer]"]]:
        batch: list[tuple[Job, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self._largest:
            job, future = self._waiting.popleft()
            if not future.done():
                batch.append((job, future))
        self._metrics.queue.set(len(self._waiting))
        return batch

    async def _answer(self, batch: list[tuple[Job, "asyncio.Future[Answer]"]]) -> None:
        self._metrics.batch.observe(len(batch))
        loop = asyncio.get_running_loop()
        try:
            with self._metrics.stage("solve"):
                answers = await loop.run_in_executor(self._thread, self._solve, [job for job, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # whoever waits must hear of it; the next batch has its own chance
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

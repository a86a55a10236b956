"""Threads for one kind of work, with a door: no more is let in than can be done in time.

Whoever is let in is answered, unless they leave: then what was not begun is not done. Whoever is not let in is told at
once to come back. How much can be done in time is measured as the work goes on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

from manifind.serve.metrics import Metrics
from manifind.serve.problems import busy

T = TypeVar("T")

HABIT = 0.2
"""How much the latest piece of work says about the pace."""


class Stage:
    """A kind of work that is done in threads of its own.

    Parameters
    ----------
    name : str
        For metrics.
    threads : int
    seconds : float
        How long what is let in may have to wait, at most.
    pace : float
        How much work is done in a second, until it was measured.
    metrics : Metrics
    """

    def __init__(self, name: str, threads: int, *, seconds: float, pace: float, metrics: Metrics) -> None:
        self._name = name
        self._threads = threads
        self._seconds = seconds
        self._each = threads / pace
        """Seconds that a thread takes for one unit of work."""
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.amount = 0.0
        """Work that was let in and is not done."""

    async def do(self, amount: float, work: Callable[[], T]) -> T:
        """Do work of this amount in a thread; 503 where more is waiting than can be done in time.

        When the wait is cancelled, work that has not begun is taken back.
        """
        if self.amount and (self.amount + amount) * self._each / self._threads > self._seconds:
            self._metrics.shed.labels(self._name).inc()
            raise busy()
        loop = asyncio.get_running_loop()
        self.amount += amount

        def timed() -> T:
            start = time.perf_counter()
            made = work()
            self._each += HABIT * ((time.perf_counter() - start) / amount - self._each)
            return made

        def done(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the service has stopped
                loop.call_soon_threadsafe(self._leave, amount)

        future = self._pool.submit(timed)
        future.add_done_callback(done)
        return await asyncio.wrap_future(future)

    def _leave(self, amount: float) -> None:
        self.amount -= amount

    def stop(self) -> None:
        """Do no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class Shared(Generic[T]):
    """Work that several wait for: done once, and given up when the last of them has left."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, tuple[asyncio.Future[T], list[None]]] = {}

    async def of(self, name: Hashable, begin: Callable[[], Awaitable[T]]) -> T:
        """Wait for the work of this name, begun now unless it is under way."""
        if name not in self._under_way:
            task: asyncio.Future[T] = asyncio.ensure_future(begin())
            task.add_done_callback(lambda done: self._end(name, done))
            self._under_way[name] = task, []
        task, waiting = self._under_way[name]
        waiting.append(None)
        try:
            return await asyncio.shield(task)
        finally:
            waiting.pop()
            if not waiting and not task.done():
                self._under_way.pop(name, None)  # who comes now begins anew
                task.cancel()

    def _end(self, name: Hashable, task: "asyncio.Future[T]") -> None:
        if self._under_way.get(name, (None,))[0] is task:
            del self._under_way[name]
        if not task.cancelled():
            task.exception()  # those who waited were told

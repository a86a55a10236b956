"""Admission control: worker pools and searches admit no more than they can finish in time.

Whoever is admitted gets an answer, unless they leave: then work that has not begun is not done. Whoever is not admitted
hears at once to come back. The pace is measured as the work goes on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from manifind.serve.errors import too_busy
from manifind.serve.metrics import Metrics
from manifind.serve.settings import Settings

T = TypeVar("T")

HABIT = 0.2
"""How much the latest piece of work says about the pace."""


class WorkerPool:
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

    async def submit(self, amount: float, work: Callable[[], T]) -> T:
        """Do work of this amount in a thread; 503 where more is waiting than can be done in time.

        When the wait is cancelled, work that has not begun is taken back.
        """
        if self.amount and (self.amount + amount) * self._each / self._threads > self._seconds:
            self._metrics.shed.labels(self._name).inc()
            raise too_busy()
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


class SingleFlight(Generic[T]):
    """Work that several wait for: done once, and given up when the last of them has left."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, tuple[asyncio.Future[T], list[None]]] = {}

    async def run(self, name: Hashable, begin: Callable[[], Awaitable[T]]) -> T:
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


WELL_WITHIN = 0.7
"""The part of the time limit that what is let in may take to be answered."""

REMEMBERED = 0.5
"""How much earlier searches say about the pace, beside those that were solved last."""

FEWEST_WAITING = 4
"""Searches that are let in however slow the machine is."""


class Admission:
    """The places for searches, as many as the solver's pace allows."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._under_way = 0
        self._pace = 0.0
        """Seconds that the solver takes for a search of late, in the company that it has."""
        self._spent = self._searches = 0.0
        """Seconds that the solver has worked, and for how many searches: the latest count most."""

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Hold one of the places; 503 where none is free."""
        in_time = int(WELL_WITHIN * self._settings.time_limit / max(self._pace, 1e-6))
        if self._under_way >= min(self._settings.waiting, max(FEWEST_WAITING, in_time)):
            self._metrics.refused.inc()
            raise too_busy()
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def record(self, seconds: float, searches: int) -> None:
        """Note how long the solver took for searches that it solved together.

        Where there are none, as for queries that were taught by a search that was counted, the time belongs to those
        that come next.
        """
        self._spent += seconds
        if searches:
            self._searches += searches
            self._pace = self._spent / self._searches
            self._spent, self._searches = REMEMBERED * self._spent, REMEMBERED * self._searches

    def _count(self, more: int) -> None:
        self._under_way += more
        self._metrics.busy.set(self._under_way)

"""Work of many clients at once: worker pools, batches, admission, and their measurements.

Worker pools and searches admit no more than they can finish in time. What is admitted is answered, unless the client
leaves: then work that has not begun is not done. Other requests get 503 at once. The pace is measured as the work goes
on.

A disk or a network may hold a thread up for good. Such a thread is stuck; a pool replaces a few of them, then refuses
work at once until one comes back.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from manifind.serve.errors import ServiceError, too_busy

T = TypeVar("T")
Given = TypeVar("Given")
Job = TypeVar("Job")
Answer = TypeVar("Answer")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
STAGES = ("read", "describe", "wait", "solve", "picture", "explain", "extract", "verify", "points")
PACE_WEIGHT = 0.2
"""The weight of the latest piece of work in the measured pace."""
MAX_REPLACED = 4
"""Stuck threads that a pool replaces."""
STOP_SECONDS = 5.0
"""Seconds that `WorkerPool.stop` waits for threads; stuck ones end with the process."""
WELL_WITHIN = 0.7
"""The part of the time limit that what is let in may take to be answered."""
REMEMBERED = 0.5
"""How much earlier searches say about the pace, beside those that were solved last."""
FEWEST_WAITING = 4
"""Searches that are let in however slow the machine is."""


class Metrics:
    """The measurements of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._stages = histogram("manifind_stage_seconds", "Time a stage takes.", ["stage"], buckets=SECONDS)
        for name in STAGES:
            self._stages.labels(name)
        self.requests = histogram("manifind_request_seconds", "Time to answer.", ["route", "status"], buckets=SECONDS)
        self.batch = histogram("manifind_batch_queries", "Queries solved together.", buckets=(1, 2, 4, 8, 16, 32, 64))
        self.queue = gauge("manifind_queue_queries", "Queries that wait for the solver.")
        self.busy = gauge("manifind_searches_under_way", "Searches being answered.")
        self.refused = counter("manifind_refused_total", "Searches answered 503.")
        self.shed = counter("manifind_shed_total", "Work answered 503 at a stage's door.", ["stage"])
        self.given_up = counter("manifind_given_up_total", "Searches whose client left or time ran out.", ["why"])
        self.unverified = counter("manifind_unverified_total", "Answers that geometry had no time for.")
        self.generation = gauge("manifind_generation", "The index's generation that is served.", ["collection"])
        self.event_loop = Info("manifind_event_loop", "What the service runs on.", registry=self.registry)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._stages.labels(name).observe(time.perf_counter() - start)

    def text(self) -> bytes:
        """Return everything in Prometheus's format."""
        return generate_latest(self.registry)


class WorkerPool:
    """Threads for one kind of work.

    Parameters
    ----------
    name : str
        The name of the stage in metrics and in ``/api/health``.
    threads : int
    seconds : float
        How long admitted work may wait, at most.
    pace : float
        Units of work a second, until the pace is measured.
    metrics : Metrics
    time_limit : float, optional
        Seconds that a piece of work may take, with its wait: then the client gets 504, and the thread is stuck until
        the work ends.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        seconds: float,
        pace: float,
        metrics: Metrics,
        time_limit: float | None = None,
    ) -> None:
        self.name = name
        self._threads = threads
        self._seconds = seconds
        self._unit_seconds = threads / pace
        """Seconds that a thread takes for one unit of work."""
        self._metrics = metrics
        self._time_limit = time_limit
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._began: dict[int, float] = {}
        """When the work of each busy thread began."""
        self._lock = threading.Lock()
        self._prepared = asyncio.Semaphore(2 * threads)
        self.amount = 0.0
        """Admitted work that is not done."""

    async def submit(
        self, amount: float, work: Callable[[], T], *, measure: bool = True, seconds: float | None = None
    ) -> T:
        """Do work of this amount in a thread; 503 where more is waiting than can be done in time.

        When the wait is cancelled, work that has not begun is taken back. `measure` lets the pace follow this work.
        This work may wait for as many `seconds`, or for as long as all work of the pool.
        """
        with self.admit(amount, seconds) as job:
            job.future = self._begin(work, amount if measure else None)
            return await self._result(job.future)

    async def submit_prepared(
        self, amount: float, prepare: Callable[[], Awaitable[Given]], work: Callable[[Given], T]
    ) -> T:
        """Do the same with what `prepare` returns, for a few pieces of work ahead of the threads."""
        with self.admit(amount) as job:
            async with self._prepared:
                prepared = await prepare()
                job.future = self._begin(partial(work, prepared), amount)
                return await self._result(job.future)

    async def run(self, work: Callable[[], T]) -> T:
        """Do work in a thread without admission: a step of what was admitted before."""
        self._check_stuck()
        return await self._result(self._begin(work))

    @property
    def stuck(self) -> int:
        """How many threads have been at one piece of work for longer than the time limit."""
        if self._time_limit is None:
            return 0
        before = time.monotonic() - self._time_limit
        with self._lock:
            return sum(began < before for began in self._began.values())

    def stop(self) -> None:
        """Do no more; work that waits is cancelled."""
        with suppress(Exception):
            while (job := self._jobs.get_nowait()) is not None:
                job[0].cancel()
        for _ in self._workers:
            self._jobs.put(None)
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    @contextmanager
    def admit(self, amount: float, seconds: float | None = None) -> Iterator["_Job"]:
        """Count work of this amount while the block runs, and on while a thread is at it; 503 where it is too much."""
        self._check_stuck()
        limit = self._seconds if seconds is None else seconds
        if self.amount and (self.amount + amount) * self._unit_seconds / self._threads > limit:
            self._metrics.shed.labels(self.name).inc()
            raise too_busy()
        loop, job = asyncio.get_running_loop(), _Job()

        def leave(_: object = None) -> None:
            with suppress(RuntimeError):  # the service has stopped
                loop.call_soon_threadsafe(self._leave, amount)

        self.amount += amount
        try:
            yield job
        finally:
            if job.future is None or job.future.done():
                self._leave(amount)
            else:  # a thread is at it, though nobody waits any more
                job.future.add_done_callback(leave)

    def _leave(self, amount: float) -> None:
        self.amount -= amount

    def _check_stuck(self) -> None:
        if self.stuck >= self._threads + MAX_REPLACED:
            self._metrics.shed.labels(self.name).inc()
            raise ServiceError(503, "The storage does not answer; try again later.", {"Retry-After": "5"}, code="stuck")

    def _begin(self, work: Callable[[], T], amount: float | None = None) -> "Future[T]":
        future: Future[T] = Future()
        self._jobs.put((future, work if amount is None else partial(self._timed, work, amount)))
        stuck = self.stuck
        with self._lock:
            if len(self._workers) < self._threads + min(stuck, MAX_REPLACED):
                name = f"{self.name}_{len(self._workers)}"
                # No pool of the standard library: the process would wait for stuck threads when it ends.
                worker = threading.Thread(target=self._work, name=name, daemon=True)
                self._workers.append(worker)
                worker.start()
        return future

    async def _result(self, future: "Future[T]") -> T:
        clock = asyncio.timeout(self._time_limit)
        try:
            async with clock:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not clock.expired():  # the work raised it
                raise
            sentence = f"This took longer than {self._time_limit:g} seconds and was given up; try again later."
            raise ServiceError(504, sentence, code="stuck") from None

    def _timed(self, work: Callable[[], T], amount: float) -> T:
        start = time.perf_counter()
        result = work()
        self._unit_seconds += PACE_WEIGHT * ((time.perf_counter() - start) / amount - self._unit_seconds)
        return result

    def _work(self) -> None:
        me = threading.get_ident()
        while (job := self._jobs.get()) is not None:
            future, work = job
            if future.set_running_or_notify_cancel():
                with self._lock:
                    self._began[me] = time.monotonic()
                try:
                    result = work()
                except BaseException as error:  # whoever waits must hear of it
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
                finally:
                    with self._lock:
                        del self._began[me]
            del job, future, work  # what it held is not held until the next piece of work
            with self._lock:
                if len(self._workers) > self._threads + len(self._began):
                    self._workers.remove(threading.current_thread())
                    return


class _Job:
    """Admitted work: the future of its thread, once a thread is to do it."""

    future: "Future[Any] | None" = None


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


class Admission:
    """The places for searches, as many as the solver's pace allows."""

    def __init__(self, waiting: int, time_limit: float, metrics: Metrics) -> None:
        self._waiting, self._time_limit, self._metrics = waiting, time_limit, metrics
        self._under_way = 0
        self._pace = 0.0
        """Seconds that the solver takes for a search of late, in the company that it has."""
        self._spent = self._searches = 0.0
        """Seconds that the solver has worked, and for how many searches: the latest count most."""

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Hold one of the places; 503 where none is free."""
        in_time = int(WELL_WITHIN * self._time_limit / max(self._pace, 1e-6))
        if self._under_way >= min(self._waiting, max(FEWEST_WAITING, in_time)):
            self._metrics.refused.inc()
            raise too_busy()
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def record(self, seconds: float, searches: int) -> None:
        """Note how long the solver took for searches that it solved together.

        Where there are none, as for the second pass of a search that was counted, the time belongs to those
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

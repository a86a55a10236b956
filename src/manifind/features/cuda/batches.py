"""Jobs of many threads, run in batches: each thread waits for its job, and all waiting jobs run at once."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Batches(Generic[Job, Answer]):
    """Jobs that wait, and threads that do as many of them at a time as may be done together.

    The threads begin with the first job and end with the process, or with `close`.

    Parameters
    ----------
    work : callable
        Takes jobs and returns the answer to each.
    size_of : callable
        How large a job is.
    largest : int
        What the jobs of a batch may come to together; a larger one is done alone.
    threads : int
        Batches that are worked on at once.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Job]], Sequence[Answer]],
        size_of: Callable[[Job], int],
        *,
        largest: int,
        threads: int,
    ) -> None:
        self._work, self._size_of, self._largest, self._threads = work, size_of, largest, threads
        self._waiting: deque[tuple[Job, Future[Answer]]] = deque()
        self._arrived = threading.Condition()
        self._begun: list[threading.Thread] = []
        self._closed = False

    def answer(self, job: Job) -> Answer:
        """Wait for the answer to a job."""
        return self.submit(job).result()

    def submit(self, job: Job) -> Future[Answer]:
        """Return what will hold the answer to a job."""
        future: Future[Answer] = Future()
        with self._arrived:
            if self._closed:
                raise RuntimeError("these batches are closed")
            self._waiting.append((job, future))
            if len(self._begun) < self._threads:
                self._begun.append(threading.Thread(target=self._run, name="extract-batches", daemon=True))
                self._begun[-1].start()
            self._arrived.notify()
        return future

    def close(self) -> None:
        """Do what waits, and end the threads."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()
        for thread in self._begun:
            thread.join()

    def _run(self) -> None:
        while True:
            batch = self._next()
            if not batch:
                return
            try:
                answers = self._work([job for job, _ in batch])
            except Exception as error:  # whoever waits must hear of it; the next batch has its own chance
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
                future.set_result(answer)

    def _next(self) -> list[tuple[Job, Future[Answer]]]:
        """Take as many jobs as may be done together, in order; none once all is closed and done."""
        with self._arrived:
            while not self._waiting and not self._closed:
                self._arrived.wait()
            batch: list[tuple[Job, Future[Answer]]] = []
            room = self._largest
            while self._waiting and (not batch or self._size_of(self._waiting[0][0]) <= room):
                batch.append(self._waiting.popleft())
                room -= self._size_of(batch[-1][0])
            return batch

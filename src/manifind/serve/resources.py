"""Threads, uploads, decoded photos, thumbnails and measurements of a service.

They stay when another index takes the place of the one that is served.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from manifind.serve.errors import ServiceError, too_busy
from manifind.serve.local_features import LocalFeatures
from manifind.serve.metrics import Metrics
from manifind.serve.settings import Settings
from manifind.serve.thumbnails import PhotoStore, Thumbnails
from manifind.serve.worker_pool import WorkerPool

T = TypeVar("T")

EXTRACTION_TIME_SHARE = 0.35
"""The part of the time limit that extraction may take."""


VERIFIED_A_SECOND = 4.0
"""Verifying steps of searches a second, until the pace is measured."""


class Resources:
    """Made once; a service may leave it to the next. Whoever made it stops it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.photo_store = PhotoStore(settings)
        self.thumbnails = Thumbnails(self.photo_store, settings, self.metrics)
        self.local_features = LocalFeatures(self.thumbnails, settings, self.metrics)
        self.extraction, self.browsing = (
            WorkerPool(
                name, threads, seconds=EXTRACTION_TIME_SHARE * settings.time_limit, pace=pace, metrics=self.metrics
            )
            for name, threads, pace in (("describe", settings.extract_threads, 4.0), ("browse", 1, 20.0))
        )
        # One result at a time: verification shares its photos out to threads of its own.
        self.verification = WorkerPool(
            "verify", 1, seconds=settings.deadline_seconds, pace=VERIFIED_A_SECOND, metrics=self.metrics
        )
        self.building: Callable[[], dict[str, Any]] = lambda: {"building": None, "error": None}
        """Tells how far the index is that is being made, while it is searched as far as it is."""
        self._archives = 0

    def archive(self, keys: Sequence[str], find: Callable[[str], Path], table: str) -> Iterator[bytes]:
        """Return photos as an archive with a table, piece by piece; 503 where as many are sent as may be."""
        if self._archives >= self.settings.archives:
            self.metrics.shed.labels("archive").inc()
            raise too_busy()
        return self._counted(self.photo_store.archive(keys, find, table))

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        self._archives += 1
        try:
            yield from pieces
        finally:
            self._archives -= 1

    async def within_limits(self, work: Awaitable[T], left: Awaitable[None]) -> T:
        """Do some work until it is done, its time is up, or the client has left."""
        task, gone = asyncio.ensure_future(work), asyncio.ensure_future(left)
        try:
            await asyncio.wait({task, gone}, timeout=self.settings.time_limit, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            why = "left" if gone.done() else "time"
            self.metrics.given_up.labels(why).inc()
            if why == "left":
                raise ServiceError(499, "The client has left.")
            raise ServiceError(
                504, f"The search took longer than {self.settings.time_limit:g} seconds and was given up; ask for less."
            )
        finally:
            for one in (task, gone):
                one.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await one

    def stop(self) -> None:
        """Do no more."""
        for one in (self.extraction, self.browsing, self.verification, self.thumbnails, self.local_features):
            one.stop()

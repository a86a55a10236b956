"""Threads, uploads, decoded photos, thumbnails and measurements of a service.

They stay when another index takes the place of the one that is served.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from manifind.serve.errors import ServiceError, too_busy
from manifind.serve.local_features import LocalFeatures
from manifind.serve.metrics import Metrics
from manifind.serve.photos import PhotoStore
from manifind.serve.responses import BuildingResponse
from manifind.serve.settings import Settings
from manifind.serve.thumbnails import Thumbnails
from manifind.serve.worker_pool import WorkerPool

T = TypeVar("T")

WAIT_SHARE = 0.35
"""The part of the time limit that admitted work may wait before a search or another stage comes after it."""


class Resources:
    """Made once; a service may leave it to the next. Whoever made it stops it.

    What waits for a disk (`files`, `downloads`, `sets`) has threads that no search needs.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.photo_store = PhotoStore(settings)

        def pool(
            name: str, threads: int, pace: float, *, wait: float | None = None, limit: float | None = None
        ) -> WorkerPool:
            seconds = WAIT_SHARE * settings.time_limit if wait is None else wait
            return WorkerPool(
                name, threads, seconds=seconds, pace=pace, metrics=self.metrics, time_limit=limit or settings.time_limit
            )

        self.files = pool("files", settings.file_threads, 200.0, limit=settings.file_seconds)
        self.downloads = pool("downloads", settings.file_threads, 200.0)
        self.sets = pool("sets", 1, 20.0)
        self.thumbnails = Thumbnails(self.photo_store, self.files, settings, self.metrics)
        self.local_features = LocalFeatures(self.photo_store, self.thumbnails, settings, self.metrics)
        self.extraction = pool("describe", settings.extract_threads, 4.0)
        self.browsing = pool("browse", 1, 20.0)
        self.repeats = pool("repeats", 1, 1.0)
        self.ranking = pool("rank", 2, 100.0)
        # One step at a time: verification shares its photos out to threads of its own.
        self.verification = pool("verify", 1, settings.initial_verifications, wait=settings.deadline_seconds)
        # Apart, as steps that read files take longer than those that others wait for.
        pace = settings.initial_verifications
        self.full_resolution = pool("full resolution", 1, pace, wait=settings.deadline_seconds)
        self._pools = (
            *(self.files, self.downloads, self.sets, self.extraction, self.browsing, self.repeats, self.ranking),
            *(self.verification, self.full_resolution, self.local_features.pool),
            *(self.thumbnails.decode, self.thumbnails.draw),
        )
        self.building: Callable[[], BuildingResponse] = lambda: BuildingResponse(building=None, error=None)
        """The progress of the index that is being built, while it is searched as far as it is."""
        self._archives = 0

    @property
    def stuck(self) -> list[str]:
        """The names of pools with threads that have been at one piece of work for too long."""
        return [pool.name for pool in self._pools if pool.stuck]

    def archive(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Return an archive of photos, piece by piece; 503 where as many are sent as may be."""
        if self._archives >= self.settings.archives:
            self.metrics.shed.labels("archive").inc()
            raise too_busy()
        return self._counted(pieces)

    async def _counted(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        self._archives += 1
        try:
            async for piece in self.download(pieces):
                yield piece
        finally:
            self._archives -= 1

    async def download(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of a file, each read in a thread."""
        while (piece := await self.downloads.run(lambda: next(pieces, None))) is not None:
            yield piece

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
                504, f"This took longer than {self.settings.time_limit:g} seconds and was given up; ask for less."
            )
        finally:
            for one in (task, gone):
                one.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await one

    def stop(self) -> None:
        """Do no more."""
        for pool in self._pools:
            pool.stop()

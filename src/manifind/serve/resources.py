"""What a service may use and whom it answers, and the threads and measurements it uses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from manifind.serve.errors import ServiceError, too_busy
from manifind.serve.responses import BuildingResponse
from manifind.serve.workers import Metrics, WorkerPool

T = TypeVar("T")
INITIAL_PIXELS = 3e7
"""Pixels that are decoded a second, until the pace is measured."""
WAIT_SHARE = 0.35
"""The part of the time limit that admitted work may wait before a search or another stage comes after it."""


@dataclass(frozen=True)
class Settings:
    """Limits and manners of a service."""

    token: str | None = None
    """What a client must show; None answers everybody who can reach the address."""
    hosts: tuple[str, ...] | None = ("127.0.0.1", "localhost", "::1")
    """Names by which the service may be called, against pages that have their own name lead here; None for any."""
    origins: tuple[str, ...] = ()
    """Other sites whose pages may use the API."""
    follow_links: bool = False
    """Serve photos of the index whose file lies outside the collection's folder, through a link."""
    tell_paths: bool = False
    """Tell where on this machine a photo's file lies: for whoever sits at it."""
    keep_sets: bool = True
    """Let clients keep sets of photos in the index's folder."""
    updates: bool = False
    """Compare the photos' folder with the index, and let clients bring the index up to date."""
    mcp: bool = False
    """Answer agents at ``/mcp``, by the Model Context Protocol."""
    watch: bool = False
    """Bring the index up to date whenever photos come or go, without being asked."""
    poll_seconds: float = 30.0
    """How often to compare the folder where the system does not report changes, at most."""
    gather_seconds: float = 0.004
    """How long a query waits for others to be solved with, while the solver is idle."""
    largest_batch: int = 64
    waiting: int = 256
    """Searches under way at most; more are answered 503."""
    time_limit: float = 30.0
    """Seconds after which a search is given up."""
    file_seconds: float = 5.0
    """Seconds after which the file of a photo is given up: its disk or network does not answer."""
    deadline_seconds: float = 2.0
    """After how many seconds a search returns the result that it has by then: see `SearchResult.complete`."""
    upload_bytes: int = 50_000_000
    upload_pixels: int = 50_000_000
    uploads_bytes: int = 300_000_000
    """What uploads may take together; the oldest make room."""
    json_bytes: int = 8_000_000
    head_bytes: int = 65_536
    """What the head of a request may take: its address and its headers."""
    bodies_bytes: int = 200_000_000
    """What the bodies of all requests under way may take together."""
    body_seconds: float = 60.0
    """How long a body may take to arrive."""
    connections: int = 400
    """Connections at a time; those on which nothing is asked make room for new ones."""
    most_regions: int = 4096
    """Descriptors in one query."""
    initial_verifications: float = 4.0
    """Verifying steps of searches a second, until the pace is measured."""
    extract_threads: int = 2
    decode_threads: int = 2
    picture_threads: int = 2
    file_threads: int = 4
    archives: int = 8
    """Archives of photos that are sent at a time."""
    pixels_bytes: int = 120_000_000
    """What decoded photos kept in memory may take, for when another part of them is asked for."""
    cache_bytes: int = 128_000_000
    """What thumbnails kept in memory may take."""
    reload_seconds: float = 1.0
    """How often to look for a new generation of the index."""


class Resources:
    """The threads, limits and measurements of a service. Whoever made them stops them.

    What waits for a disk (`files`, `downloads`, `sets`) has threads that no search needs.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()

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
        self.decode = pool("decode", settings.decode_threads, INITIAL_PIXELS)
        self.draw = pool("draw", settings.picture_threads, INITIAL_PIXELS)
        self.local_features = pool("extract", settings.extract_threads, 4.0, wait=settings.deadline_seconds)
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
            *(self.files, self.downloads, self.sets, self.decode, self.draw, self.local_features),
            *(self.extraction, self.browsing, self.repeats, self.ranking, self.verification, self.full_resolution),
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
            for future in (task, gone):
                future.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await future

    def stop(self) -> None:
        """Do no more."""
        for pool in self._pools:
            pool.stop()

"""What all collections of a service share: threads, uploads, decoded photos, thumbnails, measurements."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from manifind.serve.geometry import Geometry
from manifind.serve.metrics import Metrics
from manifind.serve.pictures import Change, Pictures
from manifind.serve.problems import Problem, busy
from manifind.serve.rendering import Rendering
from manifind.serve.settings import Settings
from manifind.serve.stages import Stage

T = TypeVar("T")

DESCRIBED_WITHIN = 0.35
"""The part of the time limit that describing may take."""


class Common:
    """Made once for a service, however many collections it has; whoever made it stops it.

    Parameters
    ----------
    settings : Settings
    collections : int
        How many there are: an answer of each is verified, one after the other, and has as much time.
    """

    def __init__(self, settings: Settings, collections: int = 1) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.pictures = Pictures(settings)
        self.rendering = Rendering(self.pictures, settings, self.metrics)
        self.geometry = Geometry(self.rendering, settings, self.metrics, answers=collections)
        self.describing, self.browsing = (
            Stage(name, threads, seconds=DESCRIBED_WITHIN * settings.time_limit, pace=pace, metrics=self.metrics)
            for name, threads, pace in (("describe", settings.describe_threads, 4.0), ("browse", 1, 20.0))
        )
        self.building: Callable[[], dict[str, Any]] = lambda: {"building": None, "error": None}
        """Tells how far the index is that is being made, while it is searched as far as it is."""
        self._archives = 0

    def archive(
        self, keys: Sequence[str], find: Callable[[str], Path], table: str, change: Change | None = None
    ) -> Iterator[bytes]:
        """Return photos as an archive with a table, piece by piece; 503 where as many are sent as may be."""
        if self._archives >= self.settings.archives:
            self.metrics.shed.labels("archive").inc()
            raise busy()
        return self._counted(self.pictures.archive(keys, find, table, change))

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
                raise Problem(499, "The client has left.")
            raise Problem(
                504, f"The search took longer than {self.settings.time_limit:g} seconds and was given up; ask for less."
            )
        finally:
            for one in (task, gone):
                one.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await one

    def stop(self) -> None:
        """Do no more."""
        for stage in (self.describing, self.browsing, self.rendering, self.geometry):
            stage.stop()

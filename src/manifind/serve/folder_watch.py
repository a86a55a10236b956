"""New photos while the service runs: the folder is compared with its index, which is brought up to date on demand.

The folder is compared at the start and whenever the system reports a change in it (`watchfiles`), or every so often
where it cannot. Nothing of this runs on a service that may not write into the index's folder.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from manifind.errors import ManifindError
from manifind.index import Index, PendingChanges, Snapshot
from manifind.index.storage.layout import SUFFIX
from manifind.serve.build_progress import StageClock
from manifind.serve.errors import ServiceError
from manifind.serve.live_index import LiveIndex
from manifind.serve.responses import BuildingResponse, PendingResponse
from manifind.serve.settings import Settings

log = logging.getLogger("manifind.serve")

COMPARE_WAIT_FACTOR = 20.0
"""The wait before the next comparison, as a multiple of the time that one takes: a large folder is not read all day."""
CALM_MILLISECONDS = 1000
"""How long a folder must be quiet after a change: photos that are being copied come one after the other."""
MAX_WAIT_MILLISECONDS = 20_000
"""How long changes may go on before they are looked at all the same."""

MAX_WATCHED_FOLDERS = 20_000
"""Folders for which the system is asked to report changes: asking takes time in which nothing else is answered."""


class BuildStoppedError(Exception):
    """The program ends while an index is built."""


class FolderWatch:
    """Compares the photos' folder with the index that is served, and brings the index up to date.

    Parameters
    ----------
    live_index : LiveIndex
    settings : Settings
        `updates` allows it at all, `watch` does it by itself, `poll_seconds` is how often to compare without events.
    """

    def __init__(self, live_index: LiveIndex, settings: Settings) -> None:
        self._live_index, self._settings = live_index, settings
        self._pending: PendingChanges | None = None
        self._events: bool | None = None
        """Whether the system reports changes; None before the first was waited for."""
        self._clock: StageClock | None = None
        self._error: str | None = None
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._update: asyncio.Task[None] | None = None

    @property
    def may_write(self) -> bool:
        """Whether this service may bring its index up to date."""
        index = self._live_index.index
        return (
            self._settings.updates
            and self._live_index.lasting
            and isinstance(index.state, Snapshot)
            and os.access(index.path, os.W_OK)
        )

    def status(self, build: BuildingResponse) -> BuildingResponse:
        """Return what is being built and what is new; `build` is the first build of the index, if it is under way."""
        pending = self._pending if self.may_write else None
        return BuildingResponse(
            building=build.building or (None if self._clock is None else self._clock.progress),
            error=build.error or self._error,
            generation=self._live_index.snapshot.number,
            pending=None if pending is None else PendingResponse.of(pending),
            watching=None if not self.may_write or self._events is None else "events" if self._events else "polling",
        )

    async def run(self) -> None:
        """Compare the folder now and whenever it changes, until cancelled."""
        if not self._settings.updates:
            return
        while not self.may_write:  # the first build is under way
            await asyncio.sleep(self._settings.reload_seconds)
        events = asyncio.ensure_future(self._follow_events())
        try:
            while True:
                self._changed.clear()
                began = time.monotonic()
                if self.may_write and self._clock is None:
                    await self._compare()
                    if self._settings.watch and self._pending:
                        self.begin()
                wait = max(self._settings.poll_seconds, COMPARE_WAIT_FACTOR * (time.monotonic() - began))
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if self._events else wait):
                        await self._changed.wait()
        finally:
            events.cancel()
            with suppress(asyncio.CancelledError):
                await events

    async def stop(self) -> None:
        """End an update after the photo at hand; what was extracted is kept for the next."""
        self._stop.set()
        if self._update is not None:
            with suppress(asyncio.CancelledError):
                await self._update

    def begin(self) -> None:
        """Bring the index up to date in a thread of its own."""
        if not self.may_write:
            raise ServiceError(403, "This service does not change its index; run manifind index on its machine.")
        if self._clock is not None:
            return
        self._error, self._clock = None, StageClock(self._live_index.index.root)
        self._update = asyncio.ensure_future(self._bring_up_to_date(self._clock.report))

    async def _bring_up_to_date(self, report: Callable[[str, int, int], None]) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            if self._stop.is_set():
                raise BuildStoppedError
            report(stage, done, total)

        try:
            await asyncio.to_thread(self._sync, progress)
            await self._compare()
        except BuildStoppedError:
            log.warning("stopped; extracted photos are saved, the next update goes on from there")
        except (ManifindError, OSError, MemoryError) as error:
            self._error = str(error)
        except Exception as error:
            log.exception("the index could not be brought up to date")
            self._error = f"The index could not be brought up to date: {error}"
        finally:
            self._clock = None
            self._changed.set()

    def _sync(self, progress: Callable[[str, int, int], None]) -> None:
        """Write the new generation by an index of its own; the one that is served moves to it as to any other."""
        served = self._live_index.index
        custom = served.extractor if served.state.manifest.backbone is None else None
        with Index.open(served.path, extractor=custom, device=served.device) as writer:
            changes = writer.sync(progress=progress)
        log.info("brought up to date: %d photos extracted, %d gone", changes.extracted, changes.removed)
        self._live_index.look()

    async def _compare(self) -> None:
        try:
            self._pending = await asyncio.to_thread(self._live_index.index.pending_changes)
        except (ManifindError, OSError) as error:  # the folder is not there: pages of photos say so
            self._pending = None
            log.warning("the folder of the photos cannot be compared with the index: %s", error)

    async def _follow_events(self) -> None:
        """Have the folder compared after each change that the system reports, as long as it does."""
        try:
            from watchfiles import awatch

            folder = self._live_index.index.root
            await asyncio.to_thread(_check_watchable, folder)
            changes = awatch(folder, watch_filter=_is_ours, step=CALM_MILLISECONDS, debounce=MAX_WAIT_MILLISECONDS)
            self._events = True
            async for _ in changes:
                self._changed.set()
        except ImportError:
            why = "watchfiles is not installed"
        except (OSError, RuntimeError) as error:
            why = f"no changes are reported ({error})"
        else:
            return
        self._events = False
        log.warning("%s: the folder is compared every %g seconds instead", why, self._settings.poll_seconds)
        self._changed.set()


def _check_watchable(folder: Path) -> None:
    """Raise `OSError` where a folder holds links to folders, or very many folders.

    `watchfiles` follows each way that links make, and their number doubles with every link.
    """
    for count, (path, names, _) in enumerate(os.walk(folder), 1):
        if count > MAX_WATCHED_FOLDERS:
            raise OSError(f"there are more than {MAX_WATCHED_FOLDERS:,} folders")
        if any(Path(path, name).is_symlink() for name in names):
            raise OSError("there are links to folders")


def _is_ours(_: Any, path: str) -> bool:
    """Whether a change may be of a photo: an index that lies in the folder changes by itself."""
    return SUFFIX not in path

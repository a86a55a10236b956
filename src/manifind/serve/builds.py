"""Builds of an index while the service runs: the first, searched as far as it is, and updates of its folder.

The first build runs in a thread; partial indexes of the photos so far are searched meanwhile. Later the folder is
compared with the index at the start and whenever the system reports a change in it (`watchfiles`), or every so often
where it cannot. Nothing of this runs on a service that may not write into the folder of the index.
"""

import asyncio
import glob
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from manifind.errors import ManifindError
from manifind.index import Index, PartialIndex, PendingChanges, Snapshot
from manifind.index.storage.layout import SUFFIX, index_of, is_index
from manifind.io.files import printable
from manifind.serve.errors import ServiceError
from manifind.serve.live_index import LiveIndex
from manifind.serve.resources import Settings
from manifind.serve.responses import BuildingProgress, BuildingResponse, PendingResponse
from manifind.storage import disk

log = logging.getLogger("manifind.serve")
MIN_PARTIAL_PHOTOS = 12
"""Photos of a partial index, at least."""
PARTIAL_GROWTH = 2
"""How many times more photos a partial index has than the one before, so that all of them take about as long as the
last."""
PARTIAL_SUFFIX = ".so-far"
COMPARE_WAIT_FACTOR = 20.0
"""The wait before the next comparison, as a multiple of the time that one takes: a large folder is not read all day."""
CALM_MILLISECONDS = 1000
"""How long a folder must be quiet after a change: photos that are being copied come one after the other."""
MAX_WAIT_MILLISECONDS = 20_000
"""How long changes may go on before they are looked at all the same."""
MAX_WATCHED_FOLDERS = 20_000
"""Folders for which the system is asked to report changes: asking takes time in which nothing else is answered."""


class StageClock:
    """The progress of a build; `report` may be called in another thread.

    Parameters
    ----------
    folder : Path
        Of the photos.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stage, self._done, self._total = "files", 0, 0
        self._began = time.monotonic()

    def report(self, stage: str, done: int, total: int) -> None:
        """Note that so much of a stage is done."""
        if stage != self._stage:
            self._began = time.monotonic()
        self._stage, self._done, self._total = stage, done, total

    @property
    def progress(self) -> BuildingProgress:
        """The progress of the build, and how long its present stage will take."""
        passed = time.monotonic() - self._began
        left = None if self._done < 2 else round(passed / self._done * (self._total - self._done), 1)
        return BuildingProgress(
            folder=printable(self._folder), stage=self._stage, done=self._done, total=self._total, seconds_left=left
        )


class IndexBuild:
    """An index that is being built, and partial indexes of the photos so far, to be searched meanwhile.

    Parameters
    ----------
    folder : Path
        Of the photos.
    device : str
        What builds and searches the index.
    options : dict
        More for `Index.create`.
    on_partial : callable
        Called with each partial index, in a thread of its own.
    """

    def __init__(
        self,
        folder: Path,
        device: str,
        options: dict[str, Any],
        on_partial: Callable[[Index], None],
    ) -> None:
        self.folder, self.target = folder.resolve(), index_of(folder)
        self._device, self._options, self._on_partial = device, options, on_partial
        self._stop = threading.Event()
        self._clock = StageClock(self.folder)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="partial-index")
        self._is_free = True
        """Whether a partial index may be begun: not while one is built, nor after one that could not be."""
        self._least = MIN_PARTIAL_PHOTOS
        """How many photos the next partial index has, at least."""
        self._count = 0
        self._previous: Path | None = None
        """Where the partial index lies that is searched by now."""

    def run(self) -> Index:
        """Build the index, or open it where it is there."""
        if is_index(self.target):
            return Index.open(self.target, device=self._device)
        with tempfile.TemporaryDirectory(
            suffix=PARTIAL_SUFFIX,
            prefix=f".{self.target.name}.",
            dir=self.target.parent,
            ignore_cleanup_errors=True,
        ) as folder:
            self._partials = Path(folder)
            try:
                return Index.create(
                    self.target,
                    self.folder,
                    device=self._device,
                    progress=self._progress,
                    on_partial=self._index_partial,
                    **self._options,
                )
            finally:
                self._pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """End after the photo at hand."""
        self._stop.set()

    def _progress(self, stage: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise BuildStoppedError
        self._clock.report(stage, done, total)

    @property
    def progress(self) -> BuildingProgress:
        """The progress of the build, and how long its present stage will take."""
        return self._clock.progress

    def _index_partial(self, partial: PartialIndex) -> None:
        if len(partial) >= self._least and self._is_free:
            if not self._count:
                self._remove_leftovers()
            self._is_free, self._least = False, PARTIAL_GROWTH * len(partial)
            self._pool.submit(self._write, partial)

    def _remove_leftovers(self) -> None:
        """Remove the partial indexes of a program that was killed: nobody else builds this index now."""
        for left in self.target.parent.glob(f".{glob.escape(self.target.name)}.*{PARTIAL_SUFFIX}"):
            if left != self._partials:
                disk.remove_folder(left)

    def _write(self, partial: PartialIndex) -> None:
        self._count += 1
        try:
            path = self._partials / str(self._count) / self.target.name
            partial.write(path)
            self._on_partial(Index.open(path, extractor=self._options.get("extractor"), device=self._device))
            if self._previous is not None:  # searches under way have it open
                disk.remove_folder(self._previous)
            self._previous = path
        except Exception as error:  # the index itself is built all the same
            if not self._stop.is_set():
                log.warning("the photos extracted so far cannot be searched: %s", error)
            return
        self._is_free = True


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

"""An index that is being made, and from time to time an index of what is there so far, to be searched meanwhile."""

import glob
import logging
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from manifind.index import Index, PartialIndex
from manifind.index.storage.layout import index_of, is_index
from manifind.storage import disk

log = logging.getLogger("manifind.serve")

FEWEST = 12
"""Photos that are searched, at least."""
SHARE = 4.0
"""How many times as long as making it took is waited before the next: a fifth of the time at most goes into it."""
LEAST_WAIT = 2.0
"""Seconds between two of them, at least."""
SUFFIX = ".so-far"


class Stopped(Exception):
    """The program ends while an index is made."""


class IndexBuild:
    """An index that is being made.

    Parameters
    ----------
    folder : Path
        Of the photos.
    device : str
        What makes and searches the index.
    options : dict
        More for `Index.create`.
    searchable : callable
        Called with an index of the photos so far, in a thread of its own, each time there is one.
    """

    def __init__(self, folder: Path, device: str, options: dict[str, Any], searchable: Callable[[Index], None]) -> None:
        self.folder, self.target = folder.resolve(), index_of(folder)
        self._device, self._options, self._searchable = device, options, searchable
        self._stop = threading.Event()
        self._stage, self._done, self._total = "files", 0, 0
        self._began = time.monotonic()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="so-far")
        self._next: float | None = 0.0
        """When the next index of what is there so far may be begun; None while one is made, or none can be."""
        self._made = 0
        self._before: Path | None = None
        """Where the index lies that is searched by now."""

    def run(self) -> Index:
        """Make the index, or open it where it is there."""
        if is_index(self.target):
            return Index.open(self.target, device=self._device)
        beside, begins = self.target.parent, f".{self.target.name}."
        with tempfile.TemporaryDirectory(suffix=SUFFIX, prefix=begins, dir=beside, ignore_cleanup_errors=True) as place:
            self._place = Path(place)
            try:
                return Index.create(
                    self.target,
                    self.folder,
                    device=self._device,
                    progress=self._progress,
                    on_partial=self._grown,
                    **self._options,
                )
            finally:
                self._pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """End after the photo at hand."""
        self._stop.set()

    def _progress(self, stage: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise Stopped
        if stage != self._stage:
            self._began = time.monotonic()
        self._stage, self._done, self._total = stage, done, total

    def told(self) -> dict[str, Any]:
        """Return how far it is, and how long the stage at hand will take."""
        passed = time.monotonic() - self._began
        left = None if self._done < 2 else round(passed / self._done * (self._total - self._done), 1)
        return {
            "folder": str(self.folder),
            "stage": self._stage,
            "done": self._done,
            "total": self._total,
            "seconds_left": left,
        }

    def _grown(self, partial: PartialIndex) -> None:
        if len(partial) >= FEWEST and self._next is not None and time.monotonic() >= self._next:
            if not self._made:
                self._clear()
            self._next = None
            self._pool.submit(self._make, partial)

    def _clear(self) -> None:
        """Remove what a program that was killed left: nobody else makes this index now."""
        for left in self.target.parent.glob(f".{glob.escape(self.target.name)}.*{SUFFIX}"):
            if left != self._place:
                disk.remove_folder(left)

    def _make(self, partial: PartialIndex) -> None:
        began = time.monotonic()
        self._made += 1
        try:
            path = self._place / str(self._made) / self.target.name
            partial.write(path)
            self._searchable(Index.open(path, extractor=self._options.get("extractor"), device=self._device))
            if self._before is not None:  # whoever still searches it has it open
                disk.remove_folder(self._before)
            self._before = path
        except Exception as error:  # the index itself is made all the same
            if not self._stop.is_set():
                log.warning("what is there so far cannot be searched: %s", error)
            return
        ended = time.monotonic()
        self._next = ended + max(LEAST_WAIT, SHARE * (ended - began))

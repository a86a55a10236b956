"""The index that is served: its newest snapshot, while its files are whole.

The files of an index are replaced, never edited: a new generation has files of its own. If a file is cut or overwritten
in place all the same, the memory that maps it is no longer what was opened, and reading it may end the process. So the
service looks at the files before each search.
"""

import asyncio
import logging
import threading
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple, NoReturn

import numpy as np

from manifind.errors import DamagedError, FormatVersionError, ManifindError
from manifind.index import Index, Snapshot
from manifind.index.search.confidence import null_similarity
from manifind.index.storage.manifest import read_manifest
from manifind.index.storage.remote import RemoteCollection as Collection
from manifind.index.storage.snapshot import AnySnapshot
from manifind.serve.errors import ServiceError
from manifind.serve.workers import Metrics
from manifind.storage import store


class FileStat(NamedTuple):
    """What tells one file from another, and a file from the same after a change."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, file: Path) -> "FileStat | None":
        """Return what tells a file from others; None where there is none."""
        try:
            status = file.stat()
        except OSError:
            return None
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def changed_in_place(self, later: "FileStat | None") -> bool:
        """Say whether the file itself, not another of its name, has changed since."""
        return later is not None and later != self and later[:2] == self[:2]


class RemoteWatcher:
    """A collection in a store, whose rows never change: it can only move on."""

    def __init__(self, state: Collection) -> None:
        self._state = state

    def fingerprint(self) -> Hashable:
        """Return the newest state's stamp."""
        return self._newest()

    def has_moved_on(self) -> bool:
        """Say whether there is a newer generation."""
        return self._newest() != self._state.stamp

    def edited_file(self) -> None:
        """Return None."""

    def has_replaced_files(self) -> bool:
        """Say no."""
        return False

    def _newest(self) -> str:
        return self._state.newest().stamp


def watch_index(index: Index) -> "FileWatcher | RemoteWatcher":
    """Return what watches an index."""
    snapshot = index.state
    return FileWatcher(index.path, snapshot) if isinstance(snapshot, Snapshot) else RemoteWatcher(snapshot)


class FileWatcher:
    """The files of one state of an index, as they were when it was opened.

    Parameters
    ----------
    path : Path
        The index's folder.
    snapshot : Snapshot
    """

    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        self.manifest = FileStat.of(path / store.MANIFEST)
        self._path = path
        self._stats: dict[Path, FileStat] = {}
        # Without a manifest there is nothing to compare with, and nothing to reload.
        with suppress(DamagedError, FormatVersionError, OSError):
            manifest = read_manifest(path)
            # With another stamp, a newer state is there already, and the files of this one are gone.
            if manifest["stamp"] == snapshot.stamp:
                files = (path / listed["file"] for listed in manifest["files"].values())
                self._stats = {file: stat for file in files if (stat := FileStat.of(file)) is not None}

    def fingerprint(self) -> tuple[FileStat | None, ...]:
        """Return what is there now: another tuple whenever something has changed."""
        return FileStat.of(self._path / store.MANIFEST), *(FileStat.of(file) for file in self._stats)

    def has_moved_on(self) -> bool:
        """Say whether the folder holds another state by now, or another index."""
        return FileStat.of(self._path / store.MANIFEST) not in (self.manifest, None)

    def edited_file(self) -> str | None:
        """Return the name of a file that was changed in place, if there is one."""
        return next((file.name for file, stat in self._stats.items() if stat.changed_in_place(FileStat.of(file))), None)

    def has_replaced_files(self) -> bool:
        """Say whether some files are others than were opened, under the same manifest."""
        return any(FileStat.of(file) not in (stat, None) for file, stat in self._stats.items())


log = logging.getLogger("manifind.serve")


class LiveIndex:
    """An index, and what has become of it on disk.

    A new generation is moved to, searches under way keep theirs. So is another index that was put in its place. Where a
    file was cut or overwritten in place, nothing is read from memory that maps it: the service says so, and opens the
    index again, every checksum compared, as soon as it is whole.
    """

    def __init__(self, index: Index, metrics: Metrics) -> None:
        self.index = index
        self.name = PurePosixPath(index.where).name
        """What the index is called."""
        self._metrics = metrics
        self._files = watch_index(index)
        self.lasting = True
        """Whether the index stays where it is: sets can be kept in it."""
        self._lock = threading.Lock()
        self._failed_fingerprint: Hashable = None
        """What was there when reloading failed: it is not tried again before something changes."""
        self._edited: str | None = None

    @property
    def snapshot(self) -> AnySnapshot:
        """The state of the index that new requests are answered from."""
        return self.index.state

    def check(self) -> None:
        """Raise `ServiceError` where the files of the index are not those that were opened."""
        self._edited = self._edited or self._files.edited_file()
        if self._edited is not None:
            self._refuse(self._edited)

    def _refuse(self, name: str) -> NoReturn:
        sentence = f"The index cannot be searched: {name} was changed in place; see what manifind check says of it."
        raise ServiceError(503, sentence, {"Retry-After": "5"})

    def move_to(self, index: Index, *, lasting: bool) -> None:
        """Answer new requests from another index of the same photos; `lasting` if it is where it will stay."""
        self._switch_to(index)
        self.lasting = lasting

    def _switch_to(self, index: Index) -> None:
        null_similarity(index.state)
        self._files, self.index, self._edited, self._failed_fingerprint = watch_index(index), index, None, None
        self._metrics.generation.labels(self.name).set(self.snapshot.number)

    async def follow(self, seconds: float) -> None:
        """Look every so often at what is on disk, and move to it."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(self.look)
            except Exception:
                log.exception("the state of the index could not be looked at")

    def look(self) -> None:
        """Look at what is on disk, and move to it."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        files = self._files
        edited = self._edited = self._edited or files.edited_file()
        if edited is None and not files.has_moved_on() and not files.has_replaced_files():
            return
        fingerprint = files.fingerprint()
        if fingerprint == self._failed_fingerprint:
            return
        self._failed_fingerprint = fingerprint
        if edited is not None:
            log.warning("%s of %s was changed in place; searches wait until it is whole", edited, self.index.where)
        try:
            self._move(anew=edited is not None or not files.has_moved_on())
        except (ManifindError, OSError) as error:
            log.warning("the new state of the index is not taken: %s", error)

    def _move(self, *, anew: bool) -> None:
        """Move to what is on disk; `anew`, everything is opened and verified, even if the manifest is the same."""
        before = self.snapshot
        index = self._open_verified() if anew else self.index
        if not anew:
            index.reload()
        self._switch_to(index)
        if self.snapshot.number <= before.number:
            log.warning(
                "%s is another index now, or was opened again; its generation is %d", index.where, self.snapshot.number
            )
        else:
            log.info("now serving generation %d", self.snapshot.number)

    def _open_verified(self) -> Index:
        device = self.index.device
        index = Index.open(self.index.path, verify=True, device=device)
        if index.state.manifest.backbone is None:  # made by a custom extractor, which nobody else has
            index = Index.open(self.index.path, extractor=self.index.extractor, device=device)
        # The file of the current extractor may have been truncated.
        index.extractor.extract(np.zeros((64, 64, 3), np.uint8))
        return index

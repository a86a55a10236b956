"""The files of an index while it is served: whether they are still those that were opened.

The files of an index are replaced, never edited: a new generation has files of its own, and whoever opened the old ones
keeps them. If somebody cuts or overwrites one in place all the same, or puts another folder there, what was mapped into
memory is no longer what was opened, and the next look at it may end the process. So the service looks at the files
before it searches.
"""

from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from manifind.errors import Damaged, OtherFormat
from manifind.index import Generation, Index
from manifind.index.state.elsewhere import Elsewhere as Collection
from manifind.index.state.manifest import FORMAT, KIND
from manifind.storage import store


class Mark(NamedTuple):
    """What tells one file from another, and a file from the same after a change."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, file: Path) -> "Mark | None":
        """Return the mark of a file; None where there is none."""
        try:
            status = file.stat()
        except OSError:
            return None
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def edited(self, later: "Mark | None") -> bool:
        """Say whether the file itself, not another of its name, has changed since."""
        return later is not None and later != self and later[:2] == self[:2]


class Watched(Protocol):
    """What tells whether an index is still the one that was opened."""

    def seen(self) -> Hashable:
        """Return what is there now: something else whenever something has changed."""

    def moved_on(self) -> bool:
        """Say whether there is another state by now, or another index."""

    def edited(self) -> str | None:
        """Return the name of a file that was changed in place, if there is one."""

    def replaced(self) -> bool:
        """Say whether some files are others than were opened, under the same manifest."""


class Elsewhere:
    """A collection in a store, whose rows never change: it can only move on."""

    def __init__(self, state: Collection) -> None:
        self._state = state

    def seen(self) -> Hashable:
        """Return the newest state's stamp."""
        return self._newest()

    def moved_on(self) -> bool:
        """Say whether there is a newer generation."""
        return self._newest() != self._state.stamp

    def edited(self) -> None:
        """Return None."""

    def replaced(self) -> bool:
        """Say no."""
        return False

    def _newest(self) -> str:
        return self._state.newest().stamp


def watched(index: Index) -> Watched:
    """Return what watches an index."""
    now = index.state
    return Files(index.path, now) if isinstance(now, Generation) else Elsewhere(now)


class Files:
    """The files of one state of an index, as they were when it was opened.

    Parameters
    ----------
    path : Path
        The index's folder.
    now : Generation
    """

    def __init__(self, path: Path, now: Generation) -> None:
        self.manifest = Mark.of(path / store.MANIFEST)
        self._path = path
        self._marks: dict[Path, Mark] = {}
        with suppress(Damaged, OtherFormat, OSError):  # then there is nothing to compare with, and nothing to reload
            manifest = store.read_manifest(path, KIND, FORMAT)
            if manifest["stamp"] == now.stamp:  # else a newer state is there already, and the files of this one gone
                files = (path / listed["file"] for listed in manifest["files"].values())
                self._marks = {file: mark for file in files if (mark := Mark.of(file)) is not None}

    def seen(self) -> tuple[Mark | None, ...]:
        """Return what is there now: another tuple whenever something has changed."""
        return Mark.of(self._path / store.MANIFEST), *(Mark.of(file) for file in self._marks)

    def moved_on(self) -> bool:
        """Say whether the folder holds another state by now, or another index."""
        return Mark.of(self._path / store.MANIFEST) not in (self.manifest, None)

    def edited(self) -> str | None:
        """Return the name of a file that was changed in place, if there is one."""
        return next((file.name for file, mark in self._marks.items() if mark.edited(Mark.of(file))), None)

    def replaced(self) -> bool:
        """Say whether some files are others than were opened, under the same manifest."""
        return any(Mark.of(file) not in (mark, None) for file, mark in self._marks.items())

"""Sets of photos that somebody found and named, kept in the index's folder in a file of their own.

A photo belongs to a set by its content, so that it stays in it when its file is renamed or the index is made anew; a
photo that is gone stays too, and is said to be gone. Each has a verdict: yes, no or unsure. A set may keep the search
that it came from, with the photos that the search had found: `new_matches` tells what it finds since.

The file is a small SQLite database. A change reads it, writes the whole of it beside, waits until it is on the disk,
and puts it into its place in one step, under a lock: whatever happens to the writer, the sets are as they were or as
they are meant to be.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from manifind.checks import check_choice
from manifind.errors import DamagedError, InUseError, InvalidInputError
from manifind.index.search.results import Hit
from manifind.storage import disk
from manifind.storage.tables import LISTED, in_memory, tables_of
from manifind.types import Box

if TYPE_CHECKING:
    from manifind.index.index import Index

T = TypeVar("T")

FILE, DRAFT, LOCK = "sets.sqlite", "sets.sqlite.draft", ".sets.lock"
VERDICTS = ("yes", "no", "unsure")
LONGEST_NAME = 200
LARGEST = 2**28
PATIENCE = 10.0
"""Seconds that a change waits for another to be written."""

SCHEMA = """
CREATE TABLE sets (name TEXT PRIMARY KEY, made TEXT NOT NULL, search TEXT);
CREATE TABLE members (
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    key TEXT NOT NULL,
    box TEXT,
    verdict TEXT NOT NULL,
    added TEXT NOT NULL,
    PRIMARY KEY (name, sha256)
);
CREATE TABLE seen (name TEXT NOT NULL, sha256 TEXT NOT NULL, PRIMARY KEY (name, sha256));
"""


@dataclass(frozen=True)
class Member:
    """A photo of a set."""

    key: str
    """Where it is now; where it was, if it is gone."""
    sha256: str
    box: Box | None
    verdict: str
    """Whether it shows the object: yes, no or unsure."""
    there: bool
    """Whether the collection has it."""


@dataclass(frozen=True)
class PhotoSet:
    """A named set of photos."""

    name: str
    made: str
    """When, in UTC."""
    members: tuple[Member, ...]
    search: Mapping[str, Any] | None
    """The search that is kept with it: views, not_this and method."""

    def __len__(self) -> int:
        return len(self.members)


class PhotoSets:
    """The sets of an index: `index.sets`."""

    def __init__(self, index: "Index") -> None:
        self._index = index
        self._file = index.path / FILE

    def names(self) -> list[str]:
        """Return the names of all sets, in order."""
        return self._look(_names)

    def get(self, name: str) -> PhotoSet | None:
        """Return the set of this name, if there is one."""
        return self._look(lambda db: self._set(db, name) if name in _names(db) else None)

    def __getitem__(self, name: str) -> PhotoSet:
        return self._look(lambda db: self._set(db, name))

    def __iter__(self) -> Iterator[PhotoSet]:
        return iter(self._look(lambda db: [self._set(db, name) for name in _names(db)]))

    def add(
        self,
        name: str,
        photos: Iterable[Hit | str | tuple[str, Sequence[float] | None]],
        *,
        verdict: str = "yes",
    ) -> PhotoSet:
        """Add photos to a set, which is made if it is not there; a photo that is in it gets the new verdict and box.

        Parameters
        ----------
        name : str
        photos : iterable of Hit, key, or key and box
        verdict : {"yes", "no", "unsure"}
        """
        check_choice(verdict, VERDICTS, "verdict")
        given = [self._known(photo) for photo in photos]
        snapshot = _snapshot()

        def change(db: sqlite3.Connection) -> PhotoSet:
            _make(db, _checked_name(name), snapshot)
            for key, sha256, box in given:
                db.execute(
                    "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name, sha256) DO UPDATE SET "
                    "verdict = excluded.verdict, key = excluded.key, box = coalesce(excluded.box, box)",
                    (name, sha256, key, None if box is None else json.dumps(box), verdict, snapshot),
                )
            return self._set(db, name)

        return self._change(change)

    def discard(self, name: str, keys: Iterable[str]) -> PhotoSet:
        """Take photos out of a set."""

        def change(db: sqlite3.Connection) -> PhotoSet:
            members = self._set(db, name).members
            contents = [self._content(name, members, key) for key in keys]
            db.executemany("DELETE FROM members WHERE name = ? AND sha256 = ?", [(name, one) for one in contents])
            return self._set(db, name)

        return self._change(change)

    def delete(self, name: str) -> None:
        """Forget a set; no photo is touched."""

        def change(db: sqlite3.Connection) -> None:
            self._set(db, name)
            for table in ("sets", "members", "seen"):
                db.execute(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608 (a name of ours)

        self._change(change)

    def rename(self, name: str, new: str) -> PhotoSet:
        """Give a set another name."""
        _checked_name(new)

        def change(db: sqlite3.Connection) -> PhotoSet:
            self._set(db, name)
            if db.execute("SELECT 1 FROM sets WHERE name = ?", (new,)).fetchone():
                raise InvalidInputError(f"there is a set named {new!r} already; choose another name.")
            for table in ("sets", "members", "seen"):
                db.execute(f"UPDATE {table} SET name = ? WHERE name = ?", (new, name))  # noqa: S608 (a name of ours)
            return self._set(db, new)

        return self._change(change)

    # -- a search that is kept ----------------------------------------------------------------------------------------

    def save_search(
        self,
        name: str,
        views: Sequence[tuple[str, Sequence[float] | None]],
        *,
        not_this: Sequence[tuple[str, Sequence[float] | None]] = (),
        method: str = "regional",
        seen: Iterable[str] | None = None,
    ) -> PhotoSet:
        """Keep a search with a set, which is made if it is not there, and remember what it finds by now.

        Photos are named by their keys, or by paths of files that stay where they are. `seen` are the keys of what it
        found, where that is known; else it is run.
        """
        search = {
            "views": [[key, None if box is None else list(box)] for key, box in views],
            "not_this": [[key, None if box is None else list(box)] for key, box in not_this],
            "method": method,
        }
        found = [hit.key for hit, _ in self._found(search)] if seen is None else seen
        contents = [self._known(key)[1] for key in found]
        snapshot = _snapshot()

        def change(db: sqlite3.Connection) -> PhotoSet:
            _make(db, _checked_name(name), snapshot)
            db.execute("UPDATE sets SET search = ? WHERE name = ?", (json.dumps(search), name))
            _remember(db, name, contents)
            return self._set(db, name)

        return self._change(change)

    def new_matches(self, name: str, *, remember: bool = False) -> list[Hit]:
        """Return what the search of a set finds above the line and had not found before.

        `remember` counts it as seen from now on.
        """
        kept = self[name]
        if kept.search is None:
            raise InvalidInputError(f"the set {name!r} has no search; keep one with it (manifind search … --keep).")
        seen = self._look(lambda db: {one for (one,) in db.execute("SELECT sha256 FROM seen WHERE name = ?", (name,))})
        seen |= {member.sha256 for member in kept.members}
        found = self._found(kept.search)
        if remember:
            self._change(lambda db: _remember(db, name, [sha256 for _, sha256 in found]))
        return [hit for hit, sha256 in found if sha256 not in seen]

    def _found(self, search: Mapping[str, Any]) -> list[tuple[Hit, str]]:
        """Return the matches of a search, with the checksums of their files."""
        (image, box), *positives = [(str(key), box) for key, box in search["views"]]
        negatives = [(str(key), box) for key, box in search["not_this"]]
        result = self._index.search(
            image, box, positives=positives, negatives=negatives, top=None, method=search["method"]
        ).nonzero()
        catalogue = result.retrieval.snapshot.catalogue
        return [(hit, catalogue[hit.image].sha256) for hit in result[: result.n_matches]]

    # -- the file -----------------------------------------------------------------------------------------------------

    def _known(self, photo: Hit | str | tuple[str, Sequence[float] | None]) -> tuple[str, str, list[float] | None]:
        key, box = (
            (photo.key, photo.box) if isinstance(photo, Hit) else (photo, None) if isinstance(photo, str) else photo
        )
        record = self._index.catalogue.photo_of(key)
        if record is None:
            raise InvalidInputError(f"{key!r} is no photo of the collection; give a key that `search` prints.")
        if box is not None and len(box) != 4:
            raise InvalidInputError(f"box is {box!r}; give four numbers x0, y0, x1, y1 in pixels.")
        return record.key, record.sha256, None if box is None else [float(corner) for corner in box]

    def _content(self, name: str, members: Iterable[Member], key: str) -> str:
        """Return the content of a photo of a set; it need not be in the collection any more."""
        record = self._index.catalogue.photo_of(key)
        for member in members:
            if member.key == key or (record is not None and member.sha256 == record.sha256):
                return member.sha256
        raise InvalidInputError(f"{key!r} is not in the set {name!r}; give the key of one of its photos.")

    def _set(self, db: sqlite3.Connection, name: str) -> PhotoSet:
        row = db.execute("SELECT made, search FROM sets WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise InvalidInputError(f"there is no set named {name!r}; manifind sets INDEX lists those there are.")
        rows = db.execute("SELECT sha256, key, box, verdict FROM members WHERE name = ? ORDER BY rowid", (name,))
        catalogue = self._index.catalogue
        members = []
        for sha256, key, box, verdict in rows:
            record = catalogue.of_content(sha256)
            corners = None if box is None else tuple(float(corner) for corner in json.loads(box))
            members.append(
                Member(key if record is None else record.key, sha256, corners, verdict, record is not None)  # type: ignore[arg-type]
            )
        return PhotoSet(name, row[0], tuple(members), None if row[1] is None else json.loads(row[1]))

    def _look(self, find: Callable[[sqlite3.Connection], T]) -> T:
        with closing(self._read()) as db:
            return self._sound(lambda: find(db))

    def _change(self, change: Callable[[sqlite3.Connection], T]) -> T:
        with _patient(self._index.path), closing(self._read()) as db:
            result = self._sound(lambda: change(db))
            db.commit()
            draft = self._index.path / DRAFT
            disk.write(draft, [db.serialize()])
            disk.replace(draft, self._file)
            disk.sync_folder(self._index.path)
            return result

    def _read(self) -> sqlite3.Connection:
        """Return the database in memory; an empty one where there is no file yet."""
        if not self._file.exists():
            return in_memory(SCHEMA)
        db = sqlite3.connect(":memory:")
        try:
            self._sound(lambda: self._load(db))
        except BaseException:
            db.close()
            raise
        return db

    def _load(self, db: sqlite3.Connection) -> None:
        if self._file.stat().st_size > LARGEST:
            raise DamagedError(f"{self._file} is longer than any file of sets; put it aside.")
        db.deserialize(self._file.read_bytes())
        if sorted(db.execute(LISTED)) != tables_of(SCHEMA):
            raise DamagedError(f"{self._file} has other tables than sets have; put it aside.")

    def _sound(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (sqlite3.Error, json.JSONDecodeError, TypeError, KeyError) as error:
            raise DamagedError(
                f"{self._file} cannot be read ({error}); put it aside, or restore it from a copy."
            ) from error


@contextmanager
def _patient(path: Path) -> Iterator[None]:
    """Hold the lock of the sets, once whoever has it is done."""
    until = time.monotonic() + PATIENCE
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(disk.lock(path / LOCK, path / FILE))
                break
            except InUseError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.02)
        yield


def _names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sets ORDER BY name")]


def _make(db: sqlite3.Connection, name: str, snapshot: str) -> None:
    db.execute("INSERT OR IGNORE INTO sets VALUES (?, ?, NULL)", (name, snapshot))


def _remember(db: sqlite3.Connection, name: str, contents: Iterable[str]) -> None:
    db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", [(name, one) for one in contents])


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInputError(f"the name {name[:40]!r} is empty, too long or has unseen characters; choose another.")
    return name


def _snapshot() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

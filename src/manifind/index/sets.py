"""Named sets of photos, in a file of their own in the index's folder.

A set refers to a photo by its content, so the photo stays in the set when its file is renamed or the index is rebuilt.
A photo without a file stays too, marked as gone. Each photo has a verdict: yes, no or unsure. A set may store the
search that it came from, with the photos found then: `new_matches` returns what the search finds since.

The file is a small SQLite database. A change reads it, writes the whole of it beside, waits until it is on the disk,
and puts it into its place in one step, under a lock: a killed writer leaves the old sets or the new.

The file may come from anybody. It is read only where it is a plain file with the tables below, and every row is checked
when it is loaded.
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

from manifind.boxes import parse_box
from manifind.checks import check_choice
from manifind.errors import DamagedError, InUseError, InvalidInputError
from manifind.index.search.results import Hit
from manifind.index.search.retrieval import METHODS
from manifind.storage import disk
from manifind.storage.tables import in_memory, load_tables
from manifind.types import Box

if TYPE_CHECKING:
    from manifind.index.index import Index

T = TypeVar("T")
View = tuple[str, Sequence[float] | None]
"""A photo by its key, and the object's box in it."""

FILE, DRAFT, LOCK = "sets.sqlite", "sets.sqlite.draft", ".sets.lock"
VERDICTS = ("yes", "no", "unsure")
MAX_NAME = 200
MAX_TEXT = 2**16
"""Characters of a key, a date or a search in the file."""
MAX_BYTES = 2**28
MAX_REASON = 200
"""Characters of what SQLite or a parser says of a damaged file."""
LOCK_TIMEOUT = 10.0
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
    """Its key in the index; its last key, if it is gone."""
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
    """The stored search: views, negatives and method."""

    def __len__(self) -> int:
        return len(self.members)


class PhotoSets:
    """The sets of an index: `index.sets`."""

    def __init__(self, index: "Index") -> None:
        self._index = index
        self._file = index.path / FILE

    def names(self) -> list[str]:
        """Return the names of all sets, in order."""
        return self._query(_list_names)

    def get(self, name: str) -> PhotoSet | None:
        """Return the set of this name, or None."""
        return self._query(lambda db: self._read_set(db, name) if name in _list_names(db) else None)

    def __getitem__(self, name: str) -> PhotoSet:
        return self._query(lambda db: self._read_set(db, name))

    def __iter__(self) -> Iterator[PhotoSet]:
        return iter(self._query(lambda db: [self._read_set(db, name) for name in _list_names(db)]))

    def add(self, name: str, photos: Iterable[Hit | str | View], *, verdict: str = "yes") -> PhotoSet:
        """Add photos to a set, which is created if missing; a photo of the set gets the new verdict and box.

        Parameters
        ----------
        name : str
        photos : iterable of Hit, key, or key and box
        verdict : {"yes", "no", "unsure"}
        """
        check_choice(verdict, VERDICTS, "verdict")
        members = [self._find_photo(photo) for photo in photos]
        now = _timestamp()

        def change(db: sqlite3.Connection) -> PhotoSet:
            _create_set(db, _check_name(name), now)
            for key, sha256, box in members:
                db.execute(
                    "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name, sha256) DO UPDATE SET "
                    "verdict = excluded.verdict, key = excluded.key, box = coalesce(excluded.box, box)",
                    (name, sha256, key, None if box is None else json.dumps(box), verdict, now),
                )
            return self._read_set(db, name)

        return self._update(change)

    def discard(self, name: str, keys: Iterable[str]) -> PhotoSet:
        """Remove photos from a set."""

        def change(db: sqlite3.Connection) -> PhotoSet:
            members = self._read_set(db, name).members
            rows = [(name, self._member_content(name, members, key)) for key in keys]
            db.executemany("DELETE FROM members WHERE name = ? AND sha256 = ?", rows)
            return self._read_set(db, name)

        return self._update(change)

    def delete(self, name: str) -> None:
        """Delete a set; its photos stay."""

        def change(db: sqlite3.Connection) -> None:
            self._read_set(db, name)
            for table in CHECKS:
                db.execute(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608 (a name of ours)

        self._update(change)

    def rename(self, name: str, new: str) -> PhotoSet:
        """Give a set another name."""
        _check_name(new)

        def change(db: sqlite3.Connection) -> PhotoSet:
            self._read_set(db, name)
            if new in _list_names(db):
                raise InvalidInputError(
                    f"there is a set named {new!r} already; choose another name.", code="set-exists"
                )
            for table in CHECKS:
                db.execute(f"UPDATE {table} SET name = ? WHERE name = ?", (new, name))  # noqa: S608 (a name of ours)
            return self._read_set(db, new)

        return self._update(change)

    # -- stored searches ----------------------------------------------------------------------------------------------

    def save_search(
        self,
        name: str,
        views: Sequence[View],
        *,
        negatives: Sequence[View] = (),
        method: str = "regional",
        seen: Iterable[str] | None = None,
    ) -> PhotoSet:
        """Store a search with a set, which is created if missing, and remember the present matches.

        Photos are keys, or paths of files that stay where they are. `seen` are the keys of the present matches; without
        it, the search is run.
        """
        check_choice(method, METHODS, "method")
        search = {
            "views": [[key, None if box is None else list(box)] for key, box in views],
            "negatives": [[key, None if box is None else list(box)] for key, box in negatives],
            "method": method,
        }
        try:
            _parse_search(json.dumps(search))
        except (ValueError, TypeError) as error:  # a path that is no text could not be read back
            raise InvalidInputError(f"this search cannot be stored: {error}.", code="unstorable-search") from error
        keys = [hit.key for hit, _ in self._run_search(search)] if seen is None else seen
        contents = [self._find_photo(key)[1] for key in keys]
        now = _timestamp()

        def change(db: sqlite3.Connection) -> PhotoSet:
            _create_set(db, _check_name(name), now)
            db.execute("UPDATE sets SET search = ? WHERE name = ?", (json.dumps(search), name))
            _mark_seen(db, name, contents)
            return self._read_set(db, name)

        return self._update(change)

    def new_matches(self, name: str, *, remember: bool = False) -> list[Hit]:
        """Return the matches of a set's search that are new since the last time.

        `remember` counts them as seen from now on.
        """
        photos = self[name]
        if photos.search is None:
            raise InvalidInputError(
                f"the set {name!r} has no search; store one with it (manifind search … --keep).", code="no-search"
            )
        seen = self.seen(name)
        matches = self._run_search(photos.search)
        if remember:
            self._update(lambda db: _mark_seen(db, name, [sha256 for _, sha256 in matches]))
        return [hit for hit, sha256 in matches if sha256 not in seen]

    def seen(self, name: str) -> frozenset[str]:
        """Return the contents of the photos that a set's search has found before, and of the set's own photos."""
        seen = self._query(lambda db: _list_seen(db, name))
        return frozenset(seen) | {member.sha256 for member in self[name].members}

    def _run_search(self, search: Mapping[str, Any]) -> list[tuple[Hit, str]]:
        """Return the matches of a search, with the checksums of their files."""
        (image, box), *positives = search["views"]
        result = self._index.search(
            image, box, positives=positives, negatives=search["negatives"], top=None, method=search["method"]
        ).nonzero()
        catalogue = result.retrieval.snapshot.catalogue
        return [(hit, catalogue[hit.image].sha256) for hit in result[: result.n_matches]]

    # -- the file -----------------------------------------------------------------------------------------------------

    def _find_photo(self, photo: Hit | str | View) -> tuple[str, str, Box | None]:
        """Return the key, the checksum and the box of a photo of the collection."""
        key, box = (
            (photo.key, photo.box) if isinstance(photo, Hit) else (photo, None) if isinstance(photo, str) else photo
        )
        record = self._index.catalogue.photo_of(key)
        if record is None:
            raise InvalidInputError(
                f"{key!r} is no photo of the collection; give a key that `search` prints.", code="unknown-key"
            )
        return record.key, record.sha256, None if box is None else parse_box(box)

    def _member_content(self, name: str, members: Iterable[Member], key: str) -> str:
        """Return the checksum of a photo of a set; the photo may be gone from the collection."""
        record = self._index.catalogue.photo_of(key)
        for member in members:
            if member.key == key or (record is not None and member.sha256 == record.sha256):
                return member.sha256
        raise InvalidInputError(
            f"{key!r} is not in the set {name!r}; give the key of one of its photos.", code="unknown-key"
        )

    def _read_set(self, db: sqlite3.Connection, name: str) -> PhotoSet:
        row = db.execute("SELECT made, search FROM sets WHERE name = ?", (_check_name(name),)).fetchone()
        if row is None:
            raise InvalidInputError(
                f"there is no set named {name!r}; manifind sets INDEX lists the sets.", code="unknown-set"
            )
        rows = db.execute("SELECT sha256, key, box, verdict FROM members WHERE name = ? ORDER BY rowid", (name,))
        members = []
        for sha256, key, box, verdict in rows:
            record = self._index.catalogue.of_content(sha256)
            members.append(
                Member(key if record is None else record.key, sha256, _parse_box(box), verdict, record is not None)
            )
        return PhotoSet(name, row[0], tuple(members), _parse_search(row[1]))

    def _query(self, read: Callable[[sqlite3.Connection], T]) -> T:
        with closing(self._load()) as db:
            return read(db)

    def _update(self, change: Callable[[sqlite3.Connection], T]) -> T:
        with _hold_lock(self._index.path), closing(self._load()) as db:
            result = change(db)
            db.commit()
            draft = self._index.path / DRAFT
            disk.write(draft, [db.serialize()])
            disk.replace(draft, self._file)
            disk.sync_folder(self._index.path)
            return result

    def _load(self) -> sqlite3.Connection:
        """Return the database in memory, every row checked; an empty one where there is no file yet."""
        try:
            content = disk.read(self._file, MAX_BYTES)
        except FileNotFoundError:
            return in_memory(SCHEMA)
        db = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            load_tables(db, content, SCHEMA)
            for table, check_row in CHECKS.items():
                for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 (a name of ours)
                    check_row(*row)
        except (sqlite3.Error, ValueError, TypeError, RecursionError, OverflowError) as error:
            db.close()
            raise DamagedError(
                f"{self._file} cannot be read ({str(error)[:MAX_REASON]})",
                remedy="put it aside, or restore it from a copy",
            ) from error
        except BaseException:
            db.close()
            raise
        return db


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the sets; wait for another process to release it."""
    until = time.monotonic() + LOCK_TIMEOUT
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(disk.lock(path / LOCK, path / FILE))
                break
            except InUseError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.02)
        yield


def _list_names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sets ORDER BY name")]


def _list_seen(db: sqlite3.Connection, name: str) -> list[str]:
    return [sha256 for (sha256,) in db.execute("SELECT sha256 FROM seen WHERE name = ?", (name,))]


def _create_set(db: sqlite3.Connection, name: str, made: str) -> None:
    db.execute("INSERT OR IGNORE INTO sets VALUES (?, ?, NULL)", (name, made))


def _mark_seen(db: sqlite3.Connection, name: str, contents: Iterable[str]) -> None:
    db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", [(name, sha256) for sha256 in contents])


def _check_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInputError(
            f"the name {name[:40]!a} is empty, too long or has unseen characters; choose another.", code="set-name"
        )
    return name


# -- rows of a file that anybody may have written ---------------------------------------------------------------------


def _check_set(name: Any, made: Any, search: Any) -> None:
    _check_name(_check_text(name))
    _check_text(made)
    _parse_search(search)


def _check_member(name: Any, sha256: Any, key: Any, box: Any, verdict: Any, added: Any) -> None:
    for text in (name, sha256, key, added):
        _check_text(text)
    if verdict not in VERDICTS:
        raise ValueError("a photo has a verdict that is none")
    _parse_box(box)


def _check_seen(name: Any, sha256: Any) -> None:
    _check_text(name)
    _check_text(sha256)


CHECKS: dict[str, Callable[..., None]] = {"sets": _check_set, "members": _check_member, "seen": _check_seen}
"""The tables, and what checks a row of each."""


def _check_text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise TypeError("a row has something else where a text is to be, or a text that is too long")
    value.encode()  # lone surrogates are not text
    return value


def _parse_box(text: str | None) -> Box | None:
    return None if text is None else _box_of(json.loads(_check_text(text)))


def _parse_search(text: str | None) -> dict[str, Any] | None:
    """Return a stored search, its views and negatives as keys and boxes."""
    if text is None:
        return None
    fields = json.loads(_check_text(text))
    if not isinstance(fields, dict) or set(fields) - {"negatives", "not_this"} != {"views", "method"}:
        raise TypeError("a search has other fields than a search has")
    search = {
        "views": _views_of(fields["views"]),
        "negatives": _views_of(fields.get("negatives", fields.get("not_this"))),  # as it was once called
        "method": fields["method"],
    }
    if not search["views"] or search["method"] not in METHODS:
        raise ValueError("a search has no view, or a method that is none")
    return search


def _views_of(value: Any) -> list[tuple[str, Box | None]]:
    if not isinstance(value, list) or not all(isinstance(view, list) and len(view) == 2 for view in value):
        raise TypeError("a search has views that are none")
    return [(_check_text(key), None if box is None else _box_of(box)) for key, box in value]


def _box_of(value: Any) -> Box:
    if not isinstance(value, list):
        raise TypeError("a box is no list of numbers")
    return parse_box(value)


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""The photos of a collection: keys, content hashes, sizes, and what was passed over and why. A SQLite file.

Opening it reads nothing but its first page; photos are looked up when they are asked for.
"""

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self

from manifind.errors import Damaged

SCHEMA = """
CREATE TABLE images (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    sha256 TEXT NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL
);
CREATE TABLE skipped (
    key TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    sha256 TEXT,
    bytes INTEGER,
    mtime_ns INTEGER
);
"""

REMOVED = "removed from the index; add it to have it back"
"""Why a photo that is in the folder and was removed by hand is passed over."""


@dataclass(frozen=True)
class ImageRecord:
    """A described photo."""

    number: int
    key: str
    """Its path below the collection's root."""
    sha256: str
    bytes: int
    mtime_ns: int
    width: int
    height: int


@dataclass(frozen=True)
class SkippedRecord:
    """A file that is no photo of the collection, and why; with what tells whether it has changed, where it was read."""

    key: str
    reason: str
    sha256: str | None = None
    bytes: int | None = None
    mtime_ns: int | None = None


class Catalogue:
    """The photos by number, key and content. Threads may share it."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._lock = threading.Lock()
        # SQLite opens the file at the first look, and keeps it from then on, even when a new generation unlinks it.
        self._count = int(self._rows("SELECT coalesce(max(number), -1) + 1 FROM images")[0][0])

    @classmethod
    def of(cls, images: Iterable[ImageRecord], skipped: Iterable[SkippedRecord]) -> Self:
        """Make a catalogue in memory."""
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.executescript(SCHEMA)
        connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?, ?, ?, ?)", map(astuple, images))
        connection.executemany("INSERT INTO skipped VALUES (?, ?, ?, ?, ?)", map(astuple, skipped))
        connection.commit()
        return cls(connection, "the catalogue")

    @classmethod
    def open(cls, file: Path) -> Self:
        """Open the file that holds what `to_bytes` returned."""
        where = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            return cls(sqlite3.connect(where, uri=True, check_same_thread=False), str(file))
        except sqlite3.OperationalError as error:
            raise Damaged(f"{file} cannot be read ({error}); repair the index or make it again.") from error

    def to_bytes(self) -> bytes:
        """Return the file."""
        return self._connection.serialize()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @property
    def images(self) -> list[ImageRecord]:
        """All photos, by number."""
        return [ImageRecord(*row) for row in self._rows("SELECT * FROM images ORDER BY number")]

    @property
    def skipped(self) -> list[SkippedRecord]:
        """What was passed over, by key."""
        return [SkippedRecord(*row) for row in self._rows("SELECT * FROM skipped ORDER BY key")]

    def of_key(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, if it is in the collection."""
        return self._one("SELECT * FROM images WHERE key = ?", key)

    def of_content(self, sha256: str) -> ImageRecord | None:
        """Return the photo of that content, if it is in the collection."""
        return self._one("SELECT * FROM images WHERE sha256 = ?", sha256)

    def skipped_of(self, key: str) -> SkippedRecord | None:
        """Return why the file of that key was passed over, if it was."""
        rows = self._rows("SELECT * FROM skipped WHERE key = ?", key)
        return SkippedRecord(*rows[0]) if rows else None

    def __getitem__(self, number: int) -> ImageRecord:
        found = self._one("SELECT * FROM images WHERE number = ?", int(number))
        if found is None:
            raise Damaged(f"{self._name} has no photo of number {number}; repair the index or make it again.")
        return found

    def __len__(self) -> int:
        return self._count

    def _one(self, query: str, value: Any) -> ImageRecord | None:
        rows = self._rows(query, value)
        return ImageRecord(*rows[0]) if rows else None

    def _rows(self, query: str, *values: Any) -> list[Any]:
        try:
            with self._lock:
                return self._connection.execute(query, values).fetchall()
        except UnicodeEncodeError:  # a key with lone surrogates is nobody's
            return []
        except (sqlite3.Error, OverflowError) as error:
            raise Damaged(f"{self._name} cannot be read ({error}); repair the index or make it again.") from error

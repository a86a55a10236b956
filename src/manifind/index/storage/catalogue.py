"""The photos of a collection: keys, content hashes, sizes, and what was skipped and why. A SQLite file.

Opening it reads nothing but its first page; photos are looked up when they are asked for. A file may come from
anybody: its tables must be the two below, no more and no other, its rows of the types that they say, and a look-up may
take no more steps than a file of its size has need of.
"""

import sqlite3
import threading
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

from manifind.errors import DamagedError
from manifind.storage.tables import LISTED, in_memory, tables_of

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
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    sha256 TEXT,
    bytes INTEGER,
    mtime_ns INTEGER
);
"""

SCHEMA_2 = SCHEMA.replace("    code TEXT NOT NULL,\n    detail TEXT NOT NULL,\n", "    reason TEXT NOT NULL,\n")
"""The tables of format 2, which told in one sentence why a file was skipped."""

STEPS_AT_A_TIME = 10_000
STEPS_A_BYTE = 4
"""Steps of SQLite's machine that a look-up may take for each byte of the file: listing all photos takes one in five."""


class SkipReason(StrEnum):
    """Why a file is no photo of the collection."""

    UNREADABLE = "unreadable"
    """It cannot be read; the detail says why."""
    DUPLICATE = "duplicate"
    """Another photo has the same content; the detail is the key of that photo."""
    REMOVED = "removed"
    """The user removed it from the index; it still lies in the folder."""
    CHANGED = "changed"
    """It changed while it was being read."""


SENTENCES = {
    SkipReason.UNREADABLE: "{}",
    SkipReason.DUPLICATE: "the same content as {}",
    SkipReason.REMOVED: "removed from the index; add it to have it back",
    SkipReason.CHANGED: "changed while it was being read; the next run takes it",
}
"""What people are told, with the detail in its place."""


@dataclass(frozen=True)
class ImageRecord:
    """An extracted photo."""

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
    """A skipped file: why it is no photo of the collection; its content hash, size and time where it was read."""

    key: str
    code: SkipReason
    detail: str = ""
    sha256: str | None = None
    bytes: int | None = None
    mtime_ns: int | None = None

    @property
    def reason(self) -> str:
        """Why it was skipped, for people."""
        return SENTENCES[self.code].format(self.detail)

    @property
    def duplicate_of(self) -> str | None:
        """The key of the photo with the same content, where the file is a duplicate."""
        return self.detail if self.code is SkipReason.DUPLICATE else None

    def to_dict(self) -> dict[str, Any]:
        """Return what `info` says of the file, ready for JSON."""
        return {"key": self.key, "code": self.code.value, "reason": self.reason, "duplicate_of": self.duplicate_of}

    @classmethod
    def of_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned, also of a collection published from an index of format 2."""
        if "code" not in facts:
            return cls(facts["key"], *_reason_of_format_2(facts["reason"]))
        code = SkipReason(facts["code"])
        return cls(facts["key"], code, facts["duplicate_of"] or (facts["reason"] if SENTENCES[code] == "{}" else ""))


def _reason_of_format_2(sentence: str) -> tuple[SkipReason, str]:
    """Return the code and the detail of a sentence: the one place that reads what format 2 wrote."""
    for code, known in SENTENCES.items():
        if code is SkipReason.DUPLICATE and sentence.startswith(known[:-2]):
            return code, sentence.removeprefix(known[:-2])
        if sentence == known:
            return code, ""
    return SkipReason.UNREADABLE, sentence


IMAGE_TYPES = (int, str, str, int, int, int, int)
SKIPPED_TYPES: tuple[Any, ...] = (str, str, str, str | None, int | None, int | None)


class Photos(Protocol):
    """The photos of a collection, wherever what is known of them is kept."""

    @property
    def images(self) -> list[ImageRecord]:
        """All photos, by number."""

    @property
    def skipped(self) -> list[SkippedRecord]:
        """What was skipped, by key."""

    def of_key(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, if it is in the collection."""

    def of_content(self, sha256: str) -> ImageRecord | None:
        """Return the photo of that content, if it is in the collection."""

    def skipped_of(self, key: str) -> SkippedRecord | None:
        """Return why the file of that key was skipped, if it was."""

    def photo_of(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, or the one that a file of that key is identical to."""

    def copies_of(self, sha256: str) -> tuple[str, ...]:
        """Return the keys of the files that have that content besides the photo, in order."""

    def close(self) -> None:
        """Close files and connections."""

    def __getitem__(self, number: int) -> ImageRecord: ...

    def __len__(self) -> int: ...


class Catalogue:
    """The photos by number, key and content. Threads may share it.

    `name` is what errors call it, `most_steps` the steps that one look-up may take.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, most_steps: int | None = None) -> None:
        self._connection = connection
        self._name = name
        self._lock = threading.Lock()
        self._most_steps = most_steps
        self._steps = 0
        self._copies: dict[str, tuple[str, ...]] | None = None
        if most_steps is not None:
            connection.set_progress_handler(self._may_go_on, STEPS_AT_A_TIME)
        # SQLite opens the file at the first look, and keeps it from then on, even when a new generation unlinks it.
        tables = sorted(self._rows(LISTED))
        self._is_format_2 = tables == tables_of(SCHEMA_2)
        if not self._is_format_2 and tables != tables_of(SCHEMA):
            raise self._damage_error("it has other tables than a catalogue has")
        self._count = int(self._rows("SELECT coalesce(max(number), -1) + 1 FROM images")[0][0])

    @classmethod
    def of(cls, images: Iterable[ImageRecord], skipped: Iterable[SkippedRecord]) -> Self:
        """Make a catalogue in memory."""
        connection = in_memory(SCHEMA)
        connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?, ?, ?, ?)", map(astuple, images))
        connection.executemany("INSERT INTO skipped VALUES (?, ?, ?, ?, ?, ?)", map(astuple, skipped))
        connection.commit()
        return cls(connection, "the catalogue")

    @classmethod
    def open(cls, file: Path) -> Self:
        """Open the file that holds what `to_bytes` returned."""
        where = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            steps = STEPS_A_BYTE * file.stat().st_size + STEPS_AT_A_TIME
            connection = sqlite3.connect(where, uri=True, check_same_thread=False)
            return cls(connection, str(file), steps)
        except (sqlite3.OperationalError, OSError) as error:
            raise DamagedError(f"{file} cannot be read ({error}); repair the index or make it again.") from error

    def to_bytes(self) -> bytes:
        """Return the catalogue as the bytes of a SQLite file."""
        return self._connection.serialize()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @property
    def images(self) -> list[ImageRecord]:
        """All photos, by number."""
        return [self._image(row) for row in self._rows("SELECT * FROM images ORDER BY number")]

    @property
    def skipped(self) -> list[SkippedRecord]:
        """Skipped files, by key."""
        return [self._skipped_record(row) for row in self._rows("SELECT * FROM skipped ORDER BY key")]

    def of_key(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, if it is in the collection."""
        return self._query_one("SELECT * FROM images WHERE key = ?", key)

    def of_content(self, sha256: str) -> ImageRecord | None:
        """Return the photo of that content, if it is in the collection."""
        return self._query_one("SELECT * FROM images WHERE sha256 = ?", sha256)

    def skipped_of(self, key: str) -> SkippedRecord | None:
        """Return why the file of that key was skipped, if it was."""
        rows = self._rows("SELECT * FROM skipped WHERE key = ?", key)
        return self._skipped_record(rows[0]) if rows else None

    def photo_of(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, or the one that a file of that key is identical to."""
        record = self.of_key(key)
        if record is None:
            copy = self.skipped_of(key)
            if copy is not None and copy.sha256 is not None and copy.duplicate_of is not None:
                return self.of_content(copy.sha256)
        return record

    def copies_of(self, sha256: str) -> tuple[str, ...]:
        """Return the keys of the files that have that content besides the photo, in order."""
        if self._copies is None:
            copies: dict[str, tuple[str, ...]] = {}
            for record in self.skipped:
                if record.sha256 is not None and record.duplicate_of is not None:
                    copies[record.sha256] = (*copies.get(record.sha256, ()), record.key)
            self._copies = copies
        return self._copies.get(sha256, ())

    def __getitem__(self, number: int) -> ImageRecord:
        record = self._query_one("SELECT * FROM images WHERE number = ?", int(number))
        if record is None:
            raise DamagedError(f"{self._name} has no photo of number {number}; repair the index or make it again.")
        return record

    def __len__(self) -> int:
        return self._count

    def _query_one(self, query: str, value: Any) -> ImageRecord | None:
        rows = self._rows(query, value)
        return self._image(rows[0]) if rows else None

    def _image(self, row: tuple[Any, ...]) -> ImageRecord:
        sound = all(map(isinstance, row, IMAGE_TYPES)) and 0 <= row[0] < self._count and min(row[3], *row[5:]) >= 0
        if not sound:
            raise self._damage_error(f"photo {row[0]!r} has a row that is none")
        return ImageRecord(*row)

    def _skipped_record(self, row: tuple[Any, ...]) -> SkippedRecord:
        if self._is_format_2 and isinstance(row[1], str):
            row = (row[0], *_reason_of_format_2(row[1]), *row[2:])
        if not all(map(isinstance, row, SKIPPED_TYPES)) or row[1] not in set(SkipReason):
            raise self._damage_error("a skipped file has a row that is none")
        return SkippedRecord(row[0], SkipReason(row[1]), *row[2:])

    def _rows(self, query: str, *values: Any) -> list[Any]:
        try:
            with self._lock:
                self._steps = 0
                return self._connection.execute(query, values).fetchall()
        except UnicodeEncodeError:  # a key with lone surrogates is nobody's
            return []
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise self._damage_error(str(error)) from error

    def _may_go_on(self) -> bool:
        """Count the steps of SQLite; a return value other than zero ends the look-up."""
        self._steps += STEPS_AT_A_TIME
        return self._most_steps is not None and self._steps > self._most_steps

    def _damage_error(self, why: str) -> DamagedError:
        return DamagedError(f"{self._name} cannot be read ({why}); repair the index or make it again.")

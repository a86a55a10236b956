"""The photos of a collection: keys, content hashes, sizes, and what was passed over and why. A SQLite file."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Self

from manifind.errors import Damaged

SCHEMA = """
CREATE TABLE images (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL
);
CREATE TABLE skipped (
    key TEXT PRIMARY KEY,
    reason TEXT NOT NULL
);
"""


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
    """A file that is no photo of the collection, and why."""

    key: str
    reason: str


class Catalogue:
    """The photos by number and by key, read from a file once."""

    def __init__(self, images: list[ImageRecord], skipped: list[SkippedRecord]) -> None:
        self.images = images
        self.skipped = skipped
        self._by_key = {image.key: image for image in images}
        self._by_content = {image.sha256: image for image in images}

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a catalogue that `write` wrote."""
        try:
            with _connected(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True) as connection:
                images = [ImageRecord(*row) for row in connection.execute("SELECT * FROM images ORDER BY number")]
                skipped = [SkippedRecord(*row) for row in connection.execute("SELECT * FROM skipped ORDER BY key")]
        except sqlite3.DatabaseError as error:
            raise Damaged(f"{file} cannot be read ({error}); make the index again.") from error
        return cls(images, skipped)

    def write(self, file: Path) -> None:
        """Write the catalogue to a new file."""
        with _connected(str(file)) as connection:
            connection.executescript(SCHEMA)
            _insert(connection, "images", 7, map(astuple, self.images))
            _insert(connection, "skipped", 2, map(astuple, self.skipped))
            connection.commit()

    def of_key(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, if it is in the collection."""
        return self._by_key.get(key)

    def of_content(self, sha256: str) -> ImageRecord | None:
        """Return the photo of that content, if it is in the collection."""
        return self._by_content.get(sha256)

    def __getitem__(self, number: int) -> ImageRecord:
        return self.images[number]

    def __len__(self) -> int:
        return len(self.images)


@contextmanager
def _connected(database: str, *, uri: bool = False) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(database, uri=uri)
    try:
        yield connection
    finally:
        connection.close()


def _insert(connection: sqlite3.Connection, table: str, columns: int, rows: Iterable[tuple[object, ...]]) -> None:
    marks = ", ".join("?" * columns)
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 (names of our own)

"""A catalogue of the user's own, joined with photos by their keys: columns to show, and conditions to search by.

The catalogue is a CSV file with a column ``key`` (or ``photo``, ``file``, ``filename``, ``path``) and others of any
name, as a spreadsheet or a museum's database writes it. It may come from anybody: its size is bounded, and what it
says is shown as text, never run.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from manifind.errors import InvalidInputError

KEY_COLUMNS = ("key", "photo", "file", "filename", "path")
MAX_BYTES = 100_000_000
MAX_COLUMNS = 100
MAX_ROWS = 1_000_000
MAX_CELLS = 10_000_000
"""Of all rows together, empty ones included: each takes more room in memory than in the file."""
MAX_ROW = 2**20
"""Characters of a row."""
SHOWN = 40
"""Characters of a value in a list that is read by people."""

_NUMBER = re.compile(r"[+-]?\d{1,300}(?:\.\d{0,300})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d", re.ASCII)


@dataclass(frozen=True)
class Metadata:
    """What a catalogue says of photos."""

    columns: tuple[str, ...]
    """All but the column of the keys."""
    rows: Mapping[str, tuple[str, ...]]
    """The values of each photo, by its key."""

    def of(self, keys: Iterable[str]) -> dict[str, str]:
        """Return what is said of a photo under the first of its keys that the catalogue has; nothing that is empty."""
        row = next((self.rows[key] for key in keys if key in self.rows), ())
        return {column: value for column, value in zip(self.columns, row, strict=False) if value}

    def select(self, conditions: Sequence["Condition"]) -> list[str]:
        """Return the keys of the rows that meet all conditions."""
        places = []
        for condition in conditions:
            near = [place for place, name in enumerate(self.columns) if name.casefold() == condition.column.casefold()]
            if not near:
                raise InvalidInputError(
                    f"the catalogue has no column {condition.column!r}; it has {', '.join(self.columns)}.",
                    code="no-such-column",
                )
            places.append((near[0], condition))
        return [key for key, row in self.rows.items() if all(wanted.holds(row[place]) for place, wanted in places)]


@dataclass(frozen=True)
class Condition:
    """What a column must say: one value, or a range with both ends included."""

    column: str
    low: str
    high: str | None = None
    """The end of a range; None for a value."""

    @classmethod
    def of(cls, text: str) -> "Condition":
        """Read ``artist=Klee``, ``year=1900..1920``, ``year=1900..`` or ``date=..1914-07``."""
        column, equals, value = (part.strip() for part in text.partition("="))
        if not (column and equals):
            raise InvalidInputError(
                f"{text[:80]!r} is no condition; give COLUMN=VALUE, or COLUMN=FROM..TO with one end or both."
            )
        low, dots, high = value.partition("..")
        return cls(column, low.strip(), high.strip() if dots else None)

    def holds(self, value: str) -> bool:
        """Say whether a cell meets it: numbers as numbers, all else as text (dates as 1914-07-28)."""
        if self.high is None:
            return value.casefold() == self.low.casefold() or _equal_numbers(value, self.low)
        bounds = [_number(bound) for bound in (self.low, self.high) if bound]
        if None not in bounds and (number := _number(value)) is not None:
            low, high = _number(self.low), _number(self.high)
            return (low is None or number >= low) and (high is None or number <= high)
        if None not in bounds and not _DATE.match(value):
            return False  # "ca. 1910" is neither in a range of years nor after one
        return bool(value) and self.low <= value[: len(self.low)] and value[: len(self.high)] <= self.high


def read_metadata(file: Path) -> Metadata:
    """Read a catalogue, or raise `InvalidInputError` with the line that is off."""
    if not file.is_file():
        raise InvalidInputError(f"{file} is not a file; give a CSV file with a column key.")
    if file.stat().st_size > MAX_BYTES:
        raise InvalidInputError(f"{file} has more than {MAX_BYTES // 10**6} million bytes; leave out rows or columns.")
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline(MAX_ROW)
            delimiter = max(",;\t", key=first.count)
            stream.seek(0)
            lines = _Lines(stream, file)
            return _read(lines, csv.reader(lines, delimiter=delimiter), file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"{file} is no CSV file in UTF-8 ({error}); save it as one.") from error


class _Lines:
    """The lines of a file, as long as a row is not endless: cells in quotes may have many lines."""

    def __init__(self, stream: TextIO, file: Path) -> None:
        self._stream, self._file = stream, file
        self.row = 0
        """Characters of the row at hand; to be set to 0 when it is read."""

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(MAX_ROW + 1):
            self.row += len(line)
            if self.row > MAX_ROW:
                raise InvalidInputError(f"{self._file} has a row of more than {MAX_ROW:,} characters; shorten it.")
            yield line


def _read(lines: _Lines, rows: Iterator[Sequence[str]], file: Path) -> Metadata:
    header = [name.strip() for name in next(rows, [])]
    lines.row = 0
    if len(header) > MAX_COLUMNS:
        raise InvalidInputError(f"{file} has {len(header)} columns; the most are {MAX_COLUMNS}.")
    named = [name.casefold() for name in header]
    place = next((named.index(name) for name in KEY_COLUMNS if name in named), None)
    if place is None:
        raise InvalidInputError(f"{file} has no column named {', '.join(KEY_COLUMNS[:-1])} or {KEY_COLUMNS[-1]}.")
    places = [i for i, name in enumerate(header) if i != place and name]
    if len({named[i] for i in places}) < len(places):
        raise InvalidInputError(f"{file} has two columns of the same name; rename one.")
    most = min(MAX_ROWS, MAX_CELLS // max(1, len(places)))
    values: dict[str, tuple[str, ...]] = {}
    for number, row in enumerate(rows, 2):
        lines.row = 0
        key = row[place].strip() if place < len(row) else ""
        if not key:
            continue
        if key in values:
            raise InvalidInputError(f"row {number} of {file} is of {key[:80]!r}, as is one before; keep one of them.")
        if len(values) == most:
            raise InvalidInputError(
                f"{file} has more than {most:,} photos with {len(places)} columns; leave out rows or columns."
            )
        values[key] = tuple(row[i].strip() if i < len(row) else "" for i in places)
    return Metadata(tuple(header[i] for i in places), values)


def metadata_words(values: Mapping[str, str]) -> str:
    """Return what is said of a photo as one line: ``artist: Klee; year: 1920``."""

    def short(text: str) -> str:
        flat = " ".join(text.split())
        return flat if len(flat) <= SHOWN else f"{flat[: SHOWN - 1]}…"

    return "; ".join(f"{short(name)}: {short(value)}" for name, value in values.items())


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _equal_numbers(one: str, other: str) -> bool:
    number = _number(one)
    return number is not None and number == _number(other)

"""Many queries at once: a list of photos and boxes, whose retrievals share passes over the graph.

A list is a CSV file with the columns ``photo``, ``box`` (or ``x0``, ``y0``, ``x1``, ``y1``) and ``name``. Rows of the
same name are one query of several views. A photo that cannot be read costs its query, not the batch.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifind.boxes import parse_box
from manifind.errors import InvalidInputError, ManifindError
from manifind.index.search.query import Source
from manifind.index.search.results import SearchResult

CORNERS = ("x0", "y0", "x1", "y1")
MAX_BYTES = 10_000_000
"""Of a list; a longer file is not a list of queries."""

Views = Sequence[tuple[Source, Sequence[float] | None]]


@dataclass(frozen=True)
class BatchQuery:
    """One query of a batch: photos, and a box in each or None."""

    name: str
    views: Views


@dataclass(frozen=True)
class BatchResult:
    """The result of one query of a batch, or its error."""

    query: BatchQuery
    result: SearchResult | None
    error: ManifindError | None = None
    """Why there is no result."""


def read_queries(file: Path, is_photo: Callable[[str], bool]) -> list[BatchQuery]:
    """Read a list of queries.

    Parameters
    ----------
    file : Path
        A CSV file with a header.
    is_photo : callable
        Says whether a name is that of a photo as it stands; if it is not, it is taken from the list's own folder.
    """
    if not file.is_file():
        raise InvalidInputError(f"{file} is not a file; give a CSV file with the columns photo, box, name.")
    if file.stat().st_size > MAX_BYTES:
        raise InvalidInputError(f"{file} is longer than {MAX_BYTES // 10**6} million bytes; divide it.")
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(
            f"{file} is no CSV file ({error}); give one with the columns photo, box, name."
        ) from error
    if not rows or "photo" not in rows[0]:
        raise InvalidInputError(f"{file} has no column named photo, or no row; give the columns photo, box, name.")
    named: dict[str, list[tuple[Source, Sequence[float] | None]]] = {}
    for number, row in enumerate(rows, 2):
        photo = (row.get("photo") or "").strip()
        if not photo:
            raise InvalidInputError(f"line {number} of {file} names no photo; fill its column photo.")
        where = photo if is_photo(photo) else str(file.parent / photo)
        name = (row.get("name") or "").strip() or f"{number - 1} {photo}"
        named.setdefault(name, []).append((where, _box(row, number, file)))
    return [BatchQuery(name, tuple(views)) for name, views in named.items()]


def _box(row: dict[str, str], number: int, file: Path) -> tuple[float, ...] | None:
    written = (row.get("box") or "").strip(" ()[]")
    separate = [row.get(side) or "" for side in CORNERS]
    parts = written.replace(";", ",").replace(" ", ",").split(",") if written else separate
    parts = [part.strip() for part in parts if part.strip()]
    return parse_box(parts, f"the box in line {number} of {file}") if parts else None

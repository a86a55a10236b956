"""A store in plain files: ``folder:///where/NAME``, on a disk or on a folder that several machines share.

It is the plain twin of the other stores: shortlists are exact, and nothing has to be started. It also keeps the packed
rows where a vector database keeps only the descriptors (``milvus://…?rows=/where/NAME``): taking ten thousand rows out
of files is several times faster than out of a database.

Rows come in segments, each of a few arrays; a segment counts once its last file, ``facts``, has its name. Rows that
were removed are listed; a segment that has lost half of its rows is written again without them.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import DamagedError, InvalidInputError
from manifind.kernels import VectorSet, backend
from manifind.remote.row_format import Numbers
from manifind.remote.store import Address, NearestRows, Row, Versions
from manifind.storage import disk
from manifind.storage.arrays import NotAnArrayError, read_array
from manifind.types import FloatArray

PARTS = ("rows", "vectors", "owners", "facts")
"""Of a segment, in the order in which they are written."""
FACTS = re.compile(r"facts-([0-9]{1,15})\.npy")
DOCUMENT = "document-"
LOCK = ".lock"


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows that were written together."""

    number: int
    facts: npt.NDArray[np.int64]
    """(m, 6): number, photo, birth, digest, where the packed row ends, and where what is beside it does."""
    rows: npt.NDArray[np.uint8]
    vectors: FloatArray
    owners: npt.NDArray[np.int64]
    """Which row each descriptor is of."""

    def packed(self, place: int) -> bytes:
        """Return a packed row."""
        start = 0 if place == 0 else int(self.facts[place - 1, 5])
        return self.rows[start : int(self.facts[place, 4])].tobytes()

    def blob(self, place: int) -> bytes:
        """Return what lies beside a packed row."""
        return self.rows[int(self.facts[place, 4]) : int(self.facts[place, 5])].tobytes()


class FolderStore:
    """Rows and documents in the files of a folder; threads may share it."""

    def __init__(self, address: Address | Path) -> None:
        self.folder = address if isinstance(address, Path) else Path(address.place) / address.name
        self._segments: dict[int, Segment] = {}
        self._removed: Numbers = np.empty(0, np.int64)
        self._places: tuple[Numbers, Numbers, Numbers] | None = None
        self._searched: tuple[int, VectorSet, Numbers, Numbers] | None = None
        self._lock = threading.RLock()

    def create(self, dimension: int, photos: int) -> None:  # noqa: ARG002 (a folder takes what comes)
        """Make the folder."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInputError(f"{self.folder} is a file; give the name of a folder that may be made.")
        disk.make_folder(self.folder)

    # -- documents ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all documents."""
        return sorted(file.name.removeprefix(DOCUMENT) for file in self._files(DOCUMENT))

    def read(self, name: str) -> bytes | None:
        """Return a document."""
        try:
            return (self.folder / f"{DOCUMENT}{name}").read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Keep a document."""
        self._write(f"{DOCUMENT}{name}", [content])

    def delete(self, names: Sequence[str]) -> None:
        """Remove documents."""
        for name in names:
            disk.remove(self.folder / f"{DOCUMENT}{name}")

    # -- rows ---------------------------------------------------------------------------------------------------------

    def upsert(self, rows: Sequence[Row]) -> None:
        """Keep rows as a new segment."""
        if not rows:
            return
        with disk.lock(self.folder / LOCK, self.folder):
            self._refresh()
            known = set(self._row_index()[0].tolist())
            self._add([row for row in rows if row.number not in known])

    def _add(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        ends = np.cumsum([[len(row.packed), len(row.blob)] for row in rows]).reshape(-1, 2)
        facts = np.array([[row.number, row.photo, row.generation, row.digest] for row in rows], np.int64)
        arrays: dict[str, npt.NDArray[Any]] = {
            "rows": np.frombuffer(b"".join(row.packed + row.blob for row in rows), np.uint8),
            "vectors": np.concatenate([row.vectors for row in rows]).astype(np.float32),
            "owners": np.repeat(np.arange(len(rows)), [len(row.vectors) for row in rows]).astype(np.int64),
            "facts": np.concatenate([facts, ends], axis=1),
        }
        number = 1 + max((int(file.stem.rpartition("-")[2]) for file in self._files("facts-")), default=0)
        for part in PARTS:
            self._write(f"{part}-{number}.npy", disk.npy(arrays[part]))
        self._refresh()

    def build_index(self) -> None:
        """Do nothing: rows are searched as they lie."""

    def remove(self, numbers: Numbers) -> None:
        """List rows as removed, and write segments again that have lost half of theirs."""
        if not len(numbers):
            return
        with disk.lock(self.folder / LOCK, self.folder):
            self._refresh()
            there = np.concatenate([np.empty(0, np.int64), *(stored.facts[:, 0] for stored in self._segments.values())])
            removed_rows = np.intersect1d(np.union1d(self._removed, numbers), there)
            self._write("removed.npy", disk.npy(removed_rows))
            self._refresh()
            for segment in list(self._segments.values()):
                kept = np.flatnonzero(~np.isin(segment.facts[:, 0], removed_rows))
                if 2 * len(kept) <= len(segment.facts):
                    # The new segment is there before the old one goes: a row that is in both is the same row.
                    self._add([self._row(segment, int(place)) for place in kept])
                    for part in reversed(PARTS):
                        disk.remove(self.folder / f"{part}-{segment.number}.npy")
            self._refresh()

    @staticmethod
    def _row(segment: Segment, place: int) -> Row:
        number, photo, generation, digest = segment.facts[place, :4].tolist()
        vectors = segment.vectors[segment.owners == place]
        return Row(number, photo, generation, digest, vectors, segment.packed(place), segment.blob(place))

    def versions(self) -> Iterator[Versions]:
        """Yield the rows, a segment at a time."""
        self._refresh()
        seen: Numbers = np.empty(0, np.int64)
        for segment in list(self._segments.values()):
            facts = segment.facts[~np.isin(segment.facts[:, 0], np.union1d(self._removed, seen))]
            seen = np.union1d(seen, facts[:, 0])
            yield Versions(*(np.ascontiguousarray(column) for column in facts[:, :4].T))

    def nearest(self, queries: FloatArray, count: int, generation: int) -> list[NearestRows]:
        """Compare with every descriptor."""
        rows, numbers, photos = self._vector_set(generation)
        ids, similarities = rows.search(np.ascontiguousarray(queries, np.float32), min(count, len(numbers)))
        return [
            NearestRows(numbers[places], photos[places], similarity)
            for places, similarity in zip(ids, similarities, strict=True)
        ]

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Take packed rows out of their segments."""
        return self._read_blobs(numbers, Segment.packed)

    def fetch_blobs(self, numbers: Numbers) -> list[bytes | None]:
        """Take what lies beside packed rows out of their segments."""
        return [content or None for content in self._read_blobs(numbers, Segment.blob)]

    def _read_blobs(self, numbers: Numbers, of: Callable[[Segment, int], bytes]) -> list[bytes | None]:
        self._refresh()
        known, segments, places = self._row_index()
        at = np.minimum(np.searchsorted(known, numbers), max(0, len(known) - 1))
        there = known[at] == numbers if len(known) else np.zeros(len(numbers), bool)
        return [
            of(self._segments[int(segments[i])], int(places[i])) if present else None
            for i, present in zip(at.tolist(), there.tolist(), strict=True)
        ]

    def of_photos(self, photos: Numbers, generation: int) -> Versions:
        """Return the rows of some photos."""
        rows = Versions.concat(list(self.versions()))
        kept = np.isin(rows.photos, photos) & (rows.generation <= generation)
        return Versions(*(column[kept] for column in rows))

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._segments, self._places, self._searched = {}, None, None

    # -- files --------------------------------------------------------------------------------------------------------

    def _files(self, prefix: str) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted(file for file in self.folder.iterdir() if file.name.startswith(prefix))

    def _write(self, name: str, chunks: Iterator[disk.Bytes] | list[bytes]) -> None:
        draft = self.folder / f".draft-{name}"
        disk.write(draft, chunks)
        disk.replace(draft, self.folder / name)
        disk.sync_folder(self.folder)

    def _refresh(self) -> None:
        """Open segments that came since, and forget those that went."""
        with self._lock:
            there = {int(match[1]) for file in self._files("facts-") if (match := FACTS.fullmatch(file.name))}
            removed = self.folder / "removed.npy"
            removed_rows = _read_array(removed) if removed.exists() else np.empty(0, np.int64)
            if there == set(self._segments) and np.array_equal(removed_rows, self._removed):
                return
            segments = {number: segment for number, segment in self._segments.items() if number in there}
            for number in there - set(segments):
                try:
                    arrays = {part: _read_array(self.folder / f"{part}-{number}.npy") for part in PARTS}
                except DamagedError:
                    if (self.folder / f"facts-{number}.npy").exists():
                        raise
                    continue  # a writer took it away meanwhile
                if arrays["facts"].shape[1] == 5:  # written before there was anything beside a row
                    arrays["facts"] = arrays["facts"][:, [0, 1, 2, 3, 4, 4]]
                segments[number] = Segment(number, **arrays)
            self._segments = dict(sorted(segments.items()))
            self._removed, self._places, self._searched = removed_rows, None, None

    def _row_index(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return the numbers of all rows, ascending, with their segments and places."""
        with self._lock:
            if self._places is None:
                by_segment = [(segment.number, segment.facts[:, 0]) for segment in self._segments.values()]
                empty = np.empty(0, np.int64)
                numbers = np.concatenate([empty, *(rows for _, rows in by_segment)])
                segments = np.concatenate([empty, *(np.full(len(rows), n, np.int64) for n, rows in by_segment)])
                places = np.concatenate([empty, *(np.arange(len(rows)) for _, rows in by_segment)])
                kept = ~np.isin(numbers, self._removed)
                numbers, first = np.unique(numbers[kept], return_index=True)
                self._places = numbers, segments[kept][first], places[kept][first]
            return self._places

    def _vector_set(self, generation: int) -> tuple[VectorSet, Numbers, Numbers]:
        """Return the descriptors of rows of that generation or before, with their rows' numbers and photos."""
        with self._lock:
            self._refresh()
            if self._searched is None or self._searched[0] != generation:
                known, segments, places = self._row_index()
                vectors, numbers, photos = [], [], []
                for segment in self._segments.values():
                    visible = np.zeros(len(segment.facts), bool)
                    visible[places[segments == segment.number]] = True
                    visible &= segment.facts[:, 2] <= generation
                    kept = visible[segment.owners]
                    vectors.append(segment.vectors[kept])
                    numbers.append(segment.facts[segment.owners[kept], 0])
                    photos.append(segment.facts[segment.owners[kept], 1])
                if not len(known):
                    raise DamagedError(f"{self.folder} has no rows; publish the collection again.")
                rows = backend().vector_set(np.concatenate(vectors))
                self._searched = generation, rows, np.concatenate(numbers), np.concatenate(photos)
            return self._searched[1:]


def _read_array(file: Path) -> npt.NDArray[Any]:
    try:
        return read_array(file)
    except (OSError, NotAnArrayError) as error:
        raise DamagedError(f"{file} cannot be read ({error}); publish the collection again.") from error

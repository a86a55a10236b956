"""Photos extracted so far, on disk while an index is being built.

Extraction is the long part of the work. Each photo is appended here as soon as it is extracted, so that memory does not
grow with the collection and that an interrupted run goes on where it stopped. The journal belongs to one way of
extraction; made in another, it starts afresh. Only the writer of the index touches it.
"""

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manifind.geometry import FEATURE_BYTES
from manifind.geometry.packing import Packed
from manifind.storage import disk
from manifind.types import FloatArray

HEADER, PHOTOS, VECTORS, BOXES, LOCAL = "header.json", "photos.jsonl", "vectors.f16", "boxes.f32", "local.u8"
FILES = (HEADER, PHOTOS, VECTORS, BOXES, LOCAL)
"""The names of the files of a journal. Who copies them in this order gets all regions of every photo that he gets."""
NO_FEATURES = np.empty((0, FEATURE_BYTES), np.uint8)

HalfArray = npt.NDArray[np.float16]


class Entry(NamedTuple):
    """An extracted photo: the position of its regions in the journal."""

    width: int
    height: int
    first: int
    regions: int
    local: int = 0
    """Where its local features start."""
    features: int = 0


class Journal:
    """Descriptors by content hash, in files that are only ever appended to."""

    def __init__(self, folder: Path, fingerprint: str, dimension: int) -> None:
        self._folder = folder
        self.fingerprint = fingerprint
        """The fingerprint of the extraction."""
        self._dimension = dimension
        header = json.dumps({"fingerprint": fingerprint, "dimension": dimension}).encode()
        disk.make_own_folder(folder.parent)
        disk.make_own_folder(folder)
        if not (folder / HEADER).is_file() or (folder / HEADER).read_bytes() != header:
            for name in (PHOTOS, VECTORS, BOXES, LOCAL):
                disk.remove(folder / name)
            disk.write(folder / HEADER, [header])
        self._entries: dict[str, Entry] = {}
        self._rows = self._features = 0
        self._descriptors: dict[str, int] = {}
        try:
            for name in (PHOTOS, VECTORS, BOXES, LOCAL):
                self._descriptors[name] = disk.open_append(folder / name)
            self._recover()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def files(self) -> tuple[Path, Path]:
        """The files that the arrays lie in, plain numbers row by row."""
        return self._folder / VECTORS, self._folder / BOXES

    def contents(self) -> Iterable[str]:
        """Return the content hashes of the photos that are here."""
        return self._entries.keys()

    def get(self, sha256: str) -> Entry | None:
        """Return the photo of that content, if it was extracted."""
        return self._entries.get(sha256)

    def append(
        self,
        sha256: str,
        width: int,
        height: int,
        vectors: FloatArray,
        boxes: FloatArray,
        local: Packed = NO_FEATURES,
    ) -> Entry:
        """Add a photo; it counts once its line is written, which is the last step."""
        entry = Entry(width, height, self._rows, len(vectors), self._features, len(local))
        parts = vectors.astype(np.float16).tobytes(), boxes.astype(np.float32).tobytes(), local.tobytes()
        for name, part in zip((VECTORS, BOXES, LOCAL), parts, strict=True):
            if part:
                disk.write_all(self._descriptors[name], part)
        line = json.dumps([sha256, *entry, _checksum(parts)]) + "\n"
        disk.write_all(self._descriptors[PHOTOS], line.encode())
        self._rows += len(vectors)
        self._features += len(local)
        self._entries[sha256] = entry
        return entry

    def arrays(self) -> tuple[HalfArray, npt.NDArray[np.float32]]:
        """Return all vectors (n, d) and boxes (n, 4), memory-mapped."""
        if self._rows == 0:
            return np.empty((0, self._dimension), np.float16), np.empty((0, 4), np.float32)
        vectors = np.memmap(self._folder / VECTORS, np.float16, "r", shape=(self._rows, self._dimension))
        boxes = np.memmap(self._folder / BOXES, np.float32, "r", shape=(self._rows, 4))
        return vectors, boxes

    def local(self) -> Packed:
        """Return all local features (m, 38), memory-mapped."""
        if self._features == 0:
            return NO_FEATURES
        return np.memmap(self._folder / LOCAL, np.uint8, "r", shape=(self._features, FEATURE_BYTES))

    def _recover(self) -> None:
        """Read what is whole, and cut off what an interruption left half written."""
        whole = 0
        for line, sha256, entry in self._lines():
            self._entries[sha256] = entry
            self._rows = entry.first + entry.regions
            self._features = entry.local + entry.features
            whole += len(line)
        sizes = {PHOTOS: whole, VECTORS: 2 * self._dimension * self._rows, BOXES: 16 * self._rows}
        sizes[LOCAL] = FEATURE_BYTES * self._features
        for name, descriptor in self._descriptors.items():
            disk.truncate(descriptor, sizes[name])

    def _lines(self) -> Iterator[tuple[bytes, str, Entry]]:
        """Yield the photos whose line and regions are all there, up to the first that are not."""
        for line in (self._folder / PHOTOS).read_bytes().splitlines(keepends=True):
            try:
                sha256, *numbers, checksum = json.loads(line)
                entry = Entry(*numbers)
                parts = (
                    self._part(VECTORS, entry.first, entry.regions, 2 * self._dimension),
                    self._part(BOXES, entry.first, entry.regions, 16),
                    self._part(LOCAL, entry.local, entry.features, FEATURE_BYTES),
                )
            except (ValueError, TypeError, OSError, OverflowError):
                return
            if not line.endswith(b"\n") or _checksum(parts) != checksum:
                return
            yield line, sha256, entry

    def _part(self, name: str, first: int, count: int, row_bytes: int) -> Any:
        # What is written goes to the end all the same.
        os.lseek(self._descriptors[name], first * row_bytes, os.SEEK_SET)
        return os.read(self._descriptors[name], count * row_bytes)


def _checksum(parts: Iterable[bytes]) -> int:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum

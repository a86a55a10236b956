"""Photos described so far, kept on disk while an index is being made.

Describing is the long part of the work. Each photo is appended here as soon as it is described, so that memory does not
grow with the collection and that an interrupted run goes on where it stopped. The journal belongs to one way of
describing; made in another, it starts afresh. Only the writer of the index touches it.
"""

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manifind.storage import disk
from manifind.types import FloatArray

HEADER, PHOTOS, VECTORS, BOXES = "header.json", "photos.jsonl", "vectors.f16", "boxes.f32"

HalfArray = npt.NDArray[np.float16]


class Entry(NamedTuple):
    """A described photo: where its regions stand in the journal."""

    width: int
    height: int
    first: int
    regions: int


class Journal:
    """Descriptors by content hash, in files that are only ever appended to."""

    def __init__(self, folder: Path, fingerprint: str, dimension: int) -> None:
        self._folder = folder
        self._dimension = dimension
        header = json.dumps({"fingerprint": fingerprint, "dimension": dimension}).encode()
        disk.make_own_folder(folder.parent)
        disk.make_own_folder(folder)
        if not (folder / HEADER).is_file() or (folder / HEADER).read_bytes() != header:
            for name in (PHOTOS, VECTORS, BOXES):
                disk.remove(folder / name)
            disk.write(folder / HEADER, [header])
        self._entries: dict[str, Entry] = {}
        self._rows = 0
        self._descriptors: dict[str, int] = {}
        try:
            for name in (PHOTOS, VECTORS, BOXES):
                self._descriptors[name] = disk.appended(folder / name)
            self._recover()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def __len__(self) -> int:
        return len(self._entries)

    def contents(self) -> Iterable[str]:
        """Return the content hashes of the photos that are here."""
        return self._entries.keys()

    def get(self, sha256: str) -> Entry | None:
        """Return the photo of that content, if it was described."""
        return self._entries.get(sha256)

    def append(self, sha256: str, width: int, height: int, vectors: FloatArray, boxes: FloatArray) -> Entry:
        """Add a photo; it counts once its line is written, which is the last step."""
        entry = Entry(width, height, self._rows, len(vectors))
        half, corners = vectors.astype(np.float16).tobytes(), boxes.astype(np.float32).tobytes()
        disk.put(self._descriptors[VECTORS], half)
        disk.put(self._descriptors[BOXES], corners)
        line = json.dumps([sha256, *entry, zlib.crc32(corners, zlib.crc32(half))]) + "\n"
        disk.put(self._descriptors[PHOTOS], line.encode())
        self._rows += len(vectors)
        self._entries[sha256] = entry
        return entry

    def arrays(self) -> tuple[HalfArray, npt.NDArray[np.float32]]:
        """Return all vectors (n, d) and boxes (n, 4), memory-mapped."""
        if self._rows == 0:
            return np.empty((0, self._dimension), np.float16), np.empty((0, 4), np.float32)
        vectors = np.memmap(self._folder / VECTORS, np.float16, "r", shape=(self._rows, self._dimension))
        boxes = np.memmap(self._folder / BOXES, np.float32, "r", shape=(self._rows, 4))
        return vectors, boxes

    def _recover(self) -> None:
        """Read what is whole, and cut off what an interruption left half written."""
        whole = 0
        for line, sha256, entry in self._lines():
            self._entries[sha256] = entry
            self._rows = entry.first + entry.regions
            whole += len(line)
        sizes = {PHOTOS: whole, VECTORS: 2 * self._dimension * self._rows, BOXES: 16 * self._rows}
        for name, descriptor in self._descriptors.items():
            disk.truncate(descriptor, sizes[name])

    def _lines(self) -> Iterator[tuple[bytes, str, Entry]]:
        """Yield the photos whose line and regions are all there, up to the first that are not."""
        for line in (self._folder / PHOTOS).read_bytes().splitlines(keepends=True):
            try:
                sha256, *numbers, checksum = json.loads(line)
                entry = Entry(*numbers)
                half = self._part(VECTORS, entry, 2 * self._dimension)
                corners = self._part(BOXES, entry, 16)
            except (ValueError, TypeError, OSError, OverflowError):
                return
            if not line.endswith(b"\n") or zlib.crc32(corners, zlib.crc32(half)) != checksum:
                return
            yield line, sha256, entry

    def _part(self, name: str, entry: Entry, row_bytes: int) -> Any:
        return os.pread(self._descriptors[name], entry.regions * row_bytes, entry.first * row_bytes)

"""Photos described so far, kept on disk while an index is being made.

Describing is the long part of the work. Each photo is appended here as soon as it is described, so that memory does not
grow with the collection and that an interrupted run goes on where it stopped. The journal belongs to one way of
describing; made in another, it starts afresh.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInput
from manifind.store import LOCK, lock
from manifind.validation import FloatArray

HEADER, PHOTOS, VECTORS, BOXES = "header.json", "photos.jsonl", "vectors.f32", "boxes.f32"


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
        header = json.dumps({"journal of": "manifind", "fingerprint": fingerprint, "dimension": dimension})
        if folder.exists() and not _is_journal(folder):
            raise InvalidInput(f"{folder} is in the way: photos described so far are kept there; move it elsewhere.")
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = ExitStack()
        self._lock.enter_context(lock(folder / LOCK, folder))
        if not (folder / HEADER).is_file() or (folder / HEADER).read_text() != header:
            for name in (PHOTOS, VECTORS, BOXES):
                (folder / name).unlink(missing_ok=True)
            (folder / HEADER).write_text(header)
        self._entries: dict[str, Entry] = {}
        self._rows = 0
        self._recover()
        self._photos = (folder / PHOTOS).open("a", encoding="utf-8")
        self._vectors = (folder / VECTORS).open("ab")
        self._boxes = (folder / BOXES).open("ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._photos, self._vectors, self._boxes):
            stream.close()
        self._lock.close()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, sha256: str) -> Entry | None:
        """Return the photo of that content, if it was described."""
        return self._entries.get(sha256)

    def append(self, sha256: str, width: int, height: int, vectors: FloatArray, boxes: FloatArray) -> Entry:
        """Add a photo; it counts once its line is written, which is the last step."""
        entry = Entry(width, height, self._rows, len(vectors))
        self._vectors.write(np.ascontiguousarray(vectors, np.float32).tobytes())
        self._boxes.write(np.ascontiguousarray(boxes, np.float32).tobytes())
        self._vectors.flush()
        self._boxes.flush()
        self._photos.write(json.dumps([sha256, *entry]) + "\n")
        self._photos.flush()
        self._rows += len(vectors)
        self._entries[sha256] = entry
        return entry

    def arrays(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return all vectors (n, d) and boxes (n, 4), memory-mapped."""
        if self._rows == 0:
            return np.empty((0, self._dimension), np.float32), np.empty((0, 4), np.float32)
        vectors = np.memmap(self._folder / VECTORS, np.float32, "r", shape=(self._rows, self._dimension))
        boxes = np.memmap(self._folder / BOXES, np.float32, "r", shape=(self._rows, 4))
        return vectors, boxes

    def _recover(self) -> None:
        """Read what is whole, and cut off what an interruption left half written."""
        whole = 0
        for line, entry in self._lines():
            self._entries[entry[0]] = Entry(*entry[1:])
            self._rows = self._entries[entry[0]].first + self._entries[entry[0]].regions
            whole += len(line)
        for name, size in ((PHOTOS, whole), (VECTORS, 4 * self._dimension * self._rows), (BOXES, 16 * self._rows)):
            with (self._folder / name).open("ab") as stream:
                stream.truncate(size)

    def _lines(self) -> Iterator[tuple[bytes, Any]]:
        file = self._folder / PHOTOS
        if not file.exists():
            return
        held = [
            (self._folder / name).stat().st_size // bytes_
            for name, bytes_ in ((VECTORS, 4 * self._dimension), (BOXES, 16))
        ]
        for line in file.read_bytes().splitlines(keepends=True):
            try:
                entry = json.loads(line)
            except ValueError:
                return
            if not line.endswith(b"\n") or entry[3] + entry[4] > min(held):
                return
            yield line, entry


def _is_journal(folder: Path) -> bool:
    """Whether a folder is empty or a journal, of whatever way of describing."""
    if not folder.is_dir():
        return False
    header = folder / HEADER
    if header.is_file():
        return "journal of" in header.read_text(errors="replace")
    return all(file.name == LOCK for file in folder.iterdir())

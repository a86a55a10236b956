"""Vectors in a file, whose neighbours and affinity are found by workers: the driver holds neither vectors nor lists.

What tasks find lies in files of a folder beside the vectors, whose name tells these vectors from others, so that a
driver that begins again finds what is finished.
"""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from manifind.cluster import joining, planes, tasks
from manifind.cluster.joining import Lists
from manifind.kernels import SCRATCH, Rows, backend
from manifind.storage import disk
from manifind.types import FloatArray, IntArray, Progress

PAIR_BYTES = 48
"""What a task takes for a pair of a list while it joins lists."""
JOINED_HERE = 2**34
"""Bytes for pairs of lists up to which the driver joins them itself, which the compiled core does in moments."""


class Running(Protocol):
    """Who runs tasks: `manifind.cluster.workers.DaskWorkers`."""

    def machines(self) -> "Counter[str]":
        """Return how many tasks each machine runs at once."""

    def threads(self, tasks: int) -> list[int]:
        """Return how many threads each of some tasks may use."""

    def memory(self) -> int:
        """Return the bytes that the rows of one task may take."""

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[int]:
        """Hand out tasks, and yield their places as they are done."""


class DaskRows:
    """Vectors in a file: searched here, and compared with each other by workers."""

    def __init__(self, by: Running, vectors: FloatArray, file: Path) -> None:
        self._by, self._vectors, self._file = by, vectors, file
        self._here: Rows = backend().rows(vectors)
        self._folder = file.parent
        self._lists: Lists | None = None
        self._taken_in: list[np.memmap[Any, Any]] = []

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows there are, and of how many dimensions."""
        n, d = self._vectors.shape
        return n, d

    def take(self, rows: "np.ndarray[Any, np.dtype[np.integer[Any]]]") -> FloatArray:
        """Return some rows."""
        return self._here.take(rows)

    def nearest(
        self, queries: FloatArray, k: int, *, among: IntArray | None = None, memory: int = SCRATCH
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query, here."""
        return self._here.nearest(queries, k, among=among, memory=memory)

    def nearest_others(
        self,
        k: int,
        *,
        memory: int = SCRATCH,  # noqa: ARG002 (workers have their own)
        progress: Progress | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar other rows of each row: every pair of blocks meets in one task of a worker."""
        n, d = self.shape
        self._flush()
        folder, q = self._begun(f"tiles-{self._digest()}-{k}-")
        disk.make_own_folder(folder)
        starts, lines = planes.blocks(n, q).tolist(), planes.lines(q)
        shape, total = (n, d), 2 * len(lines)
        tiles = [str(folder / f"tile-{number}.npy") for number in range(len(lines))]
        spans = [[(starts[point], starts[point + 1]) for point in line] for line in lines]
        missing = [(own, tile) for own, tile in zip(spans, tiles, strict=True) if not Path(tile).exists()]
        found = [
            (tasks.find_neighbours, str(self._file), shape, own, k, threads, tile)
            for (own, tile), threads in zip(missing, self._by.threads(len(missing)), strict=True)
        ]
        for done, _ in enumerate(self._by.run(found), len(lines) - len(found) + 1):
            _report(progress, done, total, n)
        # The lists of one task alone are the lists.
        merged = [str(folder / f"block-{point}.npy") for point in range(len(lines))] if q else tiles
        calls = []
        for point, file in enumerate(merged):
            parts = []
            for line, own, tile in zip(lines, spans, tiles, strict=True):
                if point in line:
                    before = own[: line.index(point)]
                    parts.append((tile, sum(end - start for start, end in before)))
            size = starts[point + 1] - starts[point]
            calls.append((tasks.merge_neighbours, parts, starts[point], size, k, file))
        calls = [call for call in calls if not Path(call[-1]).exists()]
        for done, _ in enumerate(self._by.run(calls), total - len(calls) + 1):
            _report(progress, done, total, n)
        return self._taken(merged, k, folder)

    def _taken(self, files: Sequence[str], k: int, folder: Path) -> tuple[IntArray, FloatArray]:
        """Lay the lists of blocks one after the other, in files of the folder: they may be more than fit in here."""
        n, at = len(self._vectors), 0
        self._folder = folder
        self._lists = Lists(str(folder / "ids"), str(folder / "similarities"), n, k, k)
        ids = disk.scratch(folder / "ids", np.int32, (n, k))
        similarities = disk.scratch(folder / "similarities", np.float32, (n, k))
        self._taken_in = [array for array in (ids, similarities) if isinstance(array, np.memmap)]
        for file in files:
            own, found = tasks.read_lists(Path(file))
            ids[at : at + len(own)], similarities[at : at + len(own)] = own, found
            at += len(own)
        return ids, similarities

    def affinity(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return S of the lists that were found here, by tasks of workers where the lists are long."""
        n, k = ids.shape
        if not normalised or self._lists is None or n * k * PAIR_BYTES <= JOINED_HERE:
            return backend().affinity(ids, similarities, gamma, slack=slack, normalised=normalised)
        for array in self._taken_in:  # what was changed in them since is there for all to see
            array.flush()
        lists = self._lists._replace(k=k)
        parts = max(sum(self._by.machines().values()), math.ceil(n * k * PAIR_BYTES / self._by.memory()))
        starts = np.linspace(0, n, min(n, parts) + 1).astype(np.int64).tolist()
        spans = list(itertools.pairwise(starts))
        name = f"{k}-{gamma}-{len(spans)}"
        turned = [str(self._folder / f"turned-{name}-{part}.npy") for part in range(len(spans))]
        joined = [str(self._folder / f"joined-{name}-{part}.npy") for part in range(len(spans))]
        for work, files, given in (
            (joining.turned_round, turned, ()),
            (joining.joined, joined, (turned, gamma)),
        ):
            calls = [
                (work, lists, *span, *given, file)
                for span, file in zip(spans, files, strict=True)
                if not Path(file).exists()
            ]
            for _ in self._by.run(calls):
                pass
        return joining.normalised(joined, n, self._folder)

    def _flush(self) -> None:
        if isinstance(self._vectors, np.memmap):
            self._vectors.flush()

    def _begun(self, name: str) -> tuple[Path, int]:
        """Return the folder of the tiles and the order of their plane: that of a run before, where its tasks fit."""
        (n, d), memory = self.shape, self._by.memory()
        for folder in sorted(self._file.parent.glob(f"{name}*")):
            before = int(folder.name.removeprefix(name))
            if planes.rows_of_task(n, before) * 4 * d <= memory:
                return folder, before
        q = planes.order_for(n, 4 * d, memory, len(self._by.machines()))
        return self._file.parent / f"{name}{q}", q

    def _digest(self) -> str:
        """Return what tells these vectors from others."""
        digest = hashlib.blake2b(digest_size=12)
        for start in range(0, len(self._vectors), 2**14):
            digest.update(np.ascontiguousarray(self._vectors[start : start + 2**14]).data)
        return digest.hexdigest()


class DescendingRows(DaskRows):
    """The same, where one worker has room for NN-Descent, which is not divided."""

    def descend(self, k: int, *, seed: int = 0, progress: Progress | None = None) -> tuple[IntArray, FloatArray]:
        """Find nearly the `k` most similar other rows of each row, by one task with all cores of its machine."""
        n = len(self._vectors)
        self._flush()
        folder = self._file.parent / f"descent-{self._digest()}-{k}-{seed}"
        disk.make_own_folder(folder)
        file = str(folder / "lists.npy")
        (threads,) = self._by.threads(1)
        for _ in self._by.run([(tasks.descend, str(self._file), self.shape, k, seed, threads, file)]):
            _report(progress, 1, 1, n)
        return self._taken([file], k, folder)


def _report(progress: Progress | None, done: int, total: int, n: int) -> None:
    if progress is not None:
        progress(done * n // total, n)

"""Vectors in a file, whose neighbours and affinity are found by workers: the driver holds neither vectors nor lists.

What tasks find lies in files (`shards`), in a folder whose name tells these vectors from others, so that a driver that
begins again finds what is finished.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.cluster import following, joining, planes, tasks
from manifind.cluster.columns import How, columns_by
from manifind.cluster.joining import Lists
from manifind.cluster.running import Running
from manifind.cluster.shards import Plain, Shards, begun, digest_of
from manifind.diffusion.offline import Columns
from manifind.kernels import SCRATCH, Rows, backend
from manifind.storage import disk
from manifind.types import FloatArray, IntArray, Progress, Vectors

PAIR_BYTES = 48
"""What a task takes for a pair of a list while it joins lists."""
JOINED_HERE = 2**34
"""Bytes for pairs of lists up to which the driver joins them itself, which the compiled core does in moments."""
HELD_HERE = 2**28
"""Numbers of rows up to which the driver holds all of them, compressed, while it searches them."""
TAKEN = "taken-in"
"""The folder beside the vectors with the files that lists, S and columns are laid into: they may not fit in here."""


class FoundLists(NamedTuple):
    """Lists that workers found."""

    shards: Shards
    ids: IntArray
    similarities: FloatArray

    def files(self, folder: Path) -> tuple[Path, Path]:
        """Return the two files that they lie in."""
        return _files(folder, self.ids.shape[1])


class DaskRows:
    """Vectors in a file: searched here, and compared with each other by workers."""

    def __init__(self, by: Running, vectors: Vectors, file: Path, shards: Shards) -> None:
        self._by, self._vectors, self._file, self._shards = by, vectors, file, shards
        self._folder = file.with_name(TAKEN)
        self._here: Rows = backend().rows(vectors)
        self._found: FoundLists | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows there are, and of how many dimensions."""
        n, d = self._vectors.shape
        return n, d

    def take(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return some rows."""
        return self._here.take(rows)

    def nearest(
        self, queries: FloatArray, k: int, *, among: IntArray | None = None, memory: int = SCRATCH
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query, here: some rows at a time, where they are too many to hold."""
        n, d = self.shape
        if n * d <= HELD_HERE or among is not None:
            return self._here.nearest(queries, k, among=among, memory=memory)
        ids, similarities = np.empty((len(queries), 0), np.int32), np.empty((len(queries), 0), np.float32)
        step = max(1, HELD_HERE // d)
        for start in range(0, n, step):
            block = backend().rows(self._vectors[start : start + step])
            own, found = block.nearest(queries, min(k, block.shape[0]), memory=memory)
            similarities = np.concatenate([similarities, found], axis=1)
            best = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
            similarities = np.take_along_axis(similarities, best, axis=1)
            ids = np.take_along_axis(np.concatenate([ids, own + np.int32(start)], axis=1), best, axis=1)
        return ids, similarities

    def nearest_others(
        self,
        k: int,
        *,
        memory: int = SCRATCH,  # noqa: ARG002 (workers have their own)
        progress: Progress | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar other rows of each row: every pair of blocks meets in one task of a worker."""
        self._found = self._compared(k, progress)
        return self._found.ids, self._found.similarities

    def _compared(self, k: int, progress: Progress | None) -> FoundLists:
        n = len(self._vectors)
        shards, q = self._begun(f"tiles-{digest_of(self._vectors)}-{k}-")
        shards.make()
        vectors = Plain.seen(self._vectors, self._file, shards)
        starts, lines = planes.blocks(n, q).tolist(), planes.lines(q)
        total = 2 * len(lines)
        tiles = [f"tile-{number}.npy" for number in range(len(lines))]
        spans = [[(starts[point], starts[point + 1]) for point in line] for line in lines]
        there = set(shards.names())
        missing = [(own, tile) for own, tile in zip(spans, tiles, strict=True) if tile not in there]
        found = [
            (tasks.find_neighbours, vectors, own, k, threads, shards, tile)
            for (own, tile), threads in zip(missing, self._by.threads(len(missing)), strict=True)
        ]
        for done, _ in enumerate(self._by.run(found), len(lines) - len(found) + 1):
            _report(progress, done, total, n)
        # The lists of one task alone are the lists.
        merged = [f"block-{point}.npy" for point in range(len(lines))] if q else tiles
        calls = []
        for point, name in enumerate(merged):
            parts = []
            for line, own, tile in zip(lines, spans, tiles, strict=True):
                if point in line:
                    before = own[: line.index(point)]
                    parts.append((tile, sum(end - start for start, end in before)))
            size = starts[point + 1] - starts[point]
            calls.append((tasks.merge_neighbours, parts, starts[point], size, k, shards, name))
        calls = [call for call in calls if call[-1] not in there and call[-1] not in tiles]
        for done, _ in enumerate(self._by.run(calls), total - len(calls) + 1):
            _report(progress, done, total, n)
        return self._taken(shards, merged, k)

    def _taken(self, shards: Shards, names: Sequence[str], k: int) -> FoundLists:
        """Lay the lists of blocks one after the other into files."""
        at = 0
        ids, similarities = self.room(k)
        for name in names:
            own, found = tasks.read_lists(shards, name)
            ids[at : at + len(own)], similarities[at : at + len(own)] = own, found
            at += len(own)
        return FoundLists(shards, ids, similarities)

    def room(self, width: int) -> tuple[IntArray, FloatArray]:
        """Return arrays in files for a list of each row."""
        disk.make_own_folder(self._folder)
        files, kinds = _files(self._folder, width), (np.int32, np.float32)
        ids, similarities = (disk.scratch(*of, (len(self._vectors), width)) for of in zip(files, kinds, strict=True))
        return ids, similarities

    def follow(
        self,
        ids: IntArray,
        similarities: FloatArray,
        *,
        searched: IntArray,
        new: IntArray,
        complete: npt.NDArray[np.bool_],
        progress: Progress | None = None,
    ) -> None:
        """Bring lists that lie in `room` up to date, by tasks of workers."""
        shards = self._shards.within(following.name_of(self._vectors, ids))
        shards.make()
        files = _files(self._folder, ids.shape[1])
        if shards.apart:  # the lists will be brought there once more, when they have changed
            files = files[0].with_suffix(".before.i32"), files[1].with_suffix(".before.f32")
        lists = Plain.seen(ids, files[0], shards), Plain.seen(similarities, files[1], shards)
        vectors = Plain.seen(self._vectors, self._file, shards)
        given = searched, new, complete
        following.follow(self._by, vectors, lists, (ids, similarities), *given, shards, progress)
        self._found = FoundLists(shards, ids, similarities)

    def affinity(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return S of the lists that were found here, by tasks of workers where the lists are long."""
        n, k = ids.shape
        if not normalised or self._found is None or n * k * PAIR_BYTES <= JOINED_HERE:
            return backend().affinity(ids, similarities, gamma, slack=slack, normalised=normalised)
        parts = math.ceil(n * k * PAIR_BYTES / self._by.memory())
        name = f"joined-{k}-{gamma}-"
        division = begun(self._found.shards, name, lambda there: there >= min(n, parts))
        if division is None:
            division = min(n, max(sum(self._by.machines().values()), parts))
        shards = self._found.shards.within(f"{name}{division}")
        shards.make()
        files = zip(self._found[1:], self._found.files(self._folder), strict=True)
        ids_seen, similarities_seen = (Plain.seen(array, file, shards) for array, file in files)
        lists = Lists(ids_seen, similarities_seen, k)
        spans = list(itertools.pairwise(np.linspace(0, n, division + 1).astype(np.int64).tolist()))
        turned, joined = ([f"{what}-{part}.npy" for part in range(division)] for what in ("turned", "joined"))
        steps: Any = ((joining.turned_round, turned, ()), (joining.joined, joined, (turned, gamma)))
        there = set(shards.names())
        for work, names, given in steps:
            calls = [(work, lists, *span, *given, shards, name) for span, name in zip(spans, names, strict=True)]
            for _ in self._by.run([call for call in calls if call[-1] not in there]):
                pass
        return joining.normalised(shards, joined, n, self._folder)

    def columns(
        self,
        S: sp.csr_array,
        neighbours: IntArray,
        *,
        alpha: float,
        size: int,
        max_iter: int,
        tol: float,
        progress: Progress | None,
    ) -> Columns:
        """Return the off-line columns that tasks of workers solve for; they lie in files."""
        disk.make_own_folder(self._folder)
        wider = None if size <= neighbours.shape[1] + 1 else self._compared(size - 1, None)
        others = neighbours if wider is None else wider.ids
        how = How(size, alpha, max_iter, tol)
        solved = columns_by(self._by, S, others, how, self._shards, self._folder, progress)
        if wider is not None:
            wider.shards.clear()
            for file in wider.files(self._folder):
                disk.remove(file)
        return solved

    def _begun(self, name: str) -> tuple[Shards, int]:
        """Return where the tiles are and the order of their plane: that of a run before, where its tasks fit."""
        (n, d), memory = self.shape, self._by.memory()
        q = begun(self._shards, name, lambda there: planes.rows_of_task(n, there) * 4 * d <= memory)
        if q is None:
            q = planes.order_for(n, 4 * d, memory, len(self._by.machines()))
        return self._shards.within(f"{name}{q}"), q


class DescendingRows(DaskRows):
    """The same, where one worker has room for NN-Descent, which is not divided."""

    def descend(self, k: int, *, seed: int = 0, progress: Progress | None = None) -> tuple[IntArray, FloatArray]:
        """Find nearly the `k` most similar other rows of each row, by one task with all cores of its machine."""
        shards, name = self._shards.within(f"descent-{digest_of(self._vectors)}-{k}-{seed}"), "lists.npy"
        shards.make()
        (threads,) = self._by.threads(1)
        vectors = Plain.seen(self._vectors, self._file, shards)
        if not shards.exists(name):
            for _ in self._by.run([(tasks.descend, vectors, k, seed, threads, shards, name)]):
                pass
        _report(progress, 1, 1, len(self._vectors))
        self._found = self._taken(shards, [name], k)
        return self._found.ids, self._found.similarities


def _files(folder: Path, k: int) -> tuple[Path, Path]:
    return folder / f"lists-{k}.i32", folder / f"lists-{k}.f32"


def _report(progress: Progress | None, done: int, total: int, n: int) -> None:
    if progress is not None:
        progress(done * n // total, n)

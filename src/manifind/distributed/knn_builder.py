"""The k-NN graph of vectors in a file, built by workers: the driver holds neither vectors nor lists.

Tasks write their results to files (`exchange`), in a folder named after a digest of the vectors. A driver that starts
again finds what is finished.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.distributed import block_design, mutual_graph, tasks, update_knn
from manifind.distributed.exchange import ArrayFile, ExchangeDir, digest_arrays, read_division
from manifind.distributed.mutual_graph import Lists
from manifind.distributed.tasks import run_missing
from manifind.kernels import NN_DESCENT, SCRATCH_BYTES, KnnGraphBuilder, Neighbours, VectorSet, backend
from manifind.kernels.topk import merge_topk
from manifind.storage import disk
from manifind.types import FloatArray, IntArray, Progress, Vectors

if TYPE_CHECKING:
    from manifind.distributed.workers import DaskWorkers

PAIR_BYTES = 48
"""What a task takes for a pair of a list while it joins lists."""
MAX_LOCAL_GRAPH_BYTES = 2**34
"""Bytes for pairs of lists up to which the driver joins them itself, which the compiled core does in moments."""
MAX_IN_MEMORY_NUMBERS = 2**28
"""Numbers of rows up to which the driver holds all of them, compressed, while it searches them."""
RESULTS = "taken-in"
"""The folder beside the vectors with the files that lists and S are laid into: they may not fit in here."""


class KnnFiles(NamedTuple):
    """Lists that workers found."""

    exchange: ExchangeDir
    ids: IntArray
    similarities: FloatArray

    def files(self, folder: Path) -> tuple[Path, Path]:
        """Return the two files that they lie in."""
        return _files(folder, self.ids.shape[1])


class BlockwiseVectorSet(VectorSet):
    """Vectors in a file, searched here: a block at a time where they are too many to hold compressed."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._local = backend().vector_set(vectors)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of regions, and the number of dimensions."""
        return self._local.shape

    def gather(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return the descriptors of the given regions."""
        return self._local.gather(rows)

    def search(
        self, queries: FloatArray, k: int, *, subset: IntArray | None = None, memory: int = SCRATCH_BYTES
    ) -> tuple[IntArray, FloatArray]:
        """Return the top `k` regions of each query."""
        n, d = self.shape
        if n * d <= MAX_IN_MEMORY_NUMBERS or subset is not None:
            return self._local.search(queries, k, subset=subset, memory=memory)
        best = Neighbours(np.empty((len(queries), 0), np.int32), np.empty((len(queries), 0), np.float32))
        step = max(1, MAX_IN_MEMORY_NUMBERS // d)
        for start in range(0, n, step):
            block = backend().vector_set(self._vectors[start : start + step])
            ids, similarities = block.search(queries, min(k, block.shape[0]), memory=memory)
            best = merge_topk(best, Neighbours(ids + np.int32(start), similarities), k)
        return best


class DaskKnnBuilder(KnnGraphBuilder):
    """Builds the k-NN graph of vectors in a file by workers; lists and S lie in files here."""

    def __init__(
        self,
        executor: "DaskWorkers",
        vectors: Vectors,
        file: Path,
        exchange: ExchangeDir,
        *,
        has_nn_descent: bool = False,
    ) -> None:
        self._executor, self._vectors, self._file, self._exchange = executor, vectors, file, exchange
        self._folder = file.with_name(RESULTS)
        self._local = BlockwiseVectorSet(vectors)
        self._has_nn_descent = has_nn_descent
        self._lists: KnnFiles | None = None

    @property
    def vectors(self) -> VectorSet:
        """The descriptors, as this process searches them."""
        return self._local

    @property
    def has_nn_descent(self) -> bool:
        """Whether one worker has room for NN-Descent, which is not divided."""
        return self._has_nn_descent

    def build(
        self,
        method: str,
        k: int,
        *,
        seed: int = 0,
        memory: int = SCRATCH_BYTES,  # noqa: ARG002 (workers have their own)
        progress: Progress | None = None,
    ) -> Neighbours:
        """Return the `k` other regions most similar to each region, by tasks of workers."""
        self._lists = (
            self._build_nn_descent(k, seed, progress) if method == NN_DESCENT else self._build_exact(k, progress)
        )
        return Neighbours(self._lists.ids, self._lists.similarities)

    def _build_exact(self, k: int, progress: Progress | None) -> KnnFiles:
        n = len(self._vectors)
        exchange, q = self._open_tiles(f"tiles-{digest_arrays(self._vectors)}-{k}-")
        exchange.make()
        vectors = ArrayFile.share(self._vectors, self._file, exchange)
        starts, lines = block_design.block_starts(n, q).tolist(), block_design.plane_lines(q)
        total = 2 * len(lines)
        tiles = [f"tile-{number}.npy" for number in range(len(lines))]
        spans = [[(starts[point], starts[point + 1]) for point in line] for line in lines]
        existing = set(exchange.names())
        missing = sum(tile not in existing for tile in tiles)
        threads = iter(self._executor.threads(missing))
        calls: list[tuple[Any, ...]] = [
            (tasks.find_neighbours, vectors, rows, k, 1 if tile in existing else next(threads), exchange, tile)
            for rows, tile in zip(spans, tiles, strict=True)
        ]
        self._run(exchange, calls, progress, 0, total)
        # The lists of one task alone are the lists.
        merged = [f"block-{point}.npy" for point in range(len(lines))] if q else tiles
        calls = []
        for point, name in enumerate(merged):
            parts = []
            for line, rows, tile in zip(lines, spans, tiles, strict=True):
                if point in line:
                    before = rows[: line.index(point)]
                    parts.append((tile, sum(end - start for start, end in before)))
            size = starts[point + 1] - starts[point]
            calls.append((tasks.merge_neighbours, exchange, parts, starts[point], size, k, exchange, name))
        self._run(exchange, calls, progress, len(lines), total)
        return self._collect(exchange, merged, k)

    def _run(
        self, exchange: ExchangeDir, calls: list[tuple[Any, ...]], progress: Progress | None, before: int, total: int
    ) -> None:
        """Run the tasks whose files do not exist, and report each: so many of all were done before."""
        existing = set(exchange.names())
        finished = sum(call[-1] in existing for call in calls)
        for done, _ in enumerate(run_missing(self._executor, exchange, calls), 1):
            if done > finished:
                _report(progress, before + done, total, len(self._vectors))

    def _build_nn_descent(self, k: int, seed: int, progress: Progress | None) -> KnnFiles:
        """Return the lists of NN-Descent, by one task with all cores of its machine."""
        exchange, name = self._exchange.within(f"descent-{digest_arrays(self._vectors)}-{k}-{seed}"), "lists.npy"
        exchange.make()
        (threads,) = self._executor.threads(1)
        vectors = ArrayFile.share(self._vectors, self._file, exchange)
        list(run_missing(self._executor, exchange, [(tasks.nn_descent, vectors, k, seed, threads, exchange, name)]))
        _report(progress, 1, 1, len(self._vectors))
        return self._collect(exchange, [name], k)

    def _collect(self, exchange: ExchangeDir, names: Sequence[str], k: int) -> KnnFiles:
        """Lay the lists of blocks one after the other into files."""
        at = 0
        ids, similarities = self.allocate(k)
        for name in names:
            lists = tasks.read_lists(exchange, name)
            rows = slice(at, at + len(lists[0]))
            ids[rows], similarities[rows] = lists
            at = rows.stop
        return KnnFiles(exchange, ids, similarities)

    def allocate(self, width: int) -> Neighbours:
        """Return lists in files."""
        disk.make_own_folder(self._folder)
        files, kinds = _files(self._folder, width), (np.int32, np.float32)
        ids, similarities = (disk.scratch(*of, (len(self._vectors), width)) for of in zip(files, kinds, strict=True))
        return Neighbours(ids, similarities)

    def update(
        self,
        lists: Neighbours,
        *,
        searched: IntArray,
        new: IntArray,
        complete: npt.NDArray[np.bool_],
        memory: int = SCRATCH_BYTES,  # noqa: ARG002 (workers have their own)
        progress: Progress | None = None,
    ) -> None:
        """Bring lists that `allocate` returned up to date, by tasks of workers."""
        ids, similarities = lists
        exchange = self._exchange.within(update_knn.exchange_name(self._vectors, ids))
        exchange.make()
        files = _files(self._folder, ids.shape[1])
        if exchange.apart:  # the lists will be brought there once more, when they have changed
            files = files[0].with_suffix(".before.i32"), files[1].with_suffix(".before.f32")
        seen = ArrayFile.share(ids, files[0], exchange), ArrayFile.share(similarities, files[1], exchange)
        vectors = ArrayFile.share(self._vectors, self._file, exchange)
        given = searched, new, complete
        update_knn.update_lists(self._executor, vectors, seen, (ids, similarities), *given, exchange, progress)
        self._lists = KnnFiles(exchange, ids, similarities)

    def mutual_graph(
        self, lists: Neighbours, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return S of the lists that were found here, by tasks of workers where the lists are long."""
        n, k = lists.ids.shape
        if not normalised or self._lists is None or n * k * PAIR_BYTES <= MAX_LOCAL_GRAPH_BYTES:
            return backend().mutual_graph(*lists, gamma, slack=slack, normalised=normalised)
        parts = math.ceil(n * k * PAIR_BYTES / self._executor.memory())
        name = f"joined-{k}-{gamma}-"
        division = read_division(self._lists.exchange, name, lambda there: there >= min(n, parts))
        if division is None:
            division = min(n, max(sum(self._executor.machines().values()), parts))
        exchange = self._lists.exchange.within(f"{name}{division}")
        exchange.make()
        files = zip(self._lists[1:], self._lists.files(self._folder), strict=True)
        ids_seen, similarities_seen = (ArrayFile.share(array, file, exchange) for array, file in files)
        seen = Lists(ids_seen, similarities_seen, k)
        spans = list(itertools.pairwise(np.linspace(0, n, division + 1).astype(np.int64).tolist()))
        turned, joined = ([f"{what}-{part}.npy" for part in range(division)] for what in ("turned", "joined"))
        steps: Any = (
            (mutual_graph.transpose_lists, turned, ()),
            (mutual_graph.intersect_block, joined, (exchange, turned, gamma)),
        )
        for task, names, given in steps:
            calls = [(task, seen, *span, *given, exchange, name) for span, name in zip(spans, names, strict=True)]
            list(run_missing(self._executor, exchange, calls))
        return mutual_graph.normalise_blocks(exchange, joined, n, self._folder)

    def _open_tiles(self, name: str) -> tuple[ExchangeDir, int]:
        """Return where the tiles are and the order of their plane: that of a run before, where its tasks fit."""
        (n, d), memory = self._vectors.shape, self._executor.memory()
        q = read_division(self._exchange, name, lambda there: block_design.task_rows(n, there) * 4 * d <= memory)
        if q is None:
            q = block_design.choose_order(n, 4 * d, memory, len(self._executor.machines()))
        return self._exchange.within(f"{name}{q}"), q


def _files(folder: Path, k: int) -> tuple[Path, Path]:
    return folder / f"lists-{k}.i32", folder / f"lists-{k}.f32"


def _report(progress: Progress | None, done: int, total: int, n: int) -> None:
    if progress is not None:
        progress(done * n // total, n)

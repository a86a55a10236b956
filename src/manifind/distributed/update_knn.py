"""Neighbour lists that follow a change of the collection (`manifind.graph.neighbours`), by tasks.

The regions whose lists are searched for are compared with all regions tile by tile: a task has some of the former and a
block of the latter, and writes the nearest of that block. Another kind of task lets new regions into the lists of a
block. The driver merges what the first kind found, and copies what the second wrote; the lists lie in files that it
maps.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind import kernels
from manifind.distributed.exchange import ROWS_PER_READ, ArrayFile, ExchangeDir, digest_arrays, read_division
from manifind.distributed.tasks import file_task, read_lists, run_missing
from manifind.graph.neighbours import insert_new_rows
from manifind.kernels import JOIN_BLOCK_ROWS, Neighbours, backend
from manifind.storage import disk
from manifind.types import FloatArray, IntArray, Progress

if TYPE_CHECKING:
    from manifind.distributed.workers import DaskWorkers

SEARCHED, COMPLETE = 1, 2
"""What a region's state may say: its list is searched for; it had everybody before new regions came."""
PAIR_BYTES = 24
"""What an entry of a list takes in a task, and in the driver that merges."""

MAX_SEARCHED_ROWS = 2**16
"""Regions that are searched for together at most: the driver holds what is found of them while it merges."""

Span = tuple[int, int]


class Change(NamedTuple):
    """A collection that changed, in files."""

    vectors: ArrayFile
    ids: ArrayFile
    similarities: ArrayFile
    """Lists of regions that stayed, without those that left."""
    state: ArrayFile
    searched: ArrayFile
    new: ArrayFile


def read_rows(file: ArrayFile, rows: IntArray) -> FloatArray:
    """Return some ascending rows of a file in single precision; what lies around them is read some rows at a time."""
    parts = [np.empty((0, file.shape[1]), np.float32)]
    for block in np.split(rows, np.flatnonzero(np.diff(rows // ROWS_PER_READ)) + 1) if len(rows) else []:
        first, end = int(block[0]), int(block[-1]) + 1
        parts.append(file[first:end][block - first].astype(np.float32))
    return np.concatenate(parts)


@file_task
def search_tile(change: Change, group: Span, block: Span, k: int, threads: int) -> Iterable[disk.Bytes]:
    """Return the `k` nearest in a block for a group of the regions to search for."""
    kernels.set_threads(threads)
    queries = read_rows(change.vectors, change.searched[slice(*group)][:, 0])
    rows = backend().vector_set(change.vectors[slice(*block)])
    lists = [rows.search(queries[at : at + JOIN_BLOCK_ROWS], k) for at in range(0, len(queries), JOIN_BLOCK_ROWS)]
    ids, similarities = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    return disk.npy(np.stack([ids + np.int32(block[0]), similarities.view(np.int32)]))


@file_task
def insert_rows(change: Change, block: Span, batch_size: int, threads: int) -> Iterable[disk.Bytes]:
    """Insert new regions, `batch_size` at a time, into the lists of a block that are not searched for."""
    kernels.set_threads(threads)
    state = change.state[slice(*block)][:, 0]
    places = np.flatnonzero(state & SEARCHED == 0)
    complete = state[places] & COMPLETE != 0
    ids, similarities = (file[slice(*block)][places] for file in (change.ids, change.similarities))
    vectors = change.vectors[slice(*block)]
    for first in range(0, change.new.shape[0], batch_size):
        coming = change.new[first : first + batch_size][:, 0]
        arrivals = read_rows(change.vectors, coming).T
        for at in range(0, len(places), JOIN_BLOCK_ROWS):
            chunk = slice(at, at + JOIN_BLOCK_ROWS)
            products = vectors[places[chunk]].astype(np.float32) @ arrivals
            lists = Neighbours(ids[chunk], similarities[chunk])
            ids[chunk], similarities[chunk] = insert_new_rows(lists, products, coming, complete[chunk])
    return disk.npy(np.stack([ids, similarities.view(np.int32)]))


def update_lists(
    executor: "DaskWorkers",
    vectors: ArrayFile,
    lists: tuple[ArrayFile, ArrayFile],
    out: tuple[IntArray, FloatArray],
    searched: IntArray,
    new: IntArray,
    complete: npt.NDArray[np.bool_],
    exchange: ExchangeDir,
    progress: Progress | None,
) -> None:
    """Bring lists up to date in place, by tasks; those that an earlier driver had done are not done again.

    `lists` are as tasks see them, `out` as they are seen here; `searched`, `new` and `complete` are those of
    `KnnGraphBuilder.update`. `exchange` is a folder of this change alone.
    """
    ids, similarities = out
    n, width = ids.shape
    state = (complete * COMPLETE).astype(np.uint8)
    state[searched] |= SEARCHED
    change = Change(
        vectors,
        *lists,
        ArrayFile.write(state[:, None], "state", exchange),
        ArrayFile.write(searched[:, None], "searched", exchange),
        ArrayFile.write(new[:, None], "new", exchange),
    )
    blocks = _spans(n, _block_rows(executor, n, vectors.shape[1], width, exchange))
    groups = _spans(len(searched), min(MAX_SEARCHED_ROWS, blocks[0][1]))
    total, done = len(searched) + (n - len(searched) if len(new) else 0), 0
    for group, lists_of_group in _search_groups(executor, change, groups, blocks, width + 1, exchange):
        rows = searched[slice(*group)]
        ids[rows], similarities[rows] = Neighbours(*lists_of_group).without_self(rows)
        done += len(rows)
        if progress is not None:
            progress(done, total)
    if not len(new):
        return
    names = [f"entered-{start}.npy" for start, _ in blocks]
    batch_size = max(1, executor.memory() // (32 * JOIN_BLOCK_ROWS + 8 * vectors.shape[1]))
    threads = executor.threads(len(blocks))
    calls = [
        (insert_rows, change, block, batch_size, cores, exchange, name)
        for block, cores, name in zip(blocks, threads, names, strict=True)
    ]
    for place in run_missing(executor, exchange, calls):
        start, end = blocks[place]
        others = start + np.flatnonzero(state[start:end] & SEARCHED == 0)
        ids[others], similarities[others] = read_lists(exchange, names[place])
        done += len(others)
        if progress is not None:
            progress(done, total)


def exchange_name(vectors: npt.NDArray[np.floating], ids: IntArray) -> str:
    """Return the name of the folder in which files of a change are exchanged: by the vectors, and the lists before."""
    return f"following-{digest_arrays(vectors, ids)}"


def _block_rows(executor: "DaskWorkers", n: int, d: int, width: int, exchange: ExchangeDir) -> int:
    """Return how many regions a block has, and are searched for together: as an earlier driver divided, if it fits."""
    most = max(1, executor.memory() // (8 * d + PAIR_BYTES * (width + 1)))
    step = read_division(exchange, "step-", lambda there: there <= most)
    if step is None:
        step = max(1, min(most, math.ceil(n / sum(executor.machines().values()))))
        exchange.write(f"step-{step}", [b""])
    return step


def _search_groups(
    executor: "DaskWorkers", change: Change, groups: list[Span], blocks: list[Span], k: int, exchange: ExchangeDir
) -> Iterator[tuple[Span, tuple[IntArray, FloatArray]]]:
    """Yield the `k` nearest of each group of regions that are searched for, as soon as all its tiles are done."""
    tiles = list(itertools.product(range(len(groups)), range(len(blocks))))
    names = [f"found-{group}-{block}.npy" for group, block in tiles]
    threads = executor.threads(len(tiles))
    calls = [
        (search_tile, change, groups[group], blocks[block], min(k, _size(blocks[block])), cores, exchange, name)
        for (group, block), cores, name in zip(tiles, threads, names, strict=True)
    ]
    left = [len(blocks)] * len(groups)
    for place in run_missing(executor, exchange, calls):
        group = tiles[place][0]
        left[group] -= 1
        if not left[group]:
            yield groups[group], _merge(exchange, [f"found-{group}-{block}.npy" for block in range(len(blocks))], k)


def _merge(exchange: ExchangeDir, names: list[str], k: int) -> tuple[IntArray, FloatArray]:
    """Return the best of what several tasks found: of equals the lower id is first."""
    ids = similarities = None
    for name in names:
        block_ids, block_similarities = read_lists(exchange, name)
        if ids is not None and similarities is not None:
            block_ids = np.concatenate([ids, block_ids], axis=1)
            block_similarities = np.concatenate([similarities, block_similarities], axis=1)
        best = np.argsort(-block_similarities, axis=1, kind="stable")[:, :k]  # blocks come in the order of their ids
        ids = np.take_along_axis(block_ids, best, axis=1)
        similarities = np.take_along_axis(block_similarities, best, axis=1)
    assert ids is not None and similarities is not None  # noqa: S101, PT018 (there is at least one block)
    return ids, similarities


def _spans(n: int, step: int) -> list[Span]:
    return [(start, min(start + step, n)) for start in range(0, n, step)]


def _size(span: Span) -> int:
    return span[1] - span[0]

"""The affinity of mutual neighbours by tasks, each with the lists of one block of regions (eq. 1, 2, 5, 6).

An edge joins regions that list each other. `transpose_lists` writes the lists of a block, sorted by the listed region,
so that a task reads at one place of each file who lists its own regions. `intersect_block` keeps the mutual ones, and
writes their affinities and the degrees. `normalise_blocks` puts the blocks together and divides by the degrees: it
reads and writes each entry once, and holds the degrees.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from manifind.distributed.exchange import ArrayFile, ExchangeDir, npy_files
from manifind.distributed.tasks import file_task
from manifind.kernels import kernel
from manifind.remote.row_format import Numbers
from manifind.storage import disk
from manifind.types import FloatArray

Pairs = tuple[Numbers, FloatArray]
"""Pairs of regions as one number each, ascending, and their similarities."""


class Lists(NamedTuple):
    """Neighbour lists in two files, of which the first k of each count."""

    ids: ArrayFile
    similarities: ArrayFile
    k: int

    @property
    def n(self) -> int:
        """How many regions there are."""
        return self.ids.shape[0]

    def of(self, start: int, end: int) -> tuple[Numbers, Numbers, FloatArray]:
        """Return all pairs of regions that some regions list: who, whom, and how similar they are."""
        ids, similarities = (file[start:end][:, : self.k] for file in (self.ids, self.similarities))
        rows = np.broadcast_to(np.arange(start, end)[:, None], ids.shape)
        kept = (ids >= 0) & (ids != rows) & (similarities > 0)
        return rows[kept], ids[kept].astype(np.int64), np.asarray(similarities[kept])


@file_task
def transpose_lists(lists: Lists, start: int, end: int) -> Iterable[disk.Bytes]:
    """Return the pairs of a block sorted by the listed region."""
    who, whom, similarities = lists.of(start, end)
    order = np.argsort(whom, kind="stable")
    transposed = np.stack([whom[order], who[order], similarities[order].view(np.int32)])
    return disk.npy(transposed.astype(np.int32))


@file_task
def intersect_block(
    lists: Lists, start: int, end: int, exchange: ExchangeDir, transposed: Sequence[str], gamma: float
) -> Iterable[disk.Bytes]:
    """Return the affinities of a block of regions, row by row with ascending columns, and the sums of the rows."""
    n = lists.n
    who, whom, similarities = lists.of(start, end)
    outgoing = _least_similarity((who - start) * n + whom, similarities)
    keys, listed = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    for name in transposed:
        pairs = exchange.array(name)
        first, last = np.searchsorted(pairs[0], [start, end])
        part = pairs[:, first:last].astype(np.int32)
        keys.append((part[0].astype(np.int64) - start) * n + part[1])
        listed.append(np.ascontiguousarray(part[2]).view(np.float32))
    incoming = _least_similarity(np.concatenate(keys), np.concatenate(listed))
    both, a, b = np.intersect1d(outgoing[0], incoming[0], assume_unique=True, return_indices=True)
    values = kernel(np.minimum(outgoing[1][a], incoming[1][b]), gamma)
    both, values = both[values > 0], values[values > 0]
    rows = both // n
    counts = np.bincount(rows, minlength=end - start).astype(np.int64)
    degrees = np.bincount(rows, weights=values, minlength=end - start)
    return npy_files(counts, (both % n).astype(np.int32), values, degrees)


def _least_similarity(keys: Numbers, similarities: FloatArray) -> Pairs:
    """Return pairs in order; of one that is there several times, the least similarity counts."""
    if not len(keys):
        return keys, similarities
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.minimum.reduceat(similarities[order], first)


def normalise_blocks(
    exchange: ExchangeDir, names: Sequence[str], n: int, folder: Path
) -> tuple[sp.csr_array, FloatArray]:
    """Return S and the degrees from the blocks of `intersect_block`; the entries lie in files of the folder."""
    counts, degrees = (np.concatenate([exchange.arrays(name, 4)[place] for name in names]) for place in (0, 3))
    ends = np.concatenate([[0], np.cumsum(counts)])
    total = int(ends[-1])
    columns = disk.scratch(folder / "columns", np.int32, (total,)) if total else np.empty(0, np.int32)
    values = disk.scratch(folder / "values", np.float32, (total,)) if total else np.empty(0, np.float32)
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(n), where=degrees > 0)
    row = 0
    for name in names:
        own_counts, own_columns, own_values, _ = exchange.arrays(name, 4)
        rows = slice(row, row + len(own_counts))
        entries = slice(int(ends[row]), int(ends[row + len(own_counts)]))
        columns[entries] = own_columns
        values[entries] = own_values * (np.repeat(scale[rows], own_counts) * scale[own_columns])
        row += len(own_counts)
    starts = ends.astype(np.int32 if total <= np.iinfo(np.int32).max else np.int64)
    S = sp.csr_array((values, columns, starts), shape=(n, n))
    S.has_canonical_format = True
    return S, degrees.astype(np.float32)

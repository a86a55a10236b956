"""The affinity of mutual neighbours by tasks, each of which holds the lists of one block of regions (eq. 1, 2, 5, 6).

An edge is between regions that list each other. `turned_round` writes the lists of a block by whom they list, so that a
task finds at one place of each such file who lists its own regions. `joined` keeps those that its regions list in their
turn, and writes their affinities with the degrees. `normalised` puts the blocks together and divides by the degrees: it
reads and writes each entry once, and holds the degrees.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from manifind.cluster.packing import Numbers
from manifind.cluster.shards import Plain, Shards
from manifind.kernels import kernel
from manifind.storage import disk
from manifind.types import FloatArray

Pairs = tuple[Numbers, FloatArray]
"""Pairs of regions as one number each, ascending, and their similarities."""


class Lists(NamedTuple):
    """Neighbour lists in two files, of which the first k of each count."""

    ids: Plain
    similarities: Plain
    k: int

    @property
    def n(self) -> int:
        """How many regions there are."""
        return self.ids.shape[0]

    def of(self, start: int, end: int) -> tuple[Numbers, Numbers, FloatArray]:
        """Return all pairs of regions that some regions list: who, whom, and how similar they are."""
        ids, similarities = (file[start:end][:, : self.k] for file in (self.ids, self.similarities))
        own = np.broadcast_to(np.arange(start, end)[:, None], ids.shape)
        kept = (ids >= 0) & (ids != own) & (similarities > 0)
        return own[kept], ids[kept].astype(np.int64), np.asarray(similarities[kept])


def turned_round(lists: Lists, start: int, end: int, shards: Shards, name: str) -> bool:
    """Write who of a block lists whom, in the order of those who are listed; say whether it was done."""
    if shards.exists(name):
        return False
    who, whom, similarities = lists.of(start, end)
    order = np.argsort(whom, kind="stable")
    turned = np.stack([whom[order], who[order], similarities[order].view(np.int32)])
    shards.write(name, disk.npy(turned.astype(np.int32)))
    return True


def joined(lists: Lists, start: int, end: int, turned: Sequence[str], gamma: float, shards: Shards, name: str) -> bool:
    """Write the affinities of a block of regions, row by row with ascending columns, and the sums of the rows."""
    if shards.exists(name):
        return False
    n = lists.n
    who, whom, similarities = lists.of(start, end)
    listing = _least((who - start) * n + whom, similarities)
    keys, found = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    for one in turned:
        there = shards.array(one)
        first, last = np.searchsorted(there[0], [start, end])
        part = there[:, first:last].astype(np.int32)
        keys.append((part[0].astype(np.int64) - start) * n + part[1])
        found.append(np.ascontiguousarray(part[2]).view(np.float32))
    listed = _least(np.concatenate(keys), np.concatenate(found))
    both, a, b = np.intersect1d(listing[0], listed[0], assume_unique=True, return_indices=True)
    values = kernel(np.minimum(listing[1][a], listed[1][b]), gamma)
    both, values = both[values > 0], values[values > 0]
    rows = both // n
    counts = np.bincount(rows, minlength=end - start).astype(np.int64)
    degrees = np.bincount(rows, weights=values, minlength=end - start)
    shards.write_arrays(name, (counts, (both % n).astype(np.int32), values, degrees))
    return True


def _least(keys: Numbers, similarities: FloatArray) -> Pairs:
    """Return pairs in order; of one that is there several times, the least similarity counts."""
    if not len(keys):
        return keys, similarities
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.minimum.reduceat(similarities[order], first)


def normalised(shards: Shards, names: Sequence[str], n: int, folder: Path) -> tuple[sp.csr_array, FloatArray]:
    """Return S and the degrees from what `joined` wrote of all blocks; the entries lie in files of the folder."""
    counts, degrees = (np.concatenate([shards.arrays(name, 4)[place] for name in names]) for place in (0, 3))
    ends = np.concatenate([[0], np.cumsum(counts)])
    total = int(ends[-1])
    columns = disk.scratch(folder / "columns", np.int32, (total,)) if total else np.empty(0, np.int32)
    values = disk.scratch(folder / "values", np.float32, (total,)) if total else np.empty(0, np.float32)
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(n), where=degrees > 0)
    row = 0
    for name in names:
        own_counts, own_columns, own_values, _ = shards.arrays(name, 4)
        rows = slice(row, row + len(own_counts))
        entries = slice(int(ends[row]), int(ends[row + len(own_counts)]))
        columns[entries] = own_columns
        values[entries] = own_values * (np.repeat(scale[rows], own_counts) * scale[own_columns])
        row += len(own_counts)
    starts = ends.astype(np.int32 if total <= np.iinfo(np.int32).max else np.int64)
    S = sp.csr_array((values, columns, starts), shape=(n, n))
    S.has_canonical_format = True
    return S, degrees.astype(np.float32)

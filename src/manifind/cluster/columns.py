"""Off-line columns (`manifind.diffusion.offline`) by tasks, each of which holds the part of S around some regions.

S and the lists that say what is near lie in files that all tasks read. A task takes the rows and columns of S of all
regions around its own, solves there for the columns of its own, and writes them. What it writes is what one process
comes to, to the bit: a column does not depend on what else S has.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind import kernels
from manifind.cluster.running import Running
from manifind.cluster.shards import ROWS, Plain, Shards, begun, digest_of
from manifind.diffusion.offline import Columns, around, solve
from manifind.storage import disk
from manifind.types import IntArray, Progress

MOST = 4096
"""Columns that a task solves for at most."""
ENTRY_BYTES, REGION_BYTES = 24, 48
"""What a task takes for an entry of S while it reads it, and for a region around one of its own."""


class Graph(NamedTuple):
    """S in three files."""

    starts: Plain
    columns: Plain
    values: Plain

    def among(self, rows: npt.NDArray[np.int32]) -> sp.csr_array:
        """Return the rows and columns of S of some ascending regions."""
        counts, columns, values = [], [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for block in np.split(rows, np.flatnonzero(np.diff(rows // ROWS)) + 1):
            first, end = int(block[0]), int(block[-1]) + 1
            starts = self.starts[first : end + 1][:, 0]
            at, own = starts[block - first], np.diff(starts)[block - first]
            entries = np.repeat(at - starts[0] - np.cumsum(own) + own, own) + np.arange(own.sum())
            whom, value = (part[int(starts[0]) : int(starts[-1])][:, 0][entries] for part in self[1:])
            places = np.minimum(np.searchsorted(rows, whom), len(rows) - 1)
            kept = rows[places] == whom
            counts.append(np.bincount(np.repeat(np.arange(len(block)), own)[kept], minlength=len(block)))
            columns.append(places[kept])
            values.append(value[kept])
        ends = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        return sp.csr_array((np.concatenate(values), np.concatenate(columns), ends), shape=(len(rows),) * 2)


class How(NamedTuple):
    """The parameters of the solution."""

    size: int
    alpha: float
    max_iter: int
    tol: float


def solve_columns(
    graph: Graph, others: Plain, start: int, end: int, how: How, threads: int, shards: Shards, name: str
) -> bool:
    """Solve for the columns of a block of regions into a file: ids and values; say whether it was done."""
    if shards.exists(name):
        return False
    kernels.set_threads(threads)
    own = np.arange(start, end, dtype=np.int32)
    near = around(own, others[start:end], how.size)
    held = np.unique(near)
    place = np.searchsorted(held, near).astype(np.int32), np.searchsorted(held, own).astype(np.int32)
    values = solve(graph.among(held), *place, alpha=how.alpha, max_iter=how.max_iter, tol=how.tol)
    shards.write(name, disk.npy(np.stack([near, values.view(np.int32)])))
    return True


def columns_by(
    by: Running, S: sp.csr_array, others: IntArray, how: How, shards: Shards, folder: Path, progress: Progress | None
) -> Columns:
    """Let tasks solve for the columns of all regions, and lay them into two files of a folder.

    Parameters
    ----------
    by
        Who runs the tasks.
    S, others
        The graph, and the nearest others of each region, best first: at least ``how.size - 1``.
    how
        The parameters of the solution.
    shards
        Where files are exchanged. Columns that an earlier driver had solved for are found there, and what is there is
        removed when all are laid out.
    folder, progress
        Where the files are made, and what is called with the columns done and the columns in all.
    """
    n = S.shape[0]
    others = others[:, : how.size - 1]
    name = f"columns-{digest_of(S.indptr, S.indices, S.data, others)}-{'-'.join(map(str, how))}-"
    most = by.memory() / (how.size * (ENTRY_BYTES * max(1.0, S.nnz / n) + REGION_BYTES))
    step = begun(shards, name, lambda there: there <= max(1, most)) or max(1, min(MOST, int(most)))
    own = shards.within(f"{name}{step}")
    own.make()
    graph = Graph(
        Plain.brought(S.indptr.astype(np.int64)[:, None], "starts", own),
        Plain.brought(S.indices[:, None], "columns", own),
        Plain.brought(S.data[:, None], "values", own),
    )
    lists = Plain.brought(others, "others", own)
    blocks = [(start, min(start + step, n)) for start in range(0, n, step)]
    names = [f"block-{start}.npy" for start, _ in blocks]
    there = set(own.names())
    missing = [(*block, name) for block, name in zip(blocks, names, strict=True) if name not in there]
    calls = [
        (solve_columns, graph, lists, start, end, how, threads, own, name)
        for (start, end, name), threads in zip(missing, by.threads(len(missing)), strict=True)
    ]
    done = n - sum(end - start for start, end, _ in missing)
    for place in by.run(calls):
        done += missing[place][1] - missing[place][0]
        if progress is not None:
            progress(done, n)
    ids = disk.scratch(folder / "columns.i32", np.int32, (n, how.size))
    values = disk.scratch(folder / "columns.f32", np.float32, (n, how.size))
    for (start, end), name in zip(blocks, names, strict=True):
        found = own.array(name)
        ids[start:end], values[start:end] = found[0], np.ascontiguousarray(found[1]).view(np.float32)
    own.clear()
    return Columns(ids, values)

"""Diffusion decoupled: a column of the inverse for each region off line, a weighted sum of a few columns on line.

The solution f = (1 − α)(I − αS)^−1 y is a sum of columns of the inverse, one for each non-zero entry of y. They do not
depend on the query. `columns` solves for each of them on the part of the graph around its region, its `size` nearest
regions, with S as the whole graph normalised it (late truncation); everything else in the column counts as zero.
`combine` adds up the columns that a query's neighbours ask for.

Off line it costs n small systems and, for parts larger than the neighbour lists, another search for neighbours; what is
kept is 8 · n · size bytes. On line it costs query_k columns of `size` entries, and no product with S.

References
----------
Yang, Hinami, Matsui, Ly, Satoh: Efficient Image Retrieval via Decoupling Diffusion into Online and Offline Processing.
AAAI 2019. The size of 1,000, 20 iterations of conjugate gradient and late truncation are theirs.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion import Seed
from manifind.kernels import VectorSet, as_vector_set, thread_count
from manifind.kernels.cpu.block_cg import conjugate_gradient_of
from manifind.types import FloatArray, IntArray, Progress, Vectors

BLOCK_BYTES = 2**26
"""About how much the systems that are solved together take, for each thread."""

REPORTED = 4096
"""Columns that are solved for between two calls of `progress`."""

DoubleArray = npt.NDArray[np.float64]


class Columns(NamedTuple):
    """Columns of (1 − α)(I − αS)^−1, one for each region, as far as they were solved for."""

    ids: IntArray
    """(n, size): the regions of each column that were solved for, ascending."""
    values: FloatArray
    """(n, size): the scores of these regions; all others count as zero."""


def columns(
    S: sp.csr_array,
    vectors: Vectors | VectorSet,
    neighbours: IntArray,
    *,
    alpha: float = 0.99,
    size: int = 1000,
    max_iter: int = 20,
    tol: float = 1e-6,
    progress: Progress | None = None,
) -> Columns:
    """Return column i of (1 − α)(I − αS)^−1 for each region i, as far as it was solved for.

    Parameters
    ----------
    S : (n, n) CSR, float32
    vectors : (n, d) float32 or float16, or VectorSet
        The regions' descriptors, which say what is near.
    neighbours : (n, k) int32
        The nearest others of each region, best first, which say it too where `size` is not above k + 1.
    size : int
        Regions of each part, the region itself among them; n truncates nothing.
    alpha, max_iter, tol
        As in `diffuse`.
    progress : callable, optional
        Called with the columns done and the columns in all.
    """
    n, rows = S.shape[0], as_vector_set(vectors)
    size = min(size, n)
    others = neighbours if size <= neighbours.shape[1] + 1 else rows.self_join(size - 1)[0]
    ids, values = np.empty((n, size), np.int32), np.empty((n, size), np.float32)
    for start in range(0, n, REPORTED):
        block = slice(start, start + REPORTED)
        regions = np.arange(n, dtype=np.int32)[block]
        ids[block] = around(regions, others[block], size)
        values[block] = solve(S, ids[block], regions, alpha=alpha, max_iter=max_iter, tol=tol)
        if progress is not None:
            progress(min(start + REPORTED, n), n)
    return Columns(ids, values)


def combine(solved: Columns, seeds: Sequence[Seed]) -> FloatArray:
    """Return the scores (n, b) of queries that put these seeds on the graph."""
    scores = np.empty((len(solved.ids), len(seeds)), np.float32)
    for column, seed in enumerate(seeds):
        weighed = solved.values[seed.regions] * seed.values[:, None].astype(np.float64)
        scores[:, column] = np.bincount(solved.ids[seed.regions].ravel(), weighed.ravel(), minlength=len(scores))
    return scores


def around(regions: IntArray, others: IntArray, size: int) -> IntArray:
    """Return the `size` regions of the part of each region, ascending: itself, and the first of the others it lists."""
    near = np.concatenate([regions[:, None], others[:, : size - 1]], axis=1)
    near.sort(axis=1)
    return near


def solve(S: sp.csr_array, near: IntArray, regions: IntArray, *, alpha: float, max_iter: int, tol: float) -> FloatArray:
    """Return the column of each region on the regions (b, size) around it, (b, size).

    What a column comes to does not depend on the columns beside it, nor on what else S has.
    """
    count, size = near.shape
    step = max(1, int(BLOCK_BYTES // (size * (12 * max(1.0, S.nnz / S.shape[0]) + 48))))
    values = np.empty(near.shape, np.float32)

    def solve_batch(start: int) -> None:
        block = slice(start, start + step)
        at = (near[block] == regions[block, None]).argmax(axis=1)
        values[block] = _solve(_parts(S, near[block]), at, size, alpha, max_iter, tol)

    with ThreadPoolExecutor(thread_count()) as pool:
        for _ in pool.map(solve_batch, range(0, count, step)):
            pass
    return values


def _parts(S: sp.csr_array, near: IntArray) -> sp.csr_array:
    """Return the parts of S on the regions (b, size) of each row, as one block-diagonal matrix."""
    count, size = near.shape
    place = np.full(S.shape[0], -1, np.int32)
    rows, inside, before = [], [], 0
    for part in near:
        part_rows = S[part]
        place[part] = np.arange(before, before + size, dtype=np.int32)
        inside.append(place[part_rows.indices])
        rows.append(part_rows)
        place[part] = -1
        before += size
    places = np.concatenate(inside)
    keep = places >= 0
    kept = np.concatenate([[0], np.cumsum(keep)])
    ends = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part_rows.indptr) for part_rows in rows]))])
    data = np.concatenate([part_rows.data for part_rows in rows])[keep].astype(np.float64)
    return sp.csr_array((data, places[keep], kept[ends]), shape=(count * size,) * 2)


def _solve(
    parts: sp.csr_array, at: npt.NDArray[np.intp], size: int, alpha: float, max_iter: int, tol: float
) -> DoubleArray:
    """Solve by conjugate gradient in each part for a y that is one at its place `at`; (b, size)."""
    b = np.zeros((len(at), size))
    b[np.arange(len(at)), at] = 1 - alpha

    def multiply(p: DoubleArray) -> DoubleArray:
        product: DoubleArray = p - alpha * (parts @ p.ravel()).reshape(p.shape)
        return product

    return conjugate_gradient_of(multiply, b, max_iter, (tol * (1 - alpha)) ** 2, axis=1)

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

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion.seeding import Seed
from manifind.kernels import Rows, as_rows, thread_count
from manifind.types import FloatArray, IntArray, Progress, Vectors

BLOCK_BYTES = 2**26
"""About how much the systems that are solved together take, for each thread."""

SEARCHED = 4096
"""Regions whose surroundings are searched for together, as in the exact search for neighbours."""

DoubleArray = npt.NDArray[np.float64]


def columns(
    S: sp.csr_array,
    vectors: Vectors | Rows,
    neighbours: IntArray,
    *,
    alpha: float = 0.99,
    size: int = 1000,
    max_iter: int = 20,
    tol: float = 1e-6,
    progress: Progress | None = None,
) -> sp.csr_array:
    """Return the (n, n) matrix whose row i is column i of (1 − α)(I − αS)^−1, as far as it was solved for.

    Parameters
    ----------
    S : (n, n) CSR, float32
    vectors : (n, d) float32 or float16, or Rows
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
    n, regions = S.shape[0], as_rows(vectors)
    size = min(size, n)
    ids = np.empty((n, size), np.int32)
    values = np.empty((n, size), np.float32)
    step = max(1, int(BLOCK_BYTES // (size * (12 * max(1.0, S.nnz / n) + 48))))

    def solve(start: int) -> None:
        block = slice(start, start + step)
        at = (ids[block] == np.arange(n)[block, None]).argmax(axis=1)
        values[block] = _solve(_parts(S, ids[block]), at, size, alpha, max_iter, tol)

    rows = step * max(1, SEARCHED // step)
    with ThreadPoolExecutor(thread_count()) as pool:
        for start in range(0, n, rows):
            end = min(start + rows, n)
            ids[start:end] = _around(regions, np.arange(start, end, dtype=np.int32), size, neighbours)
            for _ in pool.map(solve, range(start, end, step)):
                pass
            if progress is not None:
                progress(end, n)
    return sp.csr_array((values.ravel(), ids.ravel(), np.arange(0, n * size + 1, size)), shape=(n, n))


def combine(solved: sp.csr_array, seeds: Sequence[Seed]) -> FloatArray:
    """Return the scores (n, b) of queries that put these seeds on the graph."""
    ends = np.cumsum([0] + [len(seed.regions) for seed in seeds])
    y = sp.csr_array(
        (np.concatenate([seed.values for seed in seeds]), np.concatenate([seed.regions for seed in seeds]), ends),
        shape=(len(seeds), solved.shape[0]),
    )
    scores: FloatArray = (y @ solved).toarray().T
    return scores


def _around(rows: Rows, own: IntArray, size: int, neighbours: IntArray) -> IntArray:
    """Return the `size` regions nearest to each, ascending, itself among them even where it has more equals."""
    if size <= neighbours.shape[1] + 1:
        near = np.concatenate([own[:, None], neighbours[own, : size - 1]], axis=1)
    else:
        near, _ = rows.nearest(rows.take(own), size)
        absent = ~(near == own[:, None]).any(axis=1)
        near[absent, -1] = own[absent]
    near.sort(axis=1)
    return near


def _parts(S: sp.csr_array, near: IntArray) -> sp.csr_array:
    """Return the parts of S on the regions (b, size) of each row, as one block-diagonal matrix."""
    count, size = near.shape
    place = np.full(S.shape[0], -1, np.int32)
    rows, inside, before = [], [], 0
    for part in near:
        own = S[part]
        place[part] = np.arange(before, before + size, dtype=np.int32)
        inside.append(place[own.indices])
        rows.append(own)
        place[part] = -1
        before += size
    places = np.concatenate(inside)
    keep = places >= 0
    kept = np.concatenate([[0], np.cumsum(keep)])
    ends = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(own.indptr) for own in rows]))])
    data = np.concatenate([own.data for own in rows])[keep].astype(np.float64)
    return sp.csr_array((data, places[keep], kept[ends]), shape=(count * size,) * 2)


def _solve(
    parts: sp.csr_array, at: npt.NDArray[np.intp], size: int, alpha: float, max_iter: int, tol: float
) -> DoubleArray:
    """Solve by conjugate gradient in each part for a y that is one at its place `at`; (b, size)."""
    each = np.arange(len(at))
    r = np.zeros((len(at), size))
    r[each, at] = 1 - alpha
    x, p = np.zeros_like(r), r.copy()
    rr = np.einsum("ij,ij->i", r, r)
    enough = (tol * (1 - alpha)) ** 2
    for _ in range(max_iter):
        going = rr > enough
        if not going.any():
            break
        along = p - alpha * (parts @ p.ravel()).reshape(p.shape)
        step = np.divide(rr, np.einsum("ij,ij->i", p, along), out=np.zeros_like(rr), where=going)[:, None]
        x += step * p
        r -= step * along
        before, rr = rr, np.einsum("ij,ij->i", r, r)
        p = r + np.divide(rr, before, out=np.zeros_like(rr), where=going)[:, None] * p
    return x

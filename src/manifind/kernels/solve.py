"""Solve (I − αS) f = (1 − α) y for many y in one pass over S (eq. 4, 17).

Every column keeps its own step sizes and stops on its own; the product with S, which is the cost, is shared. A column's
answer depends on the others only through rounding.

Conjugate gradient on a large graph runs in the compiled core: one column in float32, many with directions rounded to
bfloat16 before they are multiplied (``core/solve.cpp`` says why the residual stays true). Small graphs, and all where
there is no core, are solved here: columns are cut into blocks narrow enough for the cache and the memory bound, and the
blocks are shared among the threads.

The relative residual ‖b − (I − αS) f‖ / ‖b‖, with b = (1 − α) y, is what both solvers report and stop on.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels import native
from manifind.kernels.threads import thread_count
from manifind.types import FloatArray, IntArray

WIDEST_BLOCK = 32
BLOCK_BYTES = 2**26
"""A block's (n, columns) array stays below this; a solver holds five such arrays for each thread."""

SMALL = 2**14
"""Graphs of up to this many regions are solved in float64, which costs nothing there. On a graph of a few hundred
regions, 20 steps of conjugate gradient nearly exhaust the Krylov space, and rounding in float32 was seen to grow to
0.5 % of the scores; on one of 106,887 it stays at 2e-6."""

FLOOR = 1e-10
"""Relative residual at which a column stops whatever `tol` says: in float32 it cannot be told from zero."""

TILE = 2**16
"""Entries of a block that the vector updates of conjugate gradient handle at a time, while they are in cache."""

Floats = npt.NDArray[Any]  # float32 or float64, as S is


class Solution(NamedTuple):
    """Scores and what the solver reached, by column."""

    scores: FloatArray
    """f, (n, b) float32."""
    iterations: IntArray
    """Products with S that were spent, (b,)."""
    residuals: FloatArray
    """Relative residual that was reached, (b,)."""
    regions: IntArray | None = None
    """Regions that were solved for one by one, (b,); None is all."""


def conjugate_gradient(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """Solve by conjugate gradient from f = 0 until `max_iter` or a relative residual of `tol` (Sec. 4.3)."""
    if native.core is not None and S.shape[0] > SMALL:
        return _in_core(S, y, alpha, max_iter, tol)
    return _by_blocks(_conjugate_gradient, S, y, alpha, max_iter, tol)


def iterate(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """Solve by f ← αSf + (1 − α)y from f = 0, which is Jacobi's method (eq. 3, 16)."""
    return _by_blocks(_iterate, S, y, alpha, max_iter, tol)


def _in_core(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    columns = y.shape[1]
    matrix, order = native.prepared(S).for_columns(columns)
    right = np.ascontiguousarray(y, np.float32)
    solution = Solution(np.empty(y.shape, np.float32), np.empty(columns, np.int32), np.empty(columns, np.float32))
    native.core.solve(matrix, order, right, alpha, max_iter, tol, thread_count(), *solution[:3])
    return solution


def _by_blocks(
    solver: Callable[[sp.csr_array, Floats, float, int, float], Solution],
    S: sp.csr_array,
    y: FloatArray,
    alpha: float,
    max_iter: int,
    tol: float,
) -> Solution:
    n, columns = y.shape
    if n <= SMALL:
        S = S.astype(np.float64)
    b = np.multiply(y, 1 - alpha, dtype=S.dtype, order="C")
    threads = thread_count()
    width = min(WIDEST_BLOCK, max(1, BLOCK_BYTES // (S.dtype.itemsize * n)), max(1, -(-columns // threads)))
    blocks = [b[:, start : start + width] for start in range(0, columns, width)]
    if len(blocks) == 1:
        return solver(S, b, alpha, max_iter, tol)
    with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
        parts = list(pool.map(lambda block: solver(S, block, alpha, max_iter, tol), blocks))
    return Solution(
        np.concatenate([part.scores for part in parts], axis=1),
        np.concatenate([part.iterations for part in parts]),
        np.concatenate([part.residuals for part in parts]),
    )


def _conjugate_gradient(S: sp.csr_array, b: Floats, alpha: float, max_iter: int, tol: float) -> Solution:
    reached = _Reached(b)
    f = np.zeros(b.shape, np.float32)
    live = np.flatnonzero(reached.norms > 0)
    r = b[:, live]
    p = r.copy()
    x = np.zeros_like(r)
    rr = reached.norms[live] ** 2
    for iteration in range(1, max_iter + 1):
        if not len(live):
            break
        along = _sparse_product(S, p) if iteration == 1 else _product(S, p)
        curvature = _complete(along, p, alpha)
        rr_before, rr = rr, _descend(x, r, p, along, rr / curvature)
        reached.note(live, iteration, np.sqrt(rr))
        turn = rr / rr_before
        done = reached.residuals[live] <= max(tol, FLOOR)
        if done.any():
            f[:, live[done]] = x[:, done]
            live, turn, rr = live[~done], turn[~done], rr[~done]
            x, r, p = x[:, ~done], r[:, ~done], p[:, ~done]
        p *= turn.astype(p.dtype)
        p += r
    f[:, live] = x
    return Solution(f, reached.iterations, reached.residuals)


def _iterate(S: sp.csr_array, b: Floats, alpha: float, max_iter: int, tol: float) -> Solution:
    reached = _Reached(b)
    f = np.zeros(b.shape, np.float32)
    live = np.flatnonzero(reached.norms > 0)
    b = b[:, live]
    x = b.copy()  # the first step from f = 0, which needs no product
    for iteration in range(1, max_iter + 1):
        if not len(live):
            break
        following = _product(S, x)
        following *= following.dtype.type(alpha)
        following += b
        x -= following  # minus the residual of x
        reached.note(live, iteration, np.sqrt(_dots(x, x)))
        x = following
        done = reached.residuals[live] <= max(tol, FLOOR)
        if done.any():
            f[:, live[done]] = x[:, done]
            live, x, b = live[~done], x[:, ~done], b[:, ~done]
    f[:, live] = x
    return Solution(f, reached.iterations, reached.residuals)


class _Reached:
    """How far each column of a block has come."""

    def __init__(self, b: Floats) -> None:
        self.norms = np.sqrt(_dots(b, b))
        self.iterations = np.zeros(b.shape[1], np.int32)
        self.residuals = np.where(self.norms > 0, 1, 0).astype(np.float32)

    def note(self, live: npt.NDArray[np.intp], iteration: int, norms: npt.NDArray[np.float64]) -> None:
        self.iterations[live] = iteration
        self.residuals[live] = norms / self.norms[live]


def _product(S: sp.csr_array, x: Floats) -> Floats:
    """Return Sx; SciPy has a faster loop for a single column than for a block of one."""
    product: Floats = (S @ x[:, 0])[:, None] if x.shape[1] == 1 else S @ x
    return product


def _sparse_product(S: sp.csr_array, x: Floats) -> Floats:
    """Return Sx for an x of few non-zero rows, as y has: only the rows of S that these meet are touched.

    S is symmetric, so its columns are its rows.
    """
    rows = np.flatnonzero(x.any(axis=1))
    if 4 * len(rows) > len(x):
        return _product(S, x)
    product: Floats = S[rows].T @ x[rows]
    return product


def _tiles(x: Floats) -> Iterator[slice]:
    rows = max(1, TILE // max(1, x.shape[1]))
    return (slice(start, start + rows) for start in range(0, len(x), rows))


def _dots(x: Floats, z: Floats) -> npt.NDArray[np.float64]:
    """Return the inner product of each column of `x` with that of `z`, added up in float64."""
    total = np.zeros(x.shape[1])
    for tile in _tiles(x):
        total += np.einsum("ij,ij->j", x[tile], z[tile], dtype=np.float64)
    return total


def _complete(along: Floats, p: Floats, alpha: float) -> npt.NDArray[np.float64]:
    """Turn Sp into (I − αS)p, in place, and return pᵀ(I − αS)p by column."""
    total = np.zeros(p.shape[1])
    negative = along.dtype.type(-alpha)
    for tile in _tiles(p):
        part = along[tile]
        part *= negative
        part += p[tile]
        total += np.einsum("ij,ij->j", part, p[tile], dtype=np.float64)
    return total


def _descend(x: Floats, r: Floats, p: Floats, along: Floats, step: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Step along p, in place: x += step·p, r −= step·(I − αS)p, which is spent. Return rᵀr by column."""
    total = np.zeros(x.shape[1])
    forward = step.astype(x.dtype)
    for tile in _tiles(x):
        part, residual = along[tile], r[tile]
        part *= forward
        residual -= part
        total += np.einsum("ij,ij->j", residual, residual, dtype=np.float64)
        np.multiply(p[tile], forward, out=part)
        x[tile] += part
    return total

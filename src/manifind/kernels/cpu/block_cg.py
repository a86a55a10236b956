"""Conjugate gradient in NumPy and SciPy, for many right-hand sides in one pass over S.

Every column keeps its own step sizes and stops on its own; the product with S, which is the cost, is shared. A column's
answer depends on the others only through rounding. Columns are cut into blocks narrow enough for the cache and the
memory bound, and the blocks are shared among the threads.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels.api import FLOAT64_MAX_REGIONS, MIN_RESIDUAL, Solution
from manifind.kernels.threads import thread_count
from manifind.types import FloatArray

MAX_BLOCK_COLUMNS = 32
BLOCK_BYTES = 2**26
"""A block's (n, columns) array stays below this; a solver holds five such arrays for each thread."""

STRIP_COLUMNS = 32
"""Columns that are multiplied together, while they are in cache."""
MAX_SERIAL_PRODUCTS = 2**20
"""Products of two numbers that take less time than threads take to start."""

TILE_ENTRIES = 2**16
"""Entries of a block that the vector updates of conjugate gradient handle at a time, while they are in cache."""

Floats = npt.NDArray[Any]  # float32 or float64, as S is


def conjugate_gradient(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """Solve by conjugate gradient from f = 0 until `max_iter` or a relative residual of `tol` (Sec. 4.3)."""
    n, columns = y.shape
    if n <= FLOAT64_MAX_REGIONS:
        S = S.astype(np.float64)
    b = np.multiply(y, 1 - alpha, dtype=S.dtype, order="C")
    threads = thread_count()
    width = min(MAX_BLOCK_COLUMNS, max(1, BLOCK_BYTES // (S.dtype.itemsize * n)), max(1, -(-columns // threads)))
    blocks = [b[:, start : start + width] for start in range(0, columns, width)]
    if len(blocks) <= 1:
        return _solve_block(S, b, alpha, max_iter, tol)
    with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
        parts = list(pool.map(lambda block: _solve_block(S, block, alpha, max_iter, tol), blocks))
    return Solution(
        np.concatenate([part.scores for part in parts], axis=1),
        np.concatenate([part.iterations for part in parts]),
        np.concatenate([part.residuals for part in parts]),
    )


def _solve_block(S: sp.csr_array, b: Floats, alpha: float, max_iter: int, tol: float) -> Solution:
    convergence = _Convergence(b)
    f = np.zeros(b.shape, np.float32)
    live = np.flatnonzero(convergence.norms > 0)
    r = b[:, live]
    p = r.copy()
    x = np.zeros_like(r)
    rr = convergence.norms[live] ** 2
    for iteration in range(1, max_iter + 1):
        if not len(live):
            break
        Ap = _sparse_product(S, p) if iteration == 1 else _product(S, p)
        curvature = _apply_system(Ap, p, alpha)
        rr_before, rr = rr, _step(x, r, p, Ap, rr / curvature)
        convergence.note(live, iteration, np.sqrt(rr))
        beta = rr / rr_before
        done = convergence.residuals[live] <= max(tol, MIN_RESIDUAL)
        if done.any():
            f[:, live[done]] = x[:, done]
            live, beta, rr = live[~done], beta[~done], rr[~done]
            x, r, p = x[:, ~done], r[:, ~done], p[:, ~done]
        p *= beta.astype(p.dtype)
        p += r
    f[:, live] = x
    return Solution(f, convergence.iterations, convergence.residuals)


def conjugate_gradient_of(
    multiply: Callable[[Floats], Floats], b: Floats, max_iter: int, enough: Any, *, axis: int = 0
) -> Floats:
    """Solve Ax = b for the systems that lie along `axis`, by any A that `multiply` multiplies by.

    A system takes `max_iter` steps, or fewer where its squared residual falls to `enough`.
    """
    x, r, p = np.zeros_like(b), b.copy(), b.copy()
    rr = (r * r).sum(axis=axis, keepdims=True)
    for _ in range(max_iter):
        live = rr > enough
        if not live.any():
            break
        Ap = multiply(p)
        step = np.divide(rr, (p * Ap).sum(axis=axis, keepdims=True), out=np.zeros_like(rr), where=live)
        x += step * p
        r -= step * Ap
        rr_before, rr = rr, (r * r).sum(axis=axis, keepdims=True)
        p = r + np.divide(rr, rr_before, out=np.zeros_like(rr), where=live) * p
    return x


class _Convergence:
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
    rows = max(1, TILE_ENTRIES // max(1, x.shape[1]))
    return (slice(start, start + rows) for start in range(0, len(x), rows))


def _dots(x: Floats, z: Floats) -> npt.NDArray[np.float64]:
    """Return the inner product of each column of `x` with that of `z`, added up in float64."""
    total = np.zeros(x.shape[1])
    for tile in _tiles(x):
        total += np.einsum("ij,ij->j", x[tile], z[tile], dtype=np.float64)
    return total


def _apply_system(Ap: Floats, p: Floats, alpha: float) -> npt.NDArray[np.float64]:
    """Turn Sp into (I − αS)p, in place, and return pᵀ(I − αS)p by column."""
    total = np.zeros(p.shape[1])
    negative = Ap.dtype.type(-alpha)
    for tile in _tiles(p):
        part = Ap[tile]
        part *= negative
        part += p[tile]
        total += np.einsum("ij,ij->j", part, p[tile], dtype=np.float64)
    return total


def _step(x: Floats, r: Floats, p: Floats, Ap: Floats, step: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Step along p, in place: x += step·p, r −= step·(I − αS)p, which is spent. Return rᵀr by column."""
    total = np.zeros(x.shape[1])
    forward = step.astype(x.dtype)
    for tile in _tiles(x):
        part, residual = Ap[tile], r[tile]
        part *= forward
        residual -= part
        total += np.einsum("ij,ij->j", residual, residual, dtype=np.float64)
        np.multiply(p[tile], forward, out=part)
        x[tile] += part
    return total


def multiply(S: sp.csr_array, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return Sx, (n, b), in the precision of x; SciPy has a faster loop for a single column than for a block of one."""
    product = np.empty(x.shape, x.dtype)
    if x.shape[1] == 1:
        product[:, 0] = S @ x[:, 0]
        return product

    def strip(start: int) -> None:
        columns = slice(start, start + STRIP_COLUMNS)
        product[:, columns] = S @ np.ascontiguousarray(x[:, columns])

    starts = range(0, x.shape[1], STRIP_COLUMNS)
    if len(starts) == 1 or S.nnz * x.shape[1] <= MAX_SERIAL_PRODUCTS:
        for start in starts:
            strip(start)
        return product
    with ThreadPoolExecutor(thread_count()) as pool:
        list(pool.map(strip, starts))
    return product

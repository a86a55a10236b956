"""Neighbour lists → the mutual-neighbour affinity A → its symmetric normalisation S.

A keeps an edge only between regions that are in each other's lists (eq. 6), which the paper takes from Donoser and
Bischof for its robustness to noise; S = D^−1/2 A D^−1/2 (eq. 2) has its eigenvalues in [−1, 1], so that I − αS is
positive definite for α < 1. Nothing here is denser than the lists.
"""

from typing import cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind import kernels
from manifind.checks import UNIT_TOLERANCE, real_number
from manifind.errors import InvalidInput
from manifind.graph.neighbours import NOBODY, Neighbours
from manifind.types import FloatArray, IntArray

ROWS = 2**14
"""Rows handled at a time where a temporary of all the lists would be large."""

SLACK = 2 * UNIT_TOLERANCE
"""How far the similarity of a pair in one list may be from that in the other."""


def kernel(similarities: npt.NDArray[np.floating], gamma: float) -> FloatArray:
    """Return max(s, 0)^gamma, the affinity of regions with inner product s."""
    positive: FloatArray = np.maximum(similarities, 0, dtype=np.float32)
    if gamma == 3:  # a general power is forty times as slow
        return positive * positive * positive
    return cast(FloatArray, positive ** np.float32(gamma))


def mutual_affinity(neighbours: Neighbours, gamma: float = 3.0) -> sp.csr_array:
    """Build A from neighbour lists: eq. 1, 5, 6.

    Each pair that is in both lists gets the lesser of its two affinities (they differ by rounding at most), so A is
    symmetric to the bit; its diagonal is zero. Pairs of no positive affinity have no entry.

    Parameters
    ----------
    neighbours : Neighbours
        Ids (n, k) and similarities (n, k), the inner products of the pairs up to a thousandth. The lists may come from
        anywhere, and be longer ones cut short; `NOBODY` stands for no neighbour.
    gamma : float
        Exponent of the kernel.
    """
    gamma = _checked(neighbours, gamma)
    return _in_core(neighbours, gamma)[0] if _fit_for_core(neighbours) else _mutual_affinity(neighbours, gamma)


def normalise(A: sp.csr_array) -> tuple[sp.csr_array, FloatArray]:
    """Return S = D^−1/2 A D^−1/2 (eq. 2) and the degrees D = A1; a region without edges has a zero row.

    S takes over the index arrays of A, and its values too: A is spent.
    """
    degrees = _row_sums(A)
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(len(degrees)), where=degrees > 0)
    _scale_symmetric(A, scale)
    return A, degrees.astype(np.float32)


def normalised_affinity(neighbours: Neighbours, gamma: float = 3.0) -> tuple[sp.csr_array, FloatArray]:
    """Return what `normalise` makes of `mutual_affinity`, S and the degrees, without A in between."""
    gamma = _checked(neighbours, gamma)
    if _fit_for_core(neighbours):
        return _in_core(neighbours, gamma, normalised=True)
    return normalise(_mutual_affinity(neighbours, gamma))


def restrict(S: sp.csr_array, degrees: FloatArray, rows: IntArray) -> sp.csr_array:
    """Keep the given rows and columns of the affinity behind S and normalise anew (Sec. 4.4, truncation).

    Parameters
    ----------
    S, degrees
        As `normalise` returned them.
    rows : (r,) int32, ascending
        Regions to keep; they are numbered by their place here in the result.
    """
    return (kernels.restrict if kernels.compiled() else _restrict)(S, degrees, rows)


def _restrict(S: sp.csr_array, degrees: FloatArray, rows: IntArray) -> sp.csr_array:
    place = np.full(S.shape[0], -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    part = sp.csr_array(S[rows])
    columns = place[part.indices]
    keep = columns >= 0
    kept_before = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
    A = sp.csr_array(
        (part.data[keep], columns[keep], kept_before[part.indptr].astype(part.indptr.dtype)),
        shape=(len(rows),) * 2,
    )
    _scale_symmetric(A, np.sqrt(degrees[rows], dtype=np.float64))
    return normalise(A)[0]


def _checked(neighbours: Neighbours, gamma: float) -> float:
    ids, similarities = neighbours
    if ids.ndim != 2 or ids.shape != similarities.shape:
        raise InvalidInput(f"neighbours has shapes {ids.shape} and {similarities.shape}; give both (n, k).")
    return real_number(gamma, "gamma", above=0)


def _fit_for_core(neighbours: Neighbours) -> bool:
    ids, similarities = neighbours
    return kernels.compiled() and bool(ids.dtype == np.int32 and similarities.dtype == np.float32)


def _in_core(neighbours: Neighbours, gamma: float, *, normalised: bool = False) -> tuple[sp.csr_array, FloatArray]:
    try:
        return kernels.mutual_affinity(*neighbours, gamma, slack=SLACK, normalised=normalised)
    except ValueError:
        _refuse_strangers(neighbours.ids, len(neighbours.ids))
        raise


def _refuse_strangers(ids: IntArray, n: int) -> None:
    if ids.size and (ids.min() < NOBODY or ids.max() >= n):
        raise InvalidInput(
            f"neighbours has ids from {ids.min()} to {ids.max()}; give rows from 0 to {n - 1}, or {NOBODY} for nobody."
        )


def _mutual_affinity(neighbours: Neighbours, gamma: float) -> sp.csr_array:
    """Intersect the two triangles of the lists: the twin of what the core does."""
    n = len(neighbours.ids)
    above = _triangle(neighbours, gamma, upper=True)
    below = _triangle(neighbours, gamma, upper=False)
    mirrored = sp.csr_array(below.T)
    del below
    mutual = sp.csr_array(above.minimum(mirrored))
    del above, mirrored
    mutual.eliminate_zeros()
    A = sp.csr_array(mutual + mutual.T, shape=(n, n))
    A.sort_indices()
    return A


def _triangle(neighbours: Neighbours, gamma: float, *, upper: bool) -> sp.csr_array:
    """Return the affinities on one side of the diagonal of pairs that can be mutual.

    A pair can be mutual only if its similarity reaches the worst in the other's list: dropping the others first
    leaves about half to transpose and to intersect.
    """
    ids, similarities = neighbours
    n = len(ids)
    worst = np.fmin.reduce(similarities, axis=1, initial=np.inf) - similarities.dtype.type(SLACK)
    counts = np.zeros(n + 1, np.int64)
    columns, values = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for start in range(0, n, ROWS):
        block = slice(start, start + ROWS)
        _refuse_strangers(ids[block], n)
        own = np.arange(start, start + len(ids[block]))[:, None]
        side = ids[block] > own if upper else (ids[block] < own) & (ids[block] >= 0)
        keep = side & (similarities[block] >= worst[ids[block]]) & (similarities[block] > 0)
        counts[start + 1 : start + 1 + len(own)] = keep.sum(axis=1)
        columns.append(ids[block][keep].astype(np.int32, copy=False))
        values.append(kernel(similarities[block][keep], gamma))
    indptr = np.cumsum(counts)
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    triangle = sp.csr_array((np.concatenate(values), np.concatenate(columns), indptr), shape=(n, n))
    triangle.sort_indices()
    return _least_of_duplicates(triangle)


def _least_of_duplicates(A: sp.csr_array) -> sp.csr_array:
    """Keep one entry of those that a list had several times; A's columns ascend."""
    first = np.ones(A.nnz, np.bool_)
    first[1:] = A.indices[1:] != A.indices[:-1]
    first[A.indptr[:-1][A.indptr[:-1] < A.nnz]] = True
    again = np.flatnonzero(~first)
    if not len(again):
        return A
    runs = np.flatnonzero(np.diff(again, prepend=-1) > 1)
    heads, ends = again[runs] - 1, np.append(again[runs[1:] - 1], again[-1]) + 1
    bounds = np.stack([heads, ends], axis=1).ravel()
    A.data[heads] = np.minimum.reduceat(A.data, bounds[bounds < A.nnz])[::2]
    starts = A.indptr - np.searchsorted(again, A.indptr).astype(A.indptr.dtype)
    return sp.csr_array((A.data[first], A.indices[first], starts), shape=A.shape)


def _row_sums(A: sp.csr_array) -> npt.NDArray[np.float64]:
    """Add up the rows in float64, which SciPy does in the precision of A whatever it is asked for."""
    sums = np.zeros(A.shape[0])
    filled = np.flatnonzero(np.diff(A.indptr))
    for start in range(0, len(filled), ROWS):
        rows = filled[start : start + ROWS]
        begin = A.indptr[rows[0]]
        entries = A.data[begin : A.indptr[rows[-1] + 1]]
        sums[rows] = np.add.reduceat(entries, A.indptr[rows] - begin, dtype=np.float64)
    return sums


def _scale_symmetric(A: sp.csr_array, scale: npt.NDArray[np.float64]) -> None:
    """Multiply A by diag(scale) from both sides, in place.

    In float64, a block at a time: the error of an entry of S comes back a hundredfold in f where α is 0.99.
    """
    for start in range(0, A.shape[0], ROWS):
        ends = A.indptr[start : start + ROWS + 1]
        entries = slice(ends[0], ends[-1])
        A.data[entries] = A.data[entries] * (
            np.repeat(scale[start : start + ROWS], np.diff(ends)) * scale[A.indices[entries]]
        )

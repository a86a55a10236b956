"""The affinity of mutual neighbours and its restriction, in NumPy and SciPy: nothing here is denser than the lists."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels.api import kernel
from manifind.types import FloatArray, IntArray

ROWS = 2**14
"""How many rows are handled at a time where a temporary array of all lists would be large."""


def mutual_affinity(ids: IntArray, similarities: FloatArray, gamma: float, slack: float) -> sp.csr_array:
    """Build the affinity from the pairs that are in both triangles of the lists: above the diagonal and below it."""
    n = len(ids)
    above = _triangle(ids, similarities, gamma, slack, upper=True)
    below = _triangle(ids, similarities, gamma, slack, upper=False)
    mirrored = sp.csr_array(below.T)
    del below
    mutual = sp.csr_array(above.minimum(mirrored))
    del above, mirrored
    mutual.eliminate_zeros()
    A = sp.csr_array(mutual + mutual.T, shape=(n, n))
    A.sort_indices()
    return A


def normalise(A: sp.csr_array) -> tuple[sp.csr_array, FloatArray]:
    """Return S = D^−1/2 A D^−1/2 (eq. 2) and the degrees D = A1; a region without edges has a zero row.

    S takes over the index arrays of A, and its values too: A is spent.
    """
    degrees = row_sums(A)
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(len(degrees)), where=degrees > 0)
    _scale_symmetric(A, scale)
    return A, degrees.astype(np.float32)


def restrict(S: sp.csr_array, degrees: FloatArray, rows: IntArray) -> tuple[sp.csr_array, FloatArray]:
    """Keep some ascending rows and columns of the affinity behind S, and normalise anew; return the degrees too."""
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
    return normalise(A)


def _triangle(ids: IntArray, similarities: FloatArray, gamma: float, slack: float, *, upper: bool) -> sp.csr_array:
    """Return the affinities on one side of the diagonal of pairs that can be mutual.

    A pair can be mutual only if its similarity reaches the worst in the other's list: dropping the others first
    leaves about half to transpose and to intersect.
    """
    n = len(ids)
    worst = np.fmin.reduce(similarities, axis=1, initial=np.inf) - similarities.dtype.type(slack)
    counts = np.zeros(n + 1, np.int64)
    columns, values = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for start in range(0, n, ROWS):
        block = slice(start, start + ROWS)
        if ids[block].size and (ids[block].min() < -1 or ids[block].max() >= n):
            raise ValueError("ids lead out of the lists")
        rows = np.arange(start, start + len(ids[block]))[:, None]
        side = ids[block] > rows if upper else (ids[block] < rows) & (ids[block] >= 0)
        keep = side & (similarities[block] >= worst[ids[block]]) & (similarities[block] > 0)
        counts[start + 1 : start + 1 + len(rows)] = keep.sum(axis=1)
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


def row_sums(A: sp.csr_array) -> npt.NDArray[np.float64]:
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

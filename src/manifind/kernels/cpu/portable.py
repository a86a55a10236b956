"""The backend without the compiled core: NumPy, SciPy and faiss."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext

import faiss
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels.array_rows import ArrayRows
from manifind.kernels.backend import SCRATCH, Solution
from manifind.kernels.cpu import affinity
from manifind.kernels.cpu.blocks import conjugate_gradient
from manifind.kernels.cpu.products import multiply
from manifind.kernels.threads import thread_count
from manifind.types import FloatArray, IntArray, Vectors

PART_BYTES = 2**25
"""Rows gathered or widened at a time: few enough that they are still in cache when they are multiplied."""

FEWEST_FOR_BLAS = 5
"""Queries from which a matrix product is faster than faiss's own loop, which it prefers for up to hundreds: three times
as fast for the 21 regions of one photo, against 106,887 regions of 512 dimensions."""


class Portable:
    """The processor, by way of NumPy, SciPy and faiss."""

    name = "cpu"

    def rows(self, vectors: Vectors) -> "FaissRows":
        """Return descriptors as faiss searches them."""
        return FaissRows(vectors)

    def system(self, S: sp.csr_array, degrees: FloatArray | None = None) -> "ScipySystem":
        """Return a matrix as SciPy multiplies it."""
        return ScipySystem(S, degrees)

    def affinity(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity of mutual neighbours, or S, and the degrees."""
        A = affinity.mutual_affinity(ids, similarities, gamma, slack)
        if normalised:
            return affinity.normalise(A)
        return A, affinity.row_sums(A).astype(np.float32)


class FaissRows(ArrayRows):
    """Descriptors of regions where they lie; half precision is widened a block at a time."""

    def _held(self) -> str:
        return "searched by faiss"

    def nearest(
        self, queries: FloatArray, k: int, *, among: IntArray | None = None, memory: int = SCRATCH
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query."""
        m, d = queries.shape
        ids, scores = np.empty((m, k), np.int32), np.empty((m, k), np.float32)
        thread_count()  # tells faiss
        step = max(1, memory // (max(1, k) * 12))
        for start in range(0, m if k else 0, step):
            block = slice(start, start + step)
            if among is None and self.vectors.dtype == np.float32:
                scores[block], ids[block] = _search(queries[block], self.vectors, k)
            else:
                parts = self._parts(among, max(k, min(memory, PART_BYTES) // (4 * d)))
                scores[block], ids[block] = _search_parts(queries[block], parts, k)
        return ids, scores

    def _parts(self, among: IntArray | None, step: int) -> Iterator[FloatArray]:
        """Yield `step` rows at a time in float32, of those in `among` or of all."""
        for start in range(0, len(self.vectors if among is None else among), step):
            block = slice(start, start + step)
            yield (self.vectors[block] if among is None else self.vectors[among[block]]).astype(np.float32, copy=False)


class ScipySystem:
    """A symmetric sparse matrix."""

    def __init__(self, S: sp.csr_array, degrees: FloatArray | None = None) -> None:
        self.S = S
        self.degrees = degrees

    def __repr__(self) -> str:
        return f"<system of {self.size:,} regions, {self.S.nnz:,} entries, multiplied by SciPy>"

    @property
    def size(self) -> int:
        """How many regions there are."""
        return int(self.S.shape[0])

    def multiply(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return Sx."""
        return multiply(self.S, x)

    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve by conjugate gradient."""
        return conjugate_gradient(self.S, y, alpha, max_iter, tol)

    def restrict(self, rows: IntArray) -> "ScipySystem":
        """Keep some regions of the affinity, and normalise anew."""
        if self.degrees is None:
            raise ValueError("the system was made without the degrees of its affinity, which restricting takes")
        return ScipySystem(*affinity.restrict(self.S, self.degrees, rows))


class _LoweredThreshold:
    """While any thread is inside, faiss multiplies matrices however few the queries are; then its own limit is back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = faiss.cvar.distance_compute_blas_threshold
                faiss.cvar.distance_compute_blas_threshold = 1
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                faiss.cvar.distance_compute_blas_threshold = self._before


_BLAS = _LoweredThreshold()


def _search(queries: FloatArray, vectors: Vectors, k: int) -> tuple[FloatArray, IntArray]:
    # faiss.knn searches the array where it lies; an IndexFlatIP would first copy it.
    with _BLAS if len(queries) >= FEWEST_FOR_BLAS else nullcontext():
        scores, ids = faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    return scores, ids


def _search_parts(queries: FloatArray, parts: Iterator[FloatArray], k: int) -> tuple[FloatArray, IntArray]:
    scores = np.empty((len(queries), 0), np.float32)
    ids = np.empty((len(queries), 0), np.int32)
    start = 0
    for part in parts:
        part_scores, part_ids = _search(queries, part, min(k, len(part)))
        scores = np.concatenate([scores, part_scores], axis=1)
        ids = np.concatenate([ids, (part_ids + start).astype(np.int32)], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        ids = np.take_along_axis(ids, order, axis=1)
        start += len(part)
    return scores, ids


def make() -> Portable:
    """Return this backend."""
    return Portable()

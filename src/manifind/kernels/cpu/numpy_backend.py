"""The backend without the compiled core: NumPy, SciPy and faiss."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext

import faiss
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels.api import SCRATCH_BYTES, ArrayVectorSet, Backend, Neighbours, Operator, Solution
from manifind.kernels.cpu import affinity
from manifind.kernels.cpu.block_cg import conjugate_gradient, multiply
from manifind.kernels.threads import thread_count
from manifind.kernels.topk import merge_topk
from manifind.types import FloatArray, IntArray, Vectors

BLOCK_BYTES = 2**25
"""Rows gathered or widened at a time: few enough that they are still in cache when they are multiplied."""

MIN_BLAS_QUERIES = 5
"""Queries from which a matrix product is faster than faiss's own loop, which it prefers for up to hundreds: three times
as fast for the 21 regions of one photo, against 106,887 regions of 512 dimensions."""


class NumpyBackend(Backend):
    """The processor, by way of NumPy, SciPy and faiss."""

    name = "cpu"

    def vector_set(self, vectors: Vectors) -> "FaissVectorSet":
        """Return descriptors as faiss searches them."""
        return FaissVectorSet(vectors)

    def operator(
        self,
        S: sp.csr_array,
        degrees: FloatArray | None = None,
        *,
        reorder: bool = True,  # noqa: ARG002 (SciPy takes a matrix as it is)
    ) -> "ScipyOperator":
        """Return a matrix as SciPy multiplies it."""
        return ScipyOperator(S, degrees)

    def mutual_graph(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity of mutual neighbours, or S, and the degrees."""
        A = affinity.mutual_affinity(ids, similarities, gamma, slack)
        if normalised:
            return affinity.normalise(A)
        return A, affinity.row_sums(A).astype(np.float32)


class FaissVectorSet(ArrayVectorSet):
    """Descriptors of regions where they lie; half precision is widened a block at a time."""

    def _describe_storage(self) -> str:
        return "searched by faiss"

    def search(
        self, queries: FloatArray, k: int, *, subset: IntArray | None = None, memory: int = SCRATCH_BYTES
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query."""
        m, d = queries.shape
        ids, scores = np.empty((m, k), np.int32), np.empty((m, k), np.float32)
        thread_count()  # tells faiss
        step = max(1, memory // (max(1, k) * 12))
        for start in range(0, m if k else 0, step):
            block = slice(start, start + step)
            if subset is None and self.vectors.dtype == np.float32:
                scores[block], ids[block] = _search(queries[block], self.vectors, k)
            else:
                parts = self._parts(subset, max(k, min(memory, BLOCK_BYTES) // (4 * d)))
                ids[block], scores[block] = _search_parts(queries[block], parts, k)
        return ids, scores

    def _parts(self, subset: IntArray | None, step: int) -> Iterator[FloatArray]:
        """Yield `step` rows at a time in float32, of those in `subset` or of all."""
        for start in range(0, len(self.vectors if subset is None else subset), step):
            block = slice(start, start + step)
            yield (self.vectors[block] if subset is None else self.vectors[subset[block]]).astype(
                np.float32, copy=False
            )


class ScipyOperator(Operator):
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

    def matmul(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return Sx."""
        return multiply(self.S, x)

    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve by conjugate gradient."""
        return conjugate_gradient(self.S, y, alpha, max_iter, tol)

    def restrict(self, rows: IntArray) -> "ScipyOperator":
        """Keep some regions of the affinity, and normalise anew."""
        if self.degrees is None:
            raise ValueError("the system was made without the degrees of its affinity, which restricting takes")
        return ScipyOperator(*affinity.restrict(self.S, self.degrees, rows))


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
    with _BLAS if len(queries) >= MIN_BLAS_QUERIES else nullcontext():
        scores, ids = faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
    return scores, ids


def _search_parts(queries: FloatArray, parts: Iterator[FloatArray], k: int) -> Neighbours:
    best = Neighbours(np.empty((len(queries), 0), np.int32), np.empty((len(queries), 0), np.float32))
    start = 0
    for part in parts:
        scores, ids = _search(queries, part, min(k, len(part)))
        best = merge_topk(best, Neighbours((ids + start).astype(np.int32), scores), k)
        start += len(part)
    return best


def make() -> NumpyBackend:
    """Return this backend."""
    return NumpyBackend()

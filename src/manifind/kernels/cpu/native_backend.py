"""The backend of the compiled core (``kernels/core``).

Rows are quantized to eight bits when they are first searched: products are taken in eight bits, and what the rounding
leaves in doubt is scored again in float32. A system is put in breadth-first order when it is first solved on: then
neighbours lie near each other in memory, on which half of the time of a batch depends. Both copies belong to the object
that made them.
"""

import threading
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.errors import DamagedError
from manifind.kernels.api import FLOAT64_MAX_REGIONS, SCRATCH_BYTES, ArrayVectorSet, Backend, Operator, Solution
from manifind.kernels.cpu.block_cg import multiply
from manifind.kernels.cpu.native import core
from manifind.kernels.cpu.two_level import Aggregation, TwoLevelSolver, aggregate
from manifind.kernels.threads import thread_count
from manifind.types import FloatArray, IntArray, Progress, Vectors

if TYPE_CHECKING:
    from manifind.kernels import _core


class NativeBackend(Backend):
    """The processor, by way of the compiled core."""

    name = "cpu"

    def vector_set(self, vectors: Vectors) -> "NativeVectorSet":
        """Return descriptors as the core searches them."""
        return NativeVectorSet(vectors)

    def operator(self, S: sp.csr_array, degrees: FloatArray | None = None, *, reorder: bool = True) -> "NativeOperator":
        """Return a matrix as the core solves on it."""
        return NativeOperator(S, degrees, reorder=reorder)

    def mutual_graph(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity of mutual neighbours, or S, and the degrees.

        Beside the result it takes some 30 bytes a region, and 8 more for each thread up to 16.
        """
        ids, similarities = np.asarray(ids, np.int32), np.asarray(similarities, np.float32)
        if ids.shape[1] > 1 and not ids.strides[1] == similarities.strides[1] == 4:
            ids, similarities = np.ascontiguousarray(ids), np.ascontiguousarray(similarities)
        parts = core.mutual_affinity(ids, similarities, gamma, slack, normalised, thread_count())
        starts, columns, values, degrees = parts
        if len(columns) <= np.iinfo(np.int32).max:
            starts = starts.astype(np.int32)
        A = sp.csr_array((values, columns, starts), shape=(len(ids), len(ids)))
        A.has_canonical_format = True
        return A, degrees


class NativeVectorSet(ArrayVectorSet):
    """Descriptors of regions. A copy in eight bits is made when they are first searched."""

    has_nn_descent = True

    def __init__(self, vectors: Vectors) -> None:
        super().__init__(vectors)
        self.quantized: _core.QuantizedMatrix | None = None
        self._quantizing = threading.Lock()

    def _describe_storage(self) -> str:
        return "quantized to eight bits" if self.quantized is not None else "not searched yet"

    def quantize(self) -> "_core.QuantizedMatrix":
        """Make the copy in eight bits now, which takes n · d bytes. Otherwise the first search makes it."""
        with self._quantizing:
            if self.quantized is None:
                try:
                    self.quantized = core.QuantizedMatrix(self.vectors, thread_count())
                except ValueError as error:  # what was given was looked at: only a file can bring such
                    raise DamagedError(f"{error}; restore what was saved, or save it again.") from error
            return self.quantized

    def search(
        self, queries: FloatArray, k: int, *, subset: IntArray | None = None, memory: int = SCRATCH_BYTES
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query."""
        ids, scores = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.float32)
        if len(queries) and k:
            given = np.ascontiguousarray(queries, np.float32)
            rows = None if subset is None else np.ascontiguousarray(subset, np.int32)
            # Without products of eight bits a packed row takes four bytes a value: rows are packed during the search.
            search = self.quantize().search if core.has_int8_dot() else core.knn_search
            search(self.vectors, given, rows, memory, thread_count(), ids, scores)
        return ids, scores

    def self_join(
        self, k: int, *, memory: int = SCRATCH_BYTES, progress: Progress | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar other rows of each row; each pair is multiplied once.

        `memory` is for candidates, which take 4k bytes a row or more: with room for all rows each pair is multiplied
        once, and with less nearly twice.
        """
        ids, scores = self._lists(k)
        if not k:
            return ids, scores
        return _run_steps(core.SelfJoin(self.vectors, memory, thread_count(), ids, scores), ids, scores, progress)

    def nn_descent(self, k: int, *, seed: int = 0, progress: Progress | None = None) -> tuple[IntArray, FloatArray]:
        """Find nearly the `k` most similar other rows of each row by NN-Descent (``core/nn_descent.h``).

        The same seed gives the same lists, whatever the number of threads. It takes memory for a copy of the rows in
        eight bits, for lists of 12 bytes an entry beside those returned, and about a kilobyte a row for what was
        compared already; most of it is free again when the lists are written.
        """
        ids, scores = self._lists(k)
        return _run_steps(core.NNDescent(self.vectors, seed, thread_count(), ids, scores), ids, scores, progress)

    def _lists(self, k: int) -> tuple[IntArray, FloatArray]:
        n = len(self.vectors)
        return np.empty((n, k), np.int32), np.empty((n, k), np.float32)


def _run_steps(
    search: "_core.SelfJoin | _core.NNDescent",
    ids: IntArray,
    scores: FloatArray,
    progress: Progress | None,
) -> tuple[IntArray, FloatArray]:
    """Let a search fill its lists step by step, so that Ctrl-C is heard between two steps."""
    done, n = 0, len(ids)
    while done < n:
        done = search.step()
        if progress is not None:
            progress(done, n)
    return ids, scores


class NativeOperator(Operator):
    """A symmetric matrix as the core takes it, and the ordered and the divided copy of it that solutions make."""

    has_aggregation = True

    def __init__(self, S: sp.csr_array, degrees: FloatArray | None = None, *, reorder: bool = True) -> None:
        self.S = S
        self.degrees = degrees
        self.reorder = reorder
        values = np.ascontiguousarray(S.data, np.float32)
        self._arrays = S.indptr.astype(np.int64, copy=False), S.indices.astype(np.int32, copy=False), values
        self.matrix: _core.Matrix = core.Matrix(*self._arrays)
        self.ordered: _core.OrderedMatrix | None = None
        """A copy of the matrix in breadth-first order."""
        self.two_level: TwoLevelSolver | None = None
        """The graph divided into parts, which ``solver="local"`` solves on."""
        self._making = threading.RLock()  # dividing a graph solves on it

    def __repr__(self) -> str:
        has = [
            word
            for word, there in (("in order", self.ordered), ("divided for local solutions", self.two_level))
            if there is not None
        ]
        return f"<system of {self.size:,} regions, {self.S.nnz:,} entries{''.join(f', {word}' for word in has)}>"

    @property
    def size(self) -> int:
        """How many regions there are."""
        return int(self.S.shape[0])

    def matmul(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return Sx."""
        return multiply(self.S, x)

    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve by conjugate gradient; the first solution on a large graph puts the matrix in order.

        One column and many are solved on the same matrix: in another order sums are rounded otherwise, and images whose
        scores are nearly equal would change places. On systems of more than `FLOAT64_MAX_REGIONS` regions, directions
        are rounded to bfloat16: after 20 steps scores are within 0.03 to 0.14 % of the best of what float64 gives.
        """
        columns = y.shape[1]
        precise = self.size <= FLOAT64_MAX_REGIONS
        matrix = self.matrix if precise or not self.reorder else self.in_order()
        right = np.ascontiguousarray(y, np.float32)
        solution = Solution(np.empty(y.shape, np.float32), np.empty(columns, np.int32), np.empty(columns, np.float32))
        core.solve(matrix, right, alpha, max_iter, tol, thread_count(), *solution[:3], precise)
        return solution

    def in_order(self) -> "_core.OrderedMatrix":
        """Copy the matrix in breadth-first order now. The copy takes 8 bytes an entry."""
        with self._making:
            if self.ordered is None:
                self.ordered = core.OrderedMatrix(self.matrix, thread_count())
            return self.ordered

    def aggregate(self, aggregation: Aggregation | None = None) -> TwoLevelSolver:
        """Divide the graph now, or take a division that was saved. The copy takes 8 bytes an entry."""
        with self._making:
            if self.two_level is None:
                made = aggregate(self.S, self.matrix, self.solve) if aggregation is None else aggregation
                self.two_level = TwoLevelSolver(made, self._reorder(made.order))
            return self.two_level

    def restrict(self, rows: IntArray) -> "RestrictedOperator":
        """Keep some regions of the affinity, and normalise anew."""
        return RestrictedOperator(self, np.ascontiguousarray(rows, np.int32))

    def _reorder(self, order: IntArray) -> "_core.Matrix":
        arrays = tuple(np.empty_like(array) for array in self._arrays)
        core.reorder(self.matrix, order, thread_count(), *arrays)
        matrix: _core.Matrix = core.Matrix(*arrays)
        return matrix


class RestrictedOperator(NativeOperator):
    """The system of some regions of another system. One query is solved on it, once."""

    def __init__(self, whole: NativeOperator, rows: IntArray) -> None:
        if whole.degrees is None:
            raise ValueError("the system was made without the degrees of its affinity, which restricting takes")
        degrees = np.ascontiguousarray(whole.degrees, np.float32)
        starts, columns, values = core.restrict(whole.matrix, degrees, rows, thread_count())
        super().__init__(sp.csr_array((values, columns, starts), shape=(len(rows), len(rows))), reorder=False)
        self._whole, self._rows = whole, rows

    def restrict(self, rows: IntArray) -> "RestrictedOperator":
        """Keep some of these regions."""
        return RestrictedOperator(self._whole, self._rows[rows])


def make() -> NativeBackend:
    """Return this backend."""
    return NativeBackend()

"""The backend of the compiled core (``kernels/core``).

Rows are compressed to eight bits when they are first searched: products are taken in eight bits, and what the rounding
leaves in doubt is scored again in float32. A system is put in breadth-first order when it is first solved on: then
neighbours lie near each other in memory, on which half of the time of a batch depends. Both copies belong to the object
that made them.
"""

import threading
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.errors import Damaged
from manifind.kernels.array_rows import ArrayRows
from manifind.kernels.backend import PRECISE, SCRATCH, Solution
from manifind.kernels.cpu.core import core
from manifind.kernels.cpu.local import Divided, Division, divided
from manifind.kernels.cpu.products import multiply
from manifind.kernels.threads import thread_count
from manifind.types import FloatArray, IntArray, Progress, Vectors

if TYPE_CHECKING:
    from manifind.kernels import _core


class Compiled:
    """The processor, by way of the compiled core."""

    name = "cpu"

    def rows(self, vectors: Vectors) -> "CompiledRows":
        """Return descriptors as the core searches them."""
        return CompiledRows(vectors)

    def system(self, S: sp.csr_array, degrees: FloatArray | None = None) -> "CompiledSystem":
        """Return a matrix as the core solves on it."""
        return CompiledSystem(S, degrees)

    def affinity(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        """Return the affinity of mutual neighbours, or S, and the degrees.

        Beside the result it takes some 30 bytes a region, and 8 more for each thread up to 16.
        """
        ids, similarities = np.asarray(ids, np.int32), np.asarray(similarities, np.float32)
        if ids.shape[1] > 1 and not ids.strides[1] == similarities.strides[1] == 4:
            ids, similarities = np.ascontiguousarray(ids), np.ascontiguousarray(similarities)
        found = core.mutual_affinity(ids, similarities, gamma, slack, normalised, thread_count())
        starts, columns, values, degrees = found
        if len(columns) <= np.iinfo(np.int32).max:
            starts = starts.astype(np.int32)
        A = sp.csr_array((values, columns, starts), shape=(len(ids), len(ids)))
        A.has_canonical_format = True
        return A, degrees


class CompiledRows(ArrayRows):
    """Descriptors of regions. A copy in eight bits is made when they are first searched."""

    def __init__(self, vectors: Vectors) -> None:
        super().__init__(vectors)
        self.compressed: _core.CompressedRows | None = None
        self._compressing = threading.Lock()

    def _held(self) -> str:
        return "compressed to eight bits" if self.compressed is not None else "not searched yet"

    def compress(self) -> "_core.CompressedRows":
        """Make the copy in eight bits now, which takes n · d bytes. Otherwise the first search makes it."""
        with self._compressing:
            if self.compressed is None:
                try:
                    self.compressed = core.CompressedRows(self.vectors, thread_count())
                except ValueError as error:  # what was given was looked at: only a file can bring such
                    raise Damaged(f"{error}; restore what was saved, or save it again.") from error
            return self.compressed

    def nearest(
        self, queries: FloatArray, k: int, *, among: IntArray | None = None, memory: int = SCRATCH
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query."""
        ids, scores = np.empty((len(queries), k), np.int32), np.empty((len(queries), k), np.float32)
        if len(queries) and k:
            given = np.ascontiguousarray(queries, np.float32)
            rows = None if among is None else np.ascontiguousarray(among, np.int32)
            # Without products of eight bits a compressed row takes four bytes a value: it is made as it is come to.
            search = self.compress().search if core.low_precision() else core.nearest
            search(self.vectors, given, rows, memory, thread_count(), ids, scores)
        return ids, scores

    def nearest_others(
        self, k: int, *, memory: int = SCRATCH, progress: Progress | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar other rows of each row; each pair is multiplied once.

        `memory` is for candidates, which take 4k bytes a row or more: with room for all rows each pair is multiplied
        once, and with less nearly twice.
        """
        ids, scores = self._lists(k)
        return _stepped(core.NeighbourSearch(self.vectors, memory, thread_count(), ids, scores), ids, scores, progress)

    def descend(self, k: int, *, seed: int = 0, progress: Progress | None = None) -> tuple[IntArray, FloatArray]:
        """Find nearly the `k` most similar other rows of each row by NN-Descent (``core/descent.h``).

        The same seed gives the same lists, whatever the number of threads. It takes memory for a copy of the rows in
        eight bits, for lists of 12 bytes an entry beside those returned, and about a kilobyte a row for what was
        compared already; most of it is free again when the lists are written.
        """
        ids, scores = self._lists(k)
        return _stepped(core.NeighbourDescent(self.vectors, seed, thread_count(), ids, scores), ids, scores, progress)

    def _lists(self, k: int) -> tuple[IntArray, FloatArray]:
        n = len(self.vectors)
        return np.empty((n, k), np.int32), np.empty((n, k), np.float32)


def _stepped(
    search: "_core.NeighbourSearch | _core.NeighbourDescent",
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


class CompiledSystem:
    """A symmetric matrix as the core takes it, and the ordered and the divided copy of it that solutions make."""

    kept = True
    """Whether the system serves many solutions. Only then is it worth putting its matrix in order."""

    def __init__(self, S: sp.csr_array, degrees: FloatArray | None = None) -> None:
        self.S = S
        self.degrees = degrees
        values = np.ascontiguousarray(S.data, np.float32)
        self._arrays = S.indptr.astype(np.int64, copy=False), S.indices.astype(np.int32, copy=False), values
        self.matrix: _core.Matrix = core.Matrix(*self._arrays)
        self.ordered: tuple[_core.Matrix, IntArray] | None = None
        """A copy of the matrix in breadth-first order, and the order of its regions."""
        self.divided: Divided | None = None
        """The graph divided into parts, which ``engine="local"`` solves on."""
        self._making = threading.RLock()  # dividing a graph solves on it

    def __repr__(self) -> str:
        has = [
            word
            for word, there in (("in order", self.ordered), ("divided for local solutions", self.divided))
            if there is not None
        ]
        return f"<system of {self.size:,} regions, {self.S.nnz:,} entries{''.join(f', {word}' for word in has)}>"

    @property
    def size(self) -> int:
        """How many regions there are."""
        return int(self.S.shape[0])

    def multiply(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return Sx."""
        return multiply(self.S, x)

    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve by conjugate gradient; the first solution on a large graph puts the matrix in order.

        One column and many are solved on the same matrix: in another order sums are rounded otherwise, and images whose
        scores are nearly equal would change places. On systems of more than `PRECISE` regions directions are rounded to
        bfloat16: after 20 steps scores are within 0.03 to 0.14 % of the best of what float64 gives.
        """
        columns = y.shape[1]
        precise = self.size <= PRECISE
        matrix, order = (self.matrix, None) if precise or not self.kept else self.in_order()
        right = np.ascontiguousarray(y, np.float32)
        solution = Solution(np.empty(y.shape, np.float32), np.empty(columns, np.int32), np.empty(columns, np.float32))
        core.solve(matrix, order, right, alpha, max_iter, tol, thread_count(), *solution[:3], precise)
        return solution

    def in_order(self) -> tuple["_core.Matrix", IntArray]:
        """Put the matrix in breadth-first order now. The copy takes 8 bytes an entry."""
        with self._making:
            if self.ordered is None:
                order = np.empty(self.size, np.int32)
                core.breadth_first(self.matrix, order)
                self.ordered = self._reordered(order), order
            return self.ordered

    def divide(self, division: Division | None = None) -> Divided:
        """Divide the graph now, or take a division that was saved. The copy takes 8 bytes an entry."""
        with self._making:
            if self.divided is None:
                made = divided(self.S, self.matrix, self.solve) if division is None else division
                self.divided = Divided(made, self._reordered(made.order))
            return self.divided

    def restrict(self, rows: IntArray) -> "Restricted":
        """Keep some regions of the affinity, and normalise anew."""
        return Restricted(self, np.ascontiguousarray(rows, np.int32))

    def _reordered(self, order: IntArray) -> "_core.Matrix":
        arrays = tuple(np.empty_like(array) for array in self._arrays)
        core.reorder(self.matrix, order, thread_count(), *arrays)
        matrix: _core.Matrix = core.Matrix(*arrays)
        return matrix


class Restricted(CompiledSystem):
    """The system of some regions of another system. One query is solved on it, once."""

    kept = False

    def __init__(self, whole: CompiledSystem, rows: IntArray) -> None:
        if whole.degrees is None:
            raise ValueError("the system was made without the degrees of its affinity, which restricting takes")
        degrees = np.ascontiguousarray(whole.degrees, np.float32)
        starts, columns, values = core.restrict(whole.matrix, degrees, rows, thread_count())
        super().__init__(sp.csr_array((values, columns, starts), shape=(len(rows), len(rows))))
        self._whole, self._rows = whole, rows

    def restrict(self, rows: IntArray) -> "Restricted":
        """Keep some of these regions."""
        return Restricted(self._whole, self._rows[rows])


def make() -> Compiled:
    """Return this backend."""
    return Compiled()

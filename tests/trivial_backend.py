"""A third backend, as small as the protocols allow: lists of rows and a dense matrix. It shows what a new one needs."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels import SCRATCH_BYTES, Backend, Operator, Solution, VectorSet
from manifind.types import FloatArray, IntArray, Vectors
from tests import plain_kernels as plain


class ListVectorSet(VectorSet):
    """Rows as a store might hand them out: one at a time, and by similarity. It compares none of its own."""

    def __init__(self, vectors: Vectors) -> None:
        self._rows = [row.astype(np.float32) for row in vectors]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._rows), len(self._rows[0])

    def gather(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        return np.array([self._rows[i] for i in rows], np.float32).reshape(len(rows), self.shape[1])

    def search(
        self, queries: FloatArray, k: int, *, subset: IntArray | None = None, memory: int = SCRATCH_BYTES
    ) -> tuple[IntArray, FloatArray]:
        return plain.nearest(queries, self.gather(np.arange(len(self._rows)) if subset is None else subset), k)


class DenseOperator(Operator):
    """A dense matrix, and the affinity behind it."""

    def __init__(self, S: sp.csr_array, degrees: FloatArray | None = None) -> None:
        self._S = S.toarray().astype(np.float64)
        root = np.ones(len(self._S)) if degrees is None else np.sqrt(degrees.astype(np.float64))
        self._A = self._S * root * root[:, None]

    @property
    def size(self) -> int:
        return len(self._S)

    def matmul(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        product: npt.NDArray[np.floating] = (self._S @ x).astype(x.dtype)
        return product

    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        return plain.conjugate_gradient(sp.csr_array(self._S), y, alpha, max_iter, tol)

    def restrict(self, rows: IntArray) -> "DenseOperator":
        A = sp.csr_array(self._A[np.ix_(rows, rows)])
        return DenseOperator(plain.normalise(A), A.sum(axis=1).astype(np.float32))


class Trivial(Backend):
    """Both, and the affinity by its plain twin."""

    name = "trivial"

    def vector_set(self, vectors: Vectors) -> ListVectorSet:
        return ListVectorSet(vectors)

    def operator(self, S: sp.csr_array, degrees: FloatArray | None = None, *, reorder: bool = True) -> DenseOperator:
        return DenseOperator(S, degrees)

    def mutual_graph(
        self, ids: IntArray, similarities: FloatArray, gamma: float, *, slack: float, normalised: bool
    ) -> tuple[sp.csr_array, FloatArray]:
        if ids.size and (ids.min() < -1 or ids.max() >= len(ids)):
            raise ValueError("ids lead out of the lists")
        A = plain.affinity(ids, similarities, gamma)
        made = plain.normalise(A) if normalised else A
        return sp.csr_array(made, dtype=np.float32), A.sum(axis=1).astype(np.float32)


def make() -> Trivial:
    return Trivial()

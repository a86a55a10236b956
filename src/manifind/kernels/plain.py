"""The plain twin of every kernel: the same answer in the fewest words, for tests and for readers."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from manifind.kernels.solve import Solution
from manifind.validation import FloatArray, IntArray


def nearest(queries: FloatArray, vectors: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """All inner products, sorted."""
    products = queries @ vectors.T
    ids = np.argsort(-products, axis=1, kind="stable")[:, :k].astype(np.int32)
    return ids, np.take_along_axis(products, ids, axis=1)


def similarities(vectors: FloatArray, ids: IntArray) -> FloatArray:
    """One row at a time."""
    return np.stack([vectors[others] @ vectors[i] for i, others in enumerate(ids)])


def conjugate_gradient(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """SciPy's solver in float64, one column at a time."""
    n, columns = y.shape
    system = LinearOperator((n, n), matvec=lambda f: f - alpha * (S @ f), dtype=np.float64)
    scores = np.zeros((n, columns), np.float32)
    iterations = np.zeros(columns, np.int32)
    residuals = np.zeros(columns, np.float32)
    for j in range(columns):
        b = (1 - alpha) * y[:, j].astype(np.float64)
        steps: list[None] = []
        f, _ = cg(system, b, rtol=tol, atol=0, maxiter=max_iter, callback=lambda _, steps=steps: steps.append(None))
        scores[:, j], iterations[j] = f, len(steps)
        residuals[j] = np.linalg.norm(b - system @ f) / (np.linalg.norm(b) or 1)
    return Solution(scores, iterations, residuals)


def iterate(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """Eq. 3 in float64, one column at a time."""
    scores = np.zeros(y.shape, np.float32)
    iterations = np.zeros(y.shape[1], np.int32)
    residuals = np.zeros(y.shape[1], np.float32)
    for j in range(y.shape[1]):
        b = (1 - alpha) * y[:, j].astype(np.float64)
        f, scale = b, np.linalg.norm(b) or 1
        while iterations[j] < max_iter:
            following = alpha * (S @ f) + b
            iterations[j] += 1
            residuals[j] = np.linalg.norm(following - f) / scale
            f = following
            if residuals[j] <= tol:
                break
        scores[:, j] = f
    return Solution(scores, iterations, residuals)

"""The plain twin of every kernel: the same answer in the fewest words."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from manifind.kernels.api import Solution
from manifind.types import FloatArray, IntArray


def nearest(queries: FloatArray, vectors: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """Take all inner products, and sort them."""
    products = queries @ vectors.T
    ids = np.argsort(-products, axis=1, kind="stable")[:, :k].astype(np.int32)
    return ids, np.take_along_axis(products, ids, axis=1)


def nearest_others(vectors: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """Take all inner products but those of rows with themselves, and sort them."""
    products = vectors @ vectors.T
    np.fill_diagonal(products, -np.inf)
    ids = np.argsort(-products, axis=1, kind="stable")[:, :k].astype(np.int32)
    return ids, np.take_along_axis(products, ids, axis=1)


def affinity(ids: IntArray, similarities: FloatArray, gamma: float) -> sp.csr_array:
    """Go through the pairs one by one: two regions that list each other share an edge (eq. 1, 5, 6).

    The edge has the lesser of the two affinities.
    """
    n = len(ids)
    lists = [
        {int(j): float(s) for j, s in zip(*row, strict=True) if j >= 0} for row in zip(ids, similarities, strict=True)
    ]
    A = sp.lil_array((n, n), dtype=np.float64)
    for i, neighbours_of_row in enumerate(lists):
        for j, similarity in neighbours_of_row.items():
            if i != j and i in lists[j] and min(similarity, lists[j][i]) > 0:
                A[i, j] = min(similarity, lists[j][i]) ** gamma
    return sp.csr_array(A)


def normalise(A: sp.csr_array) -> sp.csr_array:
    """Return D^−1/2 A D^−1/2 (eq. 2), in which a region without edges has a zero row."""
    degrees = A.sum(axis=1)
    scale = np.array([0.0 if degree == 0 else degree**-0.5 for degree in degrees])
    return sp.csr_array(sp.diags_array(scale) @ A @ sp.diags_array(scale))


def conjugate_gradient(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """Solve by SciPy's conjugate gradient in float64, one column at a time."""
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
    """Iterate eq. 3 in float64, one column at a time."""
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

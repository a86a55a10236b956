"""The plain twin of every kernel: the same answer in the fewest words, for tests and for readers."""

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from manifind.kernels.solve import Solution
from manifind.validation import FloatArray, IntArray


def nearest(queries: FloatArray, vectors: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """All inner products, sorted."""
    products = queries @ vectors.T
    ids = np.argsort(-products, axis=1, kind="stable")[:, :k].astype(np.int32)
    return ids, np.take_along_axis(products, ids, axis=1)


def nearest_others(vectors: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """All inner products but those of rows with themselves, sorted."""
    products = vectors @ vectors.T
    np.fill_diagonal(products, -np.inf)
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


def solve_locally(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float, budget: int) -> Solution:
    """Grow each column's neighbourhood one region at a time, and solve on what is kept of it."""
    n, columns = y.shape
    scores = np.zeros((n, columns), np.float32)
    reached = []
    for j in range(columns):
        b = (1 - alpha) * y[:, j].astype(np.float64)
        inside = _neighbourhood(S, b, alpha, budget)
        part = sp.csr_array(S[inside][:, inside])
        solved = conjugate_gradient(part, y[inside, j : j + 1], alpha, max_iter, tol)
        scores[inside, j] = solved.scores[:, 0]
        f = scores[:, j].astype(np.float64)
        residual = np.linalg.norm(b - f + alpha * (S @ f)) / (np.linalg.norm(b) or 1)
        reached.append((solved.iterations[0], residual, len(inside)))
    iterations, residuals, regions = np.array(reached).reshape(columns, 3).T
    return Solution(scores, iterations.astype(np.int32), residuals.astype(np.float32), regions.astype(np.int32))


def _neighbourhood(S: sp.csr_array, b: npt.NDArray[np.float64], alpha: float, budget: int) -> IntArray:
    seeds = np.flatnonzero(b)
    mass, met = b.copy(), [int(one) for one in seeds]
    known = set(met)
    hop = met
    while hop and len(met) < 2 * budget:
        before = len(met)
        for one in sorted(hop, key=lambda region: -abs(mass[region])):
            if len(met) >= 2 * budget:
                break
            entries = slice(S.indptr[one], S.indptr[one + 1])
            mass[S.indices[entries]] += alpha * mass[one] * S.data[entries]
            new = [int(other) for other in S.indices[entries] if int(other) not in known]
            met += new
            known.update(new)
        hop = met[before:]
    others = sorted(met[len(seeds) :], key=lambda region: -abs(mass[region]))
    kept = others[: max(0, budget - len(seeds))]
    return np.sort(np.concatenate([seeds, np.array(kept, seeds.dtype)])).astype(np.int32)


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

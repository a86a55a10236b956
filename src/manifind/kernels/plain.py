"""The plain twin of every kernel: the same answer in the fewest words, for tests and for readers."""

import itertools

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from manifind.kernels.local import FIRST
from manifind.kernels.native import Parts
from manifind.kernels.solve import Solution
from manifind.types import FloatArray, IntArray

Doubles = npt.NDArray[np.float64]


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


def solve_locally(
    S: sp.csr_array,
    y: FloatArray,
    alpha: float,
    max_iter: int,
    tol: float,
    parts: Parts,
    budget: int,
    most: int,
) -> Solution:
    """Project on the parts and on the regions of those resolved, one column at a time, twice."""
    n, columns = y.shape
    first = max(1, round(FIRST * max_iter))
    part = np.empty(n, np.intp)
    part[parts.order] = np.repeat(np.arange(len(parts.starts) - 1), np.diff(parts.starts))
    root = np.empty(n)
    root[parts.order] = parts.root
    rows, inside = np.diff(S.indptr), np.diff(parts.flow.indptr)
    lengths = np.bincount(part, rows, len(inside))
    mean = np.bincount(part, root, len(inside)) / np.bincount(part, minlength=len(inside))
    scores = np.zeros((n, columns), np.float32)
    reached = []
    for j in range(columns):
        b = (1 - alpha) * y[:, j].astype(np.float64)
        everything = S.nnz <= budget
        resolved = np.unique(part if everything else part[b != 0])
        mass = np.bincount(part, abs(b) * root, len(inside)).astype(np.float64)
        taking = _taking(parts.flow, mass, resolved, most)
        f, steps, residual = _projected(
            S, b, alpha, max_iter if everything else first, tol, root, part, resolved, taking
        )
        if steps < max_iter and residual > tol and b.any():
            largest = abs(np.bincount(part, root * f, len(inside))) * mean
            largest[resolved] = 0
            largest[~taking] = 0
            order = np.argsort(-largest, kind="stable")[: (largest > 0).sum()]
            room = budget - inside[taking].sum() - lengths[resolved].sum()
            more = order[np.cumsum(lengths[order]) <= room]
            resolved = np.concatenate([resolved, more])
            f, further, residual = _projected(S, b, alpha, max_iter - steps - 1, tol, root, part, resolved, taking, f)
            steps += 1 + further
        scores[:, j] = f
        reached.append((steps, residual, np.isin(part, resolved).sum() if b.any() else 0))
    counts, residuals, regions = np.array(reached).reshape(columns, 3).T
    return Solution(scores, counts.astype(np.int32), residuals.astype(np.float32), regions.astype(np.int32))


def _projected(
    S: sp.csr_array,
    b: Doubles,
    alpha: float,
    max_iter: int,
    tol: float,
    root: Doubles,
    part: npt.NDArray[np.intp],
    resolved: npt.NDArray[np.intp],
    taking: npt.NDArray[np.bool_],
    f: Doubles | None = None,
) -> tuple[Doubles, int, float]:
    """Solve on the f that are a multiple of `root` on each part that is not resolved; return f, steps and residual."""
    own = np.isin(part, resolved)
    of_parts = sp.csc_array((root * ~own, (np.arange(len(b)), part)), shape=(len(b), len(taking)))
    P = sp.hstack([of_parts[:, taking], sp.eye_array(len(b), format="csc")[:, own]])
    small = sp.csr_array(P.T @ S.astype(np.float64) @ P)
    system = LinearOperator(small.shape, matvec=lambda x: x - alpha * (small @ x), dtype=np.float64)
    right = P.T @ b
    x = np.zeros(len(right)) if f is None else P.T @ f
    steps: list[None] = []
    if max_iter and right.any():
        x, _ = cg(system, right, x, rtol=tol, atol=0, maxiter=max_iter, callback=lambda _: steps.append(None))
    return P @ x, len(steps), float(np.linalg.norm(right - system @ x) / (np.linalg.norm(right) or 1))


def _taking(flow: sp.csr_array, mass: Doubles, resolved: npt.NDArray[np.intp], most: int) -> npt.NDArray[np.bool_]:
    """Go from the parts of y outwards, those first that the most flows to, until there are `most` parts."""
    taking = np.full(len(mass), len(mass) <= most)
    taking[resolved] = True
    hop = list(resolved)
    while hop and taking.sum() < most:
        following: list[np.intp] = []
        for one in sorted(hop, key=lambda c: (-mass[c], c)):
            if taking.sum() >= most:
                break
            entries = slice(flow.indptr[one], flow.indptr[one + 1])
            mass[flow.indices[entries]] += flow.data[entries] * mass[one]
            new = flow.indices[entries][~taking[flow.indices[entries]]]
            taking[new] = True
            following += list(new)
        hop = following
    return taking


def divide(S: sp.csr_array, size: int, most: int) -> IntArray:
    """Go through the regions one by one; the steps are those of ``core/local.cpp``."""
    n = S.shape[0]
    rows = [slice(S.indptr[i], S.indptr[i + 1]) for i in range(n)]
    order: list[int] = []
    seen = np.zeros(n, bool)
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        order.append(root)
        for one in itertools.islice(order, len(order) - 1, None):
            new = S.indices[rows[one]][~seen[S.indices[rows[one]]]]
            seen[new] = True
            order += new.tolist()
    part = np.full(n, -1, np.int32)
    parts = itertools.count()
    for i in order:
        free = [e for e in range(S.indptr[i], S.indptr[i + 1]) if part[S.indices[e]] < 0 and S.indices[e] != i]
        if part[i] < 0 and len(free) >= size // 3:
            strongest = sorted(free, key=lambda e: (-S.data[e], e))[: size - 1]
            part[[i, *S.indices[strongest]]] = next(parts)
    counts = np.bincount(part[part >= 0], minlength=n)
    for i in order:
        if part[i] < 0:
            placed = [e for e in range(S.indptr[i], S.indptr[i + 1]) if part[S.indices[e]] >= 0 and S.data[e] > 0]
            roomy = [e for e in placed if counts[part[S.indices[e]]] < most]
            strongest_one = max(roomy, key=lambda e: (S.data[e], -e), default=None)
            part[i] = next(parts) if strongest_one is None else part[S.indices[strongest_one]]
            counts[part[i]] += 1
    for i in order * 5:
        theirs = part[S.indices[rows[i]]]
        sums = dict.fromkeys(theirs.tolist(), np.float32(0)) | {int(part[i]): np.float32(0)}
        for other, value in zip(theirs.tolist(), S.data[rows[i]], strict=True):
            sums[other] += value
        best = int(part[i])
        for other in theirs.tolist():
            if sums[other] > sums[best] and counts[other] < most:
                best = other
        counts[part[i]] -= 1
        counts[best] += 1
        part[i] = best
    return np.unique(part, return_inverse=True)[1].astype(np.int32)


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

"""A literal reading of the paper: dense float64 matrices, loops, sorts, one equation after the other.

Nothing here is shared with the package, and nothing here is fast.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def similarity(x: Array, z: Array, gamma: float) -> float:
    """Sec. 5.1: the monomial kernel."""
    return float(np.maximum(x @ z, 0) ** gamma)


def nearest(z: Array, others: Sequence[tuple[int, Array]], k: int) -> list[int]:
    """NN_k(z) among (number, vector) pairs."""
    ranked = sorted(others, key=lambda pair: -float(pair[1] @ z))
    return [number for number, _ in ranked[:k]]


def affinity(X: Array, k: int, gamma: float) -> Array:
    """Eq. 1 with the local constraints of eq. 5 and 6."""
    n = len(X)
    lists = [nearest(X[i], [(j, X[j]) for j in range(n) if j != i], k) for i in range(n)]
    A = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j and j in lists[i] and i in lists[j]:
                A[i, j] = similarity(X[i], X[j], gamma)
    return A


def transition(A: Array) -> Array:
    """Eq. 2."""
    S = np.zeros_like(A)
    degree = A.sum(axis=1)
    for i in range(len(A)):
        for j in range(len(A)):
            if A[i, j] > 0:
                S[i, j] = A[i, j] / np.sqrt(degree[i] * degree[j])
    return S


def seed(X: Array, Q: Array, query_k: int, gamma: float, spelling: str = "paper") -> Array:
    """Eq. 8, then only the largest values; or the order of operations of the authors' program."""
    y = np.zeros(len(X))
    for q in Q:
        for i in nearest(q, list(enumerate(X)), query_k):
            y[i] += similarity(X[i], q, gamma if spelling == "paper" else 1.0)
    for i in np.argsort(-y, kind="stable")[query_k:]:
        y[i] = 0
    return y if spelling == "paper" else y**gamma


def closed_form(S: Array, y: Array, alpha: float) -> Array:
    """Eq. 4."""
    return np.asarray((1 - alpha) * np.linalg.inv(np.eye(len(S)) - alpha * S) @ y)


def weights(X: Array, image_of: Sequence[int], pooling: str, lam: float) -> Array:
    """Eq. 14; where every image has one region there is nothing to pool."""
    w = np.ones(len(X))
    if pooling == "gmp" and len(set(image_of)) < len(X):
        for image in set(image_of):
            own = [i for i, other in enumerate(image_of) if other == image]
            phi = X[own]
            w[own] = np.linalg.inv(phi @ phi.T + lam * np.eye(len(own))) @ np.ones(len(own))
    return w


def pool(f: Array, w: Array, image_of: Sequence[int]) -> dict[int, float]:
    """Eq. 13."""
    score = dict.fromkeys(image_of, 0.0)
    for i, image in enumerate(image_of):
        score[image] += w[i] * f[i]
    return score


def search(
    X: Array,
    image_of: Sequence[int],
    Q: Array,
    *,
    k: int,
    query_k: int,
    alpha: float = 0.99,
    gamma: float = 3.0,
    pooling: str = "gmp",
    lam: float = 1.0,
    seeding: str = "paper",
    shortlist: Sequence[int] | None = None,
) -> dict[int, float]:
    """The score of every image that is ranked; the shortlist is a list of images (Sec. 4.4)."""
    n = len(X)
    kept = [i for i in range(n) if shortlist is None or image_of[i] in shortlist]
    if seeding == "append":  # Sec. 4.1: the query's points are a part of the data set, and y indicates them
        nodes = [*kept, *range(n, n + len(Q))]
        A = affinity(np.concatenate([X, Q]), k, gamma)[np.ix_(nodes, nodes)]
        y = np.array([0.0] * len(kept) + [1.0] * len(Q))
    else:
        A = affinity(X, k, gamma)[np.ix_(kept, kept)]
        y = seed(X[kept], Q, query_k, gamma, seeding)
    f = closed_form(transition(A), y, alpha)[: len(kept)]
    w = weights(X, image_of, pooling, lam)[kept]
    return pool(f, w, [image_of[i] for i in kept])

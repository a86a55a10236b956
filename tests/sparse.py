"""Sparse matrices for the tests of solvers."""

import numpy as np
import scipy.sparse as sp


def symmetric(n: int, rng: np.random.Generator, density: float = 0.3) -> sp.csr_array:
    """A normalised affinity, with some rows empty."""
    upper = np.triu((rng.random((n, n)) < density) * rng.random((n, n)), 1)
    A = upper + upper.T
    A[:, : n // 5] = A[: n // 5] = 0
    degree = A.sum(axis=1)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros(n), where=degree > 0)
    return sp.csr_array((A * scale * scale[:, None]).astype(np.float32))

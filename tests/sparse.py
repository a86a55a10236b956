"""Sparse matrices for the tests of solvers."""

import numpy as np
import scipy.sparse as sp


def symmetric(n: int, rng: np.random.Generator, density: float = 0.3) -> sp.csr_array:
    """A normalised affinity, with some rows empty."""
    upper = sp.triu(sp.random_array((n, n), density=density, rng=rng), 1)
    filled = sp.diags_array(np.where(np.arange(n) < n // 5, 0.0, 1.0))
    A = sp.csr_array(filled @ (upper + upper.T) @ filled)
    A.eliminate_zeros()
    degree = A.sum(axis=1)
    scale = sp.diags_array(np.divide(1, np.sqrt(degree), out=np.zeros(n), where=degree > 0))
    S = sp.csr_array(scale @ A @ scale, dtype=np.float32)
    S.sort_indices()
    return S

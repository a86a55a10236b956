"""The ways to solve (I − αS) f = (1 − α) y, by the name that ``search(engine=...)`` knows them by."""

import numpy as np
import scipy.sparse as sp

from manifind import kernels
from manifind.kernels import Solution
from manifind.types import FloatArray

ENGINES = {"cg": kernels.conjugate_gradient, "iteration": kernels.iterate, "local": kernels.solve_locally}


def diffuse(
    S: sp.csr_array,
    y: FloatArray,
    *,
    alpha: float = 0.99,
    max_iter: int = 20,
    tol: float = 1e-6,
    engine: str = "cg",
) -> Solution:
    """Return f = (1 − α)(I − αS)^−1 y (eq. 4), as nearly as `max_iter` and `tol` allow.

    Parameters
    ----------
    S : (n, n) CSR, float32
    y : (n,) or (n, b) float32
        One right-hand side or many; many share each pass over S.
    alpha, max_iter, tol
        The diffusion parameter, the most products with S to spend, and the relative residual that is enough.
    engine : {"cg", "iteration", "local"}
        Conjugate gradient (Sec. 4.3), the iteration of eq. 3, or conjugate gradient with the neighbourhood of y in full
        detail and the rest in parts.

    Returns
    -------
    Solution
        Scores of the shape of `y`; the iterations and relative residuals reached, an entry for each right-hand side.
    """
    columns = np.asarray(y, np.float32).reshape(S.shape[0], -1)
    solution = ENGINES[engine](S, columns, alpha, max_iter, tol)
    return solution._replace(scores=solution.scores.reshape(np.shape(y)))

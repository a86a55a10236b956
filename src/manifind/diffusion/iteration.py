"""The iteration of eq. 3, for many right-hand sides in one pass over S."""

import numpy as np

from manifind.kernels import FLOOR, PRECISE, Solution, System
from manifind.types import FloatArray


def iterate(system: System, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """Solve by f ← αSf + (1 − α)y from f = 0, which is Jacobi's method (eq. 3, 16).

    A column is left alone once its relative residual is within `tol`.
    """
    kind = np.float64 if system.size <= PRECISE else np.float32
    b = np.multiply(y, 1 - alpha, dtype=kind)
    norms = np.linalg.norm(b, axis=0).astype(np.float64)
    live = np.flatnonzero(norms > 0)
    iterations = np.zeros(y.shape[1], np.int32)
    residuals = (norms > 0).astype(np.float32)
    f = np.zeros(y.shape, np.float32)
    b = b[:, live]
    x = b.copy()  # the first step from f = 0, which needs no product
    for iteration in range(1, max_iter + 1):
        if not len(live):
            break
        following = system.multiply(x) * kind(alpha) + b
        iterations[live] = iteration
        residuals[live] = np.linalg.norm(following - x, axis=0) / norms[live]
        x = following
        done = residuals[live] <= max(tol, FLOOR)
        if done.any():
            f[:, live[done]] = x[:, done]
            live, x, b = live[~done], x[:, ~done], b[:, ~done]
    f[:, live] = x
    return Solution(f, iterations, residuals)

"""The ways to solve (I − αS) f = (1 − α) y, by the name that ``search(solver=...)`` knows them by.

A solver is one entry of `SOLVERS`: how it solves, what it prepares off line if anything, and how what it prepared is
saved. Searches, `Manifold.prepare`, the automatic choice, the evaluation and the documentation read that table and
nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion.seeding import Seed
from manifind.kernels import FLOAT64_MAX_REGIONS, MIN_RESIDUAL, Operator, Solution, backend, dense_columns
from manifind.kernels.costs import COSTS
from manifind.kernels.cpu.two_level import Aggregation, TwoLevelSolver
from manifind.types import FloatArray

AUTO, CG, LOCAL = "auto", "cg", "local"


class SolverOptions(NamedTuple):
    """The parameters of a solution."""

    alpha: float
    max_iter: int
    """The most products with S that the solver may spend."""
    tol: float
    """The relative residual at which the solver stops."""


@dataclass(frozen=True)
class Solver:
    """One way to solve."""

    name: str
    description: str
    """What the solver does, in a sentence."""
    solve: Callable[[Operator, Sequence[Seed], SolverOptions, Any], Solution]
    """Called with the operator, the seeds, the options and what was prepared, or None."""
    prepare: Callable[[Operator], Any] | None = None
    """Called with the operator of the whole graph; returns what `solve` takes."""
    to_arrays: Callable[[Any], dict[str, npt.NDArray[Any]]] | None = None
    """Returns what was prepared as arrays to save; None where it is not saved."""
    from_arrays: Callable[[Operator, Mapping[str, npt.NDArray[Any]]], Any] | None = None
    """Returns what `to_arrays` wrote, for this operator; None where that operator has no use for it."""
    is_available: Callable[[Operator], bool] = lambda _: True
    """Whether an operator can use what was saved."""
    pools: bool = False
    """Whether the operator itself solves and pools for this solver (`Operator.solve_and_pool`)."""


def iterate(operator: Operator, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    """Solve by f ← αSf + (1 − α)y from f = 0, which is Jacobi's method (eq. 3, 16).

    A column is left alone once its relative residual is within `tol`.
    """
    dtype = np.float64 if operator.size <= FLOAT64_MAX_REGIONS else np.float32
    b = np.multiply(y, 1 - alpha, dtype=dtype)
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
        following = operator.matmul(x) * dtype(alpha) + b
        iterations[live] = iteration
        residuals[live] = np.linalg.norm(following - x, axis=0) / norms[live]
        x = following
        done = residuals[live] <= max(tol, MIN_RESIDUAL)
        if done.any():
            f[:, live[done]] = x[:, done]
            live, x, b = live[~done], x[:, ~done], b[:, ~done]
    f[:, live] = x
    return Solution(f, iterations, residuals)


def _conjugate_gradient(operator: Operator, seeds: Sequence[Seed], options: SolverOptions, _: None) -> Solution:
    return operator.solve_seeds(seeds, *options)


def _iteration(operator: Operator, seeds: Sequence[Seed], options: SolverOptions, _: None) -> Solution:
    return iterate(operator, dense_columns(seeds, operator.size), *options)


def _two_level(
    operator: Operator, seeds: Sequence[Seed], options: SolverOptions, two_level: TwoLevelSolver | None
) -> Solution:
    # A shortlist is a graph of its own.
    return (operator.aggregate() if two_level is None else two_level).solve(seeds, *options)


def _load_two_level(operator: Operator, arrays: Mapping[str, npt.NDArray[Any]]) -> TwoLevelSolver | None:
    return operator.aggregate(Aggregation.from_arrays(arrays, operator.size)) if operator.has_aggregation else None


SOLVERS: dict[str, Solver] = {
    solver.name: solver
    for solver in (
        Solver(CG, "Conjugate gradient on the whole system (Sec. 4.3).", _conjugate_gradient, pools=True),
        Solver("iteration", "The iteration of eq. 3, which needs several times as many products.", _iteration),
        Solver(
            LOCAL,
            "Conjugate gradient with the neighbourhood of the query in detail and the rest of the graph in parts.",
            _two_level,
            lambda operator: operator.aggregate(),
            to_arrays=lambda solver: solver.aggregation.to_arrays(),
            from_arrays=_load_two_level,
            is_available=lambda operator: operator.has_aggregation,
        ),
    )
}


def best_solver(regions: int, *, divided: bool) -> str:
    """Return the solver for a whole graph, by its size alone: one query has the same answer alone and among many.

    Beyond `CostModel.max_whole_regions` regions the local solver takes a fraction of the time, once the graph was
    aggregated for it. ``benchmarks/speed.py solvers`` has the times, and mAP.
    """
    return LOCAL if divided and regions > COSTS.max_whole_regions else CG


def diffuse(
    S: sp.csr_array,
    y: FloatArray,
    *,
    alpha: float = 0.99,
    max_iter: int = 20,
    tol: float = 1e-6,
    solver: str = CG,
) -> Solution:
    """Return f = (1 − α)(I − αS)^−1 y (eq. 4), as nearly as `max_iter` and `tol` allow.

    Parameters
    ----------
    S : (n, n) CSR, float32
    y : (n,) or (n, b) float32
        One right-hand side or many; many share each pass over S.
    alpha, max_iter, tol
        The diffusion parameter, the most products with S to spend, and the relative residual that is enough.
    solver : {"cg", "iteration", "local"}
        "cg" is conjugate gradient (Sec. 4.3). "iteration" is the iteration of eq. 3. "local" is conjugate gradient with
        the neighbourhood of y in full detail and the rest of the graph in parts.

    Returns
    -------
    Solution
        Scores of the shape of `y`; the iterations and relative residuals reached, an entry for each right-hand side.
    """
    columns = np.asarray(y, np.float32).reshape(S.shape[0], -1)
    seeds = [Seed(rows := np.flatnonzero(column).astype(np.int32), column[rows]) for column in columns.T]
    solution = SOLVERS[solver].solve(backend().operator(S), seeds, SolverOptions(alpha, max_iter, tol), None)
    return solution._replace(scores=solution.scores.reshape(np.shape(y)))

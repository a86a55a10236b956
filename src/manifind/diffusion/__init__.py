"""A query's regions → y → f: the on-line half of diffusion, on plain arrays.

`seed` puts the query on the graph (eq. 7, 8), and a solver of `SOLVERS` solves (I − αS) f = (1 − α) y.
"""

from manifind.diffusion.seeding import (
    SEEDINGS,
    WEIGHTS,
    Seed,
    SeedWeights,
    either_seed,
    expand_seed,
    seed,
    subtract_negatives,
)
from manifind.diffusion.solvers import SOLVERS, Solver, SolverOptions, best_solver, diffuse, iterate
from manifind.kernels import Solution

__all__ = [
    "SEEDINGS",
    "SOLVERS",
    "WEIGHTS",
    "Seed",
    "SeedWeights",
    "Solution",
    "Solver",
    "SolverOptions",
    "best_solver",
    "diffuse",
    "either_seed",
    "expand_seed",
    "iterate",
    "seed",
    "subtract_negatives",
]

"""The parameters of a manifold, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from manifind.checks import check_choice, check_float, check_int
from manifind.diffusion import SEEDINGS, SOLVERS, SolverOptions
from manifind.diffusion.solvers import AUTO as AUTO_SOLVER
from manifind.graph import AUTO, GRAPHS
from manifind.kernels import DEVICES, MAX_BYTES
from manifind.ranking import POOLINGS

GRAPH_PARAMETERS = ("k", "gamma", "pooling", "gmp_lambda", "knn", "reserve")
"""Parameters that made the graph, and hold until the next fit; the others hold from the next search."""

MACHINE_PARAMETERS = ("device",)
"""Parameters that are not saved: what was built on one machine is searched on another."""

MAX_INT32 = 2**31 - 1
"""The most that neighbours and iterations can be: the core counts them in 32 bits."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of `Manifold` whose values were checked."""

    k: int
    query_k: int
    alpha: float
    gamma: float
    pooling: str
    solver: str
    max_iter: int
    tol: float
    gmp_lambda: float
    seeding: str
    knn: str
    reserve: int
    memory: int
    device: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return parameters in the form that the other packages take, or raise `InvalidInputError`."""
        return cls(
            k=check_int(given["k"], "k", most=MAX_INT32),
            query_k=check_int(given["query_k"], "query_k", most=MAX_INT32),
            alpha=check_float(given["alpha"], "alpha", above=0, below=1),
            gamma=check_float(given["gamma"], "gamma", above=0),
            pooling=check_choice(given["pooling"], POOLINGS, "pooling"),
            solver=check_choice(given["solver"], (AUTO_SOLVER, *SOLVERS), "solver"),
            max_iter=check_int(given["max_iter"], "max_iter", most=MAX_INT32),
            tol=check_float(given["tol"], "tol", above=0, below=1),
            gmp_lambda=check_float(given["gmp_lambda"], "gmp_lambda", above=0),
            seeding=check_choice(given["seeding"], SEEDINGS, "seeding"),
            knn=check_choice(given["knn"], (AUTO, *GRAPHS), "knn"),
            reserve=check_int(given["reserve"], "reserve", least=0, most=MAX_INT32),
            memory=check_int(given["memory"], "memory", most=MAX_BYTES),
            device=check_choice(given["device"], DEVICES, "device"),
        )

    @property
    def solver_options(self) -> SolverOptions:
        """The parameters of a solution."""
        return SolverOptions(self.alpha, self.max_iter, self.tol)

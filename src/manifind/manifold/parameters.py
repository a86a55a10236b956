"""The parameters of a manifold, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from manifind.checks import choice, real_number, whole_number
from manifind.diffusion import SEEDINGS, Setting
from manifind.graph import AUTO, GRAPHS
from manifind.kernels import DEVICES
from manifind.ranking import POOLINGS

OF_THE_GRAPH = ("k", "gamma", "pooling", "lam", "graph", "reserve")
"""Parameters that made the graph, and hold until the next fit; the others hold from the next search."""

OF_THE_MACHINE = ("device",)
"""Parameters that are not saved: what was built on one machine is searched on another."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of `Manifold` whose values were checked."""

    k: int
    query_k: int
    alpha: float
    gamma: float
    pooling: str
    max_iter: int
    tol: float
    lam: float
    seeding: str
    graph: str
    reserve: int
    memory: int
    device: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return parameters in the form that the rooms take, or raise `InvalidInput`."""
        return cls(
            k=whole_number(given["k"], "k"),
            query_k=whole_number(given["query_k"], "query_k"),
            alpha=real_number(given["alpha"], "alpha", above=0, below=1),
            gamma=real_number(given["gamma"], "gamma", above=0),
            pooling=choice(given["pooling"], POOLINGS, "pooling"),
            max_iter=whole_number(given["max_iter"], "max_iter"),
            tol=real_number(given["tol"], "tol", above=0, below=1),
            lam=real_number(given["lam"], "lam", above=0),
            seeding=choice(given["seeding"], SEEDINGS, "seeding"),
            graph=choice(given["graph"], (AUTO, *GRAPHS), "graph"),
            reserve=whole_number(given["reserve"], "reserve", least=0),
            memory=whole_number(given["memory"], "memory"),
            device=choice(given["device"], DEVICES, "device"),
        )

    @property
    def setting(self) -> Setting:
        """What an engine is told."""
        return Setting(self.alpha, self.max_iter, self.tol)

"""Solve (I − αS) f = (1 − α) y in full detail near y alone, at a cost that hardly grows with the graph.

The regions are divided into parts, some twenty neighbours each, once for a graph. On a part, f is taken to be a
multiple of the vector that S leaves as it is, the root of the degrees, as it nearly is far from y: the part is one
unknown. Parts that matter are resolved, and their regions are unknowns of their own. What is solved is the projection
of the system on such f (Galerkin's), (I − αPᵀSP) x = (1 − α)Pᵀy with f = Px: nothing that flows out of the resolved
parts is lost, and the regions far away keep the background of scores that hubs get from any query.

At first the parts of y are resolved. After some iterations of conjugate gradient the parts where the scores are largest
by then are resolved too, as many as the budget allows, and the iterations go on from there. The parts are those of
aggregation in algebraic multigrid (Vaněk, Mandel, Brezina 1996), then each region goes where the most of its edges
lead.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.errors import DamagedError
from manifind.kernels.api import Solution
from manifind.kernels.cpu.native import core
from manifind.types import FloatArray, IntArray

if TYPE_CHECKING:
    from manifind.kernels import _core


@dataclass(frozen=True)
class TwoLevelConfig:
    """What decides a division and a solution on it. Chosen on Oxford5k (``benchmarks/speed.py solvers``)."""

    budget: int = 750_000
    """Entries of the system that is solved: what a product costs. Where S has no more, it is the whole system. On
    Oxford5k (k = 50, 100 and 200), from 700,000 to 1,000,000, mAP differs from that of the whole graph by 0.2 points at
    most; with 600,000 at k = 200, whose parts exchange 470,000, by 0.6."""
    max_parts: int = 6000
    """Parts that take part in a solution: all of them, on a graph of some hundred thousand regions."""
    refine_after: float = 0.3
    """Share of the iterations after which more is resolved. Later it knows better what, and has less time for it."""
    part_regions: int = 26
    """Regions of a part, about. Smaller parts are more exact and exchange more."""
    max_part_regions: int = 50
    smoothing_alpha: float = 0.999
    """The α of the diffusion from everywhere that finds the vector which S leaves as it is; it need be right within
    each part only."""
    smoothing_steps: int = 100
    """The iterations of that diffusion."""


CONFIG = TwoLevelConfig()


class Aggregation(NamedTuple):
    """A graph divided into parts of regions that exchange much with each other: what is saved."""

    order: IntArray
    """The regions, part by part."""
    starts: npt.NDArray[np.int64]
    """Where each part begins in `order`, and the end."""
    root: FloatArray
    """In that order: the vector that S leaves as it is, of unit norm on each part."""
    coarse_matrix: sp.csr_array
    """What parts exchange: CᵀSC, where column c of C is `root` on part c."""

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return it as named arrays, as files keep it."""
        coarse = {
            "flow_data": self.coarse_matrix.data,
            "flow_indices": self.coarse_matrix.indices,
            "flow_indptr": self.coarse_matrix.indptr,
        }
        return {"order": self.order, "starts": self.starts, "root": self.root, **coarse}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], n: int) -> Self:
        """Return what `to_arrays` wrote for a graph of n regions, or raise `DamagedError`."""
        try:
            order, starts, root = arrays["order"], arrays["starts"], arrays["root"]
            parts = len(starts) - 1
            coarse = sp.csr_array(
                (arrays["flow_data"], arrays["flow_indices"], arrays["flow_indptr"]), shape=(parts, parts)
            )
            valid = (
                order.shape == root.shape == (n,)
                and 0 <= order.min() <= order.max() < n
                and (np.bincount(order, minlength=n) == 1).all()
                and starts.ndim == 1
                and starts[0] == 0
                and starts[-1] == n
                and (np.diff(starts) > 0).all()
                and coarse.indptr[-1] == len(coarse.data) == len(coarse.indices)
                and (np.diff(coarse.indptr) >= 0).all()
                and (not coarse.nnz or 0 <= coarse.indices.min() <= coarse.indices.max() < parts)
            )
        except (KeyError, ValueError, IndexError, TypeError):
            valid = False
        if not valid:
            raise DamagedError("the division of the graph does not fit it; restore it, or save again.")
        return cls(order.astype(np.int32), starts.astype(np.int64), root.astype(np.float32), coarse.astype(np.float32))


class TwoLevelSolver:
    """A divided graph, ready for solutions near y alone; any number of threads may use it."""

    def __init__(self, aggregation: Aggregation, matrix: "_core.Matrix") -> None:
        self.aggregation = aggregation
        self._matrix = matrix
        self._idle: list[_core.TwoLevelSolver] = []
        """Solvers not in use, of as many as there were threads at work."""

    def solve(
        self,
        columns: Iterable[tuple[IntArray, FloatArray]],
        alpha: float,
        max_iter: int,
        tol: float,
        *,
        budget: int = CONFIG.budget,
    ) -> Solution:
        """Solve by conjugate gradient with the neighbourhood of y in full detail and the rest by parts.

        One column at a time, each given by the regions and the values of its entries. The residual reported is that of
        the projected system: exact for the regions that were resolved, and for each of the other parts as a whole. It
        is a lower bound on the residual of the whole system, and equal to it where S has no more than `budget` entries.
        """
        try:
            solver = self._idle.pop()
        except IndexError:  # all are at work in other threads
            solver = self._solver()
        first = max(1, round(CONFIG.refine_after * max_iter))
        scores, reports = [], []
        for rows, values in columns:
            f = np.empty(len(self.aggregation.order), np.float32)
            reports.append(solver.solve(rows, values, alpha, max_iter, tol, budget, CONFIG.max_parts, first, f))
            scores.append(f)
        self._idle.append(solver)
        iterations, residuals, regions = zip(*reports, strict=True) if reports else ((), (), ())
        return Solution(
            np.stack(scores, axis=1) if scores else np.empty((len(self.aggregation.order), 0), np.float32),
            np.array(iterations, np.int32),
            np.array(residuals, np.float32),
            np.array(regions, np.int32),
        )

    def _solver(self) -> "_core.TwoLevelSolver":
        order, starts, root, coarse = self.aggregation
        coarse_matrix = core.Matrix(coarse.indptr.astype(np.int64), coarse.indices.astype(np.int32), coarse.data)
        solver: _core.TwoLevelSolver = core.TwoLevelSolver(self._matrix, order, starts, root, coarse_matrix)
        return solver


def aggregate(
    S: sp.csr_array, matrix: "_core.Matrix", solve: Callable[[FloatArray, float, int, float], Solution]
) -> Aggregation:
    """Divide a graph into parts; `solve` solves on it."""
    part = np.empty(S.shape[0], np.int32)
    core.aggregate(matrix, CONFIG.part_regions, CONFIG.max_part_regions, part)
    n, parts = len(part), int(part.max(initial=-1)) + 1
    root = solve(np.ones((n, 1), np.float32), CONFIG.smoothing_alpha, CONFIG.smoothing_steps, 1e-6).scores[:, 0].clip(0)
    root[np.diff(S.indptr) == 0] = 0
    norms = np.sqrt(np.bincount(part, root.astype(np.float64) ** 2, parts))
    root = np.divide(root, norms[part], out=np.zeros(n, np.float32), where=norms[part] > 0)
    C = sp.csr_array((root, part, np.arange(n + 1, dtype=np.int32)), shape=(n, parts))
    coarse = sp.csr_array(C.T @ (S @ C), dtype=np.float32)
    order = np.argsort(part, kind="stable").astype(np.int32)
    starts: npt.NDArray[np.int64] = np.searchsorted(part[order], np.arange(parts + 1)).astype(np.int64)
    return Aggregation(order, starts, root[order], coarse)

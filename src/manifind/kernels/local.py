"""Solve (I − αS) f = (1 − α) y in full detail near y alone, at a cost that hardly grows with the graph.

The regions are divided into parts, some twenty neighbours each, once for a graph. On a part, f is taken to be a
multiple of the vector that S leaves as it is, the root of the degrees, as it nearly is far from y: the part is one
unknown. Parts that matter are resolved, and their regions are unknowns of their own. What is solved is the projection
of the system on such f (Galerkin's), (I − αPᵀSP) x = (1 − α)Pᵀy with f = Px: nothing that flows out of the resolved
parts is lost, and the regions far away keep the background of scores that hubs get from any query.

At first the parts of y are resolved; after some iterations of conjugate gradient those too where the scores are largest
by then, as many as the budget allows, and it goes on from there. The parts are those of aggregation in algebraic
multigrid (Vaněk, Mandel, Brezina 1996), then each region goes where the most of its edges lead.
"""

import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.kernels import native
from manifind.kernels.native import Parts
from manifind.kernels.solve import Solution, conjugate_gradient
from manifind.types import FloatArray, IntArray

if TYPE_CHECKING:
    from manifind.kernels import _core

BUDGET = 750_000
"""Entries of the system that is solved: what a product costs. Where S has no more, it is the whole system. On Oxford5k
(k = 50, 100 and 200), from 700,000 to 1,000,000, mAP differs from that of the whole graph by 0.2 points at most; with
600,000 at k = 200, whose parts exchange 470,000, by 0.6."""
MOST_PARTS = 6000
"""Parts that take part in a solution: all of them, on a graph of some hundred thousand regions."""
FIRST = 0.3
"""Share of the iterations after which more is resolved. Later it knows better what, and has less time for it."""
PART, LARGEST_PART = 26, 50
"""Regions of a part, about and at most. Smaller parts are more exact and exchange more."""
SMOOTH, SMOOTHING = 0.999, 100
"""The α and the iterations of the diffusion from everywhere that finds the vector which S leaves as it is; it need be
right within each part only."""


def solve_locally(
    S: sp.csr_array,
    y: FloatArray,
    alpha: float,
    max_iter: int,
    tol: float,
    *,
    budget: int = BUDGET,
    most: int = MOST_PARTS,
) -> Solution:
    """Solve by conjugate gradient with the neighbourhood of y in full detail and the rest by parts.

    One column at a time. The residual reported is that of the projected system: exact for the regions that were
    resolved, and for each of the other parts as a whole; it is a lower bound on that of the whole system, and equal to
    it where S has no more than `budget` entries. The first call on a graph divides it.
    """
    if native.core is None:
        from manifind.kernels import plain

        return plain.solve_locally(S, y, alpha, max_iter, tol, _kept(S), budget, most)
    parts, ordered, idle = _divided_once(S)
    try:
        solver = idle.pop()
    except IndexError:  # all are at work in other threads
        solver = _solver(parts, ordered)
    scores = np.empty(y.shape[::-1], np.float32)
    first = max(1, round(FIRST * max_iter))
    reached = []
    for column, f in zip(y.T, scores, strict=True):
        rows = np.flatnonzero(column).astype(np.int32)
        values = column[rows].astype(np.float32)
        reached.append(solver.solve(rows, values, alpha, max_iter, tol, budget, most, first, f))
    idle.append(solver)
    iterations, residuals, regions = zip(*reached, strict=True) if reached else ((), (), ())
    return Solution(
        np.ascontiguousarray(scores.T),
        np.array(iterations, np.int32),
        np.array(residuals, np.float32),
        np.array(regions, np.int32),
    )


def prepare_locally(S: sp.csr_array) -> None:
    """Divide a graph now, which its first solution otherwise does."""
    if native.core is None:
        _kept(S)
    else:
        _divided_once(S)


def _divided_once(S: sp.csr_array) -> "tuple[Parts, _core.Matrix, list[_core.LocalSolver]]":
    ready = native.prepared(S)
    with _dividing:
        if ready.divided is None:
            parts = divided(S)
            ready.divided = parts, ready.in_order(parts.order)
            if ready.ordered is None:  # it serves a batch nearly as well
                ready.ordered = ready.divided[1], parts.order
    return *ready.divided, ready.local


def is_divided(S: sp.csr_array) -> bool:
    """Whether a solution near y alone can begin at once."""
    return id(S) in _parts if native.core is None else native.prepared(S).divided is not None


def _solver(parts: Parts, ordered: "_core.Matrix") -> "_core.LocalSolver":
    order, starts, root, flow = parts
    coarse = native.core.Matrix(flow.indptr.astype(np.int64), flow.indices.astype(np.int32), flow.data)
    solver: _core.LocalSolver = native.core.LocalSolver(ordered, order, starts, root, coarse)
    return solver


_parts: dict[int, Parts] = {}
_dividing = threading.Lock()


def _kept(S: sp.csr_array) -> Parts:
    """Return the parts of `S`, made once and kept while it lives; where there is no core to keep them with."""
    if id(S) not in _parts:
        _parts[id(S)] = divided(S)
        weakref.finalize(S, _parts.pop, id(S), None)
    return _parts[id(S)]


def divided(S: sp.csr_array) -> Parts:
    """Divide a graph into parts."""
    part = _divide(S)
    n, parts = len(part), int(part.max(initial=-1)) + 1
    everywhere = np.ones((n, 1), np.float32)
    root = conjugate_gradient(S, everywhere, SMOOTH, SMOOTHING, 1e-6).scores[:, 0].clip(0)
    root[np.diff(S.indptr) == 0] = 0
    norms = np.sqrt(np.bincount(part, root.astype(np.float64) ** 2, parts))
    root = np.divide(root, norms[part], out=np.zeros(n, np.float32), where=norms[part] > 0)
    C = sp.csr_array((root, part, np.arange(n + 1, dtype=np.int32)), shape=(n, parts))
    flow = sp.csr_array(C.T @ (S @ C), dtype=np.float32)
    order = np.argsort(part, kind="stable").astype(np.int32)
    starts: npt.NDArray[np.int64] = np.searchsorted(part[order], np.arange(parts + 1)).astype(np.int64)
    return Parts(order, starts, root[order], flow)


def _divide(S: sp.csr_array) -> IntArray:
    if native.core is None:
        from manifind.kernels import plain

        return plain.divide(S, PART, LARGEST_PART)
    part = np.empty(S.shape[0], np.int32)
    native.core.divide(native.prepared(S).matrix, PART, LARGEST_PART, part)
    return part

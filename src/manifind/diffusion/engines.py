"""The ways to solve (I − αS) f = (1 − α) y, by the name that ``search(engine=...)`` knows them by.

An engine is one entry of `ENGINES`: how it solves, what it prepares off line if anything, whether it needs the whole
graph, and how what it prepared is saved. Searches, ``Manifold.prepare``, the automatic choice, the evaluation and the
documentation read that table and nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion import offline, spectral
from manifind.diffusion.iteration import iterate
from manifind.diffusion.seeding import Seed, dense
from manifind.errors import InvalidInput
from manifind.kernels import Dividing, Rows, Seeded, Solution, System, backend
from manifind.kernels.cpu.local import Divided, Division
from manifind.types import FloatArray, IntArray, Progress

AUTO = "auto"
WHOLE_UP_TO, LOCAL_UP_TO = 200_000, 8
"""By default the whole graph is solved for where it has up to the first number of regions. On larger graphs that were
divided, up to the second number of queries at a time are solved by the local engine."""


class Setting(NamedTuple):
    """The parameters of a solution."""

    alpha: float
    max_iter: int
    """The most products with S that the solver may spend."""
    tol: float
    """The relative residual at which the solver stops."""


class Ground(NamedTuple):
    """The whole graph of a collection, from which an engine prepares what it needs."""

    system: System
    S: sp.csr_array
    rows: Rows
    neighbours: IntArray
    """(n, k) ids."""


class Prepared(NamedTuple):
    """What an engine made of a graph off line."""

    engine: str
    size: int
    alpha: float | None
    """The α for which it was prepared; None means that it serves any α."""
    state: Any
    """What the engine's `solve` takes."""

    def serves(self, alpha: float) -> bool:
        """Whether it can be used with this α."""
        return self.alpha in (None, alpha)


@dataclass(frozen=True)
class Engine:
    """One way to solve."""

    name: str
    words: str
    """What it does, in a sentence."""
    solve: Callable[[System, Sequence[Seed], Setting, Any], Solution]
    """Called with the system, the seeds, the setting and what was prepared, or None."""
    prepare: Callable[[Ground, int, Setting, Progress | None], Any] | None = None
    """Called with the whole graph, a size, the setting and progress: returns what `solve` takes."""
    needs_alpha: bool = False
    """Whether what it prepares holds for one α only."""
    whole: bool = False
    """Whether it needs the whole graph of the collection, so that it can neither truncate nor append."""
    to_arrays: Callable[[Any], dict[str, npt.NDArray[Any]]] | None = None
    """Returns what was prepared as arrays to save; None where it is not saved."""
    from_arrays: Callable[[System, Mapping[str, npt.NDArray[Any]]], Any] | None = None
    """Returns what `to_arrays` wrote, for this system; None where that system has no use for it."""
    possible: Callable[[System], bool] = lambda _: True
    """Says whether a system can use what was saved."""
    pools: bool = False
    """Whether a system that pools (`Pooling`) may do both for this engine: solve, and pool."""


def _conjugate_gradient(system: System, seeds: Sequence[Seed], setting: Setting, _: None) -> Solution:
    if isinstance(system, Seeded):
        return system.solve_seeds(seeds, *setting)
    return system.solve(dense(seeds, system.size), *setting)


def _iteration(system: System, seeds: Sequence[Seed], setting: Setting, _: None) -> Solution:
    return iterate(system, dense(seeds, system.size), *setting)


def _locally(system: System, seeds: Sequence[Seed], setting: Setting, divided: Divided | None) -> Solution:
    if divided is None:  # a graph of its own, of a shortlist say
        divided = _divide(system)
    return divided.solve(seeds, *setting)


def _divide(system: System) -> Divided:
    if not isinstance(system, Dividing):
        raise InvalidInput(
            "engine='local' is in the compiled core (manifind info --system says whether it is there); use engine='cg'."
        )
    return system.divide()


def _divided_again(system: System, arrays: Mapping[str, npt.NDArray[Any]]) -> Divided | None:
    return system.divide(Division.from_arrays(arrays, system.size)) if isinstance(system, Dividing) else None


def _columns(ground: Ground, size: int, setting: Setting, progress: Progress | None) -> offline.Columns:
    return offline.columns(ground.S, ground.rows, ground.neighbours, **setting._asdict(), size=size, progress=progress)


def _without_iterations(scores: FloatArray) -> Solution:
    """Return scores as a solver does: there were no iterations, and the residual is not known without one."""
    columns = scores.shape[1]
    return Solution(scores, np.zeros(columns, np.int32), np.full(columns, np.nan, np.float32))


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            "cg",
            "Conjugate gradient on the whole system (Sec. 4.3).",
            _conjugate_gradient,
            pools=True,
        ),
        Engine("iteration", "The iteration of eq. 3, which needs several times as many products.", _iteration),
        Engine(
            "local",
            "Conjugate gradient with the neighbourhood of the query in detail and the rest of the graph in parts.",
            _locally,
            lambda ground, _size, _setting, _progress: _divide(ground.system),
            to_arrays=lambda divided: divided.division.to_arrays(),
            from_arrays=_divided_again,
            possible=lambda system: isinstance(system, Dividing),
        ),
        Engine(
            "offline",
            "A sum of columns of the inverse, each solved off line on the regions nearest to its own.",
            lambda _system, seeds, _setting, solved: _without_iterations(offline.combine(solved, seeds)),
            _columns,
            needs_alpha=True,
            whole=True,
            to_arrays=lambda solved: solved._asdict(),
            from_arrays=lambda system, arrays: offline.Columns.from_arrays(arrays, system.size),
        ),
        Engine(
            "spectral",
            "Products with the largest eigenvectors of S, found off line.",
            lambda _system, seeds, setting, spectra: _without_iterations(
                spectral.combine(spectra, seeds, setting.alpha)
            ),
            lambda ground, size, _setting, progress: spectral.decompose(ground.S, size, progress=progress),
            whole=True,
        ),
    )
}


def prepare(engine: str, ground: Ground, size: int, setting: Setting, progress: Progress | None = None) -> Prepared:
    """Do the off-line half of an engine that has one."""
    wanted = ENGINES[engine]
    if wanted.prepare is None:
        raise InvalidInput(f"engine={engine!r} has nothing to prepare.")
    state = wanted.prepare(ground, size, setting, progress)
    return Prepared(engine, size, setting.alpha if wanted.needs_alpha else None, state)


def best_engine(regions: int, queries: int, *, divided: bool) -> str:
    """Return the engine for so many queries at once on a whole graph: the fastest of equal quality.

    On the whole graph the answer of one query and of many are the same, which is worth some milliseconds; beyond
    `WHOLE_UP_TO` regions the neighbourhood is solved for in a fraction of the time, unless enough queries share a pass,
    once the graph was divided for it. ``benchmarks/speed.py engines`` has the times, and mAP.
    """
    return "local" if divided and regions > WHOLE_UP_TO and queries <= LOCAL_UP_TO else "cg"


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
        "cg" is conjugate gradient (Sec. 4.3). "iteration" is the iteration of eq. 3. "local" is conjugate gradient with
        the neighbourhood of y in full detail and the rest of the graph in parts.

    Returns
    -------
    Solution
        Scores of the shape of `y`; the iterations and relative residuals reached, an entry for each right-hand side.
    """
    columns = np.asarray(y, np.float32).reshape(S.shape[0], -1)
    seeds = [Seed(rows := np.flatnonzero(column).astype(np.int32), column[rows]) for column in columns.T]
    solution = ENGINES[engine].solve(backend().system(S), seeds, Setting(alpha, max_iter, tol), None)
    return solution._replace(scores=solution.scores.reshape(np.shape(y)))

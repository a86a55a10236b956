"""Engines that do most of the work before there is a query: off-line columns, and spectra."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from manifind.diffusion import offline, spectral
from manifind.diffusion.seeding import Seed
from manifind.kernels import Solution
from manifind.types import FloatArray, IntArray, Progress, Vectors

PREPARED = ("offline", "spectral")


class Prepared(NamedTuple):
    """What an engine made of a graph."""

    S: sp.csr_array
    """The graph."""
    size: int
    alpha: float | None
    """The α that it holds for; None is any."""
    scores: Callable[[Sequence[Seed], float], FloatArray]
    """Scores (n, b) of the queries with these seeds, for an α."""

    def serves(self, S: sp.csr_array, alpha: float) -> bool:
        """Whether it was made of this very graph, for this α."""
        return self.S is S and self.alpha in (None, alpha)

    def solve(self, seeds: Sequence[Seed], alpha: float) -> Solution:
        """Return the scores as a solver does. There are no iterations, and the residual is not known without one."""
        scores = self.scores(seeds, alpha)
        return Solution(scores, np.zeros(len(seeds), np.int32), np.full(len(seeds), np.nan, np.float32))


def prepare(
    engine: str,
    S: sp.csr_array,
    vectors: Vectors,
    neighbours: IntArray,
    size: int,
    *,
    alpha: float,
    max_iter: int,
    tol: float,
    progress: Progress | None = None,
) -> Prepared:
    """Do the off-line half of an engine of `PREPARED`; `size` is that of each column's part, or the rank."""
    if engine == "spectral":
        spectra = spectral.decompose(S, size, progress=progress)
        return Prepared(S, size, None, lambda seeds, alpha: spectral.combine(spectra, seeds, alpha))
    solved = offline.columns(
        S, vectors, neighbours, alpha=alpha, size=size, max_iter=max_iter, tol=tol, progress=progress
    )
    return Prepared(S, size, alpha, lambda seeds, _: offline.combine(solved, seeds))

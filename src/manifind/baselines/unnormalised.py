"""Regional diffusion by the unnormalised system, which converges slower by eq. 18."""

import numpy as np

from manifind.baselines.diffusion import RegionalDiffusion
from manifind.baselines.scorer import QueryDescriptors
from manifind.kernels import backend, dense_columns
from manifind.kernels.cpu.block_cg import conjugate_gradient_of
from manifind.ranking import Ranking
from manifind.types import FloatArray

SOLVED_RATIO = 1e-13
"""A column is solved once its squared residual has fallen by this factor: float32 can do no more."""


class UnnormalisedDiffusion(RegionalDiffusion):
    """Conjugate gradient on (D − αA) D^(−1/2) f = (1 − α) D^(1/2) y, eq. 18, with the f of the diffusion.

    The paper solves (I − αS) f = (1 − α) y instead, the same system with its diagonal scaled to one: "it improves
    convergence" (Sec. 4.3). The solver takes `max_iter` steps, whatever `tol`. The residual of a ranking is that of f
    in the paper's own system, so that the two compare.
    """

    def _rank(self, queries: list[QueryDescriptors], top: int | None) -> list[Ranking]:
        if not queries:
            return []
        manifold = self.manifold_
        multiply = backend().operator(manifold.S_).matmul
        steps = manifold.max_iter
        seeds = manifold.seeds([query.regions for query in queries])
        alpha = np.float32(manifold.alpha)
        right = (1 - alpha) * dense_columns(seeds, len(manifold.vectors_))
        # A region without neighbours has no degree; its equation is f = (1 − α) y by any scale.
        roots = np.sqrt(np.where(manifold.degrees_ > 0, manifold.degrees_, 1))[:, None].astype(np.float32)

        def system(g: FloatArray) -> FloatArray:
            f = roots * g
            product: FloatArray = roots * (f - alpha * multiply(f))
            return product

        b = roots * right
        f = roots * conjugate_gradient_of(system, b, steps, np.float32(SOLVED_RATIO) * (b * b).sum(axis=0))
        norms = np.linalg.norm(right, axis=0)
        residuals = np.linalg.norm(right - f + alpha * multiply(f), axis=0) / np.where(norms > 0, norms, 1)
        return self._rank_regions(f, top, steps, residuals.tolist(), seeds)

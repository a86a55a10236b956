"""Regional diffusion by the system that is not normalised: what eq. 18 says converges slower."""

from collections.abc import Callable

import numpy as np

from manifind.baselines.diffusion import RegionalDiffusion
from manifind.baselines.scorer import Asked, Collection
from manifind.diffusion import dense
from manifind.kernels import Pool, backend
from manifind.manifold import Manifold
from manifind.ranking import Ranking, best_first, pooled
from manifind.types import FloatArray

SOLVED = np.float32(1e-13)
"""A column is left alone once its squared residual has fallen by this factor: float32 can do no more."""


class UnnormalisedDiffusion(RegionalDiffusion):
    """Conjugate gradient on (D − αA) D^(−1/2) f = (1 − α) D^(1/2) y, eq. 18, of which f is the diffusion's.

    The paper solves (I − αS) f = (1 − α) y instead, which is the same system with its diagonal scaled to one: "it
    improves convergence" (Sec. 4.3). This is here to see by how much. `max_iter` steps are taken, whatever `tol`; the
    residual of a ranking is that of f in the paper's own system, so that the two compare.
    """

    def _keep(self, collection: Collection) -> None:
        super()._keep(collection)
        self._multiply = backend().system(self.manifold_.S_).multiply

    def _rank(self, asked: list[Asked], top: int | None) -> list[Ranking]:
        if not asked:
            return []
        manifold = self.manifold_
        steps = self.parameters.get("max_iter", Manifold().max_iter)
        manifold.set_params(max_iter=1)  # for y alone
        seeds = [ranking.seed for ranking in super()._rank(asked, 1) if ranking.seed is not None]
        alpha = np.float32(manifold.alpha)
        right = (1 - alpha) * dense(seeds, len(manifold.vectors_))
        # A region without neighbours has no degree; its equation is f = (1 − α) y by any scale.
        roots = np.sqrt(np.where(manifold.degrees_ > 0, manifold.degrees_, 1))[:, None].astype(np.float32)

        def system(g: FloatArray) -> FloatArray:
            f = roots * g
            product: FloatArray = roots * (f - alpha * self._multiply(f))
            return product

        f = roots * _conjugate_gradient(system, roots * right, steps)
        residuals = _ratio(np.linalg.norm(right - f + alpha * self._multiply(f), axis=0), np.linalg.norm(right, axis=0))
        of_images = pooled(f, Pool(manifold.layout_.starts, manifold.weights_))
        orders = [best_first(scores, top) for scores in of_images.T]
        return [
            Ranking(manifold.layout_.images[order], scores[order], iterations=steps, residual=float(residual))
            for order, scores, residual in zip(orders, of_images.T, residuals, strict=True)
        ]


def _conjugate_gradient(system: Callable[[FloatArray], FloatArray], right: FloatArray, steps: int) -> FloatArray:
    """Take so many steps from zero, for each column; a column that is solved stays as it is."""
    x, residual = np.zeros_like(right), right.copy()
    direction, squared = residual.copy(), (residual**2).sum(axis=0)
    solved = SOLVED * squared
    for _ in range(steps):
        live = np.where(squared > solved, squared, 0)
        if not live.any():
            break
        product = system(direction)
        step = _ratio(live, (direction * product).sum(axis=0))
        x += step * direction
        residual -= step * product
        before, squared = squared, (residual**2).sum(axis=0)
        direction = residual + _ratio(squared, np.where(live > 0, before, 0)) * direction
    return x


def _ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    found: FloatArray = np.divide(a, b, out=np.zeros_like(a), where=b > 0)
    return found

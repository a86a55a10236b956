"""Diffusion behind the contract of the baselines: on global descriptors, on all regions, on a few regions an image."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from manifind.baselines import offline, spectral
from manifind.baselines.scorer import CollectionDescriptors, ImageScorer, QueryDescriptors
from manifind.checks import check_choice, check_int
from manifind.diffusion import SOLVERS, Seed
from manifind.errors import InvalidInputError
from manifind.gmm import compact
from manifind.groups import Layout
from manifind.kernels import Pool, backend, batch_size, dense_columns
from manifind.kernels.cpu.block_cg import conjugate_gradient_of
from manifind.kernels.topk import argsort_topk
from manifind.manifold import Manifold
from manifind.ranking import Ranking
from manifind.types import FloatArray, Progress

SEARCH_PARAMETERS = {"query_k", "alpha", "max_iter", "tol", "seeding", "solver", "shortlist"}
"""All other parameters belong to the graph."""
NAMED = ("k", "query_k", "solver", "size", "shortlist")
"""Attributes of `RegionalDiffusion`. All other parameters go to `Manifold`."""


@dataclass(frozen=True)
class PreparedSolver:
    """A solver that does most of its work off line, on the whole graph, and knows no residual."""

    prepare: Callable[[Manifold, int, Progress | None], Any]
    """Called with the fitted manifold, a size and progress; returns what `solve` takes."""
    solve: Callable[[Any, Sequence[Seed], float], FloatArray]
    """Called with what was prepared, seeds and α; returns the scores of regions, (n, b)."""


def _solve_columns(manifold: Manifold, size: int, progress: Progress | None) -> offline.Columns:
    return offline.columns(
        manifold.S_,
        manifold.vectors_,
        manifold.neighbours_.ids,
        alpha=manifold.alpha,
        size=size,
        max_iter=manifold.max_iter,
        tol=manifold.tol,
        progress=progress,
    )


PREPARED_SOLVERS = {
    "offline": PreparedSolver(_solve_columns, lambda columns, seeds, _: offline.combine(columns, seeds)),
    "spectral": PreparedSolver(
        lambda manifold, size, progress: spectral.decompose(manifold.S_, size, progress=progress), spectral.combine
    ),
}
"""Solvers that the paper and its successors compare with, beside those of `manifind.diffusion`. "offline" sums columns
of the inverse, each solved off line on the regions nearest to its own. "spectral" multiplies with the largest
eigenvectors of S."""


def _needs_prepare(solver: Any) -> bool:
    return solver in PREPARED_SOLVERS or (solver in SOLVERS and SOLVERS[solver].prepare is not None)


class RegionalDiffusion(ImageScorer):
    """Diffusion on all regions: the paper's method, with its parameters.

    Parameters
    ----------
    k, query_k : int, default 200
        Neighbours of each region of the collection, and of the query: Sec. 5.2.
    solver : str, default "cg"
        As in `Manifold.search`, or "offline" or "spectral", which search the whole collection only.
    size : int, default 1000
        The regions around each region for "offline", or the eigenvectors for "spectral": at most n, with which nothing
        is left out. "offline" keeps 8 · n · `size` bytes, and "spectral" 4 · n · `size`. How many eigenvectors are
        enough grows with n; a thousand serve some thousands of regions.
    shortlist : int, optional
        Diffuse only on so many images, the most similar by global descriptor: Sec. 4.4.
    parameters
        Others of `Manifold`.
    """

    manifold_: Manifold

    def __init__(
        self,
        *,
        k: int = 200,
        query_k: int = 200,
        solver: str = "cg",
        size: int = 1000,
        shortlist: int | None = None,
        **parameters: Any,
    ) -> None:
        self.k = k
        self.query_k = query_k
        self.solver = solver
        self.size = size
        self.shortlist = shortlist
        self.parameters = parameters
        self._seconds: dict[str, float] = {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as they were given."""
        params = super().get_params(deep)
        del params["parameters"]
        return {**params, **{name: getattr(self, name) for name in NAMED}, **self.parameters}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters: those of this class, or any of `Manifold`."""
        known = {**self.get_params(), **Manifold().get_params()}
        for name, value in parameters.items():
            check_choice(name, known, "parameter")
            if hasattr(self, name):
                setattr(self, name, value)
            else:
                self.parameters = {**self.parameters, name: value}
        return self

    def try_params(self, parameters: dict[str, Any]) -> bool:
        """Take these parameters without fitting anew and return True; return False if they need a new ``fit``."""
        current = self.get_params()
        changed = {name for name in {*current, *parameters} if current.get(name) != parameters.get(name)}
        if not changed <= SEARCH_PARAMETERS or _needs_prepare(parameters.get("solver")):
            return not changed
        new = {name: parameters[name] for name in changed}
        self.set_params(**new)
        self.manifold_.set_params(**{name: new[name] for name in changed - {"solver", "shortlist"}})
        return True

    def costs(self) -> dict[str, float]:
        """Return the seconds of mixtures, graph and preparation, the edges a region, and the bytes in memory."""
        manifold = self.manifold_
        S, lists = manifold.S_, manifold.neighbours_
        return {
            **{f"{stage}_seconds": seconds for stage, seconds in self._seconds.items()},
            "regions": float(S.shape[0]),
            "edges_a_region": S.nnz / S.shape[0],
            "neighbours_bytes": float(lists.ids.nbytes + lists.similarities.nbytes),
            "affinity_bytes": float(S.data.nbytes + S.indices.nbytes + S.indptr.nbytes),
            "descriptors_bytes": float(manifold.vectors_.nbytes),
        }

    def _fit(self, collection: CollectionDescriptors) -> None:
        vectors, layout = collection.vectors, collection.layout
        size, prepared = check_int(self.size, "size"), PREPARED_SOLVERS.get(self.solver)
        if self.shortlist is not None:
            check_int(self.shortlist, "shortlist")
            if prepared is not None:
                raise InvalidInputError(
                    f"solver={self.solver!r} is prepared on the whole graph and a shortlist needs another; use "
                    "solver='cg' for it.",
                    code="whole-graph-solver",
                )
        manifold = Manifold(k=self.k, query_k=self.query_k, **self.parameters)
        manifold.check_params()
        lists = None
        if collection.find is not None and manifold.knn != "nn-descent" and len(vectors) > 1:
            lists = collection.find(vectors, min(self.k, len(vectors) - 1), collection.progress)
        began = time.perf_counter()
        self.manifold_ = manifold.fit(
            vectors,
            layout.image_of,
            neighbours=lists,
            global_vectors=collection.given_global,
            progress=collection.progress,
        )
        self._seconds["affinity" if lists is not None else "graph"] = time.perf_counter() - began
        if _needs_prepare(self.solver):
            began = time.perf_counter()
            if prepared is None:
                self.manifold_.prepare(self.solver)
            else:
                self._prepared = prepared.prepare(self.manifold_, size, collection.progress)
            self._seconds["prepare"] = time.perf_counter() - began

    def _rank(self, queries: list[QueryDescriptors], top: int | None) -> list[Ranking]:
        if not queries:
            return []
        if self.solver in PREPARED_SOLVERS:
            solver, step = PREPARED_SOLVERS[self.solver], batch_size(len(self.manifold_.vectors_))
            batches = [queries[start : start + step] for start in range(0, len(queries), step)]
            return [ranking for batch in batches for ranking in self._rank_prepared(solver, batch, top)]
        return self.manifold_.search_many(
            [query.regions for query in queries],
            top,
            solver=self.solver,
            shortlist=self.shortlist,
            global_vectors=None if queries[0].given_global is None else [query.global_vector for query in queries],
        )

    def _rank_prepared(self, solver: PreparedSolver, queries: list[QueryDescriptors], top: int | None) -> list[Ranking]:
        seeds = self.manifold_.seeds([query.regions for query in queries])
        scores = solver.solve(self._prepared, seeds, self.manifold_.alpha)
        return self._rank_regions(scores, top, 0, [math.nan] * len(queries), seeds)

    def _rank_regions(
        self, scores: FloatArray, top: int | None, iterations: int, residuals: Sequence[float], seeds: Sequence[Seed]
    ) -> list[Ranking]:
        """Rank the images for the scores of all regions, (n, b), one column a query."""
        manifold = self.manifold_
        images, tol = manifold.layout_.images, manifold.tol
        pooled = Pool(manifold.layout_.starts, manifold.weights_).pool_scores(scores)
        rankings = []
        for of_images, of_regions, residual, seed in zip(pooled.T, scores.T, residuals, seeds, strict=True):
            order = argsort_topk(of_images, top)
            rankings.append(
                Ranking(
                    images[order],
                    of_images[order],
                    iterations=iterations,
                    residual=residual,
                    converged=residual <= tol,
                    seed=seed,
                    _region_scores=partial(np.asarray, of_regions),
                )
            )
        return rankings

    def _score(self, query: QueryDescriptors) -> FloatArray:
        (ranking,) = self._rank([query], None)
        return ranking.scores[ranking.images.argsort()]


class GlobalDiffusion(RegionalDiffusion):
    """Diffusion on one global descriptor an image: Sec. 5.2 for k and query_k."""

    def __init__(self, *, k: int = 50, query_k: int = 10, **parameters: Any) -> None:
        super().__init__(k=k, query_k=query_k, **parameters)

    def _fit(self, collection: CollectionDescriptors) -> None:
        layout = Layout.of(collection.layout.images)
        super()._fit(
            CollectionDescriptors(collection.global_vectors, layout, None, collection.find, collection.progress)
        )

    def _rank(self, queries: list[QueryDescriptors], top: int | None) -> list[Ranking]:
        return super()._rank([QueryDescriptors(query.global_vector[None]) for query in queries], top)


class CompactDiffusion(RegionalDiffusion):
    """Diffusion on the means of each image's Gaussian mixture (Sec. 4.4); the query keeps all its regions.

    Parameters
    ----------
    regions_per_image : int, default 5
        Means of each image, as many as in the paper's table.
    k, query_k : int, default 50
        Fewer than for all regions, "as there are now less positive neighbors" (Sec. 5.2).
    parameters
        Others of `RegionalDiffusion`.
    """

    def __init__(self, *, regions_per_image: int = 5, k: int = 50, query_k: int = 50, **parameters: Any) -> None:
        super().__init__(k=k, query_k=query_k, **parameters)
        self.regions_per_image = regions_per_image

    def _fit(self, collection: CollectionDescriptors) -> None:
        count, layout = check_int(self.regions_per_image, "regions_per_image"), collection.layout
        began = time.perf_counter()
        few = compact(collection.vectors, layout.image_of, regions_per_image=count)
        self._seconds["mixtures"] = time.perf_counter() - began
        super()._fit(
            CollectionDescriptors(
                few.vectors, Layout.of(few.image_of), collection.global_vectors, collection.find, collection.progress
            )
        )


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

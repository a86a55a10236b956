"""Queries → rankings: seeded on the graph and solved for many at a time, on all of it or on shortlists."""

import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from manifind.diffusion import Seed, Solution, append, opposed, seed, taught
from manifind.diffusion.engines import Engine
from manifind.errors import ManifindWarning, NotFitted
from manifind.graph import Neighbours, normalise
from manifind.kernels import Pooling, System
from manifind.manifold.fitted import Fitted
from manifind.manifold.parameters import Parameters
from manifind.manifold.part import Part, Places
from manifind.ranking import Ranking, best_first, pooled
from manifind.types import FloatArray, IntArray

BATCH_BYTES = 2**28
"""How many bytes the right-hand sides and the scores of one batch may take together."""
LARGEST_BATCH = 64


def batch_size(regions: int) -> int:
    """Return how many queries are solved for at once on a graph of so many regions."""
    return max(1, min(LARGEST_BATCH, BATCH_BYTES // (8 * regions)))


@dataclass(frozen=True)
class Request:
    """A query as a manifold answers it."""

    regions: FloatArray
    """The descriptors of the query's regions, (m, d)."""
    against: FloatArray | None = None
    """The descriptors of the regions that the query does not mean."""
    rows: IntArray | None = None
    """For each region of the query its number in the collection, or -1 where it is not in the collection. The
    neighbours of regions of the collection are in the graph already."""
    lessons: int = 0
    """How many of the regions, the last ones, the query was not given but taught."""


@dataclass(frozen=True)
class Manner:
    """How requests are answered."""

    parameters: Parameters
    engine: Engine
    top: int | None = None
    """How many images to return; None returns all of them."""
    keep_regions: bool = False
    """Whether to hold the scores of all n regions of each query. Otherwise a ranking that is asked for them searches
    again."""


@dataclass(frozen=True)
class Searcher:
    """Answers requests on one fitted state, all in the same manner."""

    fitted: Fitted
    manner: Manner

    def answer(self, requests: Sequence[Request], places: Sequence[Places] | Places | None = None) -> list[Ranking]:
        """Rank the images at `places`, or all, for each request: requests on the same images share each pass."""
        if isinstance(places, Sequence):
            return [ranking for one, own in zip(requests, places, strict=True) for ranking in self._answer([one], own)]
        size = batch_size(len(self.fitted.vectors)) if self._pooling(self.fitted.system) is None else LARGEST_BATCH
        starts = range(0, len(requests), size)
        return [ranking for start in starts for ranking in self._answer(requests[start : start + size], places)]

    def _answer(self, requests: Sequence[Request], places: Places | None) -> list[Ranking]:
        part = Part.of(self.fitted, places)
        solve = self._appended if self.manner.parameters.seeding == "append" else self._seeded
        solution, seeds = solve(requests, part)
        self._warn_unless_converged(solution)
        scores = pooled(solution.scores, part.pool) if self._pooling(part.system) is None else solution.scores
        rankings = [self._ranking(part, solution, scores, column, one) for column, one in enumerate(seeds)]
        if self.manner.keep_regions:
            return rankings
        # A ranking does not hold the scores of all regions: it searches again if it is asked for them.
        again = partial(_searched_again, weakref.ref(self.fitted), replace(self.manner, keep_regions=True))
        return [
            replace(ranking, _region_scores=partial(again, request, places))
            for ranking, request in zip(rankings, requests, strict=True)
        ]

    def _pooling(self, system: System) -> Pooling | None:
        """Return the system where it pools too, and its solutions come as scores of images; None where it does not."""
        manner = self.manner
        may = manner.engine.pools and manner.parameters.seeding != "append"
        return system if may and isinstance(system, Pooling) else None

    def _ranking(self, part: Part, solution: Solution, of_images: FloatArray, column: int, own: Seed | None) -> Ranking:
        scores = of_images[:, column]
        order = best_first(scores, self.manner.top)
        if own is not None and part.runs is not None:
            own = Seed(part.runs.at(own.regions), own.values)
        residual = float(solution.residuals[column])
        return Ranking(
            part.images[order],
            scores[order],
            iterations=int(solution.iterations[column]),
            residual=residual,
            converged=residual <= self.manner.parameters.tol,
            reached=None if solution.regions is None else int(solution.regions[column]),
            seed=own,
            _region_scores=lambda: part.over_all_regions(solution.of_regions(column)),
        )

    def _seeded(self, requests: Sequence[Request], part: Part) -> tuple[Solution, list[Seed]]:
        """Solve the paper's way: y has its entries at the neighbours of the query's regions."""
        parameters, engine = self.manner.parameters, self.manner.engine
        against = [request.against for request in requests if request.against is not None]
        blocks = [request.regions for request in requests] + against
        known = [request.rows for request in requests] + [None] * len(against)
        found = self._nearest(part, blocks, known)
        ends = np.cumsum([len(block) for block in blocks])
        lists = [found.of(slice(end - len(block), end)) for block, end in zip(blocks, ends, strict=True)]
        made = [self._seed(own, request) for own, request in zip(lists, requests, strict=False)]
        opposing = (self._seed(own) for own in lists[len(requests) :])
        seeds = [
            one if request.against is None else opposed(one, next(opposing))
            for request, one in zip(requests, made, strict=True)
        ]
        pooling = self._pooling(part.system)
        if pooling is not None:
            keep = self.manner.keep_regions
            return pooling.solve_images(seeds, part.pool, *parameters.setting, keep=keep), seeds
        prepared = self.fitted.ready(engine, parameters.setting) if part.runs is None else None
        return engine.solve(part.system, seeds, parameters.setting, prepared), seeds

    def _seed(self, found: Neighbours, request: Request | None = None) -> Seed:
        """Return y by the neighbours of the regions of a query, the last of which may have been taught to it."""
        parameters = self.manner.parameters
        given = len(found.ids) - (0 if request is None else request.lessons)
        y = seed(found.of(slice(given)), parameters.query_k, parameters.gamma, parameters.seeding)
        if request is None or not request.lessons:
            return y
        return taught(y, found.of(slice(given, None)), request.regions[given:], parameters.gamma)

    def _nearest(self, part: Part, blocks: Sequence[FloatArray], rows: Sequence[IntArray | None]) -> Neighbours:
        """Return the neighbours of all regions of queries: from the lists where they have them, else by a search."""
        query_k = self.manner.parameters.query_k
        width = min(query_k, part.size)
        regions = np.concatenate(blocks)
        own = np.concatenate(
            [
                np.full(len(block), -1, np.int32) if some is None else some
                for block, some in zip(blocks, rows, strict=True)
            ]
        )
        lists = self.fitted.lists.first(width - 1)
        if part.runs is not None or self.fitted.built.method != "exact" or lists.ids.shape[1] < width - 1:
            own[:] = -1
        listed = np.flatnonzero(own >= 0)
        named = lists.ids[own[listed]]
        listed = listed[((named >= 0) & (named < len(self.fitted.vectors))).all(axis=1)]
        if not len(listed):
            return part.nearest(regions, query_k)
        ids, similarities = np.empty((len(regions), width), np.int32), np.empty((len(regions), width), np.float32)
        # A region of the collection is its own nearest.
        ids[listed, 0], similarities[listed, 0] = own[listed], np.einsum("ij,ij->i", regions[listed], regions[listed])
        ids[listed, 1:], similarities[listed, 1:] = lists.ids[own[listed]], lists.similarities[own[listed]]
        others = np.setdiff1d(np.arange(len(regions)), listed)
        if len(others):
            ids[others], similarities[others] = part.nearest(regions[others], query_k)
        return Neighbours(ids, similarities)

    def _appended(self, requests: Sequence[Request], part: Part) -> tuple[Solution, list[None]]:
        """Solve the conventional way: each query in turn becomes a part of the graph, and y is one on it."""
        fitted, parameters = self.fitted, self.manner.parameters
        solutions = []
        for request in requests:
            A, nodes = append(
                fitted.S,
                fitted.degrees,
                fitted.neighbours,
                fitted.vectors,
                request.regions,
                gamma=parameters.gamma,
                k=parameters.k,
            )
            if part.runs is not None:
                rows = np.concatenate([part.runs.regions, nodes])
                A = sp.csr_array(A[rows][:, rows])
            S, degrees = normalise(A)
            own = np.arange(part.size, A.shape[0], dtype=np.int32)
            y = Seed(own, np.ones(len(own), np.float32))
            system = fitted.backend.system(S, degrees)
            solutions.append(self.manner.engine.solve(system, [y], parameters.setting, None))
        return _joined([one._replace(scores=one.scores[: part.size]) for one in solutions]), [None] * len(requests)

    def _warn_unless_converged(self, solution: Solution) -> None:
        """Warn where `max_iter` ended the iteration of eq. 3 before it converged.

        Conjugate gradient is meant to be ended by `max_iter`: its ranking says how far it came, and there is no
        warning.
        """
        worst, parameters = float(solution.residuals.max()), self.manner.parameters
        if self.manner.engine.name == "iteration" and worst > parameters.tol:
            warnings.warn(
                f"engine='iteration' stopped after {parameters.max_iter} steps at a relative residual of "
                f"{worst:.1e}; raise max_iter (the paper needed 110 steps for the ranking to settle) or use "
                "engine='cg'.",
                ManifindWarning,
                stacklevel=6,
            )


def _searched_again(
    state: "weakref.ref[Fitted]", manner: Manner, request: Request, places: Places | None
) -> FloatArray:
    fitted = state()
    if fitted is None:
        raise NotFitted("the manifold was fitted anew since this search; search again for region scores.")
    (ranking,) = Searcher(fitted, manner)._answer([request], places)
    return ranking.regions


def _joined(solutions: Sequence[Solution]) -> Solution:
    regions = [one.regions for one in solutions if one.regions is not None]
    return Solution(
        np.concatenate([one.scores for one in solutions], axis=1),
        np.concatenate([one.iterations for one in solutions]),
        np.concatenate([one.residuals for one in solutions]),
        np.concatenate(regions) if regions else None,
    )

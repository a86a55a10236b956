"""Queries → rankings: seeded on the graph and solved for many at a time, on all of it or on shortlists."""

import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from manifind.diffusion import Seed, Solution, Solver, opposed, seed, taught
from manifind.errors import ManifindWarning, NotFittedError
from manifind.kernels import Neighbours, pooled_solution
from manifind.kernels.topk import argsort_topk
from manifind.manifold.fitted import Fitted
from manifind.manifold.parameters import Parameters
from manifind.manifold.subgraph import Places, Subgraph
from manifind.ranking import Ranking
from manifind.types import FloatArray, IntArray


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
class SearchOptions:
    """How requests are answered."""

    parameters: Parameters
    solver: Solver
    top: int | None = None
    """How many images to return; None returns all of them."""
    keep_regions: bool = False
    """Whether to hold the scores of all n regions of each query. Otherwise a ranking that is asked for them searches
    again."""


@dataclass(frozen=True)
class Searcher:
    """Answers requests on one fitted state, all with the same options."""

    fitted: Fitted
    options: SearchOptions

    def answer(self, requests: Sequence[Request], places: Sequence[Places] | Places | None = None) -> list[Ranking]:
        """Rank the images at `places`, or all, for each request: requests on the same images share each pass."""
        if isinstance(places, Sequence):
            return [ranking for one, own in zip(requests, places, strict=True) for ranking in self._answer([one], own)]
        size = self.fitted.system.batch_size
        starts = range(0, len(requests), size)
        return [ranking for start in starts for ranking in self._answer(requests[start : start + size], places)]

    def _answer(self, requests: Sequence[Request], places: Places | None) -> list[Ranking]:
        part = Subgraph.of(self.fitted, places)
        seeds = self._seeds(requests, part)
        solution = self._solve(seeds, part)
        self._warn_unless_converged(solution)
        rankings = [self._ranking(part, solution, column, one) for column, one in enumerate(seeds)]
        if self.options.keep_regions:
            return rankings
        # A ranking does not hold the scores of all regions: it searches again if it is asked for them.
        again = partial(_searched_again, weakref.ref(self.fitted), replace(self.options, keep_regions=True))
        return [
            replace(ranking, _region_scores=partial(again, request, places))
            for ranking, request in zip(rankings, requests, strict=True)
        ]

    def _ranking(self, part: Subgraph, solution: Solution, column: int, own: Seed) -> Ranking:
        scores = solution.scores[:, column]
        order = argsort_topk(scores, self.options.top)
        if part.ranges is not None:
            own = Seed(part.ranges.at(own.regions), own.values)
        residual = float(solution.residuals[column])
        return Ranking(
            part.images[order],
            scores[order],
            iterations=int(solution.iterations[column]),
            residual=residual,
            converged=residual <= self.options.parameters.tol,
            reached=None if solution.regions is None else int(solution.regions[column]),
            seed=own,
            _region_scores=lambda: part.over_all_regions(solution.region_scores(column)),
        )

    def seeds(self, requests: Sequence[Request]) -> list[Seed]:
        """Return y of each request on the whole graph."""
        size = self.fitted.system.batch_size
        whole = Subgraph.of(self.fitted, None)
        starts = range(0, len(requests), size)
        return [seed for start in starts for seed in self._seeds(requests[start : start + size], whole)]

    def _seeds(self, requests: Sequence[Request], part: Subgraph) -> list[Seed]:
        against = [request.against for request in requests if request.against is not None]
        blocks = [request.regions for request in requests] + against
        known = [request.rows for request in requests] + [None] * len(against)
        found = self._nearest(part, blocks, known)
        ends = np.cumsum([len(block) for block in blocks])
        lists = [found.rows(slice(end - len(block), end)) for block, end in zip(blocks, ends, strict=True)]
        made = [self._seed(own, request) for own, request in zip(lists, requests, strict=False)]
        opposing = (self._seed(own) for own in lists[len(requests) :])
        return [
            one if request.against is None else opposed(one, next(opposing))
            for request, one in zip(requests, made, strict=True)
        ]

    def _solve(self, seeds: Sequence[Seed], part: Subgraph) -> Solution:
        """Solve for the scores of images."""
        options, solver = self.options.parameters.solver_options, self.options.solver
        if solver.pools:
            return part.system.solve_and_pool(seeds, part.pool, *options, keep_regions=self.options.keep_regions)
        prepared = self.fitted.prepare(solver) if part.ranges is None else None
        return pooled_solution(solver.solve(part.system, seeds, options, prepared), part.pool)

    def _seed(self, found: Neighbours, request: Request | None = None) -> Seed:
        """Return y by the neighbours of the regions of a query, the last of which may have been taught to it."""
        parameters = self.options.parameters
        given = len(found.ids) - (0 if request is None else request.lessons)
        y = seed(found.rows(slice(given)), parameters.query_k, parameters.gamma, parameters.seeding)
        if request is None or not request.lessons:
            return y
        return taught(y, found.rows(slice(given, None)), request.regions[given:], parameters.gamma)

    def _nearest(self, part: Subgraph, blocks: Sequence[FloatArray], rows: Sequence[IntArray | None]) -> Neighbours:
        """Return the neighbours of all regions of queries: from the lists where they have them, else by a search."""
        query_k = self.options.parameters.query_k
        width = min(query_k, part.size)
        regions = np.concatenate(blocks)
        own = np.concatenate(
            [
                np.full(len(block), -1, np.int32) if some is None else some
                for block, some in zip(blocks, rows, strict=True)
            ]
        )
        lists = self.fitted.lists.head(width - 1)
        if part.ranges is not None or self.fitted.knn_report.method != "exact" or lists.ids.shape[1] < width - 1:
            own[:] = -1
        listed = np.flatnonzero(own >= 0)
        named = lists.ids[own[listed]]
        listed = listed[((named >= 0) & (named < len(self.fitted.vectors))).all(axis=1)]
        if not len(listed):
            return part.search(regions, query_k)
        ids, similarities = np.empty((len(regions), width), np.int32), np.empty((len(regions), width), np.float32)
        # A region of the collection is its own nearest.
        ids[listed, 0], similarities[listed, 0] = own[listed], np.einsum("ij,ij->i", regions[listed], regions[listed])
        ids[listed, 1:], similarities[listed, 1:] = lists.ids[own[listed]], lists.similarities[own[listed]]
        others = np.setdiff1d(np.arange(len(regions)), listed)
        if len(others):
            ids[others], similarities[others] = part.search(regions[others], query_k)
        return Neighbours(ids, similarities)

    def _warn_unless_converged(self, solution: Solution) -> None:
        """Warn where `max_iter` ended the iteration of eq. 3 before it converged.

        Conjugate gradient is meant to be ended by `max_iter`: its ranking says how far it came, and there is no
        warning.
        """
        worst, parameters = float(solution.residuals.max()), self.options.parameters
        if self.options.solver.name == "iteration" and worst > parameters.tol:
            warnings.warn(
                f"solver='iteration' stopped after {parameters.max_iter} steps at a relative residual of "
                f"{worst:.1e}; raise max_iter (the paper needed 110 steps for the ranking to settle) or use "
                "solver='cg'.",
                ManifindWarning,
                stacklevel=6,
            )


def _searched_again(
    state: "weakref.ref[Fitted]", options: SearchOptions, request: Request, places: Places | None
) -> FloatArray:
    fitted = state()
    if fitted is None:
        raise NotFittedError("the manifold was fitted anew since this search; search again for region scores.")
    (ranking,) = Searcher(fitted, options)._answer([request], places)
    return ranking.regions

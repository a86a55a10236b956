"""Queries → rankings: seeded on the graph and solved for many at a time, on all of it or on shortlists."""

import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from manifind.diffusion import (
    WEIGHTS,
    Seed,
    SeedWeights,
    Solution,
    Solver,
    either_seed,
    expand_seed,
    seed,
    subtract_negatives,
)
from manifind.errors import ConvergenceWarning, NotFittedError
from manifind.groups import RowRanges
from manifind.kernels import Neighbours, Operator, Pool, VectorSet, pooled_solution
from manifind.kernels.topk import argsort_topk
from manifind.manifold.fitted import Fitted, Parameters
from manifind.ranking import Ranking
from manifind.types import FloatArray, IntArray

Places = npt.NDArray[np.intp]
"""Indices into the ascending list of a collection's images."""


@dataclass(eq=False)
class Subgraph:
    """Some images of a collection, their regions, and how region scores become scores of them."""

    rows: VectorSet
    """The descriptors of the whole collection."""
    ranges: RowRanges | None
    """Which regions of the collection are in this part, ascending; None means all of them. The system and the scores
    count regions by their place in the list of these."""
    images: IntArray
    pool: Pool
    whole: Operator
    """The system of the whole collection."""
    _system: Operator | None = None

    @classmethod
    def of(cls, fitted: Fitted, places: Places | None) -> Self:
        """Take the images at `places`, which ascend; None takes all images."""
        layout = fitted.layout
        if places is None:
            return cls(fitted.rows, None, layout.images, fitted.pool, fitted.system)
        ranges = layout.ranges_of(places)
        pool = Pool(ranges.starts, fitted.weights, ranges)
        return cls(fitted.rows, ranges, layout.images[places], pool, fitted.system)

    @property
    def system(self) -> Operator:
        """The system of this part, which is made when it is first asked for."""
        if self.ranges is None:
            return self.whole
        if self._system is None:
            self._system = self.whole.restrict_ranges(self.ranges)
        return self._system

    @property
    def regions(self) -> IntArray | None:
        """The list of the part's regions; None where they are all of the collection's."""
        return None if self.ranges is None else self.ranges.regions

    @property
    def size(self) -> int:
        """How many regions there are."""
        return int(self.pool.starts[-1])

    def search(self, queries: FloatArray, k: int) -> Neighbours:
        """Return the `k` nearest regions of this part, or all of them where there are fewer."""
        k = min(k, self.size)
        if self.ranges is None:
            return Neighbours(*self.rows.search(queries, k))
        wait = self.rows.search_ranges(self.ranges, queries, k)
        _ = self.system  # a device makes it while the answer is on its way and the seed is made of it
        return Neighbours(*wait())

    def over_all_regions(self, scores: FloatArray) -> FloatArray:
        """Return scores of this part's regions as scores of all regions of the collection, zero outside the part."""
        if self.ranges is None:
            return scores
        spread = np.zeros(self.rows.shape[0], np.float32)
        spread[self.ranges.regions] = scores
        return spread


@dataclass(frozen=True)
class Request:
    """A query as a manifold answers it."""

    regions: FloatArray
    """The descriptors of the query's regions, (m, d)."""
    negatives: FloatArray | None = None
    """The descriptors of the regions of negatives."""
    rows: IntArray | None = None
    """For each region of the query its number in the collection, or -1 where it is not in the collection. The
    neighbours of regions of the collection are in the graph already."""
    n_expansion_regions: int = 0
    """How many of the regions, the last ones, are expansion regions."""
    weights: SeedWeights = WEIGHTS
    """What expansion regions and negatives count."""
    n_mirrored: int = 0
    """How many of the regions, the last ones before expansion regions, are of the mirrored query."""


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
            return [
                ranking
                for request, place in zip(requests, places, strict=True)
                for ranking in self._answer([request], place)
            ]
        size = self.fitted.system.batch_size
        starts = range(0, len(requests), size)
        return [ranking for start in starts for ranking in self._answer(requests[start : start + size], places)]

    def _answer(self, requests: Sequence[Request], places: Places | None) -> list[Ranking]:
        subgraph = Subgraph.of(self.fitted, places)
        seeds = self._seeds(requests, subgraph)
        solution = self._solve(seeds, subgraph)
        self._warn_unless_converged(solution)
        rankings = [self._ranking(subgraph, solution, column, y) for column, y in enumerate(seeds)]
        if self.options.keep_regions:
            return rankings
        # A ranking of a batch does not hold the scores of all regions: it searches again when they are read.
        recompute = partial(
            _recompute_region_scores, weakref.ref(self.fitted), replace(self.options, keep_regions=True)
        )
        return [
            replace(ranking, _region_scores=partial(recompute, request, places))
            for ranking, request in zip(rankings, requests, strict=True)
        ]

    def _ranking(self, subgraph: Subgraph, solution: Solution, column: int, seed: Seed) -> Ranking:
        scores = solution.scores[:, column]
        order = argsort_topk(scores, self.options.top)
        if subgraph.ranges is not None:
            seed = Seed(subgraph.ranges.at(seed.regions), seed.values)
        residual = float(solution.residuals[column])
        return Ranking(
            subgraph.images[order],
            scores[order],
            iterations=int(solution.iterations[column]),
            residual=residual,
            converged=residual <= self.options.parameters.tol,
            reached=None if solution.regions is None else int(solution.regions[column]),
            seed=seed,
            _region_scores=lambda: subgraph.over_all_regions(solution.region_scores(column)),
        )

    def seeds(self, requests: Sequence[Request]) -> list[Seed]:
        """Return y of each request on the whole graph."""
        size = self.fitted.system.batch_size
        whole = Subgraph.of(self.fitted, None)
        starts = range(0, len(requests), size)
        return [seed for start in starts for seed in self._seeds(requests[start : start + size], whole)]

    def _seeds(self, requests: Sequence[Request], subgraph: Subgraph) -> list[Seed]:
        negatives = [request.negatives for request in requests if request.negatives is not None]
        blocks = [request.regions for request in requests] + negatives
        rows = [request.rows for request in requests] + [None] * len(negatives)
        neighbours = self._search_neighbours(subgraph, blocks, rows)
        ends = np.cumsum([len(block) for block in blocks])
        lists = [neighbours.rows(slice(end - len(block), end)) for block, end in zip(blocks, ends, strict=True)]
        seeds = [self._seed(nearest, request) for nearest, request in zip(lists, requests, strict=False)]
        negative_seeds = (self._seed(nearest) for nearest in lists[len(requests) :])
        return [
            seed
            if request.negatives is None
            else subtract_negatives(seed, next(negative_seeds), request.weights.negatives)
            for request, seed in zip(requests, seeds, strict=True)
        ]

    def _solve(self, seeds: Sequence[Seed], subgraph: Subgraph) -> Solution:
        """Solve for the scores of images."""
        options, solver = self.options.parameters.solver_options, self.options.solver
        if solver.pools:
            return subgraph.system.solve_and_pool(
                seeds, subgraph.pool, *options, keep_regions=self.options.keep_regions
            )
        prepared = self.fitted.prepare(solver) if subgraph.ranges is None else None
        return pooled_solution(solver.solve(subgraph.system, seeds, options, prepared), subgraph.pool)

    def _seed(self, neighbours: Neighbours, request: Request | None = None) -> Seed:
        """Return y by the neighbours of the regions of a query, the last of which may be expansion regions."""
        parameters = self.options.parameters
        n_original = len(neighbours.ids) - (0 if request is None else request.n_expansion_regions)
        y = self._original_seed(neighbours.rows(slice(n_original)), request)
        if request is None or not request.n_expansion_regions:
            return y
        expansion = neighbours.rows(slice(n_original, None)), request.regions[n_original:]
        return expand_seed(y, *expansion, parameters.gamma, request.weights.expansion)

    def _original_seed(self, neighbours: Neighbours, request: Request | None) -> Seed:
        """Return y without expansion regions."""
        parameters = self.options.parameters
        limits = parameters.query_k, parameters.gamma, parameters.seeding
        if request is None or not request.n_mirrored:
            return seed(neighbours, *limits)
        given = len(neighbours.ids) - request.n_mirrored
        return either_seed(
            seed(neighbours.rows(slice(given)), *limits), seed(neighbours.rows(slice(given, None)), *limits)
        )

    def _search_neighbours(
        self, subgraph: Subgraph, blocks: Sequence[FloatArray], rows: Sequence[IntArray | None]
    ) -> Neighbours:
        """Return the neighbours of all regions of queries: from the lists where they have them, else by a search."""
        query_k = self.options.parameters.query_k
        width = min(query_k, subgraph.size)
        regions = np.concatenate(blocks)
        known_rows = np.concatenate(
            [
                np.full(len(block), -1, np.int32) if known is None else known
                for block, known in zip(blocks, rows, strict=True)
            ]
        )
        lists = self.fitted.lists.head(width - 1)
        if subgraph.ranges is not None or self.fitted.knn_report.method != "exact" or lists.ids.shape[1] < width - 1:
            known_rows[:] = -1
        listed = np.flatnonzero(known_rows >= 0)
        named = lists.ids[known_rows[listed]]
        listed = listed[((named >= 0) & (named < len(self.fitted.vectors))).all(axis=1)]
        if not len(listed):
            return subgraph.search(regions, query_k)
        ids, similarities = np.empty((len(regions), width), np.int32), np.empty((len(regions), width), np.float32)
        # A region of the collection is its own nearest.
        ids[listed, 0] = known_rows[listed]
        similarities[listed, 0] = np.einsum("ij,ij->i", regions[listed], regions[listed])
        ids[listed, 1:] = lists.ids[known_rows[listed]]
        similarities[listed, 1:] = lists.similarities[known_rows[listed]]
        others = np.setdiff1d(np.arange(len(regions)), listed)
        if len(others):
            ids[others], similarities[others] = subgraph.search(regions[others], query_k)
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
                ConvergenceWarning,
                stacklevel=6,
            )


def _recompute_region_scores(
    state: "weakref.ref[Fitted]", options: SearchOptions, request: Request, places: Places | None
) -> FloatArray:
    fitted = state()
    if fitted is None:
        raise NotFittedError("the manifold was fitted anew since this search; search again for region scores.")
    (ranking,) = Searcher(fitted, options)._answer([request], places)
    return ranking.regions

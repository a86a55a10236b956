"""Retrieval: the images of a snapshot ranked for queries, those of regional diffusion in one pass over the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.baselines import NearestImages, RegionMatch
from manifind.checks import check_choice
from manifind.errors import DamagedError
from manifind.groups import aggregate_one
from manifind.index.config import GLOBAL, RetrievalConfig
from manifind.index.search.query import QueryRegions, rounded_box
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.manifold import Manifold, Request, answer, batch_size
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray

METHODS = ("regional", "global", "match", "plain")
"""Regional diffusion; global diffusion; R-match; similarity of global descriptors."""


@dataclass(frozen=True)
class RegionShare:
    """A region of an image and its share of the image's score."""

    box: Box
    share: float


@dataclass(frozen=True, eq=False)
class Retrieval:
    """The ranking of a query on a snapshot, and what explaining it takes."""

    snapshot: Snapshot
    query: QueryRegions
    ranking: Ranking
    method: str
    config: RetrievalConfig

    def region_shares(self, image: int, limit: int | None) -> tuple[RegionShare, ...]:
        """Return the regions of an image by their share of its score, largest first; None for all that have any."""
        if self.method != "regional":
            return ()
        first, shares = self._all_shares(image)
        if shares is None:
            return ()
        best = np.argsort(-shares, kind="stable")[:limit]
        boxes = self.snapshot.boxes
        return tuple(RegionShare(rounded_box(boxes[first + i]), float(shares[i])) for i in best if shares[i] > 0)

    def shown_regions(self, image: int) -> tuple[RegionShare, ...]:
        """Return the regions of an image that a result reports."""
        return self.region_shares(image, self.config.shown_regions)

    def locate(self, image: int) -> Box | None:
        """Return one box round what resembles the query in an image; None where the method does not know.

        A region counts by the mean square of its similarities to the query's regions, of those above 0, less what the
        image's least similar region has. A region's score tells less of the place: diffusion reaches all regions of an
        image that shows the object. Each region's weight lies evenly over its box. Across and down, the box holds the
        middle four fifths of what exceeds half of a uniform weight (``benchmarks/feedback.py``).
        """
        if self.method != "regional":
            return None
        first, shares = self._all_shares(image)
        if shares is None:
            return None
        rows = slice(first, first + len(shares))
        vectors = np.asarray(self.snapshot.manifold.vectors_[rows], np.float32)
        similarity = np.square(np.maximum(vectors @ self.query.vectors.T, 0)).mean(axis=1)
        similarity -= similarity.min()
        weights = similarity / similarity.sum() if similarity.any() else shares
        boxes = np.asarray(self.snapshot.boxes[rows], np.float32)
        # Regions reach from edge to edge, so the largest corner is the image's.
        return rounded_box(_central_box(boxes, weights, boxes.max(axis=0)[2:], self.config.box_bins))

    def _all_shares(self, image: int) -> tuple[int, FloatArray | None]:
        """Return the first region of an image and the shares of all of them; None where no score reached it."""
        rows = self.snapshot.regions_of(image)
        scores = np.maximum(self.snapshot.manifold.weights_[rows] * self.ranking.regions[rows], 0)
        total = scores.sum()
        return rows.start, None if total == 0 else scores / total


def _central_box(boxes: FloatArray, weights: FloatArray, size: FloatArray, bins: int) -> npt.NDArray[np.float64]:
    """Return the box that holds the middle four fifths of weights that are spread evenly over boxes."""
    edges = np.linspace(0, 1, bins + 1, dtype=np.float32)
    starts, ends = boxes[:, :2] / size, boxes[:, 2:] / size
    # (2, r, bins): which part of each region lies in each step across, and down.
    covered = np.minimum(ends.T[..., None], edges[1:]) - np.maximum(starts.T[..., None], edges[:-1])
    np.maximum(covered, 0, out=covered)
    covered /= np.maximum(ends - starts, 1e-6).T[..., None]
    density = np.maximum(weights @ covered - covered.sum(axis=1) * (0.5 / len(weights)), 0)
    cumulative = np.cumsum(density, axis=1)
    corners = [np.interp([0.1 * line[-1], 0.9 * line[-1]], [0.0, *line], edges) for line in cumulative]
    return np.array([corners[0][0], corners[1][0], corners[0][1], corners[1][1]]) * np.tile(size, 2)


def retrieve(
    snapshot: AnySnapshot,
    queries: Sequence[QueryRegions],
    top: int | None,
    method: str = "regional",
    *,
    config: RetrievalConfig | None = None,
) -> list[Retrieval]:
    """Rank the images of one snapshot for many queries.

    Parameters
    ----------
    snapshot : Snapshot, or that of a remote collection
    queries : list of QueryRegions
    top : int, optional
        How many images to return for each; None for all.
    method : {"regional", "global", "match", "plain"}
        Only diffusion knows negative examples; R-match and plain similarity ignore them.
    config : RetrievalConfig, optional
    """
    check_choice(method, METHODS, "method")
    config = config or RetrievalConfig()
    if not isinstance(snapshot, Snapshot):
        return snapshot.retrieve(queries, top, method, config)
    snapshot.recheck_ids()
    size = batch_size(len(snapshot.boxes))
    retrievals = [
        Retrieval(snapshot, query, ranking, method, config)
        for start in range(0, len(queries), size)
        for query, ranking in zip(
            queries[start : start + size],
            _rank(snapshot, queries[start : start + size], top, method, config),
            strict=True,
        )
    ]
    for retrieval in retrievals:
        _check_scores(retrieval)
    return retrievals


def _check_scores(retrieval: Retrieval) -> None:
    """Raise `DamagedError` for scores that no undamaged index gives.

    The eigenvalues of S lie in [−1, 1], so ‖f‖ ≤ ‖y‖ by eq. 4, and conjugate gradient stays below that at every
    iteration; its first step leads away from zero. Pooling the m regions of an image multiplies by √m / min(λ, 1) at
    most. Similarities of unit vectors are at most 1, and a region of the query puts them on `query_k` regions. All
    bounds are doubled, for rounding.
    """
    manifold, scores = retrieval.snapshot.manifold, retrieval.ranking.scores
    if not len(scores):
        return
    m, y = len(retrieval.query.vectors), retrieval.ranking.seed
    limit = 2.0 * m
    if y is not None:
        largest = 2 * manifold.query_k * (m**manifold.gamma if manifold.seeding == "released" else m)
        pooled = float(np.sqrt(np.diff(manifold.layout_.starts).max())) / min(manifold.gmp_lambda, 1.0)
        limit = 2 * pooled * min(float(np.linalg.norm(y.values)), largest)
    worst = scores[np.argmax(np.abs(scores))]  # NaN where there is one
    stuck = worst == 0 and y is not None and len(y.values) > 0 and retrieval.ranking.residual >= 1
    if not abs(worst) <= limit or stuck:
        raise DamagedError(
            f"the largest score is {worst:g} where an undamaged index gives one above 0 and up to {limit:g}",
            remedy="run manifind check INDEX, which says what is damaged",
            code="impossible-score",
        )


def _rank(
    snapshot: Snapshot, queries: Sequence[QueryRegions], top: int | None, method: str, config: RetrievalConfig
) -> list[Ranking]:
    negatives = [query.negatives for query in queries]
    if method == "regional":
        large = len(snapshot.catalogue) > 2 * config.shortlist_size and not snapshot.manifold.is_ready("local")
        requests = [
            Request(
                query.vectors,
                query.negatives,
                query.rows,
                query.n_expansion_regions,
                config.seed_weights,
                query.n_mirrored,
            )
            for query in queries
        ]
        return answer(snapshot.manifold, requests, top, shortlist=config.shortlist_size if large else None)
    estimator = _estimator_of(snapshot, method)
    if isinstance(estimator, Manifold):
        none = all(vectors is None for vectors in negatives)
        return estimator.search_many(
            [aggregate_one(query.vectors) for query in queries],
            top,
            negatives=None if none else [None if vectors is None else aggregate_one(vectors) for vectors in negatives],
        )
    return estimator.search_many([query.vectors for query in queries], top)


def _estimator_of(snapshot: Snapshot, method: str) -> Manifold | NearestImages | RegionMatch:
    """Return what ranks by a method besides regional diffusion, fitted at its first use."""
    with snapshot.cache.lock:
        estimator = snapshot.cache.methods.get(method)
        if estimator is None:
            estimator = snapshot.cache.methods[method] = _fit_estimator(snapshot, method)
    return estimator


def _fit_estimator(snapshot: Snapshot, method: str) -> Manifold | NearestImages | RegionMatch:
    manifold = snapshot.manifold
    manifold.check_ids()
    if method == "global":
        # An index whose parameters were given has always been searched with its own α.
        alpha = manifold.alpha if snapshot.manifest.chosen_for is None else GLOBAL["alpha"]
        k = min(int(GLOBAL["k"]), max(1, len(snapshot.catalogue) - 1))
        whole = Manifold(k=k, query_k=int(GLOBAL["query_k"]), alpha=alpha, gamma=manifold.gamma, device=manifold.device)
        return whole.fit(manifold.global_vectors_)
    baseline = NearestImages() if method == "plain" else RegionMatch()
    return baseline.fit(manifold.vectors_, manifold.layout_.image_of)

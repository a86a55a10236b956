"""A query, and the ranking of many at once on one state of an index.

`view` describes a part of a photo, `QueryRegions.of` makes one query of several, and `rank` answers many queries with
one pass over the graph. What they take is frozen: they may run in any thread, while the index moves on to its next
generation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manifind.baselines import NearestImages, RegionMatch
from manifind.checks import choice
from manifind.describe import Describer
from manifind.errors import InvalidInput
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import Generation, State
from manifind.index.state.parameters import GLOBAL
from manifind.layout import aggregate_one
from manifind.manifold import Manifold, Request, answer, batch_size
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray, IntArray

METHODS = ("regional", "global", "match", "plain")
"""Regional diffusion; global diffusion; R-match; similarity of global descriptors."""

SHORTLIST = 10_000
"""Photos that a search diffuses on where the collection has more than twice as many and its graph is not divided: Sec.
4.4."""

SHOWN_REGIONS = 5
BINS = 64
"""Steps across and down a photo in which the place of what matched is worked out."""
EDGES = np.linspace(0, 1, BINS + 1, dtype=np.float32)


class View(NamedTuple):
    """A part of a photo, described: its regions, with boxes in pixels of the whole photo."""

    vectors: FloatArray
    boxes: FloatArray
    rows: IntArray | None = None
    """The regions of the collection that these are, if they are."""


@dataclass(frozen=True, eq=False)
class QueryRegions:
    """All regions of what is looked for, and of what is not meant."""

    vectors: FloatArray
    """(m, d), of all views one after the other."""
    boxes: FloatArray
    """(m, 4)"""
    view_of: npt.NDArray[np.int32]
    """(m,): which view each region is of; -1 for what verified photos taught."""
    rows: IntArray
    """(m,): which region of the collection each is, -1 if none."""
    against: FloatArray | None = None
    """(r, d): the regions of what is not meant."""

    @classmethod
    def of(cls, views: Sequence[View], against: Sequence[View] = ()) -> Self:
        """Make one query of several views of an object, and of what looks like it and is not meant."""
        if not views:
            raise InvalidInput("the query has no photo; give at least one that shows what is looked for.")
        return cls(
            np.concatenate([one.vectors for one in views]),
            np.concatenate([one.boxes for one in views]),
            np.repeat(np.arange(len(views), dtype=np.int32), [len(one.vectors) for one in views]),
            np.concatenate([np.full(len(v.vectors), -1, np.int32) if v.rows is None else v.rows for v in views]),
            np.concatenate([one.vectors for one in against]) if against else None,
        )

    @property
    def lessons(self) -> int:
        """How many of the regions, the last ones, verified photos taught."""
        return int((self.view_of < 0).sum())

    def taught(self, lesson: View) -> Self:
        """Return the query with regions of the collection that are known to show what it looks for."""
        assert lesson.rows is not None  # noqa: S101 (they are of the collection)
        return replace(
            self,
            vectors=np.concatenate([self.vectors, lesson.vectors]),
            boxes=np.concatenate([self.boxes, lesson.boxes]),
            view_of=np.concatenate([self.view_of, np.full(len(lesson.vectors), -1, np.int32)]),
            rows=np.concatenate([self.rows, lesson.rows]),
        )


@dataclass(frozen=True)
class RegionShare:
    """A part of a photo and its share of the photo's score."""

    box: Box
    share: float


@dataclass(frozen=True, eq=False)
class Search:
    """A query that was answered: the ranking, and what explaining it takes."""

    generation: Generation
    query: QueryRegions
    ranking: Ranking
    method: str

    def shares(self, image: int, most: int | None = SHOWN_REGIONS) -> tuple[RegionShare, ...]:
        """Return the regions of a photo by their share of its score, largest first; None for all that have any."""
        if self.method != "regional":
            return ()
        first, shares = self._all_shares(image)
        if shares is None:
            return ()
        best = np.argsort(-shares, kind="stable")[:most]
        boxes = self.generation.boxes
        return tuple(RegionShare(box_of(boxes[first + i]), float(shares[i])) for i in best if shares[i] > 0)

    def where(self, image: int) -> Box | None:
        """Return one box round what resembles the query in a photo; None where the method does not know.

        A region counts by the mean square of its similarities to the query's regions, of those above 0, less what the
        photo's least similar region has. What a region scores tells less of the place: diffusion reaches all regions of
        a photo that shows the object. Each region's part lies evenly over its box. Across and down, the box holds the
        middle four fifths of what stands above half of what equal parts would give (``benchmarks/evidence.py``).
        """
        if self.method != "regional":
            return None
        first, shares = self._all_shares(image)
        if shares is None:
            return None
        rows = slice(first, first + len(shares))
        vectors = np.asarray(self.generation.manifold.vectors_[rows], np.float32)
        alike = np.square(np.maximum(vectors @ self.query.vectors.T, 0)).mean(axis=1)
        alike -= alike.min()
        parts = alike / alike.sum() if alike.any() else shares
        boxes = np.asarray(self.generation.boxes[rows], np.float32)
        # Regions reach from edge to edge, so that theirs are the photo's.
        x0, y0, x1, y1 = (round(float(corner), 1) for corner in _middle(boxes, parts, boxes.max(axis=0)[2:]))
        return x0, y0, x1, y1

    def _all_shares(self, image: int) -> tuple[int, FloatArray | None]:
        """Return the first region of a photo and the shares of all of them; None where nothing reached it."""
        rows = self.generation.regions_of(image)
        scores = np.maximum(self.generation.manifold.weights_[rows] * self.ranking.regions[rows], 0)
        total = scores.sum()
        return rows.start, None if total == 0 else scores / total


def _middle(boxes: FloatArray, shares: FloatArray, size: FloatArray) -> npt.NDArray[np.float64]:
    """Return the box that holds the middle four fifths of what is spread evenly over boxes, by its shares."""
    starts, ends = boxes[:, :2] / size, boxes[:, 2:] / size
    # (2, r, BINS): which part of each region lies in each step across, and down.
    covered = np.minimum(ends.T[..., None], EDGES[1:]) - np.maximum(starts.T[..., None], EDGES[:-1])
    np.maximum(covered, 0, out=covered)
    covered /= np.maximum(ends - starts, 1e-6).T[..., None]
    density = np.maximum(shares @ covered - covered.sum(axis=1) * (0.5 / len(shares)), 0)
    below = np.cumsum(density, axis=1)
    corners = [np.interp([0.1 * line[-1], 0.9 * line[-1]], [0.0, *line], EDGES) for line in below]
    return np.array([corners[0][0], corners[1][0], corners[0][1], corners[1][1]]) * np.tile(size, 2)


def view(describer: Describer, pixels: npt.NDArray[np.uint8], box: Sequence[float] | None) -> View:
    """Describe a part of a photo of which all pixels are given."""
    x0, y0, x1, y1 = whole_box(box, pixels.shape[1], pixels.shape[0])
    regions = describer.describe(np.ascontiguousarray(pixels[y0:y1, x0:x1]))
    return View(regions.vectors, regions.boxes + np.array([x0, y0, x0, y0], np.float32))


def stored_view(now: State, record: ImageRecord) -> View:
    """Return a whole photo of the collection as it was described for the index."""
    if not isinstance(now, Generation):
        return now.stored_view(record)
    rows = now.regions_of(record.number)
    return View(
        np.array(now.manifold.vectors_[rows], np.float32),
        np.array(now.boxes[rows], np.float32),
        np.arange(rows.start, rows.stop, dtype=np.int32),
    )


def rank(now: State, queries: Sequence[QueryRegions], top: int | None, method: str = "regional") -> list[Search]:
    """Answer queries on one state of the index, those of regional diffusion with one pass over its graph.

    Parameters
    ----------
    now : Generation, or a state elsewhere
    queries : list of QueryRegions
    top : int, optional
        How many photos to return for each; None for all.
    method : {"regional", "global", "match", "plain"}
        Only diffusion knows what is not meant; the others pass over it.
    """
    choice(method, METHODS, "method")
    if not isinstance(now, Generation):
        return now.rank(queries, top, method)
    now.look_again()
    size = batch_size(len(now.boxes))
    return [
        Search(now, query, ranking, method)
        for start in range(0, len(queries), size)
        for query, ranking in zip(
            queries[start : start + size],
            _rankings(now, queries[start : start + size], top, method),
            strict=True,
        )
    ]


def _rankings(now: Generation, queries: Sequence[QueryRegions], top: int | None, method: str) -> list[Ranking]:
    against = [query.against for query in queries]
    if method == "regional":
        large = len(now.catalogue) > 2 * SHORTLIST and not now.manifold.is_ready("local")
        requests = [Request(query.vectors, query.against, query.rows, query.lessons) for query in queries]
        return answer(now.manifold, requests, top, shortlist=SHORTLIST if large else None)
    other = _other(now, method)
    if isinstance(other, Manifold):
        none = all(one is None for one in against)
        return other.search_many(
            [aggregate_one(query.vectors) for query in queries],
            top,
            against=None if none else [None if one is None else aggregate_one(one) for one in against],
        )
    return other.search_many([query.vectors for query in queries], top)


def _other(now: Generation, method: str) -> Manifold | NearestImages | RegionMatch:
    """Return what answers by a method besides regional diffusion, made at its first use."""
    with now.made.lock:
        made = now.made.methods.get(method)
        if made is None:
            made = now.made.methods[method] = _make(now, method)
    return made


def _make(now: Generation, method: str) -> Manifold | NearestImages | RegionMatch:
    manifold = now.manifold
    manifold.check_ids()
    if method == "global":
        # An index whose parameters were given has been searched with its own α all along.
        alpha = manifold.alpha if now.manifest.chosen_for is None else GLOBAL["alpha"]
        k = min(int(GLOBAL["k"]), max(1, len(now.catalogue) - 1))
        whole = Manifold(k=k, query_k=int(GLOBAL["query_k"]), alpha=alpha, gamma=manifold.gamma)
        return whole.fit(manifold.global_vectors_)
    baseline = NearestImages() if method == "plain" else RegionMatch()
    return baseline.fit(manifold.vectors_, manifold.layout_.image_of)


def whole_box(box: Sequence[float] | None, width: int, height: int) -> tuple[int, int, int, int]:
    """Return the box in whole pixels within a photo of this size; all of it where there is no box."""
    if box is None:
        return 0, 0, width, height
    try:
        corners = np.asarray(box, np.float64)
    except (TypeError, ValueError):
        corners = np.empty(0)
    if corners.shape != (4,) or not np.isfinite(corners).all():
        raise InvalidInput(f"box is {box!r}; give four numbers x0, y0, x1, y1 in pixels.")
    x0, y0 = np.clip(np.floor(corners[:2]), 0, [width, height]).astype(int).tolist()
    x1, y1 = np.clip(np.ceil(corners[2:]), 0, [width, height]).astype(int).tolist()
    if x0 >= x1 or y0 >= y1:
        shown = ", ".join(f"{corner:g}" for corner in corners)
        raise InvalidInput(
            f"box is ({shown}), which has no part of the {width} × {height} photo; give x0 < x1 and y0 < y1 within it."
        )
    return x0, y0, x1, y1


def box_of(row: npt.NDArray[np.float32]) -> Box:
    """Return a row of boxes as it is shown, to a tenth of a pixel."""
    x0, y0, x1, y1 = (round(float(value), 1) for value in row)
    return x0, y0, x1, y1

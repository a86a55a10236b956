"""The graph of a search: the whole graph, or the subgraph of a shortlist (Sec. 4.4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.checks import check_int, integers
from manifind.errors import InvalidInputError
from manifind.groups import RowRanges
from manifind.kernels import Neighbours, Operator, Pool, VectorSet
from manifind.manifold.fitted import Fitted
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


def shortlists(
    shortlist: Any,
    queries: int,
    images: IntArray,
    global_rows: Callable[[], VectorSet],
    query_globals: Callable[[], FloatArray],
) -> Sequence[Places] | Places | None:
    """Return the places of the images to diffuse on: None for all, one array for every query, or one for each.

    `shortlist` says how many to take by the similarity of global descriptors, or which, for all queries alike or for
    each. `global_rows` and `query_globals` make global descriptors where they are needed.
    """
    if shortlist is None:
        return None
    if _one_for_each(shortlist):
        if len(shortlist) != queries:
            raise InvalidInputError(
                f"shortlist has {len(shortlist)} lists for {queries} queries; give one for each.", code="wrong-length"
            )
        return [image_places(numbers, images, f"shortlist[{i}]") for i, numbers in enumerate(shortlist)]
    if np.ndim(shortlist) == 0:
        size = check_int(shortlist, "shortlist")
        if size >= len(images):
            return None
        return global_rows().choose_shortlist(query_globals(), size)
    return image_places(shortlist, images, "shortlist")


def _one_for_each(shortlist: Any) -> bool:
    return (
        isinstance(shortlist, list | tuple)
        and len(shortlist) > 0
        and all(np.ndim(numbers) == 1 for numbers in shortlist)
    )


def image_places(numbers: npt.ArrayLike, images: IntArray, name: str) -> Places:
    """Return the places of image numbers in a collection's `images`, ascending."""
    wanted = np.unique(integers(numbers, name))
    if not len(wanted):
        raise InvalidInputError(
            f"{name} is empty; give at least one image, or None for the whole collection.", code="empty"
        )
    places = np.searchsorted(images, wanted)
    unknown = wanted[images[np.minimum(places, len(images) - 1)] != wanted]
    if len(unknown):
        raise InvalidInputError(
            f"{name} names {len(unknown)} images that are not in the collection, {unknown[0]} first; "
            "give numbers that occur in image_of.",
            code="unknown-image",
        )
    return places

"""Which regions belong to which image: the regions of an image lie side by side, images in ascending order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.types import FloatArray, IntArray


@dataclass(frozen=True)
class Layout:
    """The images of a collection, each with its run of regions."""

    images: IntArray
    """The numbers of the images that have regions, ascending."""
    starts: npt.NDArray[np.int64]
    """Where each image's regions start, and at the end where the last one's end: one more than there are images."""

    @classmethod
    def of(cls, image_of: IntArray) -> "Layout":
        """Read the layout off the image number of each region, ascending."""
        images, starts = np.unique(image_of, return_index=True)
        return cls(images.astype(np.int32), np.append(starts, len(image_of)))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many regions each image has."""
        return np.diff(self.starts)

    @property
    def image_of(self) -> IntArray:
        """The number of the image that each region belongs to: what `of` was given."""
        return np.repeat(self.images, self.counts)

    @property
    def place_of(self) -> IntArray:
        """The place in `images` of the image that each region belongs to."""
        return np.repeat(np.arange(len(self.images), dtype=np.int32), self.counts)

    def regions_of(self, places: npt.NDArray[np.integer]) -> IntArray:
        """Return the regions of the images at `places` in `images`, one image after the other."""
        return self.ranges_of(places).regions

    def ranges_of(self, places: npt.NDArray[np.integer]) -> "RowRanges":
        """Return the runs of regions of the images at `places` in `images`, one image after the other."""
        begins = self.starts[places]
        starts = np.zeros(len(places) + 1, np.int64)
        np.cumsum(self.starts[places + 1] - begins, out=starts[1:])
        return RowRanges(begins, starts)

    def change(self, now: "Layout", origin: IntArray) -> "Change":
        """Compare with the layout of a changed collection, where region i was region ``origin[i]``, or is new at -1.

        An image is kept if its regions are the regions of one image before, all of them in the same order.
        """
        first, counts = origin[now.starts[:-1]], now.counts
        before = np.searchsorted(self.starts, first, side="right") - 1
        same = (first >= 0) & (self.starts[before] == first) & (self.counts[np.maximum(before, 0)] == counts)
        in_line = origin == np.repeat(first, counts) + np.arange(len(origin)) - np.repeat(now.starts[:-1], counts)
        same &= np.logical_and.reduceat(in_line, now.starts[:-1])
        new = np.flatnonzero(~same)
        own = Layout(now.images[new], np.concatenate([[0], np.cumsum(counts[new])]))
        return Change(np.flatnonzero(same), before[same], new, now.regions_of(new), own)

    def equal_counts(
        self, bytes_for: Callable[[int], int], memory: int
    ) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]]:
        """Cut the images into groups of equal region count m, so that what is the same for each runs on all at once.

        Yields the places of a group's images in `images`, and their regions as an (images, m) table: with it
        ``vectors[table]`` is (images, m, d). A group is as large as `memory` allows where an image of m regions takes
        ``bytes_for(m)``, and never less than one image.
        """
        counts = self.counts
        for m in np.unique(counts).tolist():
            places = np.flatnonzero(counts == m)
            step = max(1, memory // bytes_for(m))
            for at in range(0, len(places), step):
                group = places[at : at + step]
                yield group, self.starts[group, None] + np.arange(m)


@dataclass(frozen=True, eq=False)
class RowRanges:
    """Regions that lie in runs, one run after the other. The list of them is made when somebody asks for it."""

    begins: npt.NDArray[np.int64]
    """The first region of each run."""
    starts: npt.NDArray[np.int64]
    """Where each run starts in the list of regions. The last entry is how many regions there are."""
    copies: dict[Any, Any] = field(default_factory=dict, repr=False)
    """The list as devices hold it, by device."""

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def regions(self) -> IntArray:
        """The list of regions."""
        counts = np.diff(self.starts)
        if len(counts) and counts.min() == counts.max():
            table: IntArray = self.begins.astype(np.int32)[:, None] + np.arange(counts[0], dtype=np.int32)
            return table.reshape(-1)
        regions: IntArray = (np.arange(len(self)) + np.repeat(self.begins - self.starts[:-1], counts)).astype(np.int32)
        return regions

    def at(self, places: npt.NDArray[np.integer]) -> IntArray:
        """Return ``regions[places]`` without the list."""
        run = np.searchsorted(self.starts, places, side="right") - 1
        rows: IntArray = (self.begins[run] + (places - self.starts[run])).astype(np.int32)
        return rows


class Change(NamedTuple):
    """What of a collection is as it was and what is not; images are named by their places."""

    kept: npt.NDArray[np.intp]
    before: npt.NDArray[np.intp]
    """Where the kept images were."""
    new: npt.NDArray[np.intp]
    regions: IntArray
    """The regions of the new images."""
    layout: Layout
    """Of these regions alone."""


def aggregate(vectors: FloatArray, layout: Layout) -> FloatArray:
    """Return each image's global descriptor: the sum of its region descriptors at unit norm, as in R-MAC.

    The regions of an image may cancel out; its global descriptor is then zero and similar to nothing.
    """
    if not len(layout.images):
        return np.empty((0, vectors.shape[1]), np.float32)
    n = len(vectors)
    ones, regions = np.ones(n, np.float32), np.arange(n, dtype=np.int32)
    # A product with a sparse matrix adds up rows several times as fast as np.add.reduceat, in the same order.
    sums: FloatArray = sp.csr_array((ones, regions, layout.starts), shape=(len(layout.images), n)) @ vectors
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    norms[norms == 0] = 1
    sums /= norms
    return sums


def aggregate_one(regions: FloatArray) -> FloatArray:
    """Return the global descriptor (1, d) of the one image or query that all of `regions` (m, d) belong to."""
    total: FloatArray = regions.sum(axis=0, dtype=np.float32, keepdims=True)
    norm = np.linalg.norm(total, axis=1, keepdims=True)
    return total / norm if norm[0, 0] else total

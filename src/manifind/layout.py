"""Which regions belong to which image: the regions of an image lie side by side, images in ascending order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.validation import FloatArray, IntArray


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

    def regions_of(self, places: npt.NDArray[np.integer]) -> IntArray:
        """Return the regions of the images at `places` in `images`, one image after the other."""
        counts = self.counts[places]
        shift = self.starts[places] - np.concatenate([[0], np.cumsum(counts)[:-1]])
        regions: IntArray = (np.arange(counts.sum()) + np.repeat(shift, counts)).astype(np.int32)
        return regions

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


def aggregate(vectors: FloatArray, layout: Layout) -> FloatArray:
    """Return each image's global descriptor: the sum of its region descriptors at unit norm, as in R-MAC.

    The regions of an image may cancel out; its global descriptor is then zero and similar to nothing.
    """
    sums: FloatArray = np.add.reduceat(vectors, layout.starts[:-1], axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    norms[norms == 0] = 1
    sums /= norms
    return sums


def aggregate_one(regions: FloatArray) -> FloatArray:
    """Return the global descriptor (1, d) of the one image or query that all of `regions` (m, d) belong to."""
    return aggregate(regions, Layout(np.zeros(1, np.int32), np.array([0, len(regions)])))

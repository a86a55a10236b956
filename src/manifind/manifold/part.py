"""What diffusion runs on: the whole graph of a collection, or the part that a shortlist leaves (Sec. 4.4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind import kernels
from manifind.checks import integers, whole_number
from manifind.diffusion import Seed
from manifind.errors import InvalidInput
from manifind.graph import Neighbours, restrict
from manifind.layout import Layout
from manifind.ranking import Ranking, best_first, pooling_matrix
from manifind.types import FloatArray, IntArray, Vectors

Places = npt.NDArray[np.intp]
"""Where images stand in the ascending list of a collection's images."""


@dataclass(frozen=True)
class Part:
    """Some images of a collection, their regions, and how region scores become a ranking of them."""

    vectors: Vectors
    """Of the whole collection, (n, d)."""
    regions: IntArray | None
    """Which of its rows are regions of this part, ascending; None is all. S and scores go by place in this list."""
    images: IntArray
    pool: sp.csr_array

    @classmethod
    def of(cls, vectors: Vectors, weights: FloatArray, layout: Layout, places: Places | None) -> Self:
        """Take the images at `places`, ascending, or all."""
        if places is None:
            return cls(vectors, None, layout.images, pooling_matrix(weights, layout))
        regions = layout.regions_of(places)
        own = Layout(layout.images[places], np.concatenate([[0], np.cumsum(layout.counts[places])]))
        return cls(vectors, regions, own.images, pooling_matrix(weights[regions], own))

    @property
    def size(self) -> int:
        """How many regions there are."""
        return int(self.pool.shape[1])

    def truncate(self, S: sp.csr_array, degrees: FloatArray) -> sp.csr_array:
        """Return the normalised affinity of this part alone."""
        return S if self.regions is None else restrict(S, degrees, self.regions)

    def nearest(self, queries: FloatArray, k: int) -> Neighbours:
        """Return the nearest regions of this part, at most all of them."""
        return Neighbours(*kernels.nearest(queries, self.vectors, min(k, self.size), rows=self.regions))

    def ranking(
        self,
        pooled: FloatArray,
        top: int | None,
        *,
        iterations: int,
        residual: float,
        tol: float,
        reached: int | None = None,
        seed: Seed | None,
        scores: Callable[[], FloatArray],
    ) -> Ranking:
        """Rank the images by their pooled scores; `scores` gives the region scores if they are asked for."""
        if seed is not None and self.regions is not None:
            seed = Seed(self.regions[seed.regions], seed.values)

        def over_all_regions() -> FloatArray:
            if self.regions is None:
                return scores()
            spread = np.zeros(len(self.vectors), np.float32)
            spread[self.regions] = scores()
            return spread

        order = best_first(pooled, top)
        return Ranking(
            self.images[order],
            pooled[order],
            iterations=iterations,
            residual=residual,
            converged=residual <= tol,
            reached=reached,
            seed=seed,
            _region_scores=over_all_regions,
        )


def shortlists(
    shortlist: int | npt.ArrayLike | None,
    images: IntArray,
    global_vectors: FloatArray,
    query_globals: Callable[[], FloatArray],
) -> Sequence[Places] | Places | None:
    """Return the places of the images to diffuse on: None for all, one array for every query, or one for each.

    Parameters
    ----------
    shortlist : int, array of image numbers, or None
        How many to take by the similarity of global descriptors, or which.
    images, global_vectors
        The collection's images and the global descriptor of each.
    query_globals : callable
        Makes the queries' global descriptors, where they are needed.
    """
    if shortlist is None:
        return None
    if np.ndim(shortlist) == 0:
        size = whole_number(shortlist, "shortlist")
        if size >= len(images):
            return None
        ids, _ = kernels.nearest(query_globals(), global_vectors, size)
        return [np.sort(row).astype(np.intp) for row in ids]
    wanted = np.unique(integers(shortlist, "shortlist"))
    if not len(wanted):
        raise InvalidInput("shortlist is empty; give at least one image, or None for the whole collection.")
    places = np.searchsorted(images, wanted)
    unknown = wanted[images[np.minimum(places, len(images) - 1)] != wanted]
    if len(unknown):
        raise InvalidInput(
            f"shortlist names {len(unknown)} images that are not in the collection, {unknown[0]} first; "
            "give numbers that occur in image_of."
        )
    return places

"""Search without diffusion: by global descriptors (R-MAC), and by regions (R-match)."""

import numpy as np

from manifind.baselines.scorer import CollectionDescriptors, ImageScorer, QueryDescriptors
from manifind.graph import Neighbours, exact_neighbours
from manifind.types import FloatArray


class NearestImages(ImageScorer):
    """Rank images by the similarity of their global descriptor to the query's.

    Unless others are given, global descriptors are the sum of the region descriptors at unit norm, as in R-MAC (Tolias
    et al., ICLR 2016). The paper's tables and the other global baselines start from this search.
    """

    global_vectors_: FloatArray

    def _fit(self, collection: CollectionDescriptors) -> None:
        self.global_vectors_ = collection.global_vectors

    def _score(self, query: QueryDescriptors) -> FloatArray:
        return self._score_global(query.global_vector)

    def _score_global(self, query: FloatArray) -> FloatArray:
        """Return the score of each image for the global descriptor (d,) of one query."""
        scores: FloatArray = self.global_vectors_ @ query
        return scores

    def _image_neighbours(self, k: int, collection: CollectionDescriptors) -> Neighbours:
        """Return the `k` images most similar to each, without itself, or all others where there are fewer."""
        count = len(self.global_vectors_)
        if count == 1:
            return Neighbours(np.empty((1, 0), np.int32), np.empty((1, 0), np.float32))
        k = min(k, count - 1)
        if collection.find is not None:
            return collection.find(self.global_vectors_, k, collection.progress)
        return exact_neighbours(self.global_vectors_, k, progress=collection.progress)


def unit(vector: FloatArray) -> FloatArray:
    """Return a vector, or each row, at unit norm; what has no direction stays zero."""
    norms = np.linalg.norm(vector, axis=-1, keepdims=True)
    return np.asarray(vector / np.where(norms > 0, norms, 1), np.float32)


BLOCK_BYTES = 2**24


class RegionMatch(ImageScorer):
    """Rank images by the sum, over the query's regions, of the largest inner product with a region of the image.

    The cross-matching of Razavian et al. (MTA 2016), which the paper calls R-match: its regional baseline.
    """

    vectors_: FloatArray

    def _fit(self, collection: CollectionDescriptors) -> None:
        self.vectors_ = collection.vectors

    def _score(self, query: QueryDescriptors) -> FloatArray:
        return self._match(query.regions)

    def _match(self, query: FloatArray) -> FloatArray:
        starts = self.layout_.starts
        scores = np.empty(len(self.layout_.images), np.float32)
        rows = max(1, BLOCK_BYTES // (4 * len(query)))
        first = 0
        while first < len(scores):
            # As many whole images as a block of rows holds, and at least one.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + rows, side="right")) - 1)
            products = self.vectors_[starts[first] : starts[last]] @ query.T
            best = np.maximum.reduceat(products, starts[first:last] - starts[first], axis=0)
            scores[first:last] = best.sum(axis=1)
            first = last
        return scores

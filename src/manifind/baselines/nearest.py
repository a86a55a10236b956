"""Plain search: images by the inner product of global descriptors."""

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

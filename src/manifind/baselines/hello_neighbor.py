"""HN, "Hello Neighbor": re-ranking by k-reciprocal neighbours."""

import numpy as np
import numpy.typing as npt

from manifind.baselines.nearest import NearestImages
from manifind.baselines.scorer import CollectionDescriptors
from manifind.checks import check_int
from manifind.kernels.topk import argsort_topk
from manifind.types import FloatArray, IntArray

CLOSE_SET_BONUS = 2.0
"""Added to the score of the close set, so that it comes first: similarities lie between −1 and 1."""


class HelloNeighbor(NearestImages):
    """Rank the reciprocal neighbours of the query first, and the other images by their similarity to these.

    Qin, Gammeter, Bossard, Quack, Van Gool: Hello Neighbor: Accurate Object Retrieval with k-Reciprocal Nearest
    Neighbors (CVPR 2011). Two images are k-reciprocal neighbours if each is among the k nearest of the other. They
    divide the list into a close set and a far set, each ranked by its own measure.

    The publication's formulas could not be had; these are our own, so figures are not those of its authors' program:

    1. The close set holds the query's k-reciprocal neighbours, and those of each such neighbour of which half or more
       (the neighbour itself counted) are the query's too. Members brought in this way bring no more: with chaining
       the set ran through half the collection (1,929 of Oxford5k's 5,063 photos, for k = 10).
    2. The close set is ranked by the mean similarity to the query and to the close set.
    3. The far set comes after it, ranked by the largest similarity to the query or to an image of the close set.
    4. Similarities are those of unit vectors; the publication has bags of words.
    5. The query enters the list of an image if it is more similar than the last entry.

    Parameters
    ----------
    neighbours : int, default 10
        k.
    """

    reciprocal_: list[IntArray]
    """The k-reciprocal neighbours of each image."""
    reach_: FloatArray
    """The similarity of each image to its k-th neighbour, which a query must exceed to enter the list."""

    def __init__(self, *, neighbours: int = 10) -> None:
        self.neighbours = neighbours

    def _fit(self, collection: CollectionDescriptors) -> None:
        k = check_int(self.neighbours, "neighbours")
        super()._fit(collection)
        ids, similarities = self._image_neighbours(k, collection)
        self.reciprocal_ = [row[(ids[row] == i).any(axis=1)] for i, row in enumerate(ids)]
        self.reach_ = similarities[:, -1] if ids.shape[1] == k else np.full(len(ids), -np.inf, np.float32)

    def _score_global(self, query: FloatArray) -> FloatArray:
        similarities = super()._score_global(query)
        close = self._close_set(similarities)
        query_and_close = np.concatenate([query[None], self.global_vectors_[close]])
        products: FloatArray = self.global_vectors_ @ query_and_close.T
        scores: FloatArray = products.max(axis=1)
        scores[close] = CLOSE_SET_BONUS + products[close].mean(axis=1)
        return scores

    def _close_set(self, similarities: FloatArray) -> npt.NDArray[np.intp]:
        nearest = argsort_topk(similarities, self.neighbours)
        reciprocal = nearest[similarities[nearest] > self.reach_[nearest]]
        close = set(reciprocal.tolist())
        for member in reciprocal:
            neighbours = self.reciprocal_[member]
            shared = 1 + np.isin(neighbours, reciprocal).sum()
            if 2 * shared >= 1 + len(neighbours):
                close.update(neighbours.tolist())
        return np.array(sorted(close), np.intp)

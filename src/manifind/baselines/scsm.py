"""SCSM on global descriptors: k-NN re-ranking by the ranks in the lists of the nearest images."""

import numpy as np

from manifind.baselines.nearest import NearestImages
from manifind.baselines.scorer import CollectionDescriptors
from manifind.checks import check_int
from manifind.kernels.topk import argsort_topk
from manifind.types import FloatArray


class SpatiallyConstrainedMatching(NearestImages):
    """Search with the best images too, and add up the inverse ranks that each search gives.

    Shen, Lin, Brandt, Avidan, Wu: Object Retrieval and Localization with Spatially-Constrained Similarity Measure and
    k-NN Re-ranking (CVPR 2012; TPAMI 2014). The similarity measure itself votes with local features. On global
    descriptors its k-NN re-ranking remains, and must be what the paper lists: with N₁ … N_k the best images for the
    query Q, and R(X, D) the rank of image D, from 1, in a search with X,

        score(D) = 1 / R(Q, D) + Σᵢ 1 / ((i + 1) R(Nᵢ, D)).

    An image is first in its own list. One round, not repeated.

    Parameters
    ----------
    neighbours : int, default 10
        The k images to search with. The paper does not say; the weights 1 / (i + 1) make later ones matter little.
    """

    def __init__(self, *, neighbours: int = 10) -> None:
        self.neighbours = neighbours

    def _fit(self, collection: CollectionDescriptors) -> None:
        check_int(self.neighbours, "neighbours")
        super()._fit(collection)

    def _score_global(self, query: FloatArray) -> FloatArray:
        similarities = super()._score_global(query)
        scores = 1 / _ranks(similarities)
        for i, image in enumerate(argsort_topk(similarities, self.neighbours).tolist(), start=1):
            scores += 1 / ((i + 1) * _ranks(super()._score_global(self.global_vectors_[image])))
        return scores.astype(np.float32)


def _ranks(similarities: FloatArray) -> np.ndarray:
    """Return the rank of each image, 1 for the most similar; equals by place."""
    ranks = np.empty(len(similarities))
    ranks[argsort_topk(similarities, None)] = np.arange(1, len(similarities) + 1)
    return ranks

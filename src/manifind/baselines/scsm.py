"""SCSM on global descriptors: re-ranking by the ranks that the nearest images give."""

import numpy as np

from manifind.baselines.nearest import NearestImages
from manifind.baselines.scorer import Collection
from manifind.checks import whole_number
from manifind.ranking import best_first
from manifind.types import FloatArray


class SpatiallyConstrainedMatching(NearestImages):
    """Let the best images search too, and add up the inverse ranks that each search gives.

    Shen, Lin, Brandt, Avidan, Wu: Object Retrieval and Localization with Spatially-Constrained Similarity Measure and
    k-NN Re-ranking (CVPR 2012; TPAMI 2014). The similarity measure itself votes for the place of the object with local
    features, which global descriptors do not have; what remains of SCSM on them, and what the paper must mean where it
    lists it among expansions of global descriptors, is the k-NN re-ranking: with N₁ … N_k the best images for the query
    Q, and R(X, D) the rank of image D, from 1, when X is searched for,

        score(D) = 1 / R(Q, D) + Σᵢ 1 / ((i + 1) R(Nᵢ, D)).

    Ranks, not similarities: an image far down the query's list but first in those of its neighbours comes up, and one
    wrong neighbour adds little to anything but its own first images. An image is first in its own list. One round, not
    repeated.

    Parameters
    ----------
    neighbours : int, default 10
        The k images that search too. The paper does not say; the weights 1 / (i + 1) make later ones matter little.
    """

    def __init__(self, *, neighbours: int = 10) -> None:
        self.neighbours = neighbours

    def _keep(self, collection: Collection) -> None:
        whole_number(self.neighbours, "neighbours")
        super()._keep(collection)

    def _global_scores(self, query: FloatArray) -> FloatArray:
        similarities = super()._global_scores(query)
        scores = 1 / _ranks(similarities)
        for i, image in enumerate(best_first(similarities, self.neighbours).tolist(), start=1):
            scores += 1 / ((i + 1) * _ranks(super()._global_scores(self.global_vectors_[image])))
        return scores.astype(np.float32)


def _ranks(similarities: FloatArray) -> np.ndarray:
    """Return the rank of each image, 1 for the most similar; equals by place."""
    ranks = np.empty(len(similarities))
    ranks[best_first(similarities, None)] = np.arange(1, len(similarities) + 1)
    return ranks

"""HN, "Hello Neighbor": two parts of the list, told apart by reciprocal neighbours, each ranked by its own measure."""

import numpy as np
import numpy.typing as npt

from manifind.baselines.nearest import NearestImages
from manifind.baselines.scorer import Collection
from manifind.checks import whole_number
from manifind.ranking import best_first
from manifind.types import FloatArray, IntArray

APART = 2.0
"""Added to the score of close images, so that they come first: similarities lie between −1 and 1."""


class HelloNeighbor(NearestImages):
    """Put the images that are reciprocal neighbours of the query first; rank them and the others each their own way.

    Qin, Gammeter, Bossard, Quack, Van Gool: Hello Neighbor: Accurate Object Retrieval with k-Reciprocal Nearest
    Neighbors (CVPR 2011). The publication's are these ideas: two images are k-reciprocal neighbours if each is among
    the k nearest of the other; they divide the list into a close set and a far set; the two are ranked by different
    measures, because large distances say little in many dimensions and because images lie denser in some places than in
    others; and most of the work is off line, the lists of the images among each other.

    The publication's formulas could not be had, so that these are our own, and figures are not those of its authors'
    program. (1) The close set is made of the query's k-reciprocal neighbours, and of those of each member of which half
    or more, the member itself counted, are the query's too. (2) It is ranked by the mean similarity to the query and to
    the close set, so that one image in a dense place does not decide. (3) The far set, all other images, comes after it
    and is ranked by the largest similarity to the query or to any image of the close set: of all distances to them the
    shortest says most. (4) Similarities are those of unit vectors, where the publication has bags of words. (5) The
    query enters the list of an image that it resembles more than the last there does. (6) Only the query's own
    reciprocal neighbours bring theirs: where those who were brought may bring more, the set was seen to run through
    half the collection (1,929 of Oxford5k's 5,063 photos, for k = 10).

    Parameters
    ----------
    neighbours : int, default 10
        k.
    """

    reciprocal_: list[IntArray]
    """The k-reciprocal neighbours of each image."""
    reach_: FloatArray
    """The similarity that a query must exceed to be among the k nearest of each image."""

    def __init__(self, *, neighbours: int = 10) -> None:
        self.neighbours = neighbours

    def _keep(self, collection: Collection) -> None:
        k = whole_number(self.neighbours, "neighbours")
        super()._keep(collection)
        ids, similarities = self._other_images(k, collection)
        self.reciprocal_ = [row[(ids[row] == i).any(axis=1)] for i, row in enumerate(ids)]
        self.reach_ = similarities[:, -1] if ids.shape[1] == k else np.full(len(ids), -np.inf, np.float32)

    def _global_scores(self, query: FloatArray) -> FloatArray:
        similarities = super()._global_scores(query)
        close = self._close_set(similarities)
        together = np.concatenate([query[None], self.global_vectors_[close]])
        to_each: FloatArray = self.global_vectors_ @ together.T
        scores: FloatArray = to_each.max(axis=1)
        scores[close] = APART + to_each[close].mean(axis=1)
        return scores

    def _close_set(self, similarities: FloatArray) -> npt.NDArray[np.intp]:
        nearest = best_first(similarities, self.neighbours)
        reciprocal = nearest[similarities[nearest] > self.reach_[nearest]]
        close = set(reciprocal.tolist())
        for member in reciprocal:
            friends = self.reciprocal_[member]
            agreeing = 1 + np.isin(friends, reciprocal).sum()
            if 2 * agreeing >= 1 + len(friends):
                close.update(friends.tolist())
        return np.array(sorted(close), np.intp)

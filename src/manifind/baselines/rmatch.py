"""R-match: the regions of the query and of each image cross-matched."""

import numpy as np

from manifind.baselines.scorer import Asked, Collection, ImageScorer
from manifind.types import FloatArray

BLOCK_BYTES = 2**24


class RegionMatch(ImageScorer):
    """Rank images by how well each region of the query is matched by the best region of the image.

    The score of an image is the sum over the query's regions of the largest inner product with any of the image's: the
    cross-matching of Razavian et al. (MTA 2016), which the paper calls R-match and takes as its regional baseline.
    """

    vectors_: FloatArray

    def _keep(self, collection: Collection) -> None:
        self.vectors_ = collection.vectors

    def _scores(self, asked: Asked) -> FloatArray:
        return self._match(asked.regions)

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

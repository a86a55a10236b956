"""R-match: cross-matching of the regions of the query and of each image."""

import numpy as np

from manifind.baselines.scorer import CollectionDescriptors, ImageScorer, QueryDescriptors
from manifind.types import FloatArray

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

"""R-match with average query expansion, region by region."""

import numpy as np

from manifind.baselines.nearest import unit
from manifind.baselines.rmatch import RegionMatch
from manifind.baselines.scorer import Asked, Collection
from manifind.checks import whole_number
from manifind.ranking import best_first
from manifind.types import FloatArray


class RegionMatchExpansion(RegionMatch):
    """Average each region of the query with its best match in each of the best images, then match again.

    The paper extends average query expansion "to regional representation combined with the similarity used in R-match"
    (Sec. 5.3) and says no more. Chosen here: the best images are those of `RegionMatch`; a region of the query
    becomes the unit-norm sum of itself and of the one region in each of these images that it was matched to there; the
    regions so expanded are cross-matched again. A region is thus expanded only by what it resembles.

    Parameters
    ----------
    neighbours : int, default 5
        Images to expand with, as for `AverageQueryExpansion`.
    """

    def __init__(self, *, neighbours: int = 5) -> None:
        self.neighbours = neighbours

    def _keep(self, collection: Collection) -> None:
        whole_number(self.neighbours, "neighbours")
        super()._keep(collection)

    def _scores(self, asked: Asked) -> FloatArray:
        starts = self.layout_.starts
        query = asked.regions
        expanded = query.copy()
        for image in best_first(self._match(query), self.neighbours):
            regions = self.vectors_[starts[image] : starts[image + 1]]
            expanded += regions[np.argmax(regions @ query.T, axis=0)]
        return self._match(unit(expanded))

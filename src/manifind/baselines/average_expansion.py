"""AQE: average query expansion."""

from manifind.baselines.nearest import NearestImages, unit
from manifind.baselines.scorer import Collection
from manifind.checks import whole_number
from manifind.ranking import best_first
from manifind.types import FloatArray


class AverageQueryExpansion(NearestImages):
    """Search, average the query with the best images, and search again with the average.

    Chum, Philbin, Sivic, Isard, Zisserman: Total Recall: Automatic Query Expansion with a Generative Feature Model for
    Object Retrieval (ICCV 2007), without the geometric verification of the images that are averaged, as it is used
    with global descriptors (Tolias et al., ICLR 2016; Gordo et al., 2017). The query counts as much as each image.

    Parameters
    ----------
    neighbours : int, default 5
        Images to average with. The paper does not say how many it takes; Tolias et al. take 5, Gordo et al. 10. More
        help only where the first images are right: on descriptors of a small network, of which 66 % of the first 10
        are, 10 are worse than none (``docs/methods.md``).
    """

    def __init__(self, *, neighbours: int = 5) -> None:
        self.neighbours = neighbours

    def _keep(self, collection: Collection) -> None:
        whole_number(self.neighbours, "neighbours")
        super()._keep(collection)

    def _global_scores(self, query: FloatArray) -> FloatArray:
        best = best_first(super()._global_scores(query), self.neighbours)
        return super()._global_scores(unit(query + self.global_vectors_[best].sum(axis=0)))

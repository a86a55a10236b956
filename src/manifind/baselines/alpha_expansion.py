"""αQE: query expansion weighted by similarity."""

from manifind.baselines.nearest import NearestImages, unit
from manifind.baselines.scorer import Collection
from manifind.checks import real_number, whole_number
from manifind.graph import kernel
from manifind.ranking import best_first
from manifind.types import FloatArray


class AlphaQueryExpansion(NearestImages):
    """Search, average the query with the best images, each weighted by its similarity to the power α, and search again.

    Radenović, Tolias, Chum: Fine-tuning CNN Image Retrieval with No Human Annotation (TPAMI 2019), Sec. 4.3. The query
    weighs 1, its similarity to itself; an image that is not similar (below zero) weighs nothing. With α = 0 and as many
    images it would be `AverageQueryExpansion`; a larger α trusts the first images more and makes their number matter
    less.

    Parameters
    ----------
    neighbours : int, default 50
        Images to average with, as in the publication, whose network was trained for retrieval; where similarities fall
        off slowly, 50 images outweigh the query and fewer are better (``docs/methods.md``).
    alpha : float, default 3.0
        The exponent α, positive, as in the publication.
    """

    def __init__(self, *, neighbours: int = 50, alpha: float = 3.0) -> None:
        self.neighbours = neighbours
        self.alpha = alpha

    def _keep(self, collection: Collection) -> None:
        whole_number(self.neighbours, "neighbours")
        real_number(self.alpha, "alpha", above=0)
        super()._keep(collection)

    def _global_scores(self, query: FloatArray) -> FloatArray:
        similarities = super()._global_scores(query)
        best = best_first(similarities, self.neighbours)
        weights = kernel(similarities[best], self.alpha)
        return super()._global_scores(unit(query + weights @ self.global_vectors_[best]))

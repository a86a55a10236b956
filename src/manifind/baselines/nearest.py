"""Plain search: images by the inner product of global descriptors."""

from manifind.baselines.scorer import ImageScorer
from manifind.layout import Layout, aggregate, aggregate_one
from manifind.validation import FloatArray


class NearestImages(ImageScorer):
    """Rank images by the similarity of their global descriptor to the query's.

    The global descriptor is the sum of the region descriptors at unit norm, as in R-MAC (Tolias et al., ICLR 2016): the
    search by nearest neighbours that the paper's tables start from.
    """

    global_vectors_: FloatArray

    def _keep(self, vectors: FloatArray, layout: Layout) -> None:
        self.global_vectors_ = aggregate(vectors, layout)

    def _scores(self, query: FloatArray) -> FloatArray:
        scores: FloatArray = self.global_vectors_ @ aggregate_one(query)[0]
        return scores

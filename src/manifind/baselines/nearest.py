"""Plain search: images by the inner product of global descriptors."""

from collections.abc import Sequence
from typing import Self

import numpy.typing as npt

from manifind.errors import NotFitted
from manifind.layout import Layout, aggregate, aggregate_one
from manifind.ranking import Ranking, best_first
from manifind.validation import FloatArray, image_numbers, sequence_of_queries, unit_vectors, whole_number


class NearestImages:
    """Rank images by the similarity of their global descriptor to the query's.

    The global descriptor is the sum of the region descriptors at unit norm, as in R-MAC (Tolias et al., ICLR 2016): the
    search by nearest neighbours that the paper's tables start from.
    """

    layout_: Layout
    global_vectors_: FloatArray

    def fit(self, vectors: npt.ArrayLike, image_of: npt.ArrayLike | None = None) -> Self:
        """Aggregate the regions (n, d) of each image; without `image_of` each row is an image."""
        checked = unit_vectors(vectors, "vectors")
        self.layout_ = Layout.of(image_numbers(image_of, len(checked)))
        self.global_vectors_ = aggregate(checked, self.layout_)
        return self

    def search(self, query_vectors: npt.ArrayLike, top: int | None = None) -> Ranking:
        """Rank the images for all regions (m, d) of one query."""
        return self._rank([query_vectors], ["query_vectors"], top)[0]

    def search_many(self, queries: Sequence[npt.ArrayLike], top: int | None = None) -> list[Ranking]:
        """Rank the images for each query."""
        listed = sequence_of_queries(queries, "queries")
        return self._rank(listed, [f"queries[{i}]" for i in range(len(listed))], top)

    def _rank(self, queries: Sequence[npt.ArrayLike], names: Sequence[str], top: int | None) -> list[Ranking]:
        if not hasattr(self, "layout_"):
            raise NotFitted("NearestImages has no collection yet; call fit(vectors, image_of) before search.")
        if top is not None:
            whole_number(top, "top")
        dimension = self.global_vectors_.shape[1]
        rankings = []
        for query, name in zip(queries, names, strict=True):
            regions = unit_vectors(query, name, dimension=dimension)
            scores = self.global_vectors_ @ aggregate_one(regions)[0]
            order = best_first(scores, top)
            rankings.append(Ranking(self.layout_.images[order], scores[order]))
        return rankings

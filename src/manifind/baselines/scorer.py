"""The contract of a baseline that scores every image for a query."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy.typing as npt

from manifind.errors import NotFitted
from manifind.layout import Layout
from manifind.ranking import Ranking, best_first
from manifind.validation import FloatArray, image_numbers, sequence_of_queries, unit_vectors, whole_number


class ImageScorer(ABC):
    """Rank images by a score of each; a baseline says what it keeps of a collection and how it scores."""

    layout_: Layout

    @abstractmethod
    def _keep(self, vectors: FloatArray, layout: Layout) -> None:
        """Keep of the collection what scoring needs."""

    @abstractmethod
    def _scores(self, query: FloatArray) -> FloatArray:
        """Return the score of each image for the regions (m, d) of one query."""

    def fit(self, vectors: npt.ArrayLike, image_of: npt.ArrayLike | None = None) -> Self:
        """Take in the regions (n, d) of a collection; without `image_of` each row is an image."""
        checked = unit_vectors(vectors, "vectors")
        layout = Layout.of(image_numbers(image_of, len(checked)))
        self._keep(checked, layout)
        self._dimension = checked.shape[1]
        self.layout_ = layout
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
            raise NotFitted(f"this {type(self).__name__} has no collection yet; call fit(vectors, image_of) first.")
        if top is not None:
            whole_number(top, "top")
        rankings = []
        for query, name in zip(queries, names, strict=True):
            scores = self._scores(unit_vectors(query, name, dimension=self._dimension))
            order = best_first(scores, top)
            rankings.append(Ranking(self.layout_.images[order], scores[order]))
        return rankings

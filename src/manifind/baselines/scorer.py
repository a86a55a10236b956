"""The contract of a baseline: ``fit(vectors, image_of)``, then ``search(query_vectors, top)`` or many at once."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy.typing as npt

from manifind.checks import image_numbers, sequence_of_queries, unit_vectors, whole_number
from manifind.errors import NotFitted
from manifind.layout import Layout
from manifind.ranking import Ranking, best_first
from manifind.types import FloatArray, Progress


class ImageScorer(ABC):
    """Rank images by a score of each; a baseline says what it keeps of a collection and how it scores.

    Parameters are kept as they were given and checked in `fit`.
    """

    layout_: Layout

    @abstractmethod
    def _keep(self, vectors: FloatArray, layout: Layout, progress: Progress | None) -> None:
        """Check the parameters and keep of the collection what scoring needs."""

    @abstractmethod
    def _scores(self, query: FloatArray) -> FloatArray:
        """Return the score of each image for the regions (m, d) of one query."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 (scikit-learn's signature)
        """Return the parameters as they were given."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def fit(
        self, vectors: npt.ArrayLike, image_of: npt.ArrayLike | None = None, *, progress: Progress | None = None
    ) -> Self:
        """Take in the regions (n, d) of a collection; without `image_of` each row is an image.

        `progress` is called where all are compared with all, with the rows done and the rows in all.
        """
        checked = unit_vectors(vectors, "vectors")
        layout = Layout.of(image_numbers(image_of, len(checked)))
        self._keep(checked, layout, progress)
        self._dimension = checked.shape[1]
        self.layout_ = layout
        return self

    def search(self, query_vectors: npt.ArrayLike, top: int | None = None) -> Ranking:
        """Rank the images for all regions (m, d) of one query."""
        return self._search([query_vectors], ["query_vectors"], top)[0]

    def search_many(self, queries: Sequence[npt.ArrayLike], top: int | None = None) -> list[Ranking]:
        """Rank the images for each query."""
        listed = sequence_of_queries(queries, "queries")
        return self._search(listed, [f"queries[{i}]" for i in range(len(listed))], top)

    def _search(self, queries: Sequence[npt.ArrayLike], names: Sequence[str], top: int | None) -> list[Ranking]:
        if not hasattr(self, "layout_"):
            raise NotFitted(f"this {type(self).__name__} has no collection yet; call fit(vectors, image_of) first.")
        if top is not None:
            whole_number(top, "top")
        checked = [unit_vectors(q, name, dimension=self._dimension) for q, name in zip(queries, names, strict=True)]
        return self._rank(checked, top)

    def _rank(self, queries: list[FloatArray], top: int | None) -> list[Ranking]:
        rankings = []
        for query in queries:
            scores = self._scores(query)
            order = best_first(scores, top)
            rankings.append(Ranking(self.layout_.images[order], scores[order]))
        return rankings

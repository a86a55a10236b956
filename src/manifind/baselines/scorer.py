"""The contract of a baseline: ``fit(vectors, image_of)``, then ``search(query_vectors, top)`` or many at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.checks import check_int, image_numbers, sequence_of_queries, unit_vectors
from manifind.errors import InvalidInputError, NotFittedError
from manifind.estimator import Estimator
from manifind.graph import Neighbours
from manifind.groups import Layout, aggregate, aggregate_one
from manifind.kernels.topk import argsort_topk
from manifind.ranking import Ranking
from manifind.types import FloatArray, Progress

FindNeighbours = Callable[[FloatArray, int, Progress | None], Neighbours]
"""Finds the k nearest other rows of each row."""


@dataclass(frozen=True)
class CollectionDescriptors:
    """The regions of all images, and a global descriptor of each image."""

    vectors: FloatArray
    layout: Layout
    given_global: FloatArray | None = None
    find: FindNeighbours | None = None
    """Replaces the baseline's own k-NN search, so that several baselines share their lists."""
    progress: Progress | None = None

    @cached_property
    def global_vectors(self) -> FloatArray:
        """The global descriptor of each image: as given, or the normalised sum of the image's regions (R-MAC)."""
        if self.given_global is not None:
            return self.given_global
        single = len(self.layout.images) == len(self.vectors)
        return self.vectors if single else aggregate(self.vectors, self.layout)


@dataclass(frozen=True)
class QueryDescriptors:
    """The regions (m, d) of a query, and its global descriptor."""

    regions: FloatArray
    given_global: FloatArray | None = None

    @cached_property
    def global_vector(self) -> FloatArray:
        """The global descriptor (g,), as given or the normalised sum of the regions."""
        vector: FloatArray = aggregate_one(self.regions)[0] if self.given_global is None else self.given_global
        return vector


class Baseline(Estimator):
    """An estimator that `manifind.evaluation` compares with others. Its parameters hold from the next ``fit``."""

    def try_params(self, parameters: dict[str, Any]) -> bool:
        """Take these parameters without fitting anew and return True; return False if they need a new ``fit``."""
        return parameters == self.get_params()

    def costs(self) -> dict[str, float]:
        """Return the seconds of stages of ``fit`` and the bytes in memory, by names that end in the unit."""
        return {}


class ImageScorer(Baseline, ABC):
    """A baseline on descriptors, which ranks images by a score of each."""

    layout_: Layout
    n_features_in_: int
    """The dimensions of a descriptor."""

    @abstractmethod
    def _fit(self, collection: CollectionDescriptors) -> None:
        """Check the parameters and compute the fitted state that scoring needs."""

    @abstractmethod
    def _score(self, query: QueryDescriptors) -> FloatArray:
        """Return the score of each image for one query."""

    def fit(
        self,
        vectors: npt.ArrayLike,
        image_of: npt.ArrayLike | None = None,
        *,
        global_vectors: npt.ArrayLike | None = None,
        find: FindNeighbours | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit the baseline on a collection.

        Parameters
        ----------
        vectors : (n, d) floating point
            A descriptor for each region.
        image_of : (n,) integers, ascending, optional
            The number of the image that each region belongs to; without it each row is an image.
        global_vectors : (images, g) floating point, optional
            A global descriptor of each image; by default the normalised sum of its regions.
        find : callable, optional
            Finds neighbours in place of the baseline's own search.
        progress : callable, optional
            Called where all are compared with all, with the rows done and the rows in all.
        """
        checked = unit_vectors(vectors, "vectors")
        layout = Layout.of(image_numbers(image_of, len(checked)))
        whole = None if global_vectors is None else unit_vectors(global_vectors, "global_vectors")
        if whole is not None and len(whole) != len(layout.images):
            raise InvalidInputError(
                f"global_vectors has {len(whole)} rows for {len(layout.images)} images; give one each.",
                code="image-count",
            )
        self._fit(CollectionDescriptors(checked, layout, whole, find, progress))
        self._dimensions = checked.shape[1], (checked if whole is None else whole).shape[1]
        self.layout_ = layout
        self.n_features_in_ = checked.shape[1]
        return self

    def search(
        self, query_vectors: npt.ArrayLike, top: int | None = None, *, global_vector: npt.ArrayLike | None = None
    ) -> Ranking:
        """Rank the images for all regions (m, d) of one query; `global_vector` (g,) is its global descriptor."""
        return self._search(
            [query_vectors], ["query_vectors"], top, None if global_vector is None else [global_vector]
        )[0]

    def search_many(
        self,
        queries: Sequence[npt.ArrayLike],
        top: int | None = None,
        *,
        global_vectors: Sequence[npt.ArrayLike] | None = None,
    ) -> list[Ranking]:
        """Rank the images for each query."""
        listed = sequence_of_queries(queries, "queries")
        return self._search(listed, [f"queries[{i}]" for i in range(len(listed))], top, global_vectors)

    def _search(
        self,
        queries: Sequence[npt.ArrayLike],
        names: Sequence[str],
        top: int | None,
        global_vectors: Sequence[npt.ArrayLike] | None,
    ) -> list[Ranking]:
        if not hasattr(self, "layout_"):
            raise NotFittedError(
                f"this {type(self).__name__} has no collection yet; call fit(vectors, image_of) first."
            )
        if top is not None:
            check_int(top, "top")
        dimension, global_dimension = self._dimensions
        regions = [unit_vectors(q, name, dimension=dimension) for q, name in zip(queries, names, strict=True)]
        if global_vectors is None:
            if global_dimension != dimension:
                raise InvalidInputError(
                    "global_vectors is missing: the collection has some of its own; give the queries'.",
                    code="no-global-vectors",
                )
            return self._rank([QueryDescriptors(query) for query in regions], top)
        if len(global_vectors) != len(regions):
            raise InvalidInputError(
                f"global_vectors has {len(global_vectors)} entries for {len(regions)} queries; give one each.",
                code="query-count",
            )
        rows = [np.asarray(vector)[None] for vector in global_vectors]
        wholes = [unit_vectors(row, "global_vectors", dimension=global_dimension)[0] for row in rows]
        return self._rank(list(map(QueryDescriptors, regions, wholes)), top)

    def _rank(self, queries: list[QueryDescriptors], top: int | None) -> list[Ranking]:
        rankings = []
        for query in queries:
            scores = self._score(query)
            order = argsort_topk(scores, top)
            rankings.append(Ranking(self.layout_.images[order], scores[order]))
        return rankings

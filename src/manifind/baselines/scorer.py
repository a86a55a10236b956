"""The contract of a baseline: ``fit(vectors, image_of)``, then ``search(query_vectors, top)`` or many at once."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.checks import image_numbers, sequence_of_queries, unit_vectors, whole_number
from manifind.errors import InvalidInput, NotFitted
from manifind.graph import Neighbours
from manifind.layout import Layout, aggregate, aggregate_one
from manifind.ranking import Ranking, best_first
from manifind.types import FloatArray, Progress

Find = Callable[[FloatArray, int, Progress | None], Neighbours]
"""Finds the k nearest other rows of each row."""


@dataclass(frozen=True)
class Collection:
    """What a baseline is fitted on: the regions of images, and a global descriptor of each image."""

    vectors: FloatArray
    layout: Layout
    given_whole: FloatArray | None = None
    find: Find | None = None
    """A function that finds neighbours in place of the baseline's own search, so that several baselines can share
    lists."""
    progress: Progress | None = None

    @cached_property
    def whole(self) -> FloatArray:
        """The global descriptor of each image: as given, or the normalised sum of the image's regions (R-MAC)."""
        if self.given_whole is not None:
            return self.given_whole
        single = len(self.layout.images) == len(self.vectors)
        return self.vectors if single else aggregate(self.vectors, self.layout)


@dataclass(frozen=True)
class Asked:
    """A query: its regions (m, d), and its global descriptor."""

    regions: FloatArray
    given_whole: FloatArray | None = None

    @cached_property
    def whole(self) -> FloatArray:
        """The global descriptor (g,), as given or the normalised sum of the regions."""
        found: FloatArray = aggregate_one(self.regions)[0] if self.given_whole is None else self.given_whole
        return found


class ImageScorer(ABC):
    """Rank images by a score of each; a baseline says what it keeps of a collection and how it scores.

    Parameters are kept as they were given and checked in `fit`.
    """

    layout_: Layout

    @abstractmethod
    def _keep(self, collection: Collection) -> None:
        """Check the parameters and keep of the collection what scoring needs."""

    @abstractmethod
    def _scores(self, asked: Asked) -> FloatArray:
        """Return the score of each image for one query."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 (scikit-learn's signature)
        """Return the parameters as they were given."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def serves(self, parameters: dict[str, Any]) -> bool:
        """Say whether what was fitted can be used with these parameters, and if so, use them from now on."""
        return parameters == self.get_params()

    def costs(self) -> dict[str, float]:
        """Return what fitting cost and how much is kept, by names that end in the unit.

        A baseline that keeps little returns nothing.
        """
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def fit(
        self,
        vectors: npt.ArrayLike,
        image_of: npt.ArrayLike | None = None,
        *,
        global_vectors: npt.ArrayLike | None = None,
        find: Find | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Take in a collection.

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
            raise InvalidInput(f"global_vectors has {len(whole)} rows for {len(layout.images)} images; give one each.")
        self._keep(Collection(checked, layout, whole, find, progress))
        self._dimensions = checked.shape[1], (checked if whole is None else whole).shape[1]
        self.layout_ = layout
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
        wholes: Sequence[npt.ArrayLike] | None,
    ) -> list[Ranking]:
        if not hasattr(self, "layout_"):
            raise NotFitted(f"this {type(self).__name__} has no collection yet; call fit(vectors, image_of) first.")
        if top is not None:
            whole_number(top, "top")
        dimension, global_dimension = self._dimensions
        regions = [unit_vectors(q, name, dimension=dimension) for q, name in zip(queries, names, strict=True)]
        if wholes is None:
            if global_dimension != dimension:
                raise InvalidInput("global_vectors is missing: the collection has some of its own; give the queries'.")
            return self._rank([Asked(one) for one in regions], top)
        if len(wholes) != len(regions):
            raise InvalidInput(f"global_vectors has {len(wholes)} entries for {len(regions)} queries; give one each.")
        rows = [unit_vectors(np.asarray(w)[None], "global_vectors", dimension=global_dimension)[0] for w in wholes]
        return self._rank(list(map(Asked, regions, rows)), top)

    def _rank(self, asked: list[Asked], top: int | None) -> list[Ranking]:
        rankings = []
        for one in asked:
            scores = self._scores(one)
            order = best_first(scores, top)
            rankings.append(Ranking(self.layout_.images[order], scores[order]))
        return rankings

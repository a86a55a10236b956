"""What an index that follows its photos is compared with: one that is made afresh."""

from typing import Any

import numpy as np
import pytest

from manifind.features import RegionExtractor
from manifind.index import Index

PARAMETERS: dict[str, Any] = {"k": 15, "query_k": 12, "alpha": 0.99}


class Counting(RegionExtractor):
    """Counts the photos that it extracts."""

    extracted = 0

    def extract(self, *arguments: Any, **keywords: Any) -> Any:
        self.extracted += 1
        return super().extract(*arguments, **keywords)


def assert_as_fresh(made: Index, fresh: Index) -> None:
    """The same photos, and up to ties the same graph: the same answers."""
    assert [one.key for one in made.catalogue.images] == [one.key for one in fresh.catalogue.images]
    np.testing.assert_array_equal(made.manifold.vectors_, fresh.manifold.vectors_)
    np.testing.assert_array_equal(made.boxes, fresh.boxes)
    a, b = made.manifold.neighbours_, fresh.manifold.neighbours_
    np.testing.assert_allclose(a.similarities, b.similarities, atol=1e-6)
    X = made.manifold.vectors_.astype(np.float64)
    for i in np.flatnonzero((np.sort(a.ids) != np.sort(b.ids)).any(axis=1)):
        # Other neighbours only where the last are equally similar.
        differ = np.setxor1d(a.ids[i], b.ids[i])
        np.testing.assert_allclose(X[differ] @ X[i], a.similarities[i, -1], atol=1e-6)
    np.testing.assert_allclose(made.manifold.weights_, fresh.manifold.weights_, atol=1e-5)
    np.testing.assert_allclose(made.manifold.global_vectors_, fresh.manifold.global_vectors_, atol=1e-6)
    if np.array_equal(a.ids, b.ids):  # else a seed that is cut among equals has others of them
        for key in [one.key for one in made.catalogue.images][:2]:
            found, expected = ({hit.key: hit.score for hit in one.search(key, top=None)} for one in (made, fresh))
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)  # rounding, a hundredfold at α = 0.99

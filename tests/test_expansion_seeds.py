"""Query expansion on the graph: the seed of expansion regions, and the scores of an expanded query."""

import numpy as np
import numpy.typing as npt
import pytest

from manifind import Manifold
from manifind.diffusion import WEIGHTS, Seed, either_seed, expand_seed
from manifind.graph import Neighbours
from manifind.manifold import Request, answer
from manifind.types import FloatArray

GIVEN = Seed(np.array([2, 5], np.int32), np.array([0.6, 0.2], np.float32))
APART = np.eye(2, 4, dtype=np.float32)
LISTS = Neighbours(np.array([[1, 2], [7, 8]], np.int32), np.array([[1.0, 0.5], [1.0, -0.2]], np.float32))


def test_expansion_regions_count_by_the_cubes_of_their_similarities_and_the_sum_of_y_stays() -> None:
    y = expand_seed(GIVEN, LISTS, APART, gamma=3.0, weight=1.0)
    expansion = {1: 1.0, 2: 0.125, 7: 1.0}
    expected = {place: 0.8 * value / 2.125 / 2 for place, value in expansion.items()}
    expected[2] += 0.6 / 2
    expected[5] = 0.2 / 2
    assert dict(zip(y.regions.tolist(), y.values.tolist(), strict=True)) == pytest.approx(expected)
    assert y.values.sum() == pytest.approx(GIVEN.values.sum())


def test_y_of_one_of_two_queries_is_the_larger_at_each_region() -> None:
    other = Seed(np.array([1, 2, 9], np.int32), np.array([0.3, 0.7, 0.1], np.float32))
    y = either_seed(GIVEN, other)
    assert dict(zip(y.regions.tolist(), y.values.tolist(), strict=True)) == pytest.approx(
        {1: 0.3, 2: 0.7, 5: 0.2, 9: 0.1}
    )


def test_an_expansion_region_given_ten_times_counts_once() -> None:
    places = np.array([0] * 10 + [1])
    often = expand_seed(GIVEN, Neighbours(LISTS.ids[places], LISTS.similarities[places]), APART[places], gamma=3.0)
    once = expand_seed(GIVEN, LISTS, APART, gamma=3.0)
    np.testing.assert_array_equal(often.regions, once.regions)
    np.testing.assert_allclose(often.values, once.values, rtol=1e-5)


def test_expansion_regions_without_similar_regions_change_nothing() -> None:
    nothing = Neighbours(LISTS.ids, np.full((2, 2), -0.1, np.float32))
    assert expand_seed(GIVEN, nothing, APART, gamma=3.0) is GIVEN


def unit(rows: npt.NDArray[np.float64]) -> FloatArray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def test_regions_of_the_mirrored_query_make_a_y_of_their_own() -> None:
    rng = np.random.default_rng(5)
    vectors, query = unit(rng.normal(size=(60, 8))), unit(rng.normal(size=(5, 8)))
    manifold = Manifold(k=8, query_k=6, alpha=0.9).fit(vectors, np.repeat(np.arange(20), 3))
    (both,) = answer(manifold, [Request(query, n_mirrored=2)])
    given, mirrored = (one.seed for one in answer(manifold, [Request(query[:3]), Request(query[3:])]))
    assert both.seed is not None
    assert given is not None
    assert mirrored is not None
    expected = either_seed(given, mirrored)
    np.testing.assert_array_equal(both.seed.regions, expected.regions)
    np.testing.assert_allclose(both.seed.values, expected.values, rtol=1e-5)


@pytest.mark.parametrize("known", [True, False], ids=["known to the graph", "searched for"])
def test_an_expanded_query_scores_the_weighted_sum_of_query_and_expansion(known: bool) -> None:
    rng = np.random.default_rng(4)
    vectors = unit(rng.normal(size=(60, 8)))
    query = unit(rng.normal(size=(2, 8)))
    expansion = np.array([11], np.int32)
    manifold = Manifold(k=8, query_k=8, alpha=0.9, max_iter=200, tol=1e-7).fit(vectors, np.repeat(np.arange(20), 3))
    rows = np.append([-1, -1], expansion if known else -1).astype(np.int32)
    regions = np.concatenate([query, vectors[expansion]])
    alone, itself, both = (
        one.regions
        for one in answer(
            manifold,
            [Request(query), Request(vectors[expansion]), Request(regions, rows=rows, n_expansion_regions=1)],
        )
    )
    seeds = [manifold.search(one).seed for one in (query, vectors[expansion])]
    assert seeds[0] is not None
    assert seeds[1] is not None
    share = WEIGHTS.expansion * seeds[0].values.sum() / seeds[1].values.sum()
    np.testing.assert_allclose(both, (alone + share * itself) / (1 + WEIGHTS.expansion), atol=1e-5)

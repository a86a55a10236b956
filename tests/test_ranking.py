"""Pooling and sorting."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind import InvalidInputError, Manifold
from manifind.groups import Layout, RowRanges, aggregate
from manifind.kernels import Pool
from manifind.kernels.topk import argsort_topk
from manifind.ranking import Ranking, gmp_weights, pooling_weights
from tests import literal
from tests.collections_of_regions import Collection, collections, unit


@given(collections, st.sampled_from([0.1, 1.0, 10.0]), st.integers(1, 4000))
def test_gmp_weights_are_the_dense_formula(collection: Collection, lam: float, memory: int) -> None:
    weights = pooling_weights("gmp", collection.vectors, Layout.of(collection.image_of), lam, memory=memory)
    X = collection.vectors.astype(np.float64)
    np.testing.assert_allclose(weights, literal.weights(X, collection.image_of.tolist(), "gmp", lam), atol=1e-5)


def test_gmp_halves_the_weight_of_a_region_seen_twice() -> None:
    """With λ small, two equal regions together weigh what one does alone."""
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    weights = gmp_weights(vectors, Layout.of(np.zeros(3, np.int32)), gmp_lambda=1e-6)
    np.testing.assert_allclose(weights, [0.5, 0.5, 1], atol=1e-5)


@given(collections, st.integers(0, 2**32 - 1))
def test_pooling_adds_up_weighted_scores(collection: Collection, seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, w = rng.random(collection.n).astype(np.float32), rng.random(collection.n).astype(np.float32)
    layout = Layout.of(collection.image_of)
    expected = literal.pool(f.astype(float), w.astype(float), collection.image_of.tolist())
    of_images = Pool(layout.starts, w).pool_scores(f)
    np.testing.assert_allclose(of_images, [expected[i] for i in layout.images.tolist()], atol=1e-5)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.none() | st.integers(1, 50))
def test_best_first_breaks_ties_by_place(values: list[int], top: int | None) -> None:
    expected = sorted(range(len(values)), key=lambda place: (-values[place], place))[:top]
    assert argsort_topk(np.array(values, np.float32), top).tolist() == expected


@given(collections, st.integers(1, 3000))
def test_groups_of_equal_count_cover_every_region_once(collection: Collection, memory: int) -> None:
    layout = Layout.of(collection.image_of)
    groups = list(layout.equal_counts(lambda m: 48 * m, memory))
    tables = [table for _, table in groups]
    assert sorted(region for table in tables for region in table.ravel().tolist()) == list(range(collection.n))
    for places, table in groups:
        assert (collection.image_of[table] == layout.images[places, None]).all()
        assert len(table) == 1 or table.size * 48 <= memory


@given(collections, st.data())
def test_regions_of_images_are_theirs(collection: Collection, data: st.DataObject) -> None:
    layout = Layout.of(collection.image_of)
    places = np.array(data.draw(st.lists(st.sampled_from(range(len(layout.images))), min_size=1, unique=True)))
    expected = [np.flatnonzero(collection.image_of == image) for image in layout.images[places]]
    np.testing.assert_array_equal(layout.regions_of(places), np.concatenate(expected))


def test_an_image_whose_regions_cancel_is_similar_to_nothing() -> None:
    vectors = np.array([[1, 0], [-1, 0], [0, 1]], np.float32)
    np.testing.assert_array_equal(aggregate(vectors, Layout.of(np.array([0, 0, 1], np.int32))), [[0, 0], [0, 1]])


def test_a_ranking_without_region_scores_says_so() -> None:
    ranking = Ranking(np.array([1], np.int32), np.array([1.0], np.float32))
    assert len(ranking) == 1
    with pytest.raises(AttributeError, match="without region scores"):
        _ = ranking.regions


def test_the_score_of_an_image_with_one_region_is_that_of_the_region(rng: np.random.Generator) -> None:
    """Global diffusion: there is nothing to pool, and eq. 14 would halve every score."""
    vectors, query = unit(rng.normal(size=(20, 6))), unit(rng.normal(size=(1, 6)))
    ranking = Manifold(k=5, query_k=3, pooling="gmp").fit(vectors).search(query)
    np.testing.assert_array_equal(ranking.scores, ranking.regions[ranking.images])


def test_a_part_is_pooled_by_the_weights_of_its_own_regions(rng: np.random.Generator) -> None:
    runs = RowRanges(np.array([1, 7]), np.array([0, 2, 5]))
    weights, scores = rng.random(12).astype(np.float32), rng.random((5, 2)).astype(np.float32)
    expected = [weights[[1, 2]] @ scores[:2], weights[[7, 8, 9]] @ scores[2:]]
    np.testing.assert_allclose(Pool(runs.starts, weights, runs).pool_scores(scores), expected, rtol=1e-6)


def test_a_small_lambda_is_not_lost_in_rounding(rng: np.random.Generator) -> None:
    """Regions that are nearly equal make a system near to singular, whose products single precision would spoil."""
    near = unit(rng.normal(size=(1, 256)) + 1e-4 * rng.normal(size=(12, 256)))
    vectors, image_of = np.concatenate([near, unit(rng.normal(size=(2, 256)))]), [0] * 13 + [1]
    weights = gmp_weights(vectors, Layout.of(np.array(image_of, np.int32)), gmp_lambda=1e-5)
    np.testing.assert_allclose(weights, literal.weights(vectors.astype(np.float64), image_of, "gmp", 1e-5), rtol=1e-3)


def test_lambda_is_one_unless_given(collection: Collection) -> None:
    layout = Layout.of(collection.image_of)
    expected = literal.weights(collection.vectors.astype(np.float64), collection.image_of.tolist(), "gmp", 1.0)
    np.testing.assert_allclose(gmp_weights(collection.vectors, layout), expected, atol=1e-5)
    np.testing.assert_allclose(pooling_weights("gmp", collection.vectors, layout), expected, atol=1e-5)


def test_a_ranking_prints_its_images_and_not_what_the_query_was(collection: Collection) -> None:
    ranking = Manifold(k=5).fit(collection.vectors, collection.image_of).search(collection.queries[0], top=3)
    assert repr(ranking.images) in repr(ranking)
    assert not any(word in repr(ranking) for word in ("Seed", "seed", "function"))


def test_a_ranking_cannot_be_changed_and_says_nothing_of_the_solver_unless_told() -> None:
    ranking = Ranking(np.array([1], np.int32), np.array([1.0], np.float32))
    assert (ranking.iterations, ranking.residual, ranking.converged, ranking.reached) == (0, 0.0, True, None)
    with pytest.raises(FrozenInstanceError):
        ranking.images = np.array([2], np.int32)  # type: ignore[misc]


def test_best_first_of_many_are_the_first_of_all_in_order(rng: np.random.Generator) -> None:
    """NumPy promises little of what it leaves unsorted, and mostly sorts more than that: many sizes are tried."""
    for size in rng.integers(20, 2000, 1000):
        scores, top = rng.normal(size=size).astype(np.float32), int(rng.integers(1, size + 2))
        scores[size // 2 :: 3] = scores[0]
        np.testing.assert_array_equal(argsort_topk(scores, top), np.argsort(-scores, kind="stable")[:top])


def test_equal_regions_without_lambda_have_no_weights() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    with pytest.raises(InvalidInputError, match="gmp_lambda is 0, too small for images with equal regions"):
        gmp_weights(vectors, Layout.of(np.array([0, 0, 1], np.int32)), gmp_lambda=0.0)

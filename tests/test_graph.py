"""Neighbours and affinity against brute force."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from manifind import InvalidInputError, ManifindWarning, kernels
from manifind.graph import (
    Neighbours,
    exact_neighbours,
    given_neighbours,
    mutual_affinity,
    nn_descent_neighbours,
    normalise,
    normalised_affinity,
)
from manifind.graph.affinity import SLACK
from manifind.kernels.api import BACKENDS
from manifind.kernels.cpu import affinity
from tests import literal
from tests.collections_of_regions import Collection, collections, make, unit
from tests.errors import raises


@given(collections, st.integers(1, 10))
def test_exact_neighbours_are_the_most_similar_others(collection: Collection, k: int) -> None:
    assume(k < collection.n)
    X = collection.vectors
    ids, similarities = exact_neighbours(X, k)
    products = X.astype(np.float64) @ X.T.astype(np.float64)
    np.fill_diagonal(products, -np.inf)
    np.testing.assert_allclose(similarities, -np.sort(-products, axis=1)[:, :k], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(products, ids.astype(np.intp), axis=1), similarities, atol=1e-6)
    assert ids.dtype == np.int32
    assert similarities.dtype == np.float32


@given(collections, st.integers(1, 10), st.integers(1, 2000))
def test_the_memory_bound_changes_nothing(collection: Collection, k: int, memory: int) -> None:
    assume(k < collection.n)
    np.testing.assert_allclose(
        exact_neighbours(collection.vectors, k, memory=memory).similarities,
        exact_neighbours(collection.vectors, k).similarities,
        atol=1e-6,
    )


@pytest.mark.parametrize("search", [exact_neighbours, nn_descent_neighbours])
@pytest.mark.parametrize("copies", [3, 40])
def test_duplicates_are_neighbours_and_the_region_itself_never_is(search, copies, rng) -> None:  # type: ignore[no-untyped-def]
    vectors = np.repeat(unit(rng.normal(size=(20, 8))), copies, axis=0)
    ids, similarities = search(vectors, 10)
    assert not (ids == np.arange(len(ids))[:, None]).any()
    assert all(len(set(row)) == 10 for row in ids.tolist())
    np.testing.assert_allclose(similarities[:, : min(10, copies - 1)], 1, atol=1e-6)


@pytest.mark.parametrize("k", [5, 6, 100])
@pytest.mark.parametrize("search", [exact_neighbours, nn_descent_neighbours])
def test_more_neighbours_than_there_are_regions_become_all_others(search, k, rng) -> None:  # type: ignore[no-untyped-def]
    vectors = unit(rng.normal(size=(5, 3)))
    with pytest.warns(ManifindWarning, match="k is 4 here"):
        ids, _ = search(vectors, k)
    assert [sorted(row) for row in ids.tolist()] == [[j for j in range(5) if j != i] for i in range(5)]


def test_a_single_region_has_no_neighbours() -> None:
    with pytest.warns(ManifindWarning, match="k is 0 here"):
        lists = exact_neighbours(np.eye(1, 3, dtype=np.float32), 2)
    assert lists.ids.shape == (1, 0)
    assert mutual_affinity(lists).nnz == 0


def test_progress_runs_to_the_end(rng: np.random.Generator) -> None:
    seen: list[tuple[int, int]] = []
    exact_neighbours(unit(rng.normal(size=(9000, 4))), 3, memory=1000, progress=lambda *at: seen.append(at))
    assert seen[-1] == (9000, 9000)
    assert len(seen) > 2
    assert seen == sorted(seen)


in_the_core = pytest.mark.skipif(not kernels.compiled(), reason="the core was not compiled")


@in_the_core
@pytest.mark.parametrize("reserve", [0, 10])
def test_nn_descent_finds_nearly_all_neighbours_and_scores_them_exactly(reserve: int) -> None:
    collection = make("clusters", images=900, most_regions=5, d=24, seed=3)
    X, k = collection.vectors, 20
    exact, found = exact_neighbours(X, k, reserve=reserve), nn_descent_neighbours(X, k, reserve=reserve)
    width = k + reserve
    assert found.ids.shape == found.similarities.shape == (len(X), width)
    recall = np.mean([len(np.intersect1d(a, b)) / width for a, b in zip(exact.ids, found.ids, strict=True)])
    assert recall > 0.95
    products = np.einsum("id,ikd->ik", X.astype(np.float64), X[found.ids].astype(np.float64))
    np.testing.assert_allclose(found.similarities, products, atol=1e-6)
    assert (np.diff(found.similarities, axis=1) <= 0).all()
    assert not (found.ids == np.arange(len(X))[:, None]).any()


@in_the_core
def test_nn_descent_is_deterministic_by_seed() -> None:
    X = make("clusters", images=300, most_regions=5, d=16, seed=4).vectors
    np.testing.assert_array_equal(nn_descent_neighbours(X, 10, seed=1).ids, nn_descent_neighbours(X, 10, seed=1).ids)


@in_the_core
def test_nn_descent_says_how_far_it_is(rng: np.random.Generator) -> None:
    seen: list[tuple[int, int]] = []
    nn_descent_neighbours(unit(rng.normal(size=(3000, 8))), 5, progress=lambda *at: seen.append(at))
    assert seen[-1] == (3000, 3000)
    assert seen == sorted(seen)


@in_the_core
def test_nn_descent_takes_half_precision(rng: np.random.Generator) -> None:
    X = unit(rng.normal(size=(2500, 12))).astype(np.float16)
    found, widened = nn_descent_neighbours(X, 6), nn_descent_neighbours(X.astype(np.float32), 6)
    np.testing.assert_array_equal(found.ids, widened.ids)
    np.testing.assert_array_equal(found.similarities, widened.similarities)


@given(collections, st.integers(1, 10), st.sampled_from([1.0, 2.0, 3.0, 4.5]))
def test_affinity_is_the_papers(collection: Collection, k: int, gamma: float) -> None:
    assume(k < collection.n)
    A = mutual_affinity(exact_neighbours(collection.vectors, k), gamma)
    dense = A.toarray()
    np.testing.assert_array_equal(dense, dense.T)
    assert not dense.diagonal().any()
    np.testing.assert_allclose(dense, literal.affinity(collection.vectors.astype(np.float64), k, gamma), atol=1e-5)
    assert A.dtype == np.float32
    assert A.indices.dtype == np.int32
    assert (A.data > 0).all()


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_affinity_of_any_lists_keeps_mutual_pairs_only(n: int, k: int, seed: int) -> None:
    """Approximate lists are not symmetric and not complete; the rule is the same."""
    assume(k < n)
    rng = np.random.default_rng(seed)
    X = unit(rng.normal(size=(n, 4)))
    ids = np.stack([rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)]).astype(np.int32)
    similarities = np.einsum("id,ikd->ik", X, X[ids])
    order = np.argsort(-similarities, axis=1)
    lists = Neighbours(np.take_along_axis(ids, order, 1), np.take_along_axis(similarities, order, 1))
    listed = np.zeros((n, n), bool)
    np.put_along_axis(listed, ids.astype(np.intp), True, axis=1)
    expected = np.where(listed & listed.T, np.maximum(X @ X.T, 0) ** 3, 0)
    np.testing.assert_allclose(mutual_affinity(lists).toarray(), expected, atol=1e-6)


def test_isolated_regions_have_zero_rows_and_nothing_is_nan() -> None:
    # 2 is nobody's nearest: it has a list but no mutual neighbour.
    vectors = unit(np.array([[1, 0.0, 0], [1, 0.1, 0], [0.3, 0, 1]]))
    S, degrees = normalise(mutual_affinity(exact_neighbours(vectors, 1)))
    assert S.toarray()[2].tolist() == [0, 0, 0]
    assert degrees[2] == 0
    assert np.isfinite(S.toarray()).all()
    assert S[0, 1] == 1


@given(collections, st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_restricting_equals_normalising_the_part(collection: Collection, k: int, seed: int) -> None:
    assume(k < collection.n)
    lists = exact_neighbours(collection.vectors, k)
    part = np.flatnonzero(np.random.default_rng(seed).random(collection.n) < 0.6).astype(np.int32)
    assume(len(part) > 0)
    expected = literal.transition(mutual_affinity(lists).toarray().astype(np.float64)[np.ix_(part, part)])
    S, degrees = normalise(mutual_affinity(lists))
    restricted = kernels.backend().operator(S, degrees).restrict(part).matmul(np.eye(len(part)))
    np.testing.assert_allclose(restricted, expected, atol=1e-5)


@pytest.mark.parametrize("search", [exact_neighbours, nn_descent_neighbours])
@pytest.mark.parametrize("k", [7, 10])
def test_equals_beyond_k_stay_connected(search, k, rng) -> None:  # type: ignore[no-untyped-def]
    """Forty blank margins: each has mutual neighbours among them, and they are one component."""
    vectors = np.concatenate([np.repeat(unit(rng.normal(size=(1, 8))), 40, axis=0), unit(rng.normal(size=(60, 8)))])
    ids, _ = search(vectors, k)
    assert not (ids == np.arange(100)[:, None]).any()
    assert (ids[:40] < 40).all()
    A = mutual_affinity(search(vectors, k))
    assert (np.diff(A.indptr)[:40] >= k - 1).all()
    parts, _ = connected_components(A[:40][:, :40])
    assert parts == 1


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_blocks_of_rows_change_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = exact_neighbours(make("clusters", images=20, most_regions=4, d=6, seed=2).vectors, 6)
    whole = normalise(affinity.mutual_affinity(*lists, 3.0, SLACK))[0].toarray()
    monkeypatch.setattr(affinity, "ROWS", rows)
    np.testing.assert_array_equal(normalise(affinity.mutual_affinity(*lists, 3.0, SLACK))[0].toarray(), whole)


@pytest.fixture(params=["core", "plain"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled core, and as on an install without it."""
    if request.param == "core" and not kernels.compiled():
        pytest.skip("the core was not compiled")
    if request.param == "plain":
        monkeypatch.setitem(BACKENDS, "cpu", "manifind.kernels.cpu.numpy_backend")


@pytest.mark.usefixtures("either")
def test_both_steps_at_once_are_both_steps(rng: np.random.Generator) -> None:
    lists = exact_neighbours(unit(rng.normal(size=(400, 5))), 12)
    S, degrees = normalised_affinity(lists, 2.5)
    twice, sums = normalise(affinity.mutual_affinity(*lists, 2.5, SLACK))
    np.testing.assert_allclose(S.toarray(), twice.toarray(), rtol=1e-6)
    np.testing.assert_allclose(degrees, sums, rtol=1e-6)
    assert S.has_sorted_indices
    assert S.indices.dtype == S.indptr.dtype == np.int32


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    ("ids", "similarities", "gamma", "what"),
    [
        ([[1], [2]], [[0.5], [0.5]], 3.0, "ids from 1 to 2; give rows from 0 to 1, or -1"),
        ([[1], [-2]], [[0.5], [0.5]], 3.0, "ids from -2 to 1"),
        ([[1], [0]], [[0.5]], 3.0, r"shapes \(2, 1\) and \(1, 1\)"),
        ([[1], [0]], [[0.5], [0.5]], 0.0, "gamma is 0.0; give a finite number above 0"),
    ],
)
def test_lists_that_lead_nowhere_have_no_affinity(ids, similarities, gamma, what) -> None:  # type: ignore[no-untyped-def]
    lists = Neighbours(np.array(ids, np.int32), np.array(similarities, np.float32))
    for build in (mutual_affinity, normalised_affinity):
        with pytest.raises(InvalidInputError, match=what):
            build(lists, gamma)


def test_degrees_are_added_up_in_double_precision() -> None:
    values = np.full(2**20, 2**-20, np.float32)
    values[0] = 1
    A = sp.csr_array((values, np.zeros(2**20, np.int32), [0, 2**20, 2**20]), shape=(2, 1))
    assert affinity.row_sums(A).tolist() == [2 - 2**-20, 0]


def test_building_the_affinity_takes_little_more_than_the_lists() -> None:
    rng = np.random.default_rng(0)
    n, k = 40_000, 50
    ids = rng.integers(0, n, (n, k), dtype=np.int32)
    similarities = -np.sort(-rng.random((n, k), dtype=np.float32), axis=1)
    tracemalloc.start()
    affinity.mutual_affinity(ids, similarities, 3.0, SLACK)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * (ids.nbytes + similarities.nbytes)  # a dense matrix would be 400 times the lists


@pytest.mark.parametrize(
    ("ids", "similarities", "code"),
    [
        ([[1], [0], [3]], [[1.0], [1.0], [1.0]], "out-of-range"),
        ([[1], [-1], [0]], [[1.0], [1.0], [1.0]], "out-of-range"),
        ([[1], [1], [0]], [[1.0], [1.0], [1.0]], "own-neighbour"),
        ([[1], [0], [0]], [[1.0], [np.nan], [1.0]], "not-descending"),
        ([[1], [0]], [[1.0], [1.0]], "wrong-shape"),
        ([[1.0], [0.0], [0.0]], [[1.0], [1.0], [1.0]], "wrong-dtype"),
        ([[1], [0], [0]], [[0.5], [0.5], [0.5]], "wrong-similarities"),
    ],
)
def test_lists_from_elsewhere_are_checked(ids, similarities, code) -> None:  # type: ignore[no-untyped-def]
    with raises(code, InvalidInputError):
        given_neighbours((ids, similarities), np.eye(3, dtype=np.float32), k=1)


def test_lists_from_elsewhere_are_cut_to_k_and_none_is_too_short(rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(300, 6)))
    lists = exact_neighbours(vectors, 8)
    given = given_neighbours(lists, vectors, k=5)
    np.testing.assert_array_equal(given.ids, lists.ids[:, :5])
    np.testing.assert_array_equal(given.similarities, lists.similarities[:, :5])
    with raises("wrong-shape"):
        given_neighbours(lists, vectors, k=9)
    with raises("wrong-shape"):
        given_neighbours((lists.ids[1:], lists.similarities[1:]), vectors, k=5)
    with raises("wrong-type"):
        given_neighbours((*lists, lists.ids), vectors, k=5)  # type: ignore[arg-type]
    upside_down = lists.ids[:, ::-1], lists.similarities[:, ::-1]
    with raises("not-descending"):
        given_neighbours(upside_down, vectors, k=5)
    wrong_at_the_end = lists.similarities.copy()
    wrong_at_the_end[-1] -= 0.01
    with raises("wrong-similarities"):
        given_neighbours((lists.ids, wrong_at_the_end), vectors, k=5)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("memory", [1, 1000, 10_000])
def test_blocks_of_a_search_cover_every_region(memory: int, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(200, 6)))
    products = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(products, -np.inf)
    lists = exact_neighbours(vectors, 5, memory=memory)
    np.testing.assert_allclose(lists.similarities, -np.sort(-products, axis=1)[:, :5], atol=1e-6)

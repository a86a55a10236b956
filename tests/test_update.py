"""Neighbour lists and manifolds brought up to date, against those made afresh."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifind import InvalidInputError, Manifold
from manifind.graph import NO_NEIGHBOUR, Neighbours, exact_neighbours, update_neighbours
from manifind.graph.neighbours import given_origin
from tests.collections_of_regions import Collection, unit
from tests.errors import raises

pytestmark = pytest.mark.filterwarnings("ignore:k is:manifind.ManifindWarning")


def random_rows(rng: np.random.Generator, count: int, d: int, *, few: bool) -> npt.NDArray[np.float32]:
    """Unit rows; drawn from few, so that many are equal, where asked for."""
    rows = unit(rng.standard_normal((count, d)))
    return rows[rng.integers(0, 4, count)] if few and count > 4 else rows


def changed(
    rng: np.random.Generator, vectors: npt.NDArray[np.float32], gone: float, new: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Drop a share of the rows, mix in others at random places, and say where each was."""
    kept = np.flatnonzero(rng.random(len(vectors)) >= gone)
    origin = np.concatenate([kept, np.full(len(new), -1)])
    rows = np.concatenate([vectors[kept], new])
    order = rng.permutation(len(origin))
    return np.ascontiguousarray(rows[order]), origin[order].astype(np.int32)


def assert_exact(lists: Neighbours, vectors: npt.NDArray[np.float32], k: int) -> None:
    """The first k are the best others: by similarity, since any of equals may be there."""
    k = min(k, len(vectors) - 1)
    products = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    np.fill_diagonal(products, -np.inf)
    best = -np.sort(-products, axis=1)[:, :k]
    own = lists.ids[:, :k]
    assert (own >= 0).all()
    assert all(len(set(row)) == k for row in own.tolist())
    np.testing.assert_allclose(np.take_along_axis(products, own, axis=1), best, atol=1e-6)
    # What is in store is in line, and nobody stands before somebody.
    rest = lists.ids[:, k:]
    assert (np.diff((rest == NO_NEIGHBOUR).astype(int), axis=1) >= 0).all()
    np.testing.assert_array_equal(np.isneginf(lists.similarities), lists.ids == NO_NEIGHBOUR)
    for i, row in enumerate(rest):
        known = row[row >= 0]
        expected = -np.sort(-products[i])[k : k + len(known)]
        np.testing.assert_allclose(products[i, known], expected, atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    k=st.integers(1, 12),
    reserve=st.integers(0, 6),
    few=st.booleans(),
    steps=st.lists(st.tuples(st.floats(0, 0.9), st.integers(0, 12)), min_size=1, max_size=4),
)
def test_lists_brought_up_to_date_are_those_of_a_fresh_search(
    seed: int, n: int, k: int, reserve: int, few: bool, steps: list[tuple[float, int]]
) -> None:
    rng = np.random.default_rng(seed)
    vectors = random_rows(rng, n, 5, few=few)
    lists = exact_neighbours(vectors, k, reserve=reserve)
    assert_exact(lists, vectors, k)
    for gone, coming in steps:
        vectors, origin = changed(rng, vectors, gone, random_rows(rng, coming, 5, few=few))
        if len(vectors) == 0:
            return
        lists = update_neighbours(lists, vectors, origin, k, reserve=reserve, memory=2000)
        assert_exact(lists, vectors, k)


def test_equal_regions_beyond_k_stay_in_one_ring_as_some_come_and_go() -> None:
    rng = np.random.default_rng(0)
    one = unit(rng.standard_normal((1, 8)))
    vectors = np.concatenate([np.repeat(one, 30, axis=0), unit(rng.standard_normal((10, 8)))])
    manifold = Manifold(k=6, reserve=2).fit(vectors)
    for _ in range(3):
        vectors, origin = changed(rng, vectors, 0.2, np.repeat(one, 5, axis=0))
        manifold.update(vectors, np.arange(len(vectors)), origin)
        equal = np.flatnonzero(vectors @ one[0] > 0.999)
        assert (np.diff(manifold.S_.indptr)[equal] >= 2).all()


@pytest.mark.parametrize("coming", [1, 3, 12])  # inserted one by one, and merged
def test_of_equal_newcomers_the_lower_id_comes_first_as_in_a_fresh_search(coming: int) -> None:
    # Products of 0, 1 and 0.6 are the same whoever computes them, so that equals are equal to the last bit.
    few = np.array([[1, 0, 0], [0, 1, 0], [0.6, 0.8, 0]], np.float32)
    rng = np.random.default_rng(coming)
    vectors = few[np.arange(20) % 3]
    rows, origin = changed(rng, vectors, 0.1, few[np.arange(coming) % 3])
    order = np.argsort(np.where(origin < 0, rng.integers(0, 20, len(origin)), origin), kind="stable")  # as keys sort
    rows, origin = rows[order], origin[order]
    k = len(rows) - 1
    updated, fresh = update_neighbours(exact_neighbours(vectors, 19), rows, origin, k), exact_neighbours(rows, k)
    np.testing.assert_array_equal(updated.ids, fresh.ids)


def test_half_precision_lists_are_those_of_the_same_values_in_single() -> None:
    rng = np.random.default_rng(1)
    half = unit(rng.standard_normal((80, 16))).astype(np.float16)
    lists = exact_neighbours(half[:70].astype(np.float32), 9, reserve=3)
    origin = np.concatenate([np.arange(70), np.full(10, -1)]).astype(np.int32)
    updated = update_neighbours(lists, half, origin, 9, reserve=3)
    assert_exact(updated, half.astype(np.float32), 9)


@pytest.mark.parametrize("pooling", ["gmp", "sum"])
@pytest.mark.parametrize("half", [False, True])
def test_an_updated_manifold_ranks_as_one_fitted_afresh(pooling: str, half: bool) -> None:
    rng = np.random.default_rng(2)
    image_of = np.repeat(np.arange(60), rng.integers(1, 6, 60))
    vectors = unit(rng.standard_normal((len(image_of), 12)))
    if half:
        vectors = vectors.astype(np.float16).astype(np.float32)
    settings_ = {"k": 12, "query_k": 9, "pooling": pooling, "reserve": 4}
    before = np.isin(image_of, [3, 4, 17, 59], invert=True)
    first = Manifold(**settings_).fit(vectors[before], image_of[before])  # type: ignore[arg-type]
    if half:
        parameters, arrays = first.to_arrays()
        first = Manifold.from_arrays(parameters, {**arrays, "vectors": arrays["vectors"].astype(np.float16)})

    after = np.isin(image_of, [0, 30, 31], invert=True)
    where = np.full(len(image_of), -1)
    where[before] = np.arange(before.sum())
    first.update(vectors[after].astype(np.float16) if half else vectors[after], image_of[after], where[after])
    fresh = Manifold(**settings_).fit(vectors[after], image_of[after])  # type: ignore[arg-type]
    for query in (unit(rng.standard_normal((3, 12))), vectors[:2]):
        a, b = first.search(query), fresh.search(query)
        np.testing.assert_array_equal(a.images, b.images)
        np.testing.assert_allclose(a.scores, b.scores, atol=1e-6)
    np.testing.assert_allclose(first.weights_, fresh.weights_, atol=1e-5)
    np.testing.assert_allclose(first.global_vectors_, fresh.global_vectors_, atol=1e-6)
    assert abs(first.S_ - fresh.S_).max() < 1e-6


def test_a_large_change_is_a_fit_and_a_small_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    vectors = unit(rng.standard_normal((40, 6)))
    fits = []
    fit = Manifold.fit

    def counted(self: Manifold, given: Any, *others: Any, **named: Any) -> Manifold:
        fits.append(len(given))
        return fit(self, given, *others, **named)

    monkeypatch.setattr(Manifold, "fit", counted)
    manifold = Manifold(k=4).fit(vectors[:20])
    manifold.update(vectors[:25], np.arange(25), np.r_[np.arange(20), np.full(5, -1)])
    assert fits == [20]
    manifold.update(vectors, np.arange(40), np.r_[np.arange(25), np.full(15, -1)])
    assert fits == [20, 40]


def test_an_image_that_lost_some_of_its_regions_is_weighed_anew() -> None:
    rng = np.random.default_rng(4)
    vectors, image_of = unit(rng.standard_normal((40, 6))), np.repeat(np.arange(10), 4)
    manifold = Manifold(k=5).fit(vectors, image_of)
    keep = np.ones(40, bool)
    keep[[5, 38]] = False
    manifold.update(vectors[keep], image_of[keep], np.flatnonzero(keep))
    fresh = Manifold(k=5).fit(vectors[keep], image_of[keep])
    np.testing.assert_allclose(manifold.weights_, fresh.weights_, atol=1e-6)
    np.testing.assert_allclose(manifold.global_vectors_, fresh.global_vectors_, atol=1e-6)


def test_origins_that_cannot_be_are_refused() -> None:
    vectors = unit(np.random.default_rng(5).standard_normal((6, 3)))
    for origin, words in (
        (np.arange(5), "shape"),
        (np.r_[np.arange(5), 9], "rows from 0 to 5"),
        (np.r_[np.arange(5), 0], "twice"),
        (np.arange(6)[::-1], "other descriptors"),
        (np.arange(6.0), "whole numbers"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            given_origin(origin, vectors, vectors)
    with pytest.raises(InvalidInputError, match=r"\(n, 3\)"):
        given_origin(np.arange(6), vectors[:, :2], vectors)
    own = Manifold(k=2).fit(vectors, global_vectors=np.eye(6, dtype=np.float32))
    with pytest.raises(InvalidInputError, match="global_vectors is missing"):
        own.update(vectors, np.arange(6), np.arange(6))


@pytest.mark.parametrize("memory", [100, 3000, 2**26])
def test_an_update_says_how_far_it_is_and_ends_with_all_that_it_looked_at(memory: int) -> None:
    rng = np.random.default_rng(8)
    vectors = unit(rng.standard_normal((130, 6)))
    lists = exact_neighbours(vectors[:120], 6, reserve=2)
    origin = np.concatenate([np.arange(120), np.full(10, -1)]).astype(np.int32)
    seen: list[tuple[int, int]] = []
    update_neighbours(lists, vectors, origin, 6, reserve=2, memory=memory, progress=lambda *at: seen.append(at))
    assert seen == sorted(seen)
    assert seen[-1] == (130, 130)  # ten are searched for, and the lists of all others may take them in


@pytest.mark.parametrize("coming", [1, 4, 5, 30])
@pytest.mark.parametrize("reserve", [0, 1, 2, 3])
def test_newcomers_enter_lists_of_any_width(coming: int, reserve: int) -> None:
    rng = np.random.default_rng(9)
    vectors = unit(rng.standard_normal((60, 4)))
    lists = exact_neighbours(vectors[: 60 - coming], 5, reserve=reserve)
    origin = np.concatenate([np.arange(60 - coming), np.full(coming, -1)]).astype(np.int32)
    updated = update_neighbours(lists, vectors, origin, 5, reserve=reserve)
    assert updated.ids.shape == (60, 5 + reserve)
    assert_exact(updated, vectors, 5)


def test_a_row_that_was_first_may_leave_like_any_other() -> None:
    vectors = unit(np.random.default_rng(10).standard_normal((40, 4)))
    lists = exact_neighbours(vectors, 5, reserve=3)
    updated = update_neighbours(lists, vectors[1:], np.arange(1, 40, dtype=np.int32), 5, reserve=3)
    assert_exact(updated, vectors[1:], 5)


def test_lists_that_may_be_longer_than_before_end_with_nobody() -> None:
    vectors = unit(np.random.default_rng(11).standard_normal((40, 5)))
    updated = update_neighbours(exact_neighbours(vectors, 6), vectors, np.arange(40, dtype=np.int32), 6, reserve=4)
    assert updated.ids.shape == (40, 10)
    assert (updated.ids[:, 6:] == NO_NEIGHBOUR).all()
    assert_exact(updated, vectors, 6)


@pytest.mark.parametrize("reserve", [0, 3, 20])
def test_no_list_is_longer_than_there_are_others(reserve: int) -> None:
    vectors = unit(np.random.default_rng(12).standard_normal((10, 5)))
    origin = np.concatenate([np.arange(8), [-1, -1]]).astype(np.int32)
    updated = update_neighbours(exact_neighbours(vectors[:8], 6), vectors, origin, 6, reserve=reserve)
    assert updated.ids.shape == (10, min(6 + reserve, 9))
    assert_exact(updated, vectors, 6)


# -- images added and removed -----------------------------------------------------------------------------------------


def assert_as_fitted(manifold: Manifold, vectors: Any, image_of: Any, query: Any) -> None:
    """The rankings are those of a fit on the collection as it is now."""
    anew = Manifold(**manifold.get_params()).fit(vectors, image_of)
    np.testing.assert_array_equal(manifold.vectors_, vectors)
    np.testing.assert_array_equal(manifold.layout_.image_of, image_of)
    assert_exact(manifold.lists_, vectors, manifold.k)
    found, expected = manifold.search(query), anew.search(query)
    np.testing.assert_array_equal(found.images, expected.images)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("reserve", [0, 4])
def test_images_are_added_and_removed_as_by_a_fit(reserve: int, collection: Collection) -> None:
    vectors, image_of, query = collection.vectors, collection.image_of, collection.queries[0]
    manifold = Manifold(k=6, query_k=5, reserve=reserve).fit(vectors, image_of)
    gone = np.unique(image_of)[[2, 7]]
    left = ~np.isin(image_of, gone)
    manifold.remove(gone)
    assert_as_fitted(manifold, vectors[left], image_of[left], query)
    manifold.add(vectors[~left], image_of[~left])  # back between the others
    assert_as_fitted(manifold, vectors, image_of, query)
    manifold.add(query)
    last = int(image_of[-1])
    numbers = np.concatenate([image_of, last + 1 + np.arange(len(query), dtype=np.int32)])
    assert_as_fitted(manifold, np.concatenate([vectors, query]), numbers, query)


def test_global_descriptors_come_and_go_with_their_images(collection: Collection, rng: np.random.Generator) -> None:
    vectors, image_of, images = collection.vectors, collection.image_of, np.unique(collection.image_of)
    whole = unit(rng.normal(size=(len(images), 5)))
    manifold = Manifold(k=6).fit(vectors, image_of, global_vectors=whole)
    manifold.remove(images[3:5])
    np.testing.assert_array_equal(manifold.global_vectors_, np.delete(whole, [3, 4], axis=0))
    again = np.isin(image_of, images[3:5])
    manifold.add(vectors[again], image_of[again], global_vectors=whole[3:5])
    np.testing.assert_array_equal(manifold.global_vectors_, whole)


def test_half_precision_stays_when_images_are_added(collection: Collection) -> None:
    vectors, image_of = collection.vectors, collection.image_of
    parameters, arrays = Manifold(k=6).fit(vectors, image_of).to_arrays()
    manifold = Manifold.from_arrays(parameters, {**arrays, "vectors": vectors.astype(np.float16)})
    assert manifold.add(vectors[:1]).vectors_.dtype == np.float16
    assert manifold.n_features_in_ == vectors.shape[1]


def test_images_that_cannot_be_added_or_removed_are_refused(collection: Collection) -> None:
    vectors, image_of = collection.vectors, collection.image_of
    manifold = Manifold(k=6).fit(vectors, image_of)
    with raises("known-image") as known:
        manifold.add(vectors[:1], image_of[:1])
    assert "1 images that the collection has, 0 first" in str(known.value)
    with raises("no-images"):
        manifold.remove(np.unique(image_of))
    with raises("unknown-image"):
        manifold.remove([10**6])
    with raises("not-fitted"):
        Manifold().remove([0])
    np.testing.assert_array_equal(manifold.vectors_, vectors)

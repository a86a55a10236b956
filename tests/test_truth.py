"""The ranking equals the paper's, read literally."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from manifind import ManifindWarning, Manifold, Ranking
from manifind.baselines.appended import search_appended
from tests import literal
from tests.collections_of_regions import Collection, collections, make

EXACT: dict[str, Any] = {"max_iter": 2000, "tol": 1e-7}


def assert_ranks_as(ranking: Ranking, truth: dict[int, float]) -> None:
    assert sorted(ranking.images) == sorted(truth)
    expected = np.array([truth[image] for image in ranking.images.tolist()])
    np.testing.assert_allclose(ranking.scores, expected, rtol=1e-5, atol=1e-5)
    assert (np.diff(ranking.scores) <= 0).all()
    # Best first by the true scores too, wherever these are farther apart than rounding.
    assert (np.diff(expected) <= 4e-5 * max(1.0, float(expected.max()))).all()


def fitted(collection: Collection, *, seeding: str, **parameters: Any) -> Manifold:
    """A manifold; a query that joins the graph needs no seeding."""
    seeding = "paper" if seeding == "append" else seeding
    return Manifold(seeding=seeding, **parameters, **EXACT).fit(collection.vectors, collection.image_of)


def rank(manifold: Manifold, query: Any, seeding: str, solver: str = "cg", shortlist: Any = None) -> Ranking:
    if seeding == "append":
        images = None if shortlist is None else np.sort(shortlist)
        return search_appended(manifold, query, solver=solver, images=images)
    return manifold.search(query, solver=solver, shortlist=shortlist)


@given(
    collections,
    st.integers(1, 8),
    st.integers(1, 12),
    st.sampled_from([0.5, 0.9, 0.99]),
    st.sampled_from([1.0, 2.5, 3.0]),
    st.sampled_from(["gmp", "sum"]),
    st.sampled_from(["paper", "released", "append"]),
    st.sampled_from(["cg", "iteration"]),
)
def test_search_is_the_papers(
    collection: Collection,
    k: int,
    query_k: int,
    alpha: float,
    gamma: float,
    pooling: str,
    seeding: str,
    solver: str,
) -> None:
    parameters: dict[str, Any] = {
        "k": k,
        "query_k": query_k,
        "alpha": alpha,
        "gamma": gamma,
        "pooling": pooling,
        "seeding": seeding,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifindWarning)  # of k ≥ n, where all others are neighbours
        manifold = fitted(collection, **parameters)
    X = collection.vectors.astype(np.float64)
    for query in collection.queries:
        truth = literal.search(X, collection.image_of.tolist(), query.astype(np.float64), **parameters)
        assert_ranks_as(rank(manifold, query, seeding, solver), truth)


@pytest.mark.parametrize("images", range(2, 7))
@pytest.mark.parametrize("seeding", ["paper", "append"])
@pytest.mark.filterwarnings("ignore:k is:manifind.ManifindWarning")
def test_where_there_are_fewer_regions_than_neighbours_wanted_all_are_neighbours(images: int, seeding: str) -> None:
    for seed in range(4):
        collection = make("random", images, most_regions=1, d=4, seed=seed, queries=3)
        manifold = fitted(collection, k=8, query_k=3, seeding=seeding)
        X = collection.vectors.astype(np.float64)
        for query in collection.queries:
            asked = query.astype(np.float64)
            truth = literal.search(X, collection.image_of.tolist(), asked, k=8, query_k=3, seeding=seeding)
            assert_ranks_as(rank(manifold, query, seeding), truth)


@given(collections, st.integers(1, 8), st.sampled_from(["paper", "released", "append"]), st.data())
def test_truncated_search_is_the_papers(collection: Collection, k: int, seeding: str, data: st.DataObject) -> None:
    assume(k < collection.n)
    images = np.unique(collection.image_of).tolist()
    shortlist = data.draw(st.lists(st.sampled_from(images), min_size=1, unique=True))
    manifold = fitted(collection, k=k, query_k=6, seeding=seeding)
    X = collection.vectors.astype(np.float64)
    for query in collection.queries:
        truth = literal.search(
            X,
            collection.image_of.tolist(),
            query.astype(np.float64),
            k=k,
            query_k=6,
            seeding=seeding,
            shortlist=shortlist,
        )
        assert_ranks_as(rank(manifold, query, seeding, shortlist=shortlist), truth)


@given(collections, st.integers(1, 6), st.sampled_from(["cg", "iteration"]))
def test_region_scores_are_the_closed_form(collection: Collection, k: int, solver: str) -> None:
    assume(k < collection.n)
    manifold = Manifold(k=k, query_k=5, **EXACT).fit(collection.vectors, collection.image_of)
    X = collection.vectors.astype(np.float64)
    S = literal.transition(literal.affinity(X, k, 3.0))
    np.testing.assert_allclose(manifold.S_.toarray(), S, rtol=1e-5, atol=1e-5)
    for query, from_batch in zip(
        collection.queries, manifold.search_many(collection.queries, solver=solver), strict=True
    ):
        truth = literal.closed_form(S, literal.seed(X, query.astype(np.float64), 5, 3.0), 0.99)
        np.testing.assert_allclose(manifold.search(query, solver=solver).regions, truth, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(from_batch.regions, truth, rtol=1e-5, atol=1e-5)


@given(collections, st.integers(1, 6), st.sampled_from([0.5, 0.99]))
def test_the_unnormalised_system_has_the_same_solution(collection: Collection, k: int, alpha: float) -> None:
    """Eq. 18: normalisation is preconditioning, so L_α (D^−1/2 f) = (1 − α) D^1/2 y gives the same f."""
    assume(k < collection.n)
    X = collection.vectors.astype(np.float64)
    manifold = Manifold(k=k, query_k=5, alpha=alpha, **EXACT).fit(collection.vectors, collection.image_of)
    A = literal.affinity(X, k, 3.0)
    degree = A.sum(axis=1)
    linked = degree > 0  # D^−1/2 exists for these only; the others keep (1 − α) y
    query = collection.queries[0]
    y = literal.seed(X, query.astype(np.float64), 5, 3.0)
    f = (1 - alpha) * y
    root = np.sqrt(degree[linked])
    L = np.diag(degree[linked]) - alpha * A[np.ix_(linked, linked)]
    f[linked] = root * np.linalg.solve(L, (1 - alpha) * root * y[linked])
    np.testing.assert_allclose(manifold.search(query).regions, f, rtol=1e-5, atol=1e-5)


@given(collections, st.integers(1, 6), st.integers(1, 12))
def test_a_shortlist_by_size_takes_the_images_nearest_by_global_descriptor(
    collection: Collection, k: int, size: int
) -> None:
    images = np.unique(collection.image_of)
    assume(k < collection.n)
    assume(size < len(images))
    manifold = Manifold(k=k, query_k=6, **EXACT).fit(collection.vectors, collection.image_of)

    def whole(regions: literal.Array) -> literal.Array:
        total = regions.sum(axis=0)
        return np.asarray(total / np.linalg.norm(total))

    X = collection.vectors.astype(np.float64)
    query = collection.queries[0]
    similarity = [whole(X[collection.image_of == image]) @ whole(query.astype(np.float64)) for image in images.tolist()]
    nearest = images[np.argsort(similarity)[::-1][:size]]
    by_size, by_name = manifold.search(query, shortlist=size), manifold.search(query, shortlist=nearest)
    np.testing.assert_array_equal(by_size.images, by_name.images)
    np.testing.assert_array_equal(by_size.scores, by_name.scores)


def test_diffusion_finds_what_similarity_cannot() -> None:
    """A quarter of a circle: its far end is orthogonal to the query, a decoy is not."""
    angle = np.linspace(0, np.pi / 2, 30)
    chain = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    decoy = np.array([[0.5, 0.0, np.sqrt(0.75)]])
    manifold = Manifold(k=4, query_k=4, max_iter=200).fit(np.concatenate([chain, decoy]))
    query = np.array([[1.0, 0.0, 0.0]])
    assert float(chain[-1] @ query[0]) < float(decoy[0] @ query[0])
    assert manifold.search(query).images[-1] == 30
    assert manifold.search(query).scores[-1] == pytest.approx(0, abs=1e-6)

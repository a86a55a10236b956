"""`Manifold` as its users meet it: manners, batches, shortlists, bad input."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from manifind import InvalidInputError, ManifindWarning, Manifold, NotFittedError, Ranking, kernels
from manifind.diffusion import WEIGHTS
from manifind.graph import exact_neighbours
from manifind.kernels.costs import CostModel
from manifind.manifold import Request, answer
from manifind.manifold.searching import Subgraph
from tests.collections_of_regions import Collection, make, unit
from tests.errors import raises


@pytest.fixture
def manifold(collection: Collection) -> Manifold:
    return Manifold(k=10, query_k=10).fit(collection.vectors, collection.image_of)


def assert_same(a: Ranking, b: Ranking) -> None:
    np.testing.assert_array_equal(a.images, b.images)
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-5, atol=1e-7)


# -- the call that every method has -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seeding", ["paper", "released"])
def test_a_manifold_keeps_to_the_contract_that_baselines_keep_to(seeding: str, collection: Collection) -> None:
    method = Manifold(k=10, seeding=seeding)
    with raises("not-fitted", NotFittedError):
        method.search(collection.queries[0])
    assert method.fit(collection.vectors, collection.image_of) is method
    images = np.unique(collection.image_of)
    for query, batched in zip(collection.queries, method.search_many(collection.queries), strict=True):
        ranking = method.search(query)
        assert sorted(ranking.images) == images.tolist()
        assert ranking.scores.dtype == np.float32
        assert (np.diff(ranking.scores) <= 0).all()
        assert_same(ranking, batched)
        best = method.search(query, top=3)
        assert_same(best, Ranking(ranking.images[:3], ranking.scores[:3]))
        assert len(method.search(query, top=10**6)) == len(images)
    assert method.search_many([]) == method.search_many([], shortlist=3) == []
    with raises("not-finite", InvalidInputError):
        method.search_many([collection.queries[0], collection.queries[0] * np.nan])
    with raises("wrong-type", InvalidInputError):
        method.search_many(collection.queries[0])  # type: ignore[arg-type]
    with raises("invalid-input", InvalidInputError):
        method.search(collection.queries[0], top=0)


# -- estimator manners ------------------------------------------------------------------------------------------------


def test_parameters_are_kept_as_given_and_checked_at_fit() -> None:
    manifold = Manifold(k=0, alpha="a lot")  # type: ignore[arg-type]
    assert manifold.get_params()["k"] == 0
    assert "alpha='a lot'" in repr(manifold)
    with raises("invalid-input", InvalidInputError):
        manifold.fit(np.eye(3))
    assert clone(Manifold(k=7)).get_params() == Manifold(k=7).get_params()
    assert manifold.set_params(k=1, alpha=0.5).fit(np.eye(3)).k == 1
    with raises("invalid-input", InvalidInputError):
        manifold.set_params(q=1)
    with pytest.raises(TypeError):
        Manifold(200)  # type: ignore[call-arg]


def test_parameters_of_the_query_hold_from_the_next_search(manifold: Manifold, collection: Collection) -> None:
    before = manifold.search(collection.queries[0])
    manifold.set_params(alpha=0.5, max_iter=3, tol=1e-4)
    after = manifold.search(collection.queries[0])
    assert after.iterations <= 3
    assert after.scores[0] != before.scores[0]


def test_parameters_of_the_graph_hold_from_the_next_fit(
    manifold: Manifold, collection: Collection, tmp_path: Path
) -> None:
    before = manifold.search(collection.queries[0])
    manifold.set_params(k=3, gamma=1.0, pooling="sum", gmp_lambda=9.0, knn="nn-descent")
    assert_same(manifold.search(collection.queries[0]), before)
    manifold.save(tmp_path / "x.manifold")
    loaded = Manifold.load(tmp_path / "x.manifold")
    assert (loaded.k, loaded.gamma, loaded.pooling) == (10, 3.0, "gmp")
    assert_same(loaded.search(collection.queries[0]), before)
    manifold.set_params(knn="exact").fit(collection.vectors, collection.image_of)
    assert manifold.neighbours_.ids.shape[1] == 3


def test_fitted_state_is_there_to_look_at(manifold: Manifold, collection: Collection) -> None:
    n = collection.n
    assert manifold.S_.shape == (n, n)
    assert manifold.S_.format == "csr"
    assert manifold.neighbours_.ids.shape == (n, 10)
    assert manifold.neighbours_.similarities.shape == (n, 10)
    assert manifold.weights_.shape == (n,)
    assert abs(manifold.S_ - manifold.S_.T).max() == 0


def test_the_vectors_are_not_copied(collection: Collection) -> None:
    manifold = Manifold(k=5).fit(collection.vectors, collection.image_of)
    assert np.shares_memory(manifold.vectors_, collection.vectors)


def test_a_failed_fit_leaves_the_fitted_state_alone(manifold: Manifold, collection: Collection) -> None:
    before = manifold.search(collection.queries[0])
    with pytest.raises(InvalidInputError):
        manifold.fit(collection.vectors * np.nan)
    assert_same(manifold.search(collection.queries[0]), before)


def test_without_image_of_each_row_is_an_image(collection: Collection) -> None:
    ranking = Manifold(k=10).fit(collection.vectors).search(collection.queries[0])
    assert sorted(ranking.images) == list(range(collection.n))


# -- what is reported -------------------------------------------------------------------------------------------------


def test_the_ranking_says_how_far_the_solver_came(manifold: Manifold, collection: Collection) -> None:
    short = manifold.set_params(max_iter=2).search(collection.queries[0])
    assert (short.iterations, short.converged) == (2, False)
    assert short.residual > 1e-6
    full = manifold.set_params(max_iter=1000).search(collection.queries[0])
    assert full.converged
    assert full.residual <= 1e-6
    assert 2 < full.iterations < 1000


def test_an_iteration_cut_short_warns(manifold: Manifold, collection: Collection) -> None:
    with pytest.warns(ManifindWarning, match="110"):
        ranking = manifold.search(collection.queries[0], solver="iteration")
    assert not ranking.converged


def test_region_scores_pool_to_the_image_scores(manifold: Manifold, collection: Collection) -> None:
    single = manifold.search(collection.queries[0])
    batch = manifold.search_many(collection.queries)[0]
    short = manifold.search(collection.queries[0], shortlist=5)
    for ranking in (single, batch, short):
        pooled = np.bincount(collection.image_of, weights=manifold.weights_ * ranking.regions)
        np.testing.assert_allclose(pooled[ranking.images], ranking.scores, rtol=1e-4, atol=1e-7)
    outside = ~np.isin(collection.image_of, short.images)
    assert not short.regions[outside].any()


def test_the_ranking_says_what_the_query_put_on_the_graph(manifold: Manifold, collection: Collection) -> None:
    query = collection.queries[0]
    whole, short = manifold.search(query), manifold.search(query, shortlist=5)
    for ranking in (whole, short):
        assert ranking.seed is not None
        assert len(ranking.seed.regions) <= 10
        assert np.isin(collection.image_of[ranking.seed.regions], ranking.images).all()
    best = (collection.vectors @ query.T).max(axis=1).argmax()
    assert whole.seed is not None
    assert best in whole.seed.regions
    (seed,) = manifold.seeds([query])
    np.testing.assert_array_equal(whole.seed.regions, seed.regions)
    np.testing.assert_array_equal(whole.seed.values, seed.values)


def test_a_query_similar_to_nothing_scores_nothing() -> None:
    vectors = np.eye(4, dtype=np.float32)[:3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifindWarning)
        manifold = Manifold().fit(vectors)
    ranking = manifold.search(np.eye(4, dtype=np.float32)[3:])
    assert ranking.scores.tolist() == [0, 0, 0]
    assert ranking.converged


def test_region_scores_of_a_batch_are_of_the_collection_that_was_searched(
    manifold: Manifold, collection: Collection
) -> None:
    whole = manifold.search_many(collection.queries)[0]
    short = manifold.search_many(collection.queries, shortlist=5)[0]
    np.testing.assert_allclose(whole.regions, manifold.search(collection.queries[0]).regions, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        short.regions, manifold.search(collection.queries[0], shortlist=5).regions, rtol=1e-5, atol=1e-7
    )
    late = manifold.search_many(collection.queries)[0]
    manifold.fit(collection.vectors, collection.image_of)
    with pytest.raises(NotFittedError, match="fitted anew"):
        _ = late.regions


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeding", ["paper", "released"])
@pytest.mark.parametrize("shortlist", [None, 7, [1, 2, 30]])
def test_many_queries_give_the_answers_of_each(seeding: str, shortlist: Any) -> None:
    collection = make("clusters", images=60, most_regions=5, d=10, seed=11, queries=70)
    if isinstance(shortlist, list):
        shortlist = np.unique(collection.image_of)[shortlist]
    manifold = Manifold(k=8, query_k=12, seeding=seeding).fit(collection.vectors, collection.image_of)
    for query, ranking in zip(
        collection.queries, manifold.search_many(collection.queries, shortlist=shortlist), strict=True
    ):
        assert_same(ranking, manifold.search(query, shortlist=shortlist))


# -- shortlists -------------------------------------------------------------------------------------------------------


def test_only_shortlisted_images_are_ranked(manifold: Manifold, collection: Collection) -> None:
    images = np.unique(collection.image_of)[[3, 1, 8]]
    assert sorted(manifold.search(collection.queries[0], shortlist=images).images) == sorted(images)
    assert len(manifold.search(collection.queries[0], shortlist=4)) == 4
    assert len(manifold.search(collection.queries[0], shortlist=4, top=2)) == 2


def test_a_shortlist_of_everything_is_the_whole(manifold: Manifold, collection: Collection) -> None:
    query = collection.queries[0]
    whole = manifold.search(query)
    assert_same(manifold.search(query, shortlist=10**6), whole)
    everything = manifold.search(query, shortlist=np.unique(collection.image_of))
    np.testing.assert_allclose(everything.scores, whole.scores, rtol=1e-4, atol=1e-6)


def test_given_global_descriptors_choose_the_shortlist(collection: Collection) -> None:
    images = np.unique(collection.image_of)
    given = unit(np.random.default_rng(0).normal(size=(len(images), 5)))
    manifold = Manifold(k=10).fit(collection.vectors, collection.image_of, global_vectors=given)
    query, wanted = collection.queries[0], 6
    ranking = manifold.search(query, shortlist=1, global_vector=given[wanted])
    assert ranking.images.tolist() == [images[wanted]]
    (ranking,) = manifold.search_many([query], shortlist=1, global_vectors=[given[wanted]])
    assert ranking.images.tolist() == [images[wanted]]
    with raises("missing-argument", InvalidInputError):
        manifold.search(query, shortlist=1)
    with raises("not-finite", InvalidInputError):
        manifold.search(query, global_vector=given[0] * np.nan)
    with raises("wrong-length", InvalidInputError):
        manifold.search_many([query], shortlist=1, global_vectors=[given[0], given[1]])
    with raises("wrong-length", InvalidInputError):
        Manifold(k=10).fit(collection.vectors, collection.image_of, global_vectors=given[:3])


@pytest.mark.parametrize(
    ("shortlist", "code"),
    [
        (0, "invalid-input"),
        (-3, "invalid-input"),
        (2.5, "invalid-input"),
        (np.array([], int), "empty"),
        ([], "empty"),
        ([10**6], "unknown-image"),
        ([-1], "unknown-image"),
        ([0.5], "wrong-dtype"),
        ([[1]], "wrong-shape"),
    ],
)
def test_a_shortlist_that_cannot_be_used_is_named(
    manifold: Manifold, collection: Collection, shortlist: Any, code: str
) -> None:
    with raises(code, InvalidInputError) as excinfo:
        manifold.search(collection.queries[0], shortlist=shortlist)
    assert str(excinfo.value).startswith("shortlist ")


def test_each_query_may_have_a_shortlist_of_its_own(manifold: Manifold, collection: Collection) -> None:
    queries: list[Any] = collection.queries[:3]
    some = manifold.layout_.images.tolist()
    lists: list[Any] = [some[:3], np.array(some[5:25]), tuple(some[7:9])]
    together = manifold.search_many(queries, shortlist=lists)
    for ranking, query, own in zip(together, queries, lists, strict=True):
        assert sorted(ranking.images.tolist()) == sorted(own)
        assert_same(ranking, manifold.search(query, shortlist=own))
    with raises("wrong-length", InvalidInputError):
        manifold.search_many(queries, shortlist=lists[:2])
    with raises("empty", InvalidInputError):
        manifold.search_many(queries, shortlist=[some[:1], [], some[:2]])


# -- lists from elsewhere ---------------------------------------------------------------------------------------------


def test_given_neighbours_stand_in_for_the_search(manifold: Manifold, collection: Collection) -> None:
    longer = exact_neighbours(collection.vectors, 25)
    other = Manifold(k=10, query_k=10).fit(collection.vectors, collection.image_of, neighbours=longer)
    assert abs(other.S_ - manifold.S_).max() < 1e-6
    with pytest.raises(InvalidInputError, match="longer lists"):
        Manifold(k=26).fit(collection.vectors, collection.image_of, neighbours=longer)


def test_nn_descent_ranks_nearly_as_the_exact_graph() -> None:
    collection = make("clusters", images=400, most_regions=6, d=24, seed=5, queries=4)
    exact, approximate = (
        Manifold(k=15, knn=knn).fit(collection.vectors, collection.image_of) for knn in ("exact", "nn-descent")
    )
    for query in collection.queries:
        a, b = exact.search(query, top=20), approximate.search(query, top=20)
        assert len(np.intersect1d(a.images, b.images)) >= 18


# -- bad input --------------------------------------------------------------------------------------------------------

GOOD = unit(np.random.default_rng(1).normal(size=(6, 4)))


def with_entry(value: float) -> Any:
    rows = GOOD.copy()
    rows[2, 1] = value
    return rows


@pytest.mark.parametrize(
    ("vectors", "image_of", "code", "says"),
    [
        (with_entry(np.nan), None, "not-finite", "in row 2;"),
        (with_entry(np.inf), None, "not-finite", "in row 2;"),
        (with_entry(1e30), None, "not-finite", "in row 2;"),
        (np.where(np.arange(6)[:, None] == 4, 0, GOOD), None, "zero-vector", "in row 4;"),
        (np.zeros((3, 4), np.float32), None, "zero-vector", "in 3 rows, the first at 0;"),
        (GOOD.astype(int), None, "wrong-dtype", "int64"),
        (GOOD.astype(complex), None, "wrong-dtype", "complex"),
        ([["a"]], None, "wrong-dtype", ""),
        (GOOD[0], None, "wrong-shape", "(4,)"),
        (GOOD[None], None, "wrong-shape", "(1, 6, 4)"),
        ([[1.0, 2.0], [1.0]], None, "wrong-shape", ""),
        (np.ma.masked_less(GOOD, 0), None, "wrong-type", ""),
        (GOOD[:0], None, "empty", "(0, 4)"),
        (GOOD[:, :0], None, "empty", "(6, 0)"),
        (GOOD, [0, 0, 1], "wrong-shape", "(3,)"),
        (GOOD, [0, 1, 1, 0, 2, 2], "not-ascending", "1 is followed by 0 at place 3"),
        (GOOD, [0.0] * 6, "wrong-dtype", "float64"),
        (GOOD, [-1, 0, 0, 0, 0, 0], "out-of-range", "from -1"),
        (GOOD, [0, 0, 0, 0, 0, 2**31], "out-of-range", f"to {2**31}"),
        (GOOD, np.zeros((6, 1), int), "wrong-shape", "(6, 1)"),
    ],
)
def test_a_collection_that_cannot_be_used_is_named(vectors: Any, image_of: Any, code: str, says: str) -> None:
    """The code is for programs; the sentence names the argument and the place or the value."""
    with raises(code, InvalidInputError) as excinfo:
        Manifold(k=2).fit(vectors, image_of)
    assert str(excinfo.value).startswith("vectors " if image_of is None else "image_of ")
    assert says in str(excinfo.value)


@pytest.mark.parametrize(
    ("parameter", "value", "what"),
    [
        ("alpha", 0, "strictly between 0 and 1"),
        ("alpha", 1.0, "strictly between 0 and 1"),
        ("alpha", float("nan"), "alpha is nan"),
        ("k", 0, "at least 1"),
        ("k", 2.0, "whole number"),
        ("k", True, "whole number"),
        ("query_k", -1, "query_k is -1"),
        ("gamma", 0, "above 0"),
        ("gamma", float("inf"), "finite"),
        ("gmp_lambda", 0.0, "gmp_lambda is 0.0"),
        ("tol", 0, "tol is 0"),
        ("max_iter", 0, "max_iter is 0"),
        ("memory", 0, "memory is 0"),
        ("pooling", "max", "'gmp', 'sum'"),
        ("seeding", "mine", "'paper', 'released'"),
        ("knn", "hnsw", "'exact', 'nn-descent'"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(parameter: str, value: Any, what: str, manifold: Manifold) -> None:
    with pytest.raises(InvalidInputError, match=what):
        Manifold(**{"k": 2, parameter: value}).fit(GOOD)
    with pytest.raises(InvalidInputError, match=what):
        manifold.set_params(**{parameter: value}).search(manifold.vectors_[:1])


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (np.empty((0, 12)), "empty"),
        (np.ones(12) / np.sqrt(12), "wrong-shape"),
        (np.full((1, 12), np.nan), "not-finite"),
        (np.zeros((2, 12)), "zero-vector"),
        (np.ones((1, 12), int), "wrong-dtype"),
        (np.ones((1, 5)) / np.sqrt(5), "wrong-dimension"),
    ],
)
def test_a_query_that_cannot_be_used_is_named(query: Any, code: str, manifold: Manifold) -> None:
    with raises(code, InvalidInputError) as excinfo:
        manifold.search(query)
    assert str(excinfo.value).startswith("query_vectors ")


def test_an_unknown_solver_lists_the_choices(manifold: Manifold, collection: Collection) -> None:
    with pytest.raises(InvalidInputError, match="'cg', 'iteration'"):
        manifold.search(collection.queries[0], solver="warp")


def test_vectors_not_of_unit_norm_are_normalised_with_a_warning(collection: Collection) -> None:
    scaled = collection.vectors * np.linspace(0.5, 2, collection.n, dtype=np.float32)[:, None]
    with pytest.warns(ManifindWarning, match="not of unit norm"):
        manifold = Manifold(k=10, query_k=10).fit(scaled, collection.image_of)
    np.testing.assert_allclose(manifold.vectors_, collection.vectors, atol=1e-6)
    with pytest.warns(ManifindWarning, match="query_vectors"):
        manifold.search(3 * collection.queries[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4"])
def test_other_floating_types_are_converted_at_the_edge(dtype: Any, manifold: Manifold, collection: Collection) -> None:
    other = Manifold(k=10, query_k=10).fit(collection.vectors.astype(dtype), collection.image_of)
    assert other.vectors_.dtype == np.float32
    np.testing.assert_allclose(other.vectors_, collection.vectors, atol=1e-3)
    query = collection.queries[0]
    a, b = manifold.search(query), manifold.search(query.astype(dtype))
    np.testing.assert_allclose(a.scores, b.scores, rtol=2e-2, atol=1e-4)


def test_vectors_in_any_memory_order_are_taken(collection: Collection, manifold: Manifold) -> None:
    other = Manifold(k=10, query_k=10).fit(np.asfortranarray(collection.vectors), collection.image_of)
    assert_same(other.search(collection.queries[0]), manifold.search(collection.queries[0]))


def test_more_neighbours_than_regions_warns_and_works(collection: Collection) -> None:
    with pytest.warns(ManifindWarning, match=f"k is {collection.n - 1} here"):
        manifold = Manifold(k=10**6, query_k=10**6).fit(collection.vectors, collection.image_of)
    assert manifold.neighbours_.ids.shape == (collection.n, collection.n - 1)
    assert len(manifold.search(collection.queries[0])) == 40


def test_a_collection_of_one_region_works() -> None:
    with pytest.warns(ManifindWarning, match="k is 0 here"):
        manifold = Manifold().fit(np.eye(1, 4))
    assert manifold.search(np.eye(1, 4)).images.tolist() == [0]


def test_what_speaks_against_a_query_is_subtracted_as_the_closed_form_has_it(collection: Collection) -> None:
    exact = Manifold(k=10, query_k=8, max_iter=500, tol=1e-9).fit(collection.vectors, collection.image_of)
    query, other = collection.queries[0], collection.queries[1]
    (ranking,) = exact.search_many([query], negatives=[other])
    y = np.zeros(len(collection.vectors))
    rejected = np.zeros(len(collection.vectors))
    for into, one in ((y, query), (rejected, other)):
        found = exact.search(one).seed
        assert found is not None
        into[found.regions] = found.values
    y -= WEIGHTS.negatives * rejected * y.sum() / rejected.sum()
    system = np.eye(len(y)) - exact.alpha * exact.S_.toarray()
    f = (1 - exact.alpha) * np.linalg.solve(system, y)
    np.testing.assert_allclose(ranking.regions, f, atol=1e-5 * np.abs(f).max())


def test_only_the_queries_with_something_against_them_change(manifold: Manifold, collection: Collection) -> None:
    queries = collection.queries[:3]
    plain = manifold.search_many(queries)
    some = manifold.search_many(queries, negatives=[None, collection.queries[3], None])
    assert [np.array_equal(a.images, b.images) for a, b in zip(plain, some, strict=True)] == [True, False, True]


def test_negatives_are_checked(manifold: Manifold, collection: Collection) -> None:
    with raises("wrong-length", InvalidInputError):
        manifold.search_many(collection.queries[:2], negatives=[None])
    with raises("wrong-dimension", InvalidInputError):
        manifold.search_many(collection.queries[:1], negatives=[np.ones((2, 3))])


# -- regions of the collection as a query -----------------------------------------------------------------------------


@pytest.mark.parametrize("query_k", [1, 4, 11, 40])
def test_what_the_graph_knows_of_its_own_regions_equals_a_search(query_k: int, collection: Collection) -> None:
    """Lists of ten serve up to eleven, the region itself among them; a search serves beyond."""
    manifold = Manifold(k=10, query_k=query_k).fit(collection.vectors, collection.image_of)
    some = slice(0, query_k)  # of more regions, all equal to themselves, rounding would tell which are kept of y
    rows = [np.arange(3, 9)[some], None, np.array([20, -1, 22])[some]]
    queries = [collection.vectors[3:9][some], collection.queries[0], collection.vectors[20:23][some]]
    requests = [
        Request(query, rows=None if own is None else own.astype(np.int32))
        for query, own in zip(queries, rows, strict=True)
    ]
    for shortlist in (None, 5):
        searched = manifold.search_many(queries, shortlist=shortlist)
        for one, other in zip(answer(manifold, requests, shortlist=shortlist), searched, strict=True):
            assert_same(one, other)


def test_regions_of_the_collection_are_not_searched_for(
    manifold: Manifold, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = manifold.search_many([collection.vectors[3:9]])[0]
    monkeypatch.setattr(Subgraph, "search", lambda *_: pytest.fail("searched"))
    request = Request(collection.vectors[3:9], rows=np.arange(3, 9, dtype=np.int32))
    assert_same(answer(manifold, [request])[0], expected)


def test_a_graph_is_divided_beforehand_if_one_likes(manifold: Manifold, monkeypatch: pytest.MonkeyPatch) -> None:
    query = manifold.vectors_[:3]
    expected = manifold.search(query, solver="local")
    again = Manifold(k=10, query_k=10).fit(
        manifold.vectors_, np.repeat(manifold.layout_.images, manifold.layout_.counts)
    )
    assert again.prepare("local") is again
    monkeypatch.setattr("manifind.kernels.cpu.native_backend.aggregate", lambda *_: pytest.fail("divided again"))
    assert_same(again.search(query, solver="local"), expected)


# -- which solver ----------------------------------------------------------------------------------------------------


def test_the_automatic_solver_follows_from_the_graph_alone(
    manifold: Manifold, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifold.set_params(solver="auto")
    assert manifold.search(collection.queries[0]).reached is None
    monkeypatch.setattr("manifind.diffusion.solvers.COSTS", CostModel(max_whole_regions=10))
    assert manifold.search(collection.queries[0]).reached is None  # nothing is divided unasked
    manifold.prepare("local")
    assert manifold.search(collection.queries[0], shortlist=5).reached is None
    queries = [*collection.queries, *collection.queries]
    many = manifold.search_many(queries)
    assert len(many) > 8
    for query, ranking in zip(queries, many, strict=True):
        assert (ranking.reached is not None) == kernels.compiled()
        assert_same(ranking, manifold.search(query))
    assert manifold.search(collection.queries[0], solver="cg").reached is None

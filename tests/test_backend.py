"""One contract over every backend: each against the plain twins and the closed form, then a whole manifold on it."""

import importlib
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifind import InvalidInputError, Manifold, kernels
from manifind.diffusion import iterate
from manifind.diffusion.seeding import Seed
from manifind.diffusion.solvers import SOLVERS, SolverOptions
from manifind.graph import Neighbours, exact_neighbours, normalise
from manifind.groups import Layout, RowRanges
from manifind.kernels import (
    Backend,
    Operator,
    Pool,
    Solution,
    VectorSet,
    dense_columns,
)
from manifind.kernels.api import BACKENDS
from manifind.kernels.cuda import unavailable_reason
from tests import literal
from tests import plain_kernels as plain
from tests.collections_of_regions import make, unit
from tests.sparse import symmetric
from tests.trivial_backend import DenseOperator

MODULES = {
    "compiled": "manifind.kernels.cpu.native_backend",
    "portable": "manifind.kernels.cpu.numpy_backend",
    "trivial": "tests.trivial_backend",
    "torch": "tests.torch_on_cpu",
    "cuda": "manifind.kernels.cuda",
}
seeds = st.integers(0, 2**32 - 1)
on_each = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=25
)


@pytest.fixture(params=MODULES)
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Each backend in turn, in the place of the default one."""
    if request.param == "compiled" and not kernels.compiled():
        pytest.skip("the core was not compiled")
    if request.param == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    if request.param == "cuda" and (reason := unavailable_reason()) is not None:
        pytest.skip(str(reason))
    monkeypatch.setitem(BACKENDS, "cpu", MODULES[request.param])
    made: Backend = importlib.import_module(MODULES[request.param]).make()
    return made


def test_what_a_backend_makes_keeps_the_protocols(by: Backend, rng: np.random.Generator) -> None:
    assert isinstance(by.vector_set(unit(rng.normal(size=(5, 3)))), VectorSet)
    assert isinstance(by.operator(symmetric(5, rng)), Operator)


# -- rows --------------------------------------------------------------------------------------------------------------


@on_each
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@given(m=st.integers(0, 40), n=st.integers(1, 300), d=st.integers(1, 70), k=st.integers(1, 60), seed=seeds)
def test_the_nearest_are_those_of_all_products_sorted(  # type: ignore[no-untyped-def]
    by: Backend, dtype, m: int, n: int, d: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    queries, given_ = unit(rng.normal(size=(m, d))), unit(rng.normal(size=(n, d))).astype(dtype)
    k = min(k, n)
    ids, similarities = by.vector_set(given_).search(queries, k, memory=2**8)
    vectors = given_.astype(np.float32)
    assert ids.shape == similarities.shape == (m, k)
    np.testing.assert_allclose(similarities, plain.nearest(queries, vectors, k)[1], atol=1e-6)
    np.testing.assert_allclose(np.einsum("mkd,md->mk", vectors[ids], queries), similarities, atol=1e-6)
    assert all(len(set(row)) == k for row in ids.tolist())


@on_each
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@given(m=st.integers(1, 40), n=st.integers(2, 200), d=st.integers(1, 40), k=st.integers(1, 50), seed=seeds)
def test_the_nearest_among_some_are_those_of_a_search_of_these_alone(  # type: ignore[no-untyped-def]
    by: Backend, dtype, m: int, n: int, d: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    queries, vectors = unit(rng.normal(size=(m, d))), unit(rng.normal(size=(n, d))).astype(dtype)
    subset = np.sort(rng.choice(n, rng.integers(1, n), replace=False)).astype(np.int32)
    k = min(k, len(subset))
    ids, similarities = by.vector_set(vectors).search(queries, k, subset=subset, memory=2**8)
    some = vectors[subset].astype(np.float32)
    np.testing.assert_allclose(similarities, plain.nearest(queries, some, k)[1], atol=1e-6)
    np.testing.assert_allclose(np.einsum("mkd,md->mk", some[ids], queries), similarities, atol=1e-6)


def test_rows_are_taken_in_single_precision_and_in_any_order(by: Backend, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(9, 4))).astype(np.float16)
    taken = by.vector_set(vectors).gather(np.array([7, 0, 7]))
    assert taken.dtype == np.float32
    np.testing.assert_array_equal(taken, vectors[[7, 0, 7]].astype(np.float32))


@on_each
@given(n=st.integers(2, 120), d=st.integers(1, 20), k=st.integers(1, 30), seed=seeds)
def test_the_neighbours_of_all_rows_are_those_of_all_products_sorted(
    by: Backend, n: int, d: int, k: int, seed: int
) -> None:
    vectors = unit(np.random.default_rng(seed).normal(size=(n, d)))
    k = min(k, n - 1)
    rows = by.vector_set(vectors)
    lists = exact_neighbours(rows, k)
    truth = plain.nearest_others(vectors, k)[1]
    if truth[:, -1].max() > 1 - 1e-3:  # a ring of equals, which `test_graph` looks at
        return
    np.testing.assert_allclose(lists.similarities, truth, atol=1e-6)
    np.testing.assert_allclose(rows.self_join(k)[1], truth, atol=1e-6)


def test_rows_are_searched_by_many_threads(by: Backend, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(200, 8)))
    rows = by.vector_set(vectors)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: rows.search(vectors[:21], 3)[0], range(40)))
    assert all((ids == found[0]).all() for ids in found)


# -- systems -----------------------------------------------------------------------------------------------------------


@on_each
@given(n=st.integers(1, 60), columns=st.integers(1, 70), alpha=st.sampled_from([0.3, 0.9, 0.99]), seed=seeds)
def test_a_solution_is_the_closed_form(by: Backend, n: int, columns: int, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = symmetric(n, rng)
    y = (rng.random((n, columns)) * (rng.random((n, columns)) < 0.2)).astype(np.float32)
    y[:, 0] = 0
    system = by.operator(S)
    truth = (1 - alpha) * np.linalg.inv(np.eye(n) - alpha * S.toarray().astype(np.float64)) @ y
    for solution in (system.solve(y, alpha, 3000, 1e-7), iterate(system, y, alpha, 3000, 1e-7)):
        np.testing.assert_allclose(solution.scores, truth, rtol=1e-5, atol=1e-5)
        assert (solution.residuals <= 1e-6).all()
        assert solution.iterations[0] == 0
        assert not solution.scores[:, 0].any()


@pytest.mark.parametrize("max_iter", [1, 2, 7])
def test_a_solution_cut_short_says_where_it_stands(by: Backend, max_iter: int, rng: np.random.Generator) -> None:
    S, y = symmetric(50, rng), rng.random((50, 3)).astype(np.float32)
    pairs: list[tuple[Solution, Solution]] = [
        (by.operator(S).solve(y, 0.99, max_iter, 1e-6), plain.conjugate_gradient(S, y, 0.99, max_iter, 1e-6)),
        (iterate(by.operator(S), y, 0.99, max_iter, 1e-6), plain.iterate(S, y, 0.99, max_iter, 1e-6)),
    ]
    for solution, twin in pairs:
        np.testing.assert_allclose(solution.scores, twin.scores, rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(solution.iterations, max_iter)
        np.testing.assert_allclose(solution.residuals, twin.residuals, rtol=1e-2)


@pytest.mark.parametrize("n", [40, 700])
@pytest.mark.parametrize("max_iter", [5, 20])
@pytest.mark.parametrize("precise", [True, False])
def test_a_column_comes_to_the_same_alone_and_in_a_batch(
    by: Backend, n: int, max_iter: int, precise: bool, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Also where it is stopped long before it has converged."""
    S = symmetric(n, rng, density=min(0.3, 15 / n))
    y = (rng.random((n, 101)) * (rng.random((n, 101)) < 10 / n)).astype(np.float32)
    if not precise:
        monkeypatch.setattr("manifind.kernels.cpu.native_backend.FLOAT64_MAX_REGIONS", 0)
    system = by.operator(S)
    together = system.solve(y, 0.99, max_iter, 1e-6)
    for j in range(0, 101, 10):
        alone = system.solve(y[:, [j]], 0.99, max_iter, 1e-6)
        best = max(float(np.abs(alone.scores).max()), 1e-9)
        np.testing.assert_allclose(together.scores[:, j], alone.scores[:, 0], atol=1e-5 * best)
        assert together.iterations[j] == alone.iterations[0]


@pytest.mark.parametrize("n", [40, 20_000])
@pytest.mark.parametrize("columns", [1, 3])
def test_a_few_regions_by_themselves_are_solved_for_and_left_at_that(
    by: Backend, n: int, columns: int, rng: np.random.Generator
) -> None:
    """A few iterations solve for them, and in single precision none after that may spoil the solution."""
    if n > 1000 and isinstance(by.operator(symmetric(5, rng)), DenseOperator):
        pytest.skip("a dense matrix of that size takes gigabytes")
    few = np.triu(rng.random((6, 6)), 1)
    few = (few + few.T) / np.sqrt(np.outer((few + few.T).sum(axis=0), (few + few.T).sum(axis=1)))
    ring = np.arange(6, n)
    others = sp.coo_array((np.full(n - 6, 0.5), (ring, np.roll(ring, 1))), shape=(n, n))
    S = sp.csr_array(sp.block_diag([few, sp.csr_array((n - 6, n - 6))]) + others + others.T, dtype=np.float32)
    y = np.zeros((n, columns), np.float32)
    y[:2] = rng.random((2, columns))
    truth = 0.01 * np.linalg.inv(np.eye(6) - 0.99 * S[:6, :6].toarray().astype(np.float64)) @ y[:6]
    for tol in (1e-6, 1e-10):
        scores = by.operator(S).solve(y, 0.99, 60, tol).scores
        np.testing.assert_allclose(scores[:6], truth, atol=1e-5 * truth.max())
        assert not scores[6:].any()


@pytest.mark.parametrize("n", [40, 20_000])
def test_columns_given_by_their_entries_are_the_same_columns(by: Backend, n: int, rng: np.random.Generator) -> None:
    """On a system that is solved in float64, and on one that is not."""
    if n > 1000 and isinstance(by.operator(symmetric(5, rng)), DenseOperator):
        pytest.skip("a dense matrix of that size takes gigabytes")
    S = sp.csr_array(sp.random_array((n, n), density=4 / n, rng=rng, dtype=np.float32))
    S = sp.csr_array((S + S.T) / 20)
    seeds = [
        Seed(np.sort(rng.choice(n, 9, replace=False)).astype(np.int32), rng.random(9).astype(np.float32)) for _ in "abc"
    ]
    system = by.operator(S)
    solution = SOLVERS["cg"].solve(system, seeds, SolverOptions(0.9, 15, 1e-6), None)
    truth = plain.conjugate_gradient(S, dense_columns(seeds, n), 0.9, 15, 1e-6)
    np.testing.assert_allclose(solution.scores, truth.scores, atol=1e-6)
    np.testing.assert_array_equal(solution.iterations, system.solve(dense_columns(seeds, n), 0.9, 15, 1e-6).iterations)


def test_images_have_the_pooled_scores_of_their_regions(by: Backend, rng: np.random.Generator) -> None:
    S = symmetric(40, rng)
    system = by.operator(S)
    pool = Pool(np.array([0, 3, 3, 10, 40]), rng.random(40).astype(np.float32))
    seeds = [Seed(np.array([i, 20 + i], np.int32), np.array([0.5, 1], np.float32)) for i in range(3)]
    solution = system.solve_and_pool(seeds, pool, 0.9, 15, 1e-6)
    scores = plain.conjugate_gradient(S, dense_columns(seeds, 40), 0.9, 15, 1e-6).scores
    for image, (start, end) in enumerate(pairwise(pool.starts.tolist())):
        expected = pool.weights[start:end] @ scores[start:end]
        np.testing.assert_allclose(solution.scores[image], expected, atol=1e-6)


def test_a_part_pools_by_the_weights_of_its_own_regions(by: Backend, rng: np.random.Generator) -> None:
    system = by.operator(symmetric(40, rng), rng.random(40).astype(np.float32) + 1)
    runs = RowRanges(np.array([0, 7, 20]), np.array([0, 3, 5, 9]))
    weights = rng.random(40).astype(np.float32)
    seeds = [Seed(np.array([1, 6], np.int32), np.array([0.5, 1], np.float32))]
    for part in (system.restrict_ranges(runs), system.restrict(runs.regions)):
        truth = part.solve_and_pool(seeds, Pool(runs.starts, weights[runs.regions]), 0.9, 15, 1e-6).scores
        made = part.solve_and_pool(seeds, Pool(runs.starts, weights, runs), 0.9, 15, 1e-6).scores
        np.testing.assert_allclose(made, truth, atol=1e-7)


@on_each
@given(images=st.integers(1, 30), most=st.integers(1, 40), k=st.integers(1, 9), seed=seeds)
def test_the_regions_of_runs_are_taken_as_the_list_of_them_is(
    by: Backend, images: int, most: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.of(np.repeat(np.arange(images), rng.integers(1, most + 1, images)))
    places = np.sort(rng.choice(images, rng.integers(1, images + 1), replace=False))
    runs, n = layout.ranges_of(places), int(layout.starts[-1])
    listed = np.flatnonzero(np.isin(layout.place_of, places))
    np.testing.assert_array_equal(runs.regions, listed)
    some = rng.integers(0, len(listed), 5)
    np.testing.assert_array_equal(runs.at(some), listed[some])
    vectors, queries = unit(rng.normal(size=(n, 7))), unit(rng.normal(size=(3, 7)))
    rows, system = by.vector_set(vectors), by.operator(symmetric(n, rng), rng.random(n).astype(np.float32) + 1)
    chosen = rows.choose_shortlist(queries, min(k, n))
    assert [one.tolist() for one in chosen] == np.sort(rows.search(queries, min(k, n))[0], axis=1).tolist()
    k = min(k, len(listed))
    found, truth = rows.search_ranges(runs, queries, k)(), plain.nearest(queries, vectors[listed], k)
    np.testing.assert_allclose(found[1], truth[1], atol=1e-6)
    np.testing.assert_allclose(np.einsum("mkd,md->mk", vectors[listed][found[0]], queries), truth[1], atol=1e-6)
    unity = np.eye(len(listed))
    by_list = system.restrict(listed.astype(np.int32)).matmul(unity)
    np.testing.assert_allclose(system.restrict_ranges(runs).matmul(unity), by_list, atol=1e-7)


def test_each_column_stops_by_itself(by: Backend, rng: np.random.Generator) -> None:
    S = symmetric(40, rng)
    isolated, linked = np.zeros(40, np.float32), rng.random(40).astype(np.float32)
    isolated[0] = 1  # an empty row: one step solves it
    together = by.operator(S).solve(np.stack([isolated, linked], axis=1), 0.99, 500, 1e-6)
    assert together.iterations[0] == 1 < together.iterations[1]


def test_a_tolerance_below_all_precision_stops_anyway(by: Backend, rng: np.random.Generator) -> None:
    S = symmetric(60, rng)
    solution = by.operator(S).solve(rng.random((60, 4)).astype(np.float32), 0.99, 5000, 1e-30)
    assert np.isfinite(solution.scores).all()


def test_a_product_is_a_product(by: Backend, rng: np.random.Generator) -> None:
    S = symmetric(50, rng)
    for columns in (1, 3, 80):
        x = rng.normal(size=(50, columns))
        for kind in (np.float32, np.float64):
            product = by.operator(S).matmul(x.astype(kind))
            assert product.dtype == kind
            np.testing.assert_allclose(product, S.toarray() @ x, atol=1e-5)


@on_each
@given(n=st.integers(1, 80), seed=seeds)
def test_a_part_of_a_system_is_that_of_its_affinity_normalised_anew(by: Backend, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = symmetric(n, rng)
    dense = A.toarray().astype(np.float64)
    S, degrees = normalise(A)
    rows = np.sort(rng.choice(n, rng.integers(1, n + 1), replace=False)).astype(np.int32)
    kept = dense[np.ix_(rows, rows)]
    sums = kept.sum(axis=1)
    scale = np.divide(1, np.sqrt(sums), out=np.zeros(len(rows)), where=sums > 0)
    part = by.operator(S, degrees).restrict(rows)
    assert part.size == len(rows)
    np.testing.assert_allclose(part.matmul(np.eye(len(rows))), kept * scale * scale[:, None], atol=1e-6)
    half = np.arange(0, len(rows), 2, dtype=np.int32)
    twice, once = part.restrict(half), by.operator(S, degrees).restrict(rows[half])
    np.testing.assert_allclose(twice.matmul(np.eye(len(half))), once.matmul(np.eye(len(half))), atol=1e-6)


# -- affinity ----------------------------------------------------------------------------------------------------------


@on_each
@given(n=st.integers(2, 60), k=st.integers(1, 12), gamma=st.sampled_from([1.0, 3.0, 4.5]), seed=seeds)
def test_the_affinity_is_that_of_pairs_in_each_others_lists(
    by: Backend, n: int, k: int, gamma: float, seed: int
) -> None:
    vectors = unit(np.random.default_rng(seed).normal(size=(n, 5)))
    ids, similarities = plain.nearest_others(vectors, min(k, n - 1))
    truth = plain.affinity(ids, similarities, gamma)
    A, degrees = by.mutual_graph(ids, similarities, gamma, slack=1e-3, normalised=False)
    np.testing.assert_allclose(A.toarray(), truth.toarray(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(degrees, truth.sum(axis=1), rtol=1e-5, atol=1e-7)
    S, _ = by.mutual_graph(ids, similarities, gamma, slack=1e-3, normalised=True)
    np.testing.assert_allclose(S.toarray(), plain.normalise(truth).toarray(), rtol=1e-5, atol=1e-7)


# -- all of it ---------------------------------------------------------------------------------------------------------


def test_a_manifold_ranks_alike_on_every_backend(by: Backend) -> None:
    collection = make("clusters", images=40, most_regions=5, d=12, seed=1)
    manifold = Manifold(k=8, query_k=6, max_iter=500).fit(collection.vectors, collection.image_of)
    assert type(manifold._fitted.system).__module__.startswith(type(by).__module__.rpartition(".")[0])
    for query in collection.queries[:3]:
        expected = literal.search(
            collection.vectors.astype(np.float64),
            collection.image_of.tolist(),
            query.astype(np.float64),
            k=8,
            query_k=6,
        )
        for ranking in (manifold.search(query), manifold.search_many([query, query])[0]):
            scores = dict(zip(ranking.images.tolist(), ranking.scores.tolist(), strict=True))
            best = max(expected.values())
            assert all(abs(scores[image] - score) <= 1e-4 * best for image, score in expected.items())
    short = manifold.search_many(collection.queries[:2], shortlist=10)
    assert all(len(ranking) == 10 for ranking in short)


def test_an_unknown_device_lists_the_choices() -> None:
    with pytest.raises(InvalidInputError, match="device is 'abacus'; choose one of 'auto', 'cpu'"):
        kernels.backend("abacus")


# -- what is held is seen ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not kernels.compiled(), reason="the core was not compiled")
def test_what_makes_a_search_fast_belongs_to_the_manifold_and_shows(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr("manifind.kernels.cpu.native_backend.FLOAT64_MAX_REGIONS", 0)
    collection = make("clusters", images=40, most_regions=5, d=12, seed=1)
    manifold, other = (Manifold(k=8).fit(collection.vectors, collection.image_of) for _ in range(2))
    assert "compressed" not in repr(manifold)
    manifold.search(collection.queries[0])
    assert "quantized to eight bits" in repr(manifold)
    assert "in order" in repr(manifold)
    manifold.prepare("local")
    assert "divided for local solutions" in repr(manifold)
    assert "compressed" not in repr(other)  # of the same array, and owned by another
    assert "divided" not in repr(other)


@pytest.mark.skipif(not kernels.compiled(), reason="the core was not compiled")
def test_rows_are_compressed_once_however_many_threads_search(rng: np.random.Generator) -> None:
    rows = kernels.backend("cpu").vector_set(unit(rng.normal(size=(3000, 16))))
    queries = unit(rng.normal(size=(4, 16)))
    made = set()
    start = threading.Barrier(4)

    def search() -> None:
        start.wait()
        rows.search(queries, 3)
        made.add(id(rows.quantized))  # type: ignore[attr-defined]

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_neighbours_given_as_rows_or_as_an_array_are_the_same(by: Backend, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(50, 6)))
    of_rows, of_array = exact_neighbours(by.vector_set(vectors), 5), exact_neighbours(vectors, 5)
    assert isinstance(of_rows, Neighbours)
    np.testing.assert_array_equal(of_rows.ids, of_array.ids)


def test_a_system_without_edges_keeps_what_is_seeded(by: Backend) -> None:
    system = by.operator(sp.csr_array((30, 30), dtype=np.float32))
    solution = system.solve(np.ones((30, 2), np.float32), 0.5, 5, 0.1)
    np.testing.assert_allclose(solution.scores, 0.5)


@pytest.mark.parametrize("n", [1, 500_000, 600_000, 800_000, 1_000_000, 1_100_000, 2_000_000, 10**9])
def test_a_batch_fills_whole_blocks_of_columns_within_its_memory(n: int) -> None:
    size = kernels.batch_size(n)
    assert 1 <= size <= kernels.MAX_BATCH
    assert size <= 32 or size % 32 == 0
    assert size == 1 or 8 * n * size <= 2**28

"""Each kernel against its plain twin."""

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifind import kernels
from manifind.kernels import plain, solve
from manifind.kernels.solve import BLOCK_BYTES, WIDEST_BLOCK
from tests.collections_of_regions import unit

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)


def symmetric(n: int, rng: np.random.Generator, density: float = 0.3) -> sp.csr_array:
    """A normalised affinity, with some rows empty."""
    upper = np.triu((rng.random((n, n)) < density) * rng.random((n, n)), 1)
    A = upper + upper.T
    A[:, : n // 5] = A[: n // 5] = 0
    degree = A.sum(axis=1)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros(n), where=degree > 0)
    return sp.csr_array((A * scale * scale[:, None]).astype(np.float32))


@given(sizes, sizes, st.integers(1, 20), st.integers(1, 50), seeds)
def test_nearest_equals_sorting_all_products(m: int, n: int, d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, vectors = unit(rng.normal(size=(m, d))), unit(rng.normal(size=(n, d)))
    k = min(k, n)
    ids, similarities = kernels.nearest(queries, vectors, k, memory=2**8)
    np.testing.assert_allclose(similarities, plain.nearest(queries, vectors, k)[1], atol=1e-6)
    np.testing.assert_allclose(np.einsum("mkd,md->mk", vectors[ids], queries), similarities, atol=1e-6)
    assert all(len(set(row)) == k for row in ids.tolist())


@given(sizes, st.integers(2, 40), st.integers(1, 20), st.integers(1, 50), seeds)
def test_nearest_among_rows_equals_search_of_those_rows(m: int, n: int, d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, vectors = unit(rng.normal(size=(m, d))), unit(rng.normal(size=(n, d)))
    rows = np.sort(rng.choice(n, rng.integers(1, n), replace=False)).astype(np.int32)
    k = min(k, len(rows))
    ids, similarities = kernels.nearest(queries, vectors, k, rows=rows, memory=2**8)
    np.testing.assert_allclose(similarities, plain.nearest(queries, vectors[rows], k)[1], atol=1e-6)
    np.testing.assert_allclose(np.einsum("mkd,md->mk", vectors[rows][ids], queries), similarities, atol=1e-6)


@given(sizes, st.integers(1, 20), st.integers(1, 20), seeds)
def test_similarities_equal_products_one_by_one(n: int, d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(n, d)))
    ids = rng.integers(0, n, (n, k)).astype(np.int32)
    np.testing.assert_allclose(kernels.similarities(vectors, ids), plain.similarities(vectors, ids), atol=1e-6)


@pytest.fixture(params=["float64", "float32"])
def precision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both precisions on small graphs, where only float64 would be used."""
    if request.param == "float32":
        monkeypatch.setattr(solve, "SMALL", 0)
    return str(request.param)


@pytest.mark.parametrize("name", ["conjugate_gradient", "iterate"])
@pytest.mark.usefixtures("precision")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 60), columns=st.integers(1, 70), alpha=st.sampled_from([0.3, 0.9, 0.99]), seed=seeds)
def test_solvers_equal_the_closed_form_and_their_twins(
    name: str, n: int, columns: int, alpha: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    S = symmetric(n, rng)
    y = (rng.random((n, columns)) * (rng.random((n, columns)) < 0.2)).astype(np.float32)
    y[:, 0] = 0
    solution = getattr(kernels, name)(S, y, alpha, 3000, 1e-7)
    truth = (1 - alpha) * np.linalg.inv(np.eye(n) - alpha * S.toarray().astype(np.float64)) @ y
    np.testing.assert_allclose(solution.scores, truth, rtol=1e-5, atol=1e-5)
    twin = getattr(plain, name)(S, y, alpha, 3000, 1e-7)
    np.testing.assert_allclose(solution.scores, twin.scores, rtol=1e-5, atol=1e-5)
    assert (solution.residuals <= 1e-6).all()
    assert solution.iterations[0] == 0
    assert not solution.scores[:, 0].any()


@pytest.mark.parametrize("name", ["conjugate_gradient", "iterate"])
@pytest.mark.parametrize("max_iter", [1, 2, 7])
def test_a_solver_cut_short_reports_where_it_stands(name: str, max_iter: int, rng: np.random.Generator) -> None:
    S = symmetric(50, rng)
    y = rng.random((50, 3)).astype(np.float32)
    solution, twin = (getattr(module, name)(S, y, 0.99, max_iter, 1e-6) for module in (kernels, plain))
    np.testing.assert_allclose(solution.scores, twin.scores, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(solution.iterations, max_iter)
    np.testing.assert_allclose(solution.residuals, twin.residuals, rtol=1e-2)


@pytest.mark.parametrize("name", ["conjugate_gradient", "iterate"])
def test_each_column_stops_by_itself(name: str, rng: np.random.Generator) -> None:
    S = symmetric(40, rng)
    isolated, linked = np.zeros(40, np.float32), rng.random(40).astype(np.float32)
    isolated[0] = 1  # an empty row: one step, or none, solves it
    together = getattr(kernels, name)(S, np.stack([isolated, linked], axis=1), 0.99, 500, 1e-6)
    alone = getattr(kernels, name)(S, linked[:, None], 0.99, 500, 1e-6)
    assert together.iterations[0] == 1 < together.iterations[1] == alone.iterations[0]
    np.testing.assert_allclose(together.scores[:, 1], alone.scores[:, 0], atol=1e-6)


def test_a_batch_wider_than_a_block_is_solved_column_by_column(rng: np.random.Generator) -> None:
    S = symmetric(30, rng)
    y = rng.random((30, 3 * WIDEST_BLOCK + 5)).astype(np.float32)
    together = kernels.conjugate_gradient(S, y, 0.9, 100, 1e-6)
    apart = np.concatenate(
        [kernels.conjugate_gradient(S, y[:, [j]], 0.9, 100, 1e-6).scores for j in range(y.shape[1])], axis=1
    )
    np.testing.assert_allclose(together.scores, apart, atol=1e-6)


def test_blocks_are_narrow_where_the_graph_is_large() -> None:
    n = BLOCK_BYTES // 4 + 1  # one column fills a block
    solution = kernels.conjugate_gradient(
        sp.csr_array((n, n), dtype=np.float32), np.ones((n, 2), np.float32), 0.5, 5, 0.1
    )
    np.testing.assert_allclose(solution.scores[:: n // 7], 0.5)


@pytest.mark.usefixtures("precision")
def test_a_tolerance_below_float32_stops_anyway(rng: np.random.Generator) -> None:
    S = symmetric(60, rng)
    solution = kernels.conjugate_gradient(S, rng.random((60, 4)).astype(np.float32), 0.99, 100_000, 1e-30)
    assert np.isfinite(solution.scores).all()
    assert solution.iterations.max() < 1000


def test_faiss_is_left_as_it_was(rng: np.random.Generator) -> None:
    before = faiss.cvar.distance_compute_blas_threshold
    vectors = unit(rng.normal(size=(200, 8)))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: kernels.nearest(vectors[:21], vectors, 3)[0], range(40)))
    assert all((ids == found[0]).all() for ids in found)
    assert faiss.cvar.distance_compute_blas_threshold == before


def test_the_threads_are_faisss() -> None:
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        assert kernels.thread_count() == 1
    finally:
        faiss.omp_set_num_threads(before)

"""The solvers that work off line: exact where nothing is left out, and refused where they cannot be used."""

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from manifind import Manifold
from manifind.baselines import RegionalDiffusion, offline, spectral
from manifind.baselines.diffusion import PREPARED_SOLVERS
from manifind.diffusion import seed
from manifind.errors import InvalidInputError, NotFittedError
from manifind.graph import Neighbours, exact_neighbours, mutual_affinity, normalise
from manifind.kernels import dense_columns
from tests import literal
from tests.collections_of_regions import Collection, collections, make, unit
from tests.errors import raises

each_solver = pytest.mark.parametrize("solver", PREPARED_SOLVERS)


def square(columns: offline.Columns) -> np.ndarray:
    """Return columns as the rows of an (n, n) array."""
    n = len(columns.ids)
    whole = np.zeros((n, n), np.float32)
    whole[np.arange(n)[:, None], columns.ids] = columns.values
    return whole


def graph(collection: Collection, k: int = 5) -> tuple[sp.csr_array, Neighbours]:
    lists = exact_neighbours(collection.vectors, k)
    return normalise(mutual_affinity(lists))[0], lists


@each_solver
@pytest.mark.filterwarnings("ignore::manifind.errors.ManifindWarning")
@given(collection=collections, alpha=st.sampled_from([0.5, 0.9, 0.99]))
def test_with_nothing_left_out_a_solver_equals_the_closed_form(
    solver: str, collection: Collection, alpha: float
) -> None:
    if collection.n < 2:
        return
    baseline = RegionalDiffusion(
        k=4, query_k=3, alpha=alpha, max_iter=1000, tol=1e-9, solver=solver, size=collection.n
    ).fit(collection.vectors, collection.image_of)
    manifold = baseline.manifold_
    S = manifold.S_.toarray().astype(np.float64)
    for ranking in baseline.search_many(collection.queries):
        y = dense_columns([ranking.seed], collection.n)[:, 0].astype(np.float64)  # type: ignore[list-item]
        f = literal.closed_form(S, y, alpha)
        np.testing.assert_allclose(ranking.regions, f, atol=2e-5 * max(1, np.abs(f).max()))
        pooled = literal.pool(f, manifold.weights_.astype(np.float64), collection.image_of.tolist())
        np.testing.assert_allclose(ranking.scores, [pooled[i] for i in ranking.images.tolist()], atol=5e-5)


@pytest.mark.parametrize("size", [1, 3, 6, 20])
def test_a_column_is_the_solution_on_the_nearest_regions_with_the_whole_graphs_s(
    collection: Collection, size: int
) -> None:
    """Late truncation, literally: cut the rows and columns of I − αS and invert what is left."""
    S, lists = graph(collection)
    solved = square(offline.columns(S, collection.vectors, lists.ids, alpha=0.9, size=size, max_iter=500, tol=1e-10))
    X = collection.vectors.astype(np.float64)
    system = np.eye(collection.n) - 0.9 * S.toarray().astype(np.float64)
    for i in range(collection.n):
        near = [i, *literal.nearest(X[i], [(j, X[j]) for j in range(collection.n) if j != i], size - 1)]
        column = np.zeros(collection.n)
        column[near] = 0.1 * np.linalg.inv(system[np.ix_(near, near)])[:, 0]
        np.testing.assert_allclose(solved[i], column, atol=1e-6)


@pytest.mark.parametrize("size", [2, 7, 8, 10, 11])
def test_parts_may_be_a_little_larger_than_the_lists(collection: Collection, size: int) -> None:
    """Whether the lists have enough neighbours or more are searched for, the parts are the nearest regions."""
    S, lists = graph(collection)
    longer = exact_neighbours(collection.vectors, size)
    found, expected = (
        square(offline.columns(S, collection.vectors, one.ids, size=size, max_iter=200, tol=1e-9))
        for one in (lists, longer)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert ((found != 0).sum(axis=1) <= size).all()


def test_columns_are_the_same_in_blocks_of_any_size(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    S, lists = graph(collection)
    whole = offline.columns(S, collection.vectors, lists.ids, size=12)
    monkeypatch.setattr(offline, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(offline, "REPORTED", 16)
    done: list[int] = []
    parts = offline.columns(S, collection.vectors, lists.ids, size=12, progress=lambda at, _: done.append(at))
    np.testing.assert_array_equal(parts.ids, whole.ids)
    np.testing.assert_array_equal(parts.values, whole.values)
    assert len(done) > 3
    assert done == sorted(done)
    assert done[-1] == collection.n


def test_a_region_with_more_equals_than_its_part_has_room_is_in_its_own_part() -> None:
    vectors = np.tile(unit(np.ones((1, 4))), (30, 1))
    S, lists = graph(Collection(vectors, np.arange(30, dtype=np.int32), []), k=3)
    solved = square(offline.columns(S, vectors, lists.ids, size=8))
    assert (np.diagonal(solved) >= 0.01 - 1e-6).all()


def test_the_iteration_finds_the_eigenvalues_that_a_dense_solver_finds() -> None:
    collection = make("ring", images=400, most_regions=3, d=10, seed=3)
    S, _ = graph(collection, k=30)
    truth = np.linalg.eigvalsh(S.toarray().astype(np.float64))[::-1]
    spectra = spectral.decompose(S, 60)
    assert list(spectra.parts) == [0]  # connected, and too large for the dense solver that it is compared with
    assert collection.n > spectral.DENSE * 60
    _, values, vectors = spectra.parts[0]
    np.testing.assert_allclose(values, truth[: len(values)], atol=1e-4)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-4)
    assert np.linalg.norm(S @ vectors - vectors * values, axis=0).max() < 5e-3


@pytest.mark.parametrize("damped", [0.1, 0.5, 0.9])
def test_the_filter_is_chebyshevs_polynomial_that_keeps_the_eigenvalue_one(damped: float) -> None:
    """On a diagonal matrix every eigenvalue shows what becomes of it."""
    values = np.linspace(-1, 1, 41)
    S = sp.csr_array(sp.diags_array(values.astype(np.float32)))
    found = spectral._filter(S, np.ones((41, 2), np.float32), damped)

    def polynomial(at: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Of the degree that the module says, on [−1, damped] taken to [−1, 1]."""
        return np.polynomial.chebyshev.Chebyshev.basis(spectral.DEGREE, domain=[-1, damped])(np.asarray(at))

    expected = polynomial(values) / polynomial(1.0)
    np.testing.assert_allclose(found, np.stack([expected, expected], axis=1), atol=2e-6)
    assert found[-1] == pytest.approx(1, abs=1e-5)


def test_what_few_eigenvectors_leave_out_is_taken_at_eigenvalue_zero() -> None:
    collection = make("ring", images=60, most_regions=3, d=6, seed=5)
    S, lists = graph(collection, k=20)
    one = seed(lists.rows(slice(0, 2)), 5, 3.0)
    y = dense_columns([one], collection.n)[:, 0].astype(np.float64)
    values, vectors = np.linalg.eigh(S.toarray().astype(np.float64))
    values[: collection.n - 20] = 0
    truth = vectors @ (0.1 / (1 - 0.9 * values) * (vectors.T @ y))
    spectra = spectral.decompose(S, 20)
    assert len(spectra.parts) == 1
    np.testing.assert_allclose(spectral.combine(spectra, [one], 0.9)[:, 0], truth, atol=1e-5)


def test_each_component_has_a_spectrum_of_its_own(collection: Collection) -> None:
    """More components than eigenvectors asked for: none may be left without, and nothing may leak between them."""
    S, lists = graph(collection)
    spectra = spectral.decompose(S, 3)
    assert len(spectra.parts) > 3
    one = seed(lists.rows(slice(0, 1)), 2, 3.0)
    scores = spectral.combine(spectra, [one], 0.99)[:, 0]
    reached = np.isin(spectra.component, spectra.component[one.regions])
    assert (scores[~reached] == 0).all()
    truth = literal.closed_form(
        S.toarray().astype(np.float64), dense_columns([one], collection.n)[:, 0].astype(float), 0.99
    )
    np.testing.assert_allclose(scores, truth, atol=0.05 * truth.max())


@each_solver
def test_a_fit_follows_the_graph_and_alpha(solver: str, collection: Collection) -> None:
    baseline = RegionalDiffusion(k=6, query_k=4, max_iter=300, tol=1e-8, solver=solver)
    query, half = collection.queries[0], slice(60)
    for alpha, rows in ((0.99, slice(None)), (0.8, slice(None)), (0.8, half)):
        baseline.set_params(alpha=alpha).fit(collection.vectors[rows], collection.image_of[rows])
        truth = baseline.manifold_.search(query)
        np.testing.assert_allclose(baseline.search(query).regions, truth.regions, atol=1e-4)


@each_solver
def test_a_prepared_solver_says_that_it_knows_no_residual(solver: str, collection: Collection) -> None:
    baseline = RegionalDiffusion(k=6, solver=solver).fit(collection.vectors, collection.image_of)
    ranking = baseline.search(collection.queries[0])
    assert np.isnan(ranking.residual)
    assert not ranking.converged
    assert ranking.iterations == 0


@each_solver
def test_what_a_prepared_solver_cannot_do_is_refused(solver: str, collection: Collection) -> None:
    fit = collection.vectors, collection.image_of
    with raises("whole-graph-solver") as whole:
        RegionalDiffusion(k=6, solver=solver, shortlist=3).fit(*fit)
    assert str(whole.value).startswith(f"solver={solver!r} is prepared on the whole graph")
    with pytest.raises(InvalidInputError, match=r"^size is 0; give a whole number"):
        RegionalDiffusion(k=6, solver=solver, size=0).fit(*fit)


def test_a_manifold_prepares_what_it_searches_with(collection: Collection) -> None:
    manifold = Manifold(k=6).fit(collection.vectors, collection.image_of)
    with pytest.raises(InvalidInputError, match=r"^solver is 'cg'; choose one of 'local'\.$"):
        manifold.prepare("cg")
    with pytest.raises(NotFittedError):
        Manifold().prepare("local")


def test_what_a_solver_says_of_its_progress_ends_with_all_regions(collection: Collection) -> None:
    S, lists = graph(collection)
    seen: list[tuple[int, int]] = []
    offline.columns(S, collection.vectors, lists.ids, size=4, progress=lambda *at: seen.append(at))
    assert seen[-1] == (collection.n, collection.n)
    seen.clear()
    connected = make("ring", images=400, most_regions=2, d=10, seed=3)
    spectral.decompose(graph(connected, k=30)[0], 20, progress=lambda *at: seen.append(at))
    assert len(seen) > 1  # a large component tells of each round
    assert seen == sorted(seen)
    assert seen[-1] == (connected.n, connected.n)

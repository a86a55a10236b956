"""The engines that work off line: exact where nothing is left out, and honest about what they cannot do."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from manifind import Manifold
from manifind.diffusion import ENGINES, Seed, dense, diffuse, offline, seed, spectral
from manifind.errors import Damaged, InvalidInput, NotFitted
from manifind.graph import Neighbours, exact_neighbours, mutual_affinity, normalise
from tests import literal
from tests.collections_of_regions import Collection, collections, make, unit

each_engine = pytest.mark.parametrize("engine", [name for name, engine in ENGINES.items() if engine.whole])


def square(columns: offline.Columns) -> np.ndarray:
    """Return columns as the rows of an (n, n) array."""
    n = len(columns.ids)
    whole = np.zeros((n, n), np.float32)
    whole[np.arange(n)[:, None], columns.ids] = columns.values
    return whole


def graph(collection: Collection, k: int = 5) -> tuple[sp.csr_array, Neighbours]:
    lists = exact_neighbours(collection.vectors, k)
    return normalise(mutual_affinity(lists))[0], lists


@each_engine
@pytest.mark.filterwarnings("ignore::manifind.errors.ManifindWarning")
@given(collection=collections, alpha=st.sampled_from([0.5, 0.9, 0.99]))
def test_with_nothing_left_out_an_engine_equals_the_closed_form(
    engine: str, collection: Collection, alpha: float
) -> None:
    if collection.n < 2:
        return
    manifold = Manifold(k=4, query_k=3, alpha=alpha, max_iter=1000, tol=1e-9)
    manifold.fit(collection.vectors, collection.image_of).prepare(engine, size=collection.n)
    S = manifold.S_.toarray().astype(np.float64)
    for ranking in manifold.search_many(collection.queries, engine=engine):
        y = dense([ranking.seed], collection.n)[:, 0].astype(np.float64)  # type: ignore[list-item]
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
    one = seed(lists.of(slice(0, 2)), 5, 3.0)
    y = dense([one], collection.n)[:, 0].astype(np.float64)
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
    one = seed(lists.of(slice(0, 1)), 2, 3.0)
    scores = spectral.combine(spectra, [one], 0.99)[:, 0]
    reached = np.isin(spectra.component, spectra.component[one.regions])
    assert (scores[~reached] == 0).all()
    truth = literal.closed_form(S.toarray().astype(np.float64), dense([one], collection.n)[:, 0].astype(float), 0.99)
    np.testing.assert_allclose(scores, truth, atol=0.05 * truth.max())


@each_engine
def test_an_engine_prepares_itself_when_first_asked_and_follows_the_graph_and_alpha(
    engine: str, collection: Collection
) -> None:
    manifold = Manifold(k=6, query_k=4, max_iter=300, tol=1e-8).fit(collection.vectors, collection.image_of)
    for change in ({}, {"alpha": 0.8}):
        manifold.set_params(**change)
        lazily = manifold.search(collection.queries[0], engine=engine)
        truth = manifold.search(collection.queries[0])
        np.testing.assert_allclose(lazily.regions, truth.regions, atol=1e-4)
    manifold.fit(collection.vectors[:60], collection.image_of[:60])
    again = manifold.search(collection.queries[0], engine=engine)
    np.testing.assert_allclose(again.regions, manifold.search(collection.queries[0]).regions, atol=1e-4)


@each_engine
def test_a_prepared_engine_says_that_it_knows_no_residual(engine: str, collection: Collection) -> None:
    ranking = Manifold(k=6).fit(collection.vectors, collection.image_of).search(collection.queries[0], engine=engine)
    assert np.isnan(ranking.residual)
    assert not ranking.converged
    assert ranking.iterations == 0


@each_engine
def test_what_a_prepared_engine_cannot_do_is_refused(engine: str, collection: Collection) -> None:
    manifold = Manifold(k=6).fit(collection.vectors, collection.image_of)
    with pytest.raises(InvalidInput, match=rf"^engine='{engine}' .* a shortlist needs another; use engine='cg'"):
        manifold.search(collection.queries[0], engine=engine, shortlist=3)
    manifold.set_params(seeding="append")
    with pytest.raises(InvalidInput, match=rf"^engine='{engine}' .* seeding='append' needs another"):
        manifold.search(collection.queries[0], engine=engine)
    with pytest.raises(InvalidInput, match=r"^size is 0; give a whole number"):
        manifold.prepare(engine, size=0)
    with pytest.raises(NotFitted):
        Manifold().prepare(engine)


def test_off_line_columns_are_saved_with_the_manifold_and_serve_the_alpha_they_were_solved_for(
    collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifold = Manifold(k=6).fit(collection.vectors, collection.image_of).prepare("offline", size=9)
    expected = manifold.search(collection.queries[0], engine="offline")
    manifold.save(tmp_path / "saved")
    again = Manifold.load(tmp_path / "saved")
    assert again.is_ready("offline")
    asked: list[int] = []
    columns = offline.columns

    def noted(*given: Any, **how: Any) -> offline.Columns:
        asked.append(how["size"])
        return columns(*given, **how)

    monkeypatch.setattr(offline, "columns", noted)
    found = again.search(collection.queries[0], engine="offline")
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert asked == []
    again.set_params(alpha=0.8).search(collection.queries[0], engine="offline")
    assert asked == [9], "for another alpha they are solved for anew, on parts of the same size"


def test_columns_of_another_collection_are_damage(collection: Collection) -> None:
    manifold = Manifold(k=6).fit(collection.vectors, collection.image_of).prepare("offline", size=9)
    parameters, arrays = manifold.to_arrays()
    for wrong in (
        {"offline_ids": arrays["offline_ids"] + 1},
        {"offline_ids": arrays["offline_ids"][1:]},
        {"offline_values": arrays["offline_values"][:, 1:]},
        {"offline_values": arrays["offline_values"].astype(np.float64)},
        {"offline_for": arrays["offline_for"][:1]},
    ):
        with pytest.raises(Damaged, match="prepare"):
            Manifold.from_arrays(parameters, {**arrays, **wrong}).search(collection.queries[0], engine="offline")


def test_only_engines_with_an_off_line_half_are_prepared(collection: Collection) -> None:
    manifold = Manifold(k=6).fit(collection.vectors, collection.image_of)
    with pytest.raises(InvalidInput, match=r"^engine is 'cg'; choose one of 'local', 'offline', 'spectral'\.$"):
        manifold.prepare("cg")


# -- on plain arrays ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cg", "iteration"])
def test_diffusing_one_column_or_many_is_the_closed_form_at_the_alpha_of_the_paper(
    engine: str, collection: Collection
) -> None:
    S, _ = graph(collection)
    y = np.zeros((collection.n, 3), np.float32)
    y[[4, 9, 30], [0, 1, 1]] = 1, 0.5, 0.25  # the last column asks for nothing
    truth = literal.closed_form(S.toarray().astype(np.float64), y.astype(np.float64), 0.99)
    many = diffuse(S, y, max_iter=3000, engine=engine)
    np.testing.assert_allclose(many.scores, truth, atol=2e-6)
    np.testing.assert_array_equal(many.iterations > 0, [True, True, False])
    one = diffuse(S, y[:, 1], max_iter=3000, engine=engine)
    assert one.scores.shape == (collection.n,)
    np.testing.assert_allclose(one.scores, truth[:, 1], atol=2e-6)
    assert diffuse(S, y, engine=engine).iterations.max() <= 20


def test_the_iteration_of_a_small_graph_loses_nothing_to_single_precision(collection: Collection) -> None:
    """What is off is the rounding of the result alone."""
    S, _ = graph(collection)
    y = np.zeros(collection.n, np.float32)
    y[:7] = 1
    solution = diffuse(S, y, max_iter=5000, tol=1e-10, engine="iteration")
    assert solution.residuals[0] <= 1e-10
    truth = literal.closed_form(S.toarray().astype(np.float64), y.astype(np.float64), 0.99)
    np.testing.assert_allclose(solution.scores, truth, rtol=7e-8, atol=1e-8)


def test_the_iteration_stops_each_column_when_it_is_near_enough_and_all_when_it_may_go_no_further(
    collection: Collection,
) -> None:
    S, _ = graph(collection)
    y = np.eye(collection.n, dtype=np.float32)[:, :8]
    solution = diffuse(S, y, alpha=0.9, max_iter=300, tol=1e-3, engine="iteration")
    for column in range(8):
        f, steps = 0.1 * y[:, column].astype(np.float64), 0
        while True:  # eq. 3, literally
            steps += 1
            following = 0.9 * S.toarray().astype(np.float64) @ f + 0.1 * y[:, column]
            residual, f = np.linalg.norm(following - f) / 0.1, following
            if residual <= 1e-3:
                break
        assert solution.iterations[column] == steps
        np.testing.assert_allclose(solution.scores[:, column], f, atol=1e-6)
        assert solution.residuals[column] == pytest.approx(residual, rel=1e-3)
    assert diffuse(S, y, max_iter=4, engine="iteration").iterations.tolist() == [4] * 8


def test_what_an_engine_says_of_its_progress_ends_with_all_regions(collection: Collection) -> None:
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


def test_what_speaks_against_a_query_is_left_out_of_what_is_positive() -> None:
    both = Seed(np.array([2, 5, 7], np.int32), np.array([0.5, -0.25, 0.125], np.float32))
    assert both.positive().regions.tolist() == [2, 7]
    assert both.positive().values.tolist() == [0.5, 0.125]
    only = both.positive()
    assert only.positive() is only

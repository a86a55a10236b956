"""Diffusion is solved to the closed form, and by SciPy's steps, at every level of the compiled core."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse.linalg import cg

from manifind.graph import normalise
from manifind.kernels import Solution
from manifind.kernels.cpu import native_backend
from manifind.kernels.cpu.native import core
from manifind.types import FloatArray
from tests.core.calls import compiled_only, in_the_fixture, matrix_of, right_hand_sides, scores, seeds
from tests.sparse import symmetric

pytestmark = compiled_only


def solved(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    return native_backend.NativeOperator(S).solve(y, alpha, max_iter, tol)


@pytest.mark.usefixtures("everywhere")
@in_the_fixture
@given(n=st.integers(1, 90), columns=st.integers(1, 130), alpha=st.sampled_from([0.3, 0.9, 0.99]), seed=seeds)
@example(n=2, columns=99, alpha=0.9, seed=390)  # solved in two steps up to rounding, after which directions grew
def test_conjugate_gradient_reaches_the_closed_form(n: int, columns: int, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, y = symmetric(n, rng), right_hand_sides(n, columns, rng)
    solution = solved(S, y, alpha, 3000, 1e-7)
    truth = (1 - alpha) * np.linalg.inv(np.eye(n) - alpha * S.toarray().astype(np.float64)) @ y
    np.testing.assert_allclose(solution.scores, truth, rtol=1e-5, atol=1e-5)
    assert (solution.residuals <= 1e-6).all()
    assert solution.iterations[0] == 0


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("columns", [1, 5, 64])
@pytest.mark.parametrize("max_iter", [1, 2, 20])
def test_what_is_reported_is_the_true_residual(columns: int, max_iter: int, rng: np.random.Generator) -> None:
    S, y = symmetric(400, rng, density=0.05), rng.random((400, columns)).astype(np.float32)
    solution = solved(S, y, 0.99, max_iter, 1e-30)
    b, f = 0.01 * y.astype(np.float64), solution.scores.astype(np.float64)
    true = np.linalg.norm(b - f + 0.99 * (S @ f), axis=0) / np.linalg.norm(b, axis=0)
    np.testing.assert_allclose(solution.residuals, true, rtol=1e-3, atol=2e-5)
    np.testing.assert_array_equal(solution.iterations, max_iter)


@pytest.mark.usefixtures("everywhere")
def test_columns_stop_by_themselves(rng: np.random.Generator) -> None:
    S = symmetric(40, rng)
    y = np.tile(rng.random((40, 1)).astype(np.float32), 6)
    y[:, 0] = 0
    y[0, 0] = 1  # an empty row: one step solves it
    solution = solved(S, y, 0.99, 500, 1e-6)
    assert solution.iterations[0] == 1 < solution.iterations[1:].min()


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(("n", "columns", "precise"), [(300, 40, True), (20_000, 1, False), (20_000, 5, False)])
def test_the_answer_does_not_depend_on_the_threads(
    n: int, columns: int, precise: bool, rng: np.random.Generator
) -> None:
    S = sp.csr_array(sp.diags_array([0.5, 0.5], offsets=[1, -1], shape=(n, n), dtype=np.float32))
    y = rng.random((n, columns)).astype(np.float32)
    matrix = matrix_of(S)
    found = []
    for threads in (1, 2, 7):
        solution = [np.empty_like(y), np.empty(columns, np.int32), np.empty(columns, np.float32)]
        core.solve(matrix, y, 0.9, 20, 1e-6, threads, *solution, precise)
        found.append(solution)
    for one in found[1:]:
        for a, b in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


@in_the_fixture
@given(n=st.integers(1, 90), columns=st.integers(1, 40), threads=st.integers(1, 3), seed=seeds)
def test_a_precise_solution_is_the_closed_form(level: str, n: int, columns: int, threads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, y = symmetric(n, rng), right_hand_sides(n, columns, rng)
    truth = 0.01 * np.linalg.solve(np.eye(n) - 0.99 * S.toarray().astype(np.float64), y)
    f = scores(S, y, 1000, precise=True, threads=threads)
    assert (np.abs(f - truth).max(axis=0) <= 1e-6 * np.abs(truth).max(axis=0)).all()


@pytest.mark.parametrize("n", [300, 3000])
@pytest.mark.parametrize("columns", [1, 11])
def test_precise_steps_are_those_of_scipy(level: str, n: int, columns: int, rng: np.random.Generator) -> None:
    """On few regions 20 steps nearly exhaust the Krylov space, and rounding would show."""
    S = normalise(symmetric(n, rng, density=20 / n))[0]
    y = right_hand_sides(n, columns + 1, rng)[:, 1:].copy()
    A = sp.eye_array(n) - 0.99 * S.astype(np.float64)
    truth = np.stack([cg(A, 0.01 * one.astype(np.float64), rtol=1e-9, maxiter=20)[0] for one in y.T], axis=1)
    f = scores(S, y, 20, precise=True)
    assert (np.abs(f - truth).max(axis=0) <= 1e-6 * np.abs(truth).max(axis=0)).all()


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("columns", [5, 33, 70])
def test_a_column_has_the_same_answer_alone_and_among_others(
    level: str, gather: bool, precise: bool, columns: int, rng: np.random.Generator
) -> None:
    S = normalise(symmetric(5000, rng, density=0.003))[0]
    y = np.zeros((5000, columns), np.float32)
    y[rng.integers(5000, size=(20, columns)), np.arange(columns)] = rng.random((20, columns))
    together = scores(S, y, 20, precise=precise, threads=2)
    for column in (0, 3, columns - 1):
        alone = scores(S, y[:, column : column + 1].copy(), 20, precise=precise)
        np.testing.assert_array_equal(alone[:, 0], together[:, column])


@in_the_fixture
@given(n=st.integers(1, 90), seed=seeds)
def test_reordering_is_a_relabelling(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = symmetric(n, rng, density=0.05)
    matrix, order = matrix_of(S), rng.permutation(n).astype(np.int32)
    starts, columns, values = np.empty(n + 1, np.int64), np.empty(S.nnz, np.int32), np.empty(S.nnz, np.float32)
    core.reorder(matrix, order, 2, starts, columns, values)
    ordered = sp.csr_array((values, columns, starts), shape=(n, n))
    np.testing.assert_array_equal(ordered.toarray(), S.toarray()[np.ix_(order, order)])


@pytest.mark.parametrize("n", [1, 63, 64, 65, 700])
def test_an_ordered_matrix_is_solved_to_the_closed_form_alone_and_in_a_batch(
    level: str, gather: bool, n: int, rng: np.random.Generator
) -> None:
    S, y = symmetric(n, rng, density=min(1, 20 / n)), right_hand_sides(n, 40, rng)
    matrix = core.OrderedMatrix(matrix_of(S), 2)
    found = []
    for columns in (y, y[:, 7:8].copy()):
        f, reached = np.empty_like(columns), np.empty(columns.shape[1], np.int32)
        core.solve(matrix, columns, 0.9, 300, 1e-7, 2, f, reached, np.empty(columns.shape[1], np.float32))
        found.append(f)
    truth = 0.1 * np.linalg.solve(np.eye(n) - 0.9 * S.toarray().astype(np.float64), y)
    np.testing.assert_allclose(found[0], truth, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[1][:, 0], found[0][:, 7])


@pytest.mark.usefixtures("everywhere")
def test_an_ordered_matrix_gives_the_same_scores(rng: np.random.Generator) -> None:
    S, y = symmetric(200, rng, density=0.05), rng.random((200, 16)).astype(np.float32)
    whole = np.arange(200, dtype=np.int32)
    S, degrees = normalise(S)
    once = native_backend.NativeOperator(S, degrees).restrict(whole)
    first = once.solve(y, 0.9, 30, 1e-6)
    assert once.ordered is None
    system = native_backend.NativeOperator(S, degrees)
    second = system.solve(y, 0.9, 30, 1e-6)
    assert system.ordered is not None
    np.testing.assert_allclose(second.scores, first.scores, atol=1e-5)

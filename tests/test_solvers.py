"""The solvers on plain arrays, against the closed form and the iteration of eq. 3 taken literally."""

import numpy as np
import pytest
import scipy.sparse as sp

from manifind.diffusion import SOLVERS, Seed, diffuse
from manifind.graph import exact_neighbours, mutual_affinity, normalise
from tests import literal
from tests.collections_of_regions import Collection


def graph(collection: Collection, k: int = 5) -> sp.csr_array:
    return normalise(mutual_affinity(exact_neighbours(collection.vectors, k)))[0]


@pytest.mark.parametrize("solver", ["cg", "iteration"])
def test_diffusing_one_column_or_many_is_the_closed_form_at_the_alpha_of_the_paper(
    solver: str, collection: Collection
) -> None:
    S = graph(collection)
    y = np.zeros((collection.n, 3), np.float32)
    y[[4, 9, 30], [0, 1, 1]] = 1, 0.5, 0.25  # the last column asks for nothing
    truth = literal.closed_form(S.toarray().astype(np.float64), y.astype(np.float64), 0.99)
    many = diffuse(S, y, max_iter=3000, solver=solver)
    np.testing.assert_allclose(many.scores, truth, atol=2e-6)
    np.testing.assert_array_equal(many.iterations > 0, [True, True, False])
    one = diffuse(S, y[:, 1], max_iter=3000, solver=solver)
    assert one.scores.shape == (collection.n,)
    np.testing.assert_allclose(one.scores, truth[:, 1], atol=2e-6)
    assert diffuse(S, y, solver=solver).iterations.max() <= 20


def test_the_iteration_of_a_small_graph_loses_nothing_to_single_precision(collection: Collection) -> None:
    """What is off is the rounding of the result alone."""
    S = graph(collection)
    y = np.zeros(collection.n, np.float32)
    y[:7] = 1
    solution = diffuse(S, y, max_iter=5000, tol=1e-10, solver="iteration")
    assert solution.residuals[0] <= 1e-10
    truth = literal.closed_form(S.toarray().astype(np.float64), y.astype(np.float64), 0.99)
    np.testing.assert_allclose(solution.scores, truth, rtol=7e-8, atol=1e-8)


def test_the_iteration_stops_each_column_when_it_is_near_enough_and_all_when_it_may_go_no_further(
    collection: Collection,
) -> None:
    S = graph(collection)
    y = np.eye(collection.n, dtype=np.float32)[:, :8]
    solution = diffuse(S, y, alpha=0.9, max_iter=300, tol=1e-3, solver="iteration")
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
    assert diffuse(S, y, max_iter=4, solver="iteration").iterations.tolist() == [4] * 8


def test_what_can_be_saved_comes_back_by_the_same_table() -> None:
    for solver in SOLVERS.values():
        assert (solver.to_arrays is None) == (solver.from_arrays is None)


def test_what_speaks_against_a_query_is_left_out_of_what_is_positive() -> None:
    both = Seed(np.array([2, 5, 7], np.int32), np.array([0.5, -0.25, 0.125], np.float32))
    assert both.positive().regions.tolist() == [2, 7]
    assert both.positive().values.tolist() == [0.5, 0.125]
    only = both.positive()
    assert only.positive() is only

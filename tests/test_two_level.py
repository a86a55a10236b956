"""Solutions near the query alone: what must hold of them, whatever the parts are."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifind import DamagedError, InvalidInputError, Manifold, kernels
from manifind.graph import exact_neighbours, mutual_affinity, normalise
from manifind.kernels import Solution
from manifind.kernels.api import BACKENDS
from manifind.kernels.costs import CostModel
from manifind.kernels.cpu.native import core
from manifind.kernels.cpu.native_backend import NativeOperator
from manifind.kernels.cpu.two_level import Aggregation
from manifind.types import FloatArray
from tests.collections_of_regions import Collection, unit
from tests.sparse import symmetric

pytestmark = pytest.mark.skipif(not kernels.compiled(), reason="the core was not compiled")
seeds = st.integers(0, 2**32 - 1)
few = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=60
)


def locally(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float, budget: int) -> Solution:
    columns = [(rows := np.flatnonzero(one).astype(np.int32), one[rows]) for one in y.T]
    return NativeOperator(S).aggregate().solve(columns, alpha, max_iter, tol, budget=budget)


def impulse(n: int, at: int) -> FloatArray:
    y = np.zeros((n, 1), np.float32)
    y[at] = 1
    return y


@few
@given(n=st.integers(1, 200), size=st.integers(1, 12), room=st.integers(0, 20), seed=seeds)
def test_parts_hold_each_region_once_and_no_more_than_they_may(n: int, size: int, room: int, seed: int) -> None:
    S = symmetric(n, np.random.default_rng(seed), density=0.1)
    part = np.empty(n, np.int32)
    parts = core.aggregate(NativeOperator(S).matrix, size, size + room, part)
    np.testing.assert_array_equal(np.unique(part), np.arange(parts))
    assert np.bincount(part).max() <= size + room


def test_parts_of_a_star_and_of_a_ring_keep_to_their_size() -> None:
    star = sp.lil_array((1000, 1000), dtype=np.float32)
    star[0, 1:] = star[1:, 0] = 0.03
    ring = sp.diags_array([0.5, 0.5, 0.5, 0.5], offsets=[1, -1, 999, -999], shape=(1000, 1000), dtype=np.float32)
    for S in (sp.csr_array(star), sp.csr_array(ring)):
        part = np.empty(1000, np.int32)
        core.aggregate(NativeOperator(S).matrix, 26, 50, part)
        assert np.bincount(part).max() <= 50


def test_parts_follow_the_graph() -> None:
    """Of cliques that hardly touch, no part has regions of two."""
    clique = np.ones((20, 20)) - np.eye(20)
    A = sp.lil_array(sp.block_diag([clique] * 12))
    for i in range(11):
        A[20 * i, 20 * (i + 1)] = A[20 * (i + 1), 20 * i] = 1e-3
    S, _ = normalise(sp.csr_array(A, dtype=np.float32))
    part = np.empty(240, np.int32)
    core.aggregate(NativeOperator(S).matrix, 26, 50, part)
    for one in np.unique(part):
        assert len(np.unique(np.flatnonzero(part == one) // 20)) == 1


@few
@given(n=st.integers(1, 120), alpha=st.sampled_from([0.5, 0.9, 0.99]), seed=seeds)
def test_with_room_for_all_a_local_solution_is_the_closed_form(n: int, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = symmetric(n, rng, density=0.1)
    y = (rng.random((n, 3)) * (rng.random((n, 3)) < 0.1)).astype(np.float32)
    y[:, 0] = 0
    solution = locally(S, y, alpha, 3000, 1e-7, budget=S.nnz + 1)
    truth = (1 - alpha) * np.linalg.inv(np.eye(n) - alpha * S.toarray().astype(np.float64)) @ y
    np.testing.assert_allclose(solution.scores, truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("budget", [4, 2])
def test_a_local_solution_loses_nothing_that_flows_far_away(budget: int, rng: np.random.Generator) -> None:
    """The inner product of f with the vector that S leaves as it is, the root of the degrees, is that of y."""
    S, degrees = normalise(symmetric(2000, rng, density=0.01))
    y = impulse(2000, 1150)
    local = locally(S, y, 0.99, 500, 1e-6, budget=S.nnz // budget)
    assert local.regions is not None
    assert 0 < local.regions[0] < 2000
    np.testing.assert_allclose(np.sqrt(degrees) @ local.scores, np.sqrt(degrees) @ y, rtol=0.01)


def test_the_larger_the_budget_the_nearer_to_the_closed_form(rng: np.random.Generator) -> None:
    """On a graph that has a near and a far: points on a sphere."""
    S, _ = normalise(mutual_affinity(exact_neighbours(unit(rng.normal(size=(4000, 3))), 20)))
    y = impulse(4000, 1150)
    whole = NativeOperator(S).solve(y, 0.99, 500, 1e-7).scores
    errors = [np.abs(locally(S, y, 0.99, 60, 1e-7, budget=S.nnz // part).scores - whole).sum() for part in (8, 2, 1)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4 * np.abs(whole).sum()


def test_a_local_solution_goes_on_where_nothing_more_can_be_resolved(rng: np.random.Generator) -> None:
    S = symmetric(400, rng, density=0.05)
    assert locally(S, impulse(400, 250), 0.99, 20, 1e-12, budget=1).iterations[0] == 20
    assert locally(S, impulse(400, 250), 0.99, 1, 1e-12, budget=1).scores.any()


# -- as a solver ------------------------------------------------------------------------------------------------------


@pytest.fixture
def manifold(collection: Collection) -> Manifold:
    return Manifold(k=10, query_k=10).fit(collection.vectors, collection.image_of)


def test_the_division_is_saved_with_the_manifold(
    manifold: Manifold, collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifold.save(tmp_path / "plain")
    expected = manifold.prepare("local").search(collection.queries[0], solver="local")
    manifold.save(tmp_path / "divided")
    assert not Manifold.load(tmp_path / "plain").is_ready("local")
    again = Manifold.load(tmp_path / "divided")
    assert again.is_ready("local")
    monkeypatch.setattr("manifind.kernels.cpu.native_backend.aggregate", lambda *_: pytest.fail("divided again"))
    found = again.search(collection.queries[0], solver="local")
    np.testing.assert_array_equal(found.images, expected.images)
    np.testing.assert_array_equal(found.scores, expected.scores)
    again.save(tmp_path / "copied")
    assert Manifold.load(tmp_path / "copied").is_ready("local")


def test_another_graph_is_divided_anew(manifold: Manifold, collection: Collection) -> None:
    manifold.prepare("local")
    manifold.fit(collection.vectors, collection.image_of)
    assert not manifold.is_ready("local")


def test_a_division_of_another_graph_is_damage(manifold: Manifold) -> None:
    parameters, arrays = manifold.prepare("local").to_arrays()
    damaged = [
        {"local_order": np.zeros_like(arrays["local_order"])},
        {"local_order": arrays["local_order"][:-1]},
        {"local_starts": arrays["local_starts"][::-1].copy()},
        {"local_flow_indices": arrays["local_flow_indices"] + 10_000},
        {"local_root": arrays["local_root"][:3]},
    ]
    for wrong in damaged:
        other = Manifold.from_arrays(parameters, {**arrays, **wrong})
        with pytest.raises(DamagedError, match="division"):
            other.search(manifold.vectors_[:3], solver="local")
    missing = {name: array for name, array in arrays.items() if name != "local_flow_data"}
    with pytest.raises(DamagedError, match="division"):
        Manifold.from_arrays(parameters, missing).search(manifold.vectors_[:3], solver="local")
    with pytest.raises(DamagedError):
        Aggregation.from_arrays({}, 5)


def test_without_the_core_a_saved_division_is_skipped_and_the_solver_refused(
    manifold: Manifold, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = manifold.prepare("local").to_arrays()
    monkeypatch.setitem(BACKENDS, "cpu", "manifind.kernels.cpu.numpy_backend")
    monkeypatch.setattr("manifind.diffusion.solvers.COSTS", CostModel(max_whole_regions=10))
    without = Manifold.from_arrays(*saved)
    assert without.search(collection.queries[0]).reached is None
    with pytest.raises(InvalidInputError, match="solver='local' is in the compiled core"):
        without.search(collection.queries[0], solver="local")

"""The compiled core against the plain twins, at every level that this machine can run."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import cg

from manifind import kernels
from manifind.graph import NOBODY, Neighbours, exact_neighbours, mutual_affinity, normalise
from manifind.graph.affinity import SLACK
from manifind.kernels import Solution, plain
from manifind.kernels.cpu import affinity, compiled
from manifind.kernels.cpu.core import core
from manifind.types import FloatArray, IntArray, Vectors
from tests.collections_of_regions import unit
from tests.sparse import symmetric

pytestmark = pytest.mark.skipif(not kernels.compiled(), reason="the core was not compiled")

LEVELS = core.levels() if kernels.compiled() else []
Precision = type[np.float32] | type[np.float16]
seeds = st.integers(0, 2**32 - 1)
in_the_fixture = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=50
)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = core.level()
    core.use_level(request.param)
    yield str(request.param)
    core.use_level(before)


@pytest.fixture
def everywhere(level: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The core on small graphs too, which are otherwise solved in float64."""
    monkeypatch.setattr(compiled, "PRECISE", 0)
    return level


def solved(S: sp.csr_array, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
    return compiled.CompiledSystem(S).solve(y, alpha, max_iter, tol)


def matrix_of(S: sp.csr_array) -> Any:
    return compiled.CompiledSystem(S).matrix


def right_hand_sides(n: int, columns: int, rng: np.random.Generator) -> FloatArray:
    y = (rng.random((n, columns)) * (rng.random((n, columns)) < 0.2)).astype(np.float32)
    y[:, 0] = 0
    return y


@pytest.mark.usefixtures("everywhere")
@in_the_fixture
@given(n=st.integers(1, 90), columns=st.integers(1, 130), alpha=st.sampled_from([0.3, 0.9, 0.99]), seed=seeds)
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
def test_the_answer_does_not_depend_on_the_threads(rng: np.random.Generator) -> None:
    S, y = symmetric(300, rng), rng.random((300, 40)).astype(np.float32)
    matrix = matrix_of(S)
    found = []
    for threads in (1, 2, 7):
        solution = [np.empty_like(y), np.empty(40, np.int32), np.empty(40, np.float32)]
        core.solve(matrix, None, y, 0.9, 20, 1e-6, threads, *solution)
        found.append(solution)
    for one in found[1:]:
        for a, b in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


def scores(S: sp.csr_array, y: FloatArray, max_iter: int, *, precise: bool, threads: int = 1) -> FloatArray:
    f = np.empty_like(y)
    reached = np.empty(y.shape[1], np.int32), np.empty(y.shape[1], np.float32)
    core.solve(matrix_of(S), None, y, 0.99, max_iter, 1e-9, threads, f, *reached, precise)
    return f


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
    level: str, precise: bool, columns: int, rng: np.random.Generator
) -> None:
    S = normalise(symmetric(5000, rng, density=0.003))[0]
    y = np.zeros((5000, columns), np.float32)
    y[rng.integers(5000, size=(20, columns)), np.arange(columns)] = rng.random((20, columns))
    together = scores(S, y, 20, precise=precise, threads=2)
    for column in (0, 3, columns - 1):
        alone = scores(S, y[:, column : column + 1].copy(), 20, precise=precise)
        np.testing.assert_array_equal(alone[:, 0], together[:, column])


class Stopped(Exception):
    pass


@contextmanager
def signal_after(seconds: float) -> Iterator[None]:
    """A signal after a while, whose handler raises as that of Ctrl-C does."""

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("columns", [1, 64])
@pytest.mark.parametrize("precise", [False, True])
def test_a_signal_ends_a_solution(columns: int, precise: bool, rng: np.random.Generator) -> None:
    S = sp.csr_array(sp.diags_array([0.5, 0.5], offsets=[1, -1], shape=(40_000, 40_000), dtype=np.float32))
    y = rng.random((40_000, columns)).astype(np.float32)
    began = time.perf_counter()
    with pytest.raises(Stopped), signal_after(0.1):
        core.solve(
            matrix_of(S),
            None,
            y,
            0.9999999,
            10**9,
            1e-30,
            2,
            np.empty_like(y),
            np.empty(columns, np.int32),
            np.empty(columns, np.float32),
            precise,
        )
    assert time.perf_counter() - began < 120  # it would take years
    assert np.isfinite(scores(S, y, 3, precise=precise)).all()


def test_a_signal_ends_a_solution_near_the_query_and_the_next_is_as_ever() -> None:
    n = 4000
    S = sp.csr_array(sp.diags_array([0.5, 0.5], offsets=[1, -1], shape=(n, n), dtype=np.float32))
    solver = compiled.CompiledSystem(S).divide()._solver()
    rows, values = np.array([7, 2000], np.int32), np.ones(2, np.float32)

    def solve(max_iter: int, budget: int) -> FloatArray:
        f = np.empty(n, np.float32)
        solver.solve(rows, values, 0.9999999, max_iter, 1e-30, budget, 500, 5, f)
        return f

    before = solve(20, 2000)
    with pytest.raises(Stopped), signal_after(0.1):
        solve(10**9, 10**9)
    np.testing.assert_array_equal(solve(20, 2000), before)


def test_a_signal_ends_the_division_of_a_graph() -> None:
    n, around = 200_000, [*range(1, 30)]
    S = sp.csr_array(sp.diags_array([0.01] * 58, offsets=[*around, *(-o for o in around)], shape=(n, n), dtype="f4"))
    matrix, part, again = matrix_of(S), np.empty(n, np.int32), np.empty(n, np.int32)
    began = time.process_time()
    core.divide(matrix, 26, 50, part)
    whole, began = time.process_time() - began, time.process_time()
    with pytest.raises(Stopped), signal_after(whole / 10):
        core.divide(matrix, 26, 50, again)
    assert time.process_time() - began < whole / 2 + 0.1
    core.divide(matrix, 26, 50, again)
    np.testing.assert_array_equal(again, part)


@pytest.mark.parametrize("kind", ["neighbours", "descent"])
def test_a_search_that_a_signal_ended_does_not_go_on(kind: str, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(20_000, 128)))
    ids, similarities = np.empty((20_000, 50), np.int32), np.empty((20_000, 50), np.float32)

    def begin() -> Any:
        if kind == "descent":
            return core.NeighbourDescent(vectors, 0, 2, ids, similarities)
        return core.NeighbourSearch(vectors, 2**28, 2, ids, similarities)

    search = begin()
    with pytest.raises(Stopped), signal_after(0.2):  # noqa: PT012
        while True:
            if search.step() == 20_000:
                search = begin()
    try:  # it may have ended between two steps, where nothing is half done
        while search.step() < 20_000:
            pass
    except ValueError as error:
        assert "interrupted" in str(error)  # noqa: PT017


@in_the_fixture
@given(n=st.integers(1, 90), seed=seeds)
def test_breadth_first_order_is_a_relabelling(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = symmetric(n, rng, density=0.05)
    matrix, order = matrix_of(S), np.empty(n, np.int32)
    core.breadth_first(matrix, order)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    starts, columns, values = np.empty(n + 1, np.int64), np.empty(S.nnz, np.int32), np.empty(S.nnz, np.float32)
    core.reorder(matrix, order, starts, columns, values)
    ordered = sp.csr_array((values, columns, starts), shape=(n, n))
    np.testing.assert_array_equal(ordered.toarray(), S.toarray()[np.ix_(order, order)])


@pytest.mark.usefixtures("everywhere")
def test_an_ordered_matrix_gives_the_same_scores(rng: np.random.Generator) -> None:
    S, y = symmetric(200, rng, density=0.05), rng.random((200, 16)).astype(np.float32)
    whole = np.arange(200, dtype=np.int32)
    S, degrees = normalise(S)
    once = compiled.CompiledSystem(S, degrees).restrict(whole)
    first = once.solve(y, 0.9, 30, 1e-6)
    assert once.ordered is None
    system = compiled.CompiledSystem(S, degrees)
    second = system.solve(y, 0.9, 30, 1e-6)
    assert system.ordered is not None
    np.testing.assert_allclose(second.scores, first.scores, atol=1e-5)


def any_lists(n: int, width: int, kind: str, rng: np.random.Generator) -> Neighbours:
    """Lists as they come from anywhere: some cut short, some with duplicates, themselves and negative similarities."""
    vectors = unit(rng.normal(size=(n, 3)))
    if kind == "equal":
        vectors[:] = vectors[0]
    ids = rng.integers(0, n, (n, width), dtype=np.int32)
    if kind == "sound" and width < n:
        ids = np.stack([rng.permutation(np.delete(np.arange(n), i))[:width] for i in range(n)]).astype(np.int32)
    # The two similarities of a pair are rounded apart.
    similarities = np.einsum("id,ikd->ik", vectors, vectors[ids]) + rng.normal(size=ids.shape).astype(np.float32) * 1e-6
    nobody = rng.random(ids.shape) < 0.2 if kind == "short" else np.zeros(ids.shape, bool)
    if kind == "short":
        nobody[rng.random(n) < 0.2] = True
    ids[nobody], similarities[nobody] = NOBODY, -np.inf
    return Neighbours(ids, similarities.astype(np.float32))


@in_the_fixture
@pytest.mark.parametrize("kind", ["sound", "anything", "short", "equal"])
@given(
    n=st.integers(1, 60),
    width=st.integers(0, 40),
    gamma=st.sampled_from([1.0, 2.0, 3.0, 4.5]),
    threads=st.integers(1, 3),
    seed=seeds,
)
def test_affinity_equals_its_twin(kind: str, n: int, width: int, gamma: float, threads: int, seed: int) -> None:
    lists = any_lists(n, width, kind, np.random.default_rng(seed))
    twin = affinity.mutual_affinity(*lists, gamma, SLACK)
    starts, columns, values, degrees = core.mutual_affinity(*lists, gamma, SLACK, False, threads)
    np.testing.assert_array_equal(starts, twin.indptr)
    np.testing.assert_array_equal(columns, twin.indices)
    np.testing.assert_allclose(values, twin.data, rtol=3e-6)
    A = sp.csr_array((values, columns, starts), shape=(n, n))
    assert (A != A.T).nnz == 0
    S, twin_degrees = normalise(twin)
    np.testing.assert_allclose(degrees, twin_degrees, rtol=3e-6)
    normalised = core.mutual_affinity(*lists, gamma, SLACK, True, threads)
    np.testing.assert_array_equal(normalised[1], columns)
    np.testing.assert_array_equal(normalised[3], degrees)
    np.testing.assert_allclose(normalised[2], S.data, rtol=3e-6)


@in_the_fixture
@given(n=st.integers(1, 40), width=st.integers(1, 9), seed=seeds)
def test_affinity_keeps_the_pairs_that_list_each_other(n: int, width: int, seed: int) -> None:
    """Duplicates and all, against dense matrices of who lists whom and of the least similarity that they say."""
    ids, similarities = any_lists(n, width, "anything", np.random.default_rng(seed))
    said = np.full((n, n), np.inf)
    np.minimum.at(said, (np.arange(n)[:, None], ids), similarities)
    listed = np.isfinite(said) & ~np.eye(n, dtype=bool)
    least = np.maximum(np.minimum(said, said.T), 0, where=listed & listed.T, out=np.zeros((n, n)))
    np.testing.assert_allclose(mutual_affinity(Neighbours(ids, similarities)).toarray(), least**3, rtol=1e-5, atol=1e-9)


def test_affinity_of_many_rows_does_not_depend_on_the_threads(rng: np.random.Generator) -> None:
    n, width = 5000, 30  # several tasks of rows
    lists = exact_neighbours(unit(rng.normal(size=(n, 6))), width)
    S, degrees = normalise(affinity.mutual_affinity(*lists, 3.0, SLACK))
    for threads in (1, 2, 3, 40):
        found = core.mutual_affinity(*lists, 3.0, SLACK, True, threads)
        for one, truth in zip(found, (S.indptr, S.indices, S.data, degrees), strict=True):
            np.testing.assert_array_equal(one, truth)


def test_affinity_of_lists_cut_short_is_that_of_their_copies(rng: np.random.Generator) -> None:
    ids, similarities = exact_neighbours(unit(rng.normal(size=(300, 5))), 20)
    copies = mutual_affinity(Neighbours(ids[:, :7].copy(), similarities[:, :7].copy()))
    ids.flags.writeable = False
    for lists in (
        Neighbours(ids, similarities).first(7),
        Neighbours(np.asfortranarray(ids)[:, :7], similarities[:, :7]),
        Neighbours(ids[::-1, :7][::-1], similarities[:, :7]),
        Neighbours(ids[:, :7].astype(np.int64), similarities[:, :7]),
    ):
        np.testing.assert_array_equal(mutual_affinity(lists).toarray(), copies.toarray())


def test_affinity_too_small_for_a_number_has_no_entry() -> None:
    lists = Neighbours(np.array([[1], [0]], np.int32), np.array([[0.1], [0.1]], np.float32))
    assert mutual_affinity(lists, 40.0).nnz == 2
    assert mutual_affinity(lists, 60.0).nnz == affinity.mutual_affinity(*lists, 60.0, SLACK).nnz == 0


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer's own memory would be measured")
def test_affinity_takes_little_more_memory_than_its_result() -> None:
    program = """
import resource, sys
import numpy as np
import numpy.typing as npt
from manifind.kernels.cpu.core import core
n, width = 300_000, 64
around = np.concatenate([np.arange(1, width // 2 + 1), -np.arange(1, width // 2 + 1)])
ids = ((np.arange(n)[:, None] + around) % n).astype(np.int32)
similarities = np.full((n, width), 0.5, np.float32)
small = core.mutual_affinity(ids[:2] % 2, similarities[:2], 3.0, 0.0, True, 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = core.mutual_affinity(ids, similarities, 3.0, 0.0, True, 2)
grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(sum(array.nbytes for array in found), grown)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    result, grown = map(int, done.stdout.split())
    assert result > 300_000 * 64 * 8
    assert grown < result + 300_000 * 80


def neighbours_of(
    vectors: Vectors, k: int, threads: int = 1, *, memory: int = 2**28
) -> tuple[IntArray, FloatArray, int]:
    """The lists, and how many rows were searched again."""
    n = len(vectors)
    ids, similarities = np.full((n, k), -1, np.int32), np.full((n, k), np.nan, np.float32)
    search = core.NeighbourSearch(vectors, memory, threads, ids, similarities)
    while search.step() < n:
        pass
    return ids, similarities, search.searched_again


def check_lists(vectors: FloatArray, ids: IntArray, similarities: FloatArray) -> None:
    """The ids are different, are not the row itself, and have the similarities that are said, best first."""
    np.testing.assert_allclose(np.einsum("nkd,nd->nk", vectors[ids], vectors), similarities, atol=1e-6)
    assert all(len(set(row)) == len(row) for row in ids.tolist())
    assert not (ids == np.arange(len(ids))[:, None]).any()
    assert (np.diff(similarities, axis=1) <= 0).all()


def best_products(vectors: FloatArray, rows: npt.NDArray[np.integer], k: int) -> FloatArray:
    """The k largest products of each of these rows with the other rows, best first."""
    products = vectors[rows].astype(np.float64) @ vectors.T.astype(np.float64)
    products[np.arange(len(rows)), rows] = -np.inf
    return np.sort(np.partition(products, -k, axis=1)[:, -k:], axis=1)[:, ::-1].astype(np.float32)


@in_the_fixture
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@given(
    n=st.integers(2, 400),
    d=st.integers(1, 70),
    k=st.integers(1, 60),
    copies=st.integers(1, 8),
    memory=st.sampled_from([0, 2**28]),
    threads=st.integers(1, 3),
    seed=seeds,
)
def test_neighbours_equal_sorting_all_products(
    level: str,
    dtype: Precision,
    n: int,
    d: int,
    k: int,
    copies: int,
    memory: int,
    threads: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    given: Any = unit(np.repeat(rng.normal(size=(-(-n // copies), d)), copies, axis=0)[:n]).astype(dtype)
    k = min(k, n - 1)
    ids, similarities, _ = neighbours_of(given, k, threads, memory=memory)
    vectors = given.astype(np.float32)
    check_lists(vectors, ids, similarities)
    np.testing.assert_allclose(similarities, plain.nearest_others(vectors, k)[1], atol=1e-6)


@pytest.mark.parametrize("memory", [0, 2**28])
@pytest.mark.parametrize("spread", [1.0, 0.01])
def test_neighbours_of_many_rows_are_exact(level: str, memory: int, spread: float, rng: np.random.Generator) -> None:
    """Several blocks and bands, guesses, and similarities that eight bits cannot tell apart."""
    vectors = unit(rng.normal(size=(1, 24)) + spread * rng.normal(size=(9001, 24)))
    ids, similarities, _ = neighbours_of(vectors, 30, 2, memory=memory)
    sample = rng.choice(9001, 500, replace=False)
    np.testing.assert_allclose(similarities[sample], best_products(vectors, sample, 30), atol=1e-6)
    assert all(len(set(row)) == 30 for row in ids[sample].tolist())


@pytest.mark.parametrize("kinds", [1, 2, 40, 1500])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_equal_rows_are_listed_by_id(level: str, kinds: int, dtype: Precision, rng: np.random.Generator) -> None:
    """Values whose products are exact in float32, so that the truth has the same ties."""
    n, k = 3000, 30
    some = rng.integers(-3, 4, (kinds, 8)).astype(np.float32)[rng.integers(kinds, size=n)]
    vectors: Vectors = some if dtype is np.float32 else some.astype(np.float16)
    scores = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(scores, -np.inf)
    truth = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    for threads in (1, 3):
        ids, similarities, _ = neighbours_of(vectors, k, threads)
        np.testing.assert_array_equal(similarities, np.take_along_axis(scores, truth, axis=1))
        np.testing.assert_array_equal(ids, truth)


def test_rows_that_are_all_the_same_take_no_longer_than_others(rng: np.random.Generator) -> None:
    others = unit(rng.normal(size=(8000, 64)))

    def ratio() -> float:
        took = []
        for vectors in (others, np.tile(others[:1], (8000, 1))):
            began = time.process_time()
            neighbours_of(vectors, 50)
            took.append(time.process_time() - began)
        return took[1] / took[0]

    assert any(ratio() < 2 for _ in range(5))  # what else the machine does may cost one of the two more


@pytest.mark.parametrize("longest", [1.0, 1e6])
def test_neighbours_are_exact_where_one_row_is_far_longer(level: str, longest: float, rng: np.random.Generator) -> None:
    """One row spreads the scores so far that a histogram of them tells nothing about the others."""
    vectors = unit(rng.normal(size=(700, 37)))
    vectors[5] *= np.float32(longest)
    ids, similarities, _ = neighbours_of(vectors, 40, threads=2)
    products = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(products, -np.inf)
    np.testing.assert_allclose(similarities, -np.sort(-products, axis=1)[:, :40], rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(np.take_along_axis(products, ids, axis=1), similarities, rtol=1e-4, atol=2e-6)


def test_rows_whose_threshold_was_guessed_too_high_are_searched_again(rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(20_000, 4)))
    _, similarities, again = neighbours_of(vectors, 200)
    assert again > 0  # a guess allows for two standard deviations, and there are 20,000 rows
    sample = rng.choice(20_000, 1000, replace=False)
    np.testing.assert_allclose(similarities[sample], best_products(vectors, sample, 200), atol=1e-6)


@pytest.mark.skipif(not core.low_precision(), reason="this machine does not multiply eight bits")
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_rounding_brings_too_near_are_searched_again(threads: int, rng: np.random.Generator) -> None:
    """Of 100 rows that are alike half are rounded away from zero in every entry: eight bits take those for nearest."""
    n, d, k = 2000, 127, 40
    steps = rng.integers(2, 9, d) + rng.integers(-1, 2, (100, d)) + np.where(np.arange(100) % 2, 0.52, 0.48)[:, None]
    alike = np.concatenate([np.full((100, 1), 127.0), steps * rng.choice([-1, 1], d)], axis=1)
    vectors = unit(np.concatenate([alike, rng.normal(size=(n - 100, d + 1))]))
    ids, similarities, again = neighbours_of(vectors, k, threads)
    assert again > 0
    products = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(products, -np.inf)
    np.testing.assert_allclose(similarities, -np.sort(-products, axis=1)[:, :k], atol=2e-6)
    np.testing.assert_allclose(np.take_along_axis(products, ids, axis=1), similarities, atol=2e-6)


def descended(vectors: Vectors, k: int, threads: int = 2, seed: int = 0) -> tuple[IntArray, FloatArray]:
    n = len(vectors)
    ids, similarities = np.full((n, k), -1, np.int32), np.full((n, k), np.nan, np.float32)
    descent = core.NeighbourDescent(vectors, seed, threads, ids, similarities)
    done = [0]
    while done[-1] < n:
        done.append(descent.step())
    assert done == sorted(done)
    return ids, similarities


@in_the_fixture
@given(
    n=st.integers(2, 400),
    d=st.integers(1, 150),
    k=st.integers(1, 60),
    copies=st.integers(1, 8),
    threads=st.integers(1, 3),
    seed=seeds,
)
def test_descent_of_few_rows_compares_all(
    level: str, n: int, d: int, k: int, copies: int, threads: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(np.repeat(rng.normal(size=(-(-n // copies), d)), copies, axis=0)[:n])
    k = min(k, n - 1)
    ids, similarities = descended(vectors, k, threads, seed)
    check_lists(vectors, ids, similarities)
    # In eight bits a row may lose its place to others that are as similar to within the rounding.
    rounding = 0.02 if level == "avx512" else 1e-6
    np.testing.assert_allclose(similarities, plain.nearest_others(vectors, k)[1], atol=rounding)


@pytest.mark.parametrize("k", [1, 15, 100])
def test_descent_finds_nearly_all_neighbours(level: str, k: int, rng: np.random.Generator) -> None:
    """Of rows that are not all compared: clusters of 30, wide enough to run into each other."""
    vectors = unit(rng.normal(size=(200, 40))[rng.integers(200, size=6001)] + 0.8 * rng.normal(size=(6001, 40)))
    ids, similarities = descended(vectors, k)
    check_lists(vectors, ids, similarities)
    sample = rng.choice(6001, 500, replace=False)
    assert (similarities[sample] >= best_products(vectors, sample, k)[:, [-1]] - 1e-6).mean() > 0.98


def test_descent_depends_on_the_seed_and_not_on_the_threads(level: str, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(5000, 24)))
    one, three, other = descended(vectors, 10, 1), descended(vectors, 10, 3), descended(vectors, 10, 1, seed=1)
    np.testing.assert_array_equal(one[0], three[0])
    np.testing.assert_array_equal(one[1], three[1])
    assert (one[0] != other[0]).any()


def test_descent_takes_rows_of_half_precision(level: str, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(3000, 20))).astype(np.float16)
    half, single = descended(vectors, 8), descended(vectors.astype(np.float32), 8)
    np.testing.assert_array_equal(half[0], single[0])
    np.testing.assert_array_equal(half[1], single[1])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("size", [100, 4000])
@pytest.mark.parametrize("noise", [0.001, 0.02])
def test_descent_tells_frames_of_a_video_apart(level: str, size: int, noise: float, seed: int) -> None:
    """Rows that differ by less than eight bits show, whatever the rows and whatever the search draws."""
    n, k = 4000, 30
    rng = np.random.default_rng(seed)
    scenes = np.repeat(unit(rng.normal(size=(n // size, 128))), size, axis=0)
    vectors = unit(scenes + noise * rng.normal(size=(n, 128)))[rng.permutation(n)]
    ids, similarities = descended(vectors, k, seed=seed)
    check_lists(vectors, ids, similarities)
    sample = rng.choice(n, 400, replace=False)
    assert (similarities[sample] >= best_products(vectors, sample, k)[:, [-1]] - 1e-7).mean() > 0.98


@pytest.mark.parametrize("copies", [8, 5000])
def test_descent_among_many_equals(level: str, copies: int, rng: np.random.Generator) -> None:
    vectors = np.repeat(unit(rng.normal(size=(5000 // copies, 16))), copies, axis=0)
    ids, similarities = descended(vectors, 7)
    check_lists(vectors, ids, similarities)
    np.testing.assert_allclose(similarities, 1, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e20])
def test_descent_refuses_what_is_not_finite(level: str, bad: float) -> None:
    vectors = np.eye(50, dtype=np.float32)
    vectors[17, 3] = bad
    with pytest.raises(ValueError, match="not finite"):
        descended(vectors, 5)


@in_the_fixture
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@given(
    m=st.integers(1, 60),
    n=st.integers(1, 300),
    d=st.integers(1, 70),
    k=st.integers(1, 60),
    keep=st.booleans(),
    copies=st.integers(1, 8),
    memory=st.sampled_from([0, 2**28]),
    threads=st.integers(1, 3),
    seed=seeds,
)
def test_search_for_queries_equals_sorting_all_products(
    level: str,
    dtype: Precision,
    m: int,
    n: int,
    d: int,
    k: int,
    keep: bool,
    copies: int,
    memory: int,
    threads: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    queries = unit(rng.normal(size=(m, d)))
    given = unit(np.repeat(rng.normal(size=(-(-n // copies), d)), copies, axis=0)[:n]).astype(dtype)
    k = min(k, n)
    ids, similarities = np.empty((m, k), np.int32), np.empty((m, k), np.float32)
    if keep:
        core.CompressedRows(given, threads).search(given, queries, None, memory, threads, ids, similarities)
    else:
        core.nearest(given, queries, None, memory, threads, ids, similarities)
    vectors = given.astype(np.float32)
    np.testing.assert_allclose(similarities, plain.nearest(queries, vectors, k)[1], atol=1e-6)
    np.testing.assert_allclose(np.einsum("mkd,md->mk", vectors[ids], queries), similarities, atol=1e-6)
    assert all(len(set(row)) == k for row in ids.tolist())


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_search_among_given_rows_is_that_of_their_copy(
    level: str, keep: bool, share: float, rng: np.random.Generator
) -> None:
    vectors, queries = unit(rng.normal(size=(5000, 40))).astype(np.float16), unit(rng.normal(size=(30, 40)))
    rows = np.flatnonzero(rng.random(5000) < share).astype(np.int32)
    found = core.CompressedRows(vectors, 2).search if keep else core.nearest
    ids, similarities = np.empty((30, 20), np.int32), np.empty((30, 20), np.float32)
    found(vectors, queries, rows, 2**20, 2, ids, similarities)
    truth = plain.nearest(queries, vectors[rows].astype(np.float32), 20)
    np.testing.assert_array_equal(ids, truth[0])
    np.testing.assert_allclose(similarities, truth[1], atol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_queries_among_rows_that_rounding_cannot_tell_apart(level: str, noise: float, rng: np.random.Generator) -> None:
    """Equals come by id, whatever the number of threads."""
    vectors = unit(rng.normal(size=(1, 32)) + noise * rng.normal(size=(6000, 32)))
    queries = unit(rng.normal(size=(9, 32)))
    rows = core.CompressedRows(vectors, 1)
    found = []
    for threads in (1, 3):
        ids, similarities = np.empty((9, 25), np.int32), np.empty((9, 25), np.float32)
        rows.search(vectors, queries, None, 2**28, threads, ids, similarities)
        found.append(ids)
        np.testing.assert_allclose(similarities, plain.nearest(queries, vectors, 25)[1], atol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
    if not noise:
        np.testing.assert_array_equal(found[0], np.tile(np.arange(25), (9, 1)))


@pytest.mark.parametrize("memory", [0, 2**28])
def test_rows_are_compared_exactly_however_wide_they_are(memory: int, rng: np.random.Generator) -> None:
    """Products of so many bytes, all of them large, do not add up in 32 bits."""
    kinds = np.ones((2, 140_000), np.float32)
    kinds[1, ::3] = -1
    vectors = unit(np.repeat(kinds, 15, axis=0) + 0.002 * rng.normal(size=(30, 140_000)))
    truth = best_products(vectors, np.arange(30), 5)
    ids, similarities = np.empty((30, 6), np.int32), np.empty((30, 6), np.float32)
    core.nearest(vectors, vectors, None, memory, 1, ids, similarities)  # itself first
    np.testing.assert_allclose(similarities[:, 1:], truth, atol=1e-6)
    np.testing.assert_allclose(neighbours_of(vectors, 5, memory=memory)[1], truth, atol=1e-6)
    np.testing.assert_allclose(descended(vectors, 5)[1], truth, atol=1e-6)


STARTS, COLUMNS, VALUES = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.ones(2, np.float32)
X, IDS, NEAR = np.eye(3, dtype=np.float32), np.zeros((3, 2), np.int32), np.zeros((3, 2), np.float32)


def test_the_boundary_refuses_a_matrix_that_is_none() -> None:
    starts, columns, values = STARTS, COLUMNS, VALUES
    for bad in (
        (starts[:0], columns, values),
        (starts, columns[:1], values),
        (starts, columns + 1, values),
        (starts, columns - 1, values),
        (np.array([0, 3, 2]), columns, values),
        (np.array([0, 1, 1]), columns, values),
    ):
        with pytest.raises(ValueError, match=r"starts|columns"):
            core.Matrix(*bad)
    with pytest.raises(TypeError):
        core.Matrix(starts, columns, values.astype(np.float64))


def test_the_boundary_refuses_a_system_that_does_not_fit() -> None:
    S = core.Matrix(STARTS, COLUMNS, VALUES)
    y, f, i, r = np.ones((2, 1), np.float32), np.ones((2, 1), np.float32), np.zeros(1, np.int32), np.ones(1, np.float32)
    for bad_call in (
        (None, y[:1], 0.9, 1, 0.1, 1, f, i, r),
        (None, y, 0.9, 1, 0.1, 1, f[:1], i, r),
        (None, y, 0.9, 1, 0.1, 1, f, i[:0], r),
        (None, y, 1.0, 1, 0.1, 1, f, i, r),
        (None, y, 0.9, -1, 0.1, 1, f, i, r),
        (None, y, 0.9, 1, 0.1, 0, f, i, r),
        (np.zeros(2, np.int32), y, 0.9, 1, 0.1, 1, f, i, r),
    ):
        with pytest.raises(ValueError, match=r"y|f|iterations|alpha|max_iter|threads|order"):
            core.solve(S, *bad_call)
    with pytest.raises(TypeError):
        core.solve(S, None, y.astype(np.float64), 0.9, 1, 0.1, 1, f, i, r)


def test_the_boundary_refuses_a_search_of_neighbours_that_does_not_fit() -> None:
    x, ids, near = X, IDS, NEAR
    for bad_search in (
        (x, -1, 1, ids, near),
        (x, 0, 0, ids, near),
        (x, 0, 1, ids[:2], near),
        (x[:2], 0, 1, ids[:2], near[:2]),
        (x[:, :0].copy(), 0, 1, ids, near),
    ):
        with pytest.raises(ValueError, match=r"memory|threads|ids|k is|columns"):
            core.NeighbourSearch(*bad_search)
    for bad_descent in (
        (x, 0, 0, ids, near),
        (x, 0, 1, ids[:2], near),
        (x, 0, 1, ids, near[:, :1].copy()),
        (x[:2], 0, 1, ids[:2], near[:2]),
        (x[:, :0].copy(), 0, 1, ids, near),
    ):
        with pytest.raises(ValueError, match=r"threads|ids|k is|columns"):
            core.NeighbourDescent(*bad_descent)


def test_the_boundary_refuses_lists_that_do_not_fit() -> None:
    ids, near = IDS, NEAR
    for bad_lists in (
        (ids[:2], near, 3.0, 0.0, True, 1),
        (ids, near[:, :1], 3.0, 0.0, True, 1),
        (ids.T, near.T, 3.0, 0.0, True, 1),
        (ids + 3, near, 3.0, 0.0, True, 1),
        (ids - 2, near, 3.0, 0.0, True, 1),
        (ids, near, 0.0, 0.0, True, 1),
        (ids, near, 3.0, -1.0, True, 1),
        (ids, near, 3.0, 0.0, True, 0),
    ):
        with pytest.raises(ValueError, match=r"similarities|ids|lie apart|gamma|slack|threads"):
            core.mutual_affinity(*bad_lists)
    with pytest.raises(TypeError):
        core.mutual_affinity(ids.astype(np.int64), near, 3.0, 0.0, True, 1)


def test_the_boundary_refuses_queries_that_do_not_fit() -> None:
    x, ids, near = X, IDS, NEAR
    rows = core.CompressedRows(x, 1)
    for bad_query in (
        (x[:2], x, None, 0, 1, ids, near),
        (x, x[:2], None, 0, 1, ids, near),
        (x, x[:, :2].copy(), None, 0, 1, ids, near),
        (x, x, None, 0, 0, ids, near),
        (x, x, None, -1, 1, ids, near),
        (x, x, np.array([0], np.int32), 0, 1, ids, near),
        (x, x, np.array([1, 0], np.int32), 0, 1, ids, near),
        (x, x, np.array([1, 3], np.int32), 0, 1, ids, near),
        (x, x, np.array([-1, 1], np.int32), 0, 1, ids, near),
    ):
        with pytest.raises(ValueError, match=r"vectors|queries|ids|threads|memory|k is|rows"):
            rows.search(*bad_query)
    for wrong in (x.astype(np.float64), x.astype(np.int32)):
        with pytest.raises(ValueError, match="float32 or float16"):
            core.CompressedRows(wrong, 1)


def test_a_level_that_the_machine_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot run"):
        core.use_level("abacus")


def test_other_threads_run_while_the_core_works(rng: np.random.Generator) -> None:
    S, y = symmetric(600, rng), rng.random((600, 64)).astype(np.float32)
    matrix, inside, turns = matrix_of(S), threading.Event(), 0

    def work() -> None:
        solution = [np.empty_like(y), np.empty(64, np.int32), np.empty(64, np.float32)]
        until = time.monotonic() + 120
        while turns < 1000 and time.monotonic() < until:
            inside.set()
            core.solve(matrix, None, y, 0.999, 300, 1e-30, 1, *solution)
            inside.clear()

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive() and turns < 1000:
        turns += inside.is_set()
    thread.join()
    assert turns >= 1000


def test_what_is_not_finite_or_huge_is_refused(rng: np.random.Generator) -> None:
    ids, near = np.zeros((30, 2), np.int32), np.zeros((30, 2), np.float32)
    for wild in (np.nan, np.inf, 1e25):
        vectors = unit(rng.normal(size=(30, 5)))
        vectors[7, 2] = wild
        with pytest.raises(ValueError, match="not finite, or huge"):
            core.NeighbourSearch(vectors, 0, 1, ids, near)
        with pytest.raises(ValueError, match="not finite, or huge"):
            core.CompressedRows(vectors, 1)


@pytest.mark.parametrize("length", [1e-3, 1.0, 16.0])
def test_queries_of_any_length_are_searched_exactly(level: str, length: float, rng: np.random.Generator) -> None:
    vectors = unit(np.sign(rng.normal(size=(3000, 16))) + 0.01 * rng.normal(size=(3000, 16)))
    queries = (length * unit(rng.normal(size=(37, 16)))).astype(np.float32)
    ids, similarities = np.empty((37, 20), np.int32), np.empty((37, 20), np.float32)
    rows = core.CompressedRows(vectors, 2)
    rows.search(vectors, queries, None, 2**28, 2, ids, similarities)
    np.testing.assert_allclose(similarities, plain.nearest(queries, vectors, 20)[1], atol=2e-6 * max(1, length))
    rows.search(vectors, queries[:0], None, 2**28, 2, ids[:0], similarities[:0])

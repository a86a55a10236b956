"""Ctrl-C ends what the compiled core does, and other threads run meanwhile."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from manifind.kernels.cpu import native_backend
from manifind.kernels.cpu.native import core
from manifind.types import FloatArray
from tests.collections_of_regions import unit
from tests.core.calls import (
    compiled_only,
    matrix_of,
    scores,
)
from tests.sparse import symmetric

pytestmark = compiled_only


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
    n = 100_000  # conjugate gradient ends after n steps at the latest: minutes
    S = sp.csr_array(sp.diags_array([0.5, 0.5], offsets=[1, -1], shape=(n, n), dtype=np.float32))
    solver = native_backend.NativeOperator(S).aggregate()._solver()
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
    core.aggregate(matrix, 26, 50, part)
    whole, began = time.process_time() - began, time.process_time()
    with pytest.raises(Stopped), signal_after(whole / 10):
        core.aggregate(matrix, 26, 50, again)
    assert time.process_time() - began < whole / 2 + 0.1
    core.aggregate(matrix, 26, 50, again)
    np.testing.assert_array_equal(again, part)


@pytest.mark.parametrize("kind", ["neighbours", "descent"])
def test_a_search_that_a_signal_ended_does_not_go_on(kind: str, rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(20_000, 128)))
    ids, similarities = np.empty((20_000, 50), np.int32), np.empty((20_000, 50), np.float32)

    def begin() -> Any:
        if kind == "descent":
            return core.NNDescent(vectors, 0, 2, ids, similarities)
        return core.SelfJoin(vectors, 2**28, 2, ids, similarities)

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


def test_other_threads_run_while_the_core_works(rng: np.random.Generator) -> None:
    S, y = symmetric(600, rng), rng.random((600, 64)).astype(np.float32)
    matrix, inside, turns = matrix_of(S), threading.Event(), 0

    def work() -> None:
        solution = [np.empty_like(y), np.empty(64, np.int32), np.empty(64, np.float32)]
        until = time.monotonic() + 120
        while turns < 1000 and time.monotonic() < until:
            inside.set()
            core.solve(matrix, y, 0.999, 300, 1e-30, 1, *solution)
            inside.clear()

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive() and turns < 1000:
        turns += inside.is_set()
    thread.join()
    assert turns >= 1000

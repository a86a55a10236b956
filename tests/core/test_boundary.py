"""What does not fit is refused where Python enters the compiled core."""

import numpy as np
import pytest

from manifind.kernels.cpu.native import core
from tests.collections_of_regions import unit
from tests.core.calls import compiled_only

pytestmark = compiled_only

STARTS, COLUMNS, VALUES = np.array([0, 1, 2]), np.array([1, 0], np.int32), np.ones(2, np.float32)
X, IDS, NEAR = np.eye(3, dtype=np.float32), np.zeros((3, 2), np.int32), np.zeros((3, 2), np.float32)


def test_the_boundary_refuses_a_matrix_that_is_none() -> None:
    starts, columns, values = STARTS, COLUMNS, VALUES
    for words, bad in (
        ("starts is empty", (starts[:0], columns, values)),
        ("differ in length", (starts, columns[:1], values)),
        ("outside the matrix", (starts, columns + 1, values)),
        ("outside the matrix", (starts, columns - 1, values)),
        ("not ascending", (np.array([0, 3, 2]), columns, values)),
        ("does not span", (np.array([0, 1, 1]), columns, values)),
    ):
        with pytest.raises(ValueError, match=words):
            core.Matrix(*bad)
    with pytest.raises(TypeError):
        core.Matrix(starts, columns, values.astype(np.float64))


def test_the_boundary_refuses_a_system_that_does_not_fit() -> None:
    S = core.Matrix(STARTS, COLUMNS, VALUES)
    y, f, i, r = np.ones((2, 1), np.float32), np.ones((2, 1), np.float32), np.zeros(1, np.int32), np.ones(1, np.float32)
    for words, bad_call in (
        ("as many rows as S", (y[:1], 0.9, 1, 0.1, 1, f, i, r)),
        ("f is not of the shape", (y, 0.9, 1, 0.1, 1, f[:1], i, r)),
        ("iterations and residuals", (y, 0.9, 1, 0.1, 1, f, i[:0], r)),
        ("alpha", (y, 1.0, 1, 0.1, 1, f, i, r)),
        ("max_iter", (y, 0.9, -1, 0.1, 1, f, i, r)),
        ("threads", (y, 0.9, 1, 0.1, 0, f, i, r)),
    ):
        with pytest.raises(ValueError, match=words):
            core.solve(S, *bad_call)
    with pytest.raises(ValueError, match="for float32"):
        core.solve(core.OrderedMatrix(S, 1), y, 0.9, 1, 0.1, 1, f, i, r, True)
    with pytest.raises(ValueError, match="threads"):
        core.OrderedMatrix(S, 0)
    for words, order in (("as many entries", [0]), ("not a permutation", [0, 0]), ("not a permutation", [0, 2])):
        with pytest.raises(ValueError, match=words):
            core.reorder(S, np.array(order, np.int32), 1, STARTS.copy(), COLUMNS.copy(), VALUES.copy())
    with pytest.raises(TypeError):
        core.solve(S, y.astype(np.float64), 0.9, 1, 0.1, 1, f, i, r)


def test_the_boundary_refuses_a_search_of_neighbours_that_does_not_fit() -> None:
    x, ids, near = X, IDS, NEAR
    for words, bad_search in (
        ("memory", (x, -1, 1, ids, near)),
        ("threads", (x, 0, 0, ids, near)),
        ("a row for each of vectors", (x, 0, 1, ids[:2], near)),
        ("k is not between", (x[:2], 0, 1, ids[:2], near[:2])),
        ("no columns", (x[:, :0].copy(), 0, 1, ids, near)),
    ):
        with pytest.raises(ValueError, match=words):
            core.SelfJoin(*bad_search)
    for words, bad_descent in (
        ("threads", (x, 0, 0, ids, near)),
        ("a row for each of vectors", (x, 0, 1, ids[:2], near)),
        ("a row for each of vectors", (x, 0, 1, ids, near[:, :1].copy())),
        ("k is not between", (x[:2], 0, 1, ids[:2], near[:2])),
        ("no columns", (x[:, :0].copy(), 0, 1, ids, near)),
    ):
        with pytest.raises(ValueError, match=words):
            core.NNDescent(*bad_descent)


def test_the_boundary_refuses_lists_that_do_not_fit() -> None:
    ids, near = IDS, NEAR
    for words, bad_lists in (
        ("not of the shape of ids", (ids[:2], near, 3.0, 0.0, True, 1)),
        ("not of the shape of ids", (ids, near[:, :1], 3.0, 0.0, True, 1)),
        ("lie apart", (ids.T, near.T, 3.0, 0.0, True, 1)),
        ("neither rows nor -1", (ids + 3, near, 3.0, 0.0, True, 1)),
        ("neither rows nor -1", (ids - 2, near, 3.0, 0.0, True, 1)),
        ("gamma", (ids, near, 0.0, 0.0, True, 1)),
        ("slack", (ids, near, 3.0, -1.0, True, 1)),
        ("threads", (ids, near, 3.0, 0.0, True, 0)),
    ):
        with pytest.raises(ValueError, match=words):
            core.mutual_affinity(*bad_lists)
    with pytest.raises(TypeError):
        core.mutual_affinity(ids.astype(np.int64), near, 3.0, 0.0, True, 1)


def test_the_boundary_refuses_queries_that_do_not_fit() -> None:
    x, ids, near = X, IDS, NEAR
    rows = core.QuantizedMatrix(x, 1)
    for words, bad_query in (
        ("those that were quantized", (x[:2], x, None, 0, 1, ids, near)),
        ("a row for each query", (x, x[:2], None, 0, 1, ids, near)),
        ("differ in their columns", (x, x[:, :2].copy(), None, 0, 1, ids, near)),
        ("threads", (x, x, None, 0, 0, ids, near)),
        ("memory", (x, x, None, -1, 1, ids, near)),
        ("k is not between", (x, x, np.array([0], np.int32), 0, 1, ids, near)),
        ("not ascending", (x, x, np.array([1, 0], np.int32), 0, 1, ids, near)),
        ("not ascending", (x, x, np.array([1, 3], np.int32), 0, 1, ids, near)),
        ("not ascending", (x, x, np.array([-1, 1], np.int32), 0, 1, ids, near)),
    ):
        with pytest.raises(ValueError, match=words):
            rows.search(*bad_query)
    for wrong in (x.astype(np.float64), x.astype(np.int32)):
        with pytest.raises(ValueError, match="float32 or float16"):
            core.QuantizedMatrix(wrong, 1)


def test_a_level_that_the_machine_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot run"):
        core.use_level("abacus")


def test_what_is_not_finite_or_huge_is_refused(rng: np.random.Generator) -> None:
    ids, near = np.zeros((30, 2), np.int32), np.zeros((30, 2), np.float32)
    for wild in (np.nan, np.inf, 1e25):
        vectors = unit(rng.normal(size=(30, 5)))
        vectors[7, 2] = wild
        with pytest.raises(ValueError, match="not finite, or huge"):
            core.SelfJoin(vectors, 0, 1, ids, near)
        with pytest.raises(ValueError, match="not finite, or huge"):
            core.QuantizedMatrix(vectors, 1)

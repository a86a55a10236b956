"""The core as its tests call it, and what its answers are compared with."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from manifind import kernels
from manifind.kernels.cpu import native_backend
from manifind.kernels.cpu.native import core
from manifind.types import FloatArray, IntArray, Vectors

compiled_only = pytest.mark.skipif(not kernels.compiled(), reason="the core was not compiled")
seeds = st.integers(0, 2**32 - 1)
Precision = type[np.float32] | type[np.float16]
in_the_fixture = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=50
)


def matrix_of(S: sp.csr_array) -> Any:
    return native_backend.NativeOperator(S).matrix


def scores(S: sp.csr_array, y: FloatArray, max_iter: int, *, precise: bool, threads: int = 1) -> FloatArray:
    f = np.empty_like(y)
    reached = np.empty(y.shape[1], np.int32), np.empty(y.shape[1], np.float32)
    core.solve(matrix_of(S), y, 0.99, max_iter, 1e-9, threads, f, *reached, precise)
    return f


def right_hand_sides(n: int, columns: int, rng: np.random.Generator) -> FloatArray:
    y = (rng.random((n, columns)) * (rng.random((n, columns)) < 0.2)).astype(np.float32)
    y[:, 0] = 0
    return y


def neighbours_of(
    vectors: Vectors, k: int, threads: int = 1, *, memory: int = 2**28
) -> tuple[IntArray, FloatArray, int]:
    """The lists, and how many rows were searched again."""
    n = len(vectors)
    ids, similarities = np.full((n, k), -1, np.int32), np.full((n, k), np.nan, np.float32)
    search = core.SelfJoin(vectors, memory, threads, ids, similarities)
    while search.step() < n:
        pass
    return ids, similarities, search.rescanned_rows


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


def descended(vectors: Vectors, k: int, threads: int = 2, seed: int = 0) -> tuple[IntArray, FloatArray]:
    n = len(vectors)
    ids, similarities = np.full((n, k), -1, np.int32), np.full((n, k), np.nan, np.float32)
    descent = core.NNDescent(vectors, seed, threads, ids, similarities)
    done = [0]
    while done[-1] < n:
        done.append(descent.step())
    assert done == sorted(done)
    return ids, similarities

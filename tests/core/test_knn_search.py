"""The rows nearest to queries are those that sorting all products gives, at every level of the compiled core."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.kernels.cpu.native import core
from tests import plain_kernels as plain
from tests.collections_of_regions import unit
from tests.core.calls import Precision, best_products, compiled_only, descended, in_the_fixture, neighbours_of, seeds

pytestmark = compiled_only


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
        core.QuantizedMatrix(given, threads).search(given, queries, None, memory, threads, ids, similarities)
    else:
        core.knn_search(given, queries, None, memory, threads, ids, similarities)
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
    found = core.QuantizedMatrix(vectors, 2).search if keep else core.knn_search
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
    rows = core.QuantizedMatrix(vectors, 1)
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
    core.knn_search(vectors, vectors, None, memory, 1, ids, similarities)  # itself first
    np.testing.assert_allclose(similarities[:, 1:], truth, atol=1e-6)
    np.testing.assert_allclose(neighbours_of(vectors, 5, memory=memory)[1], truth, atol=1e-6)
    np.testing.assert_allclose(descended(vectors, 5)[1], truth, atol=1e-6)


@pytest.mark.parametrize("length", [1e-3, 1.0, 16.0])
def test_queries_of_any_length_are_searched_exactly(level: str, length: float, rng: np.random.Generator) -> None:
    vectors = unit(np.sign(rng.normal(size=(3000, 16))) + 0.01 * rng.normal(size=(3000, 16)))
    queries = (length * unit(rng.normal(size=(37, 16)))).astype(np.float32)
    ids, similarities = np.empty((37, 20), np.int32), np.empty((37, 20), np.float32)
    rows = core.QuantizedMatrix(vectors, 2)
    rows.search(vectors, queries, None, 2**28, 2, ids, similarities)
    np.testing.assert_allclose(similarities, plain.nearest(queries, vectors, 20)[1], atol=2e-6 * max(1, length))
    rows.search(vectors, queries[:0], None, 2**28, 2, ids[:0], similarities[:0])

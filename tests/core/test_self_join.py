"""Neighbours are those that sorting all products gives, at every level of the compiled core."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.kernels.cpu.native import core
from manifind.types import Vectors
from tests import plain_kernels as plain
from tests.collections_of_regions import unit
from tests.core.calls import Precision, best_products, check_lists, compiled_only, in_the_fixture, neighbours_of, seeds

pytestmark = compiled_only


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


@pytest.mark.skipif(not core.has_int8_dot(), reason="this machine does not multiply eight bits")
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

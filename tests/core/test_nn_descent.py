"""NN-Descent finds nearly all neighbours, at every level of the compiled core."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import plain_kernels as plain
from tests.collections_of_regions import unit
from tests.core.calls import best_products, check_lists, compiled_only, descended, in_the_fixture, seeds

pytestmark = compiled_only


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

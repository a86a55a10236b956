"""The affinity of the compiled core against dense matrices and its plain twin."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from manifind.graph import NO_NEIGHBOUR, Neighbours, exact_neighbours, mutual_affinity, normalise
from manifind.graph.affinity import SLACK
from manifind.kernels.cpu import affinity
from manifind.kernels.cpu.native import core
from tests.collections_of_regions import unit
from tests.core.calls import (
    compiled_only,
    in_the_fixture,
    seeds,
)

pytestmark = compiled_only


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
    ids[nobody], similarities[nobody] = NO_NEIGHBOUR, -np.inf
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
        Neighbours(ids, similarities).head(7),
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
from manifind.kernels.cpu.native import core
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

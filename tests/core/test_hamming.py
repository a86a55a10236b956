from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.kernels import group_codes, knn_hamming, knn_hamming_groups
from manifind.kernels.cpu.native import features
from tests.core.calls import in_the_fixture, seeds

compiled = pytest.mark.skipif(features is None, reason="the extension was not compiled")
counting = pytest.mark.skipif(
    features is None or not features.has_vector_popcount(),
    reason="this machine does not count the bits of a register at once",
)


def plainly(
    queries: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8], k: int
) -> tuple[list[list[int]], list[list[int]]]:
    """All differences, sorted; of rows equally near the first comes first."""
    bits, asked = (np.unpackbits(some, axis=1).astype(int) for some in (rows, queries))
    apart = np.abs(asked[:, None] - bits).sum(axis=2)
    order = np.argsort(apart, axis=1, kind="stable")[:, :k]
    return order.tolist(), np.take_along_axis(apart, order, 1).tolist()


@counting
@in_the_fixture
@given(seed=seeds, m=st.integers(0, 5), n=st.integers(1, 40), k=st.integers(1, 12), values=st.sampled_from([2, 4, 256]))
def test_the_nearest_are_those_of_all_differences(seed: int, m: int, n: int, k: int, values: int) -> None:
    rng = np.random.default_rng(seed)  # of few values, many rows are equally near
    queries, rows = (rng.integers(0, values, size=(size, 32), dtype=np.uint8) for size in (m, n))
    ids, apart = features.knn_hamming(queries, rows, min(k, n), 1)
    assert (ids.tolist(), apart.tolist()) == plainly(queries, rows, min(k, n))


@counting
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_share_the_rows_and_find_the_same(threads: int, rng: np.random.Generator) -> None:
    rows = rng.integers(0, 4, size=(5_003, 32), dtype=np.uint8)
    queries = rows[::1_000] ^ rng.integers(0, 2, size=(6, 32), dtype=np.uint8)
    ids, apart = features.knn_hamming(queries, rows, 10, threads)
    assert (ids.tolist(), apart.tolist()) == plainly(queries, rows, 10)


def test_without_a_core_faiss_finds_rows_as_near(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    rows = rng.integers(0, 256, size=(300, 64), dtype=np.uint8)[:, ::2]  # not in a row in memory
    queries = rng.integers(0, 256, size=(7, 32), dtype=np.uint8)
    ids, apart = knn_hamming(queries, rows, 5)
    monkeypatch.setattr("manifind.kernels.features.features", None)
    others, as_far = knn_hamming(queries, rows, 5)
    assert apart.tolist() == as_far.tolist() == plainly(queries, rows, 5)[1]
    for found in (ids, others):
        between = np.unpackbits(rows[found] ^ queries[:, None], axis=2).sum(axis=2)
        assert between.tolist() == apart.tolist()


@pytest.fixture(params=["registers", "words"])
def counted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Bits are counted in registers, where the machine does that, and word by word."""
    features.use_vector_popcount(request.param == "registers")
    yield
    features.use_vector_popcount(True)


@compiled
@pytest.mark.usefixtures("counted")
@in_the_fixture
@given(seed=seeds, m=st.integers(0, 6), n=st.integers(1, 60), groups=st.integers(1, 9), k=st.integers(1, 12))
def test_queries_find_the_nearest_in_the_groups_that_they_visit(seed: int, m: int, n: int, groups: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    queries, codes, centres = (rng.integers(0, 4, size=(size, 32), dtype=np.uint8) for size in (m, n, groups))
    grouped, visits = group_codes(codes, centres), int(rng.integers(1, groups + 2))
    assert grouped is not None
    group_of = np.array(plainly(codes, centres, 1)[0])[:, 0]
    found = knn_hamming_groups(queries, grouped, k, visits)
    for query, own in zip(queries, found.tolist(), strict=True):
        near = np.flatnonzero(np.isin(group_of, plainly(query[None], centres, visits)[0][0]))
        expected = near[plainly(query[None], codes[near], k)[0][0]].tolist() if len(near) else []
        assert own == expected + [-1] * (k - len(expected))


@compiled
@pytest.mark.usefixtures("counted")
def test_queries_that_visit_all_groups_find_the_nearest_of_all(rng: np.random.Generator) -> None:
    codes = rng.integers(0, 4, size=(5_003, 32), dtype=np.uint8)  # more than a chunk in a group
    grouped = group_codes(codes, codes[:3])
    assert grouped is not None
    assert sorted(grouped.numbers.tolist()) == list(range(len(codes)))
    np.testing.assert_array_equal(grouped.codes, codes[grouped.numbers])
    queries = codes[::700]
    assert knn_hamming_groups(queries, grouped, 10, 3).tolist() == plainly(queries, codes, 10)[0]


@compiled
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_the_groups_and_find_the_same(threads: int, rng: np.random.Generator) -> None:
    codes = rng.integers(0, 4, size=(4_000, 32), dtype=np.uint8)
    starts, numbers = np.array([0, 1_500, 1_500, 4_000]), rng.permutation(4_000).astype(np.int32)
    visited = np.tile(np.array([0, 1, 2], np.int32), (5, 1))
    ids, apart = features.knn_hamming_groups(codes[:5], visited, codes, numbers, starts, 7, threads)
    for row, (query, own) in enumerate(zip(codes[:5], ids, strict=True)):
        away = np.unpackbits(query ^ codes, axis=1).sum(axis=1)
        order = np.lexsort((numbers, away))[:7]
        assert (own.tolist(), apart[row].tolist()) == (numbers[order].tolist(), away[order].tolist())


@compiled
def test_the_boundary_refuses_groups_that_do_not_fit() -> None:
    codes, numbers, starts = np.zeros((3, 32), np.uint8), np.arange(3, dtype=np.int32), np.array([0, 2, 3])
    visited = np.zeros((3, 1), np.int32)
    for words, bad in (
        ("32 bytes", (codes[:, :31].copy(), visited, codes, numbers, starts, 1, 1)),
        ("numbers", (codes, visited, codes, numbers[:2], starts, 1, 1)),
        ("starts", (codes, visited, codes, numbers, np.array([0, 2]), 1, 1)),
        ("starts", (codes, visited, codes, numbers, np.array([0, 4, 3]), 1, 1)),
        ("a row for each query", (codes, visited[:2], codes, numbers, starts, 1, 1)),
        ("no group", (codes, visited + 2, codes, numbers, starts, 1, 1)),
        ("no group", (codes, visited - 1, codes, numbers, starts, 1, 1)),
        ("k is not between", (codes, visited, codes, numbers, starts, 0, 1)),
        ("threads", (codes, visited, codes, numbers, starts, 1, 0)),
    ):
        with pytest.raises(ValueError, match=words):
            features.knn_hamming_groups(*bad)
    for words, centres, threads in (
        ("32 bytes", codes[:, :31].copy(), 1),
        ("no centre", codes[:0], 1),
        ("threads", codes, 0),
    ):
        with pytest.raises(ValueError, match=words):
            features.nearest_hamming(codes, centres, threads)


@compiled
def test_the_boundary_refuses_codes_that_do_not_fit() -> None:
    codes = np.zeros((3, 32), np.uint8)
    for words, bad in (
        ("32 bytes", (codes, np.zeros((3, 31), np.uint8), 1, 1)),
        ("32 bytes", (np.zeros((3, 40), np.uint8), codes, 1, 1)),
        ("k is not between", (codes, codes, 0, 1)),
        ("k is not between", (codes, codes, 4, 1)),
        ("threads", (codes, codes, 1, 0)),
    ):
        with pytest.raises(ValueError, match=words):
            features.knn_hamming(*bad)
    with pytest.raises(TypeError):
        features.knn_hamming(codes, codes.astype(np.int8), 1, 1)

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.kernels import knn_hamming
from manifind.kernels.cpu.native import features
from tests.core.calls import in_the_fixture, seeds

counting = pytest.mark.skipif(
    features is None or not features.has_vector_popcount(),
    reason="this machine does not count the bits of a register at once",
)


def plainly(queries: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8], k: int) -> tuple[list[int], list[int]]:
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


@pytest.mark.skipif(features is None, reason="the extension was not compiled")
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

"""The kernels of the GPU: in Triton's interpreter where there is none, and at sizes that take tiles where there is."""

import numpy as np
import pytest

from manifind.groups import RowRanges
from manifind.kernels.cuda import unavailable_reason
from manifind.types import FloatArray, IntArray, Vectors
from tests import plain_kernels as plain
from tests.collections_of_regions import unit
from tests.interpreted import run_interpreted

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from manifind.kernels.cuda import neighbours  # noqa: E402 (needs torch)
from manifind.kernels.cuda.packing import pack  # noqa: E402
from manifind.kernels.cuda.rows import TorchVectorSet  # noqa: E402

REASON = unavailable_reason()
on_a_gpu = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.mark.parametrize("whole", [True, False])
def test_packed_rows_are_never_further_off_than_they_say(whole: bool, rng: np.random.Generator) -> None:
    vectors = unit(rng.standard_t(3, size=(700, 40)))
    packed = pack(torch.from_numpy(vectors), whole=whole)
    order = packed.order.numpy()
    rounded = (packed.codes.double() * packed.scales[:, None]).numpy()[: len(order), :40]
    off = np.abs(rounded @ rounded.T - vectors[order].astype(np.float64) @ vectors[order].T)
    offsets = packed.offsets.numpy()[: len(order)]
    assert (off <= offsets[:, None] + offsets).all()
    assert sorted(order.tolist()) == list(range(len(vectors)))


def test_rows_that_pass_through_in_blocks_have_the_same_neighbours(rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(300, 8)))
    streamed = TorchVectorSet(vectors, "cpu", most=64 * 8 * 4)
    np.testing.assert_allclose(streamed.self_join(5)[1], plain.nearest_others(vectors, 5)[1], atol=1e-6)
    np.testing.assert_allclose(streamed.search(vectors[:9], 5)[1], plain.nearest(vectors[:9], vectors, 5)[1], atol=1e-6)
    subset = np.arange(0, 300, 3, dtype=np.int32)
    ids, similarities = streamed.search(vectors[:9], 5, subset=subset)
    np.testing.assert_allclose(similarities, plain.nearest(vectors[:9], vectors[subset], 5)[1], atol=1e-6)
    np.testing.assert_allclose(np.einsum("mkd,md->mk", vectors[subset][ids], vectors[:9]), similarities, atol=1e-6)


def test_a_shortlist_is_chosen_from_rows_that_pass_through_in_blocks(rng: np.random.Generator) -> None:
    vectors = unit(rng.normal(size=(300, 8)))
    streamed = TorchVectorSet(vectors, "cpu", most=64 * 8 * 4)
    for size in (3, 50):  # sorted, and marked
        expected = np.sort(np.argsort(-vectors[:2] @ vectors.T, axis=1)[:, :size], axis=1)
        np.testing.assert_array_equal(streamed.choose_shortlist(vectors[:2], size), expected)
    runs = RowRanges(np.array([10, 60, 200]), np.array([0, 30, 40, 90]))
    np.testing.assert_allclose(
        streamed.search_ranges(runs, vectors[:9], 5)()[1],
        plain.nearest(vectors[:9], vectors[runs.regions], 5)[1],
        atol=1e-6,
    )


def test_the_kernels_do_in_the_interpreter_what_they_say() -> None:
    run_interpreted("tests.interpreted_kernels")


def planted(n: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Clusters of different tightness, and noise."""
    centres = unit(rng.normal(size=(n // 300, d)))
    spread = rng.uniform(0.2, 1.5, n // 300)
    which = rng.integers(0, len(centres), n)
    noise = rng.normal(size=(n, d)).astype(np.float32) / np.sqrt(d)
    return unit(centres[which] * (which % 5 != 0)[:, None] + spread[which][:, None] * noise)


def check_lists(vectors: FloatArray, ids: IntArray, similarities: FloatArray, k: int) -> None:
    """Compare a sample of the lists with all products in float64 on the device."""
    held = torch.from_numpy(vectors).cuda()
    rows = np.random.default_rng(0).choice(len(vectors), 500, replace=False)
    truth = held[rows].double() @ held.double().T
    truth[torch.arange(len(rows)), torch.from_numpy(rows).cuda()] = -torch.inf
    best = truth.topk(k, dim=1).values.cpu().numpy()
    np.testing.assert_allclose(similarities[rows], best, atol=2e-6)
    own = truth.gather(1, torch.from_numpy(ids[rows]).cuda().long()).cpu().numpy()
    np.testing.assert_allclose(own, similarities[rows], atol=2e-6)
    assert all(len(set(row)) == k for row in ids[rows].tolist())


@on_a_gpu
@pytest.mark.parametrize("d", [40, 512, 700])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_tiles_miss_no_neighbour(d: int, kind: type, rng: np.random.Generator) -> None:
    vectors: Vectors = planted(70_001, d, rng).astype(kind)
    ids, similarities = TorchVectorSet(vectors, "cuda").self_join(60)
    check_lists(vectors.astype(np.float32), ids, similarities, 60)


@on_a_gpu
def test_rows_larger_than_the_device_pass_through_it(rng: np.random.Generator) -> None:
    vectors = planted(70_001, 64, rng)
    rows = TorchVectorSet(vectors, "cuda", most=30_000 * 64 * 4)
    ids, similarities = rows.self_join(60, memory=2**28)
    assert "for cuda" in repr(rows)
    check_lists(vectors, ids, similarities, 60)


@on_a_gpu
@pytest.mark.parametrize("most_room", [0, 1, 8])
def test_lists_that_overflow_are_searched_again(
    most_room: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """In half precision, with too little room for most rows, and with as much room as they need."""
    monkeypatch.setattr(neighbours, "MOST_ROOM", most_room)
    if most_room == 1:
        monkeypatch.setattr(neighbours, "OVERFLOW", 1.0)
    begin = neighbours.Tiled.__init__

    def cramped(self: object, *given: object) -> None:
        begin(self, *given)  # type: ignore[arg-type]
        self.room = 128  # type: ignore[attr-defined]

    monkeypatch.setattr(neighbours.Tiled, "__init__", cramped)
    vectors = planted(70_001, 64, rng)
    ids, similarities = TorchVectorSet(vectors, "cuda").self_join(60)
    check_lists(vectors, ids, similarities, 60)

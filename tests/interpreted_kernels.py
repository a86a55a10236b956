"""The Triton kernels in Triton's interpreter, against NumPy: run with TRITON_INTERPRET=1, by `test_cuda`."""

import warnings
from itertools import pairwise

import numpy as np
import torch

from manifind.groups import RowRanges
from manifind.kernels.cuda import gradient, launch, rows, transfer
from manifind.kernels.cuda import matrix as matrices
from manifind.kernels.cuda.matrix import Matrix
from manifind.kernels.cuda.neighbours import Side
from manifind.kernels.cuda.packing import pack
from manifind.kernels.cuda.rows import Block

warnings.simplefilter("ignore")


def compare_tiles(whole: bool) -> None:
    """All that reaches a threshold is in the lists, scored exactly, and little else."""
    n, d, room = 300, 24, 64
    X = torch.nn.functional.normalize(torch.randn(n, d), dim=1)
    packed = pack(X, whole=whole)
    block = Block(0, X)
    side = Side.part(block, packed, 0, 256)
    thresholds = torch.full((side.size,), 0.4)
    counts = torch.zeros(len(side.codes), dtype=torch.int32)
    lists = torch.zeros((len(side.codes), room), dtype=torch.int32)
    scores = torch.full((side.size, room), -torch.inf)
    begins = counts.clone()
    launch.survivors(side, thresholds, packed, counts, lists)
    launch.rescore(side, block, packed, begins, counts, lists, scores)
    truth = (X.double() @ X.double().T).numpy()
    np.fill_diagonal(truth, -np.inf)
    for i, row in enumerate(side.ids.tolist()):
        found = {int(lists[i, j]): float(scores[i, j]) for j in range(int(counts[i]))}
        assert set(np.flatnonzero(truth[row] >= 0.4)) <= set(found), (row, whole)
        kept = {one: score for one, score in found.items() if one != row and score > -np.inf}
        np.testing.assert_allclose(list(kept.values()), truth[row][list(kept)], atol=1e-6)
        assert all(score > 0.35 for score in kept.values())
    sample = pack(X[:256], whole=whole, group=128)
    largest = launch.maxima(side, sample).numpy()
    rows, columns = side.ids.numpy(), sample.order.numpy()
    products = (X.double() @ X.double().T).numpy()[rows][:, columns]
    np.testing.assert_allclose(largest, np.stack([products[:, :128].max(1), products[:, 128:].max(1)], 1), atol=0.01)


def matrix_of(S: np.ndarray) -> Matrix:
    rows, columns = S.nonzero()
    starts = torch.from_numpy(np.searchsorted(rows, np.arange(len(S) + 1)))
    return Matrix.of(starts, torch.from_numpy(columns.astype(np.int32)), torch.from_numpy(S[rows, columns]))


def sparse_symmetric(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    S = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.4), 1)
    return (S + S.T).astype(np.float32)


def compare_products(b: int) -> None:
    """A product is that of dense matrices, also of halves."""
    n = 9
    S = sparse_symmetric(n, b)
    p, q = torch.randn(n, b), torch.empty(n, b)
    truth = p.numpy() - 0.9 * S @ p.numpy()
    for gathered, back, off in ((p, torch.ones(b), 1e-5), ((p * 16).half(), torch.full((b,), 1 / 16), 1e-2)):
        sums = torch.zeros(2 if b == 1 else 3, b)
        gradient.apply_system(matrix_of(S), p, gathered, back, q, sums, 0.9)
        np.testing.assert_allclose(q.numpy(), truth, atol=off)
        np.testing.assert_allclose(sums.sum(0).numpy(), (p * q).sum(0).numpy(), atol=1e-4)


def compare_descents(b: int, kind: torch.dtype) -> None:
    """Conjugate gradient by kernels is conjugate gradient in torch, which other tests hold to the closed form."""
    n = 11
    S = sparse_symmetric(n, 7)
    scale = np.sqrt(S.sum(1))
    matrix = matrix_of((S / scale[:, None] / scale).astype(np.float32))
    y = torch.rand(n, b, dtype=kind)
    y[:, b // 2] = 0  # nothing to solve
    for halves, off in ((64, 1e-5), (1, 3e-3)):
        gradient.HALVES = halves
        by_kernels, in_torch = gradient._OnGpu(matrix, y, 0.9, 1e-6), gradient._InTorch(matrix, y, 0.9, 1e-6)
        for _ in range(6):
            by_kernels.iterate()
            in_torch.iterate()
        np.testing.assert_allclose(by_kernels.x.numpy(), in_torch.x.numpy(), atol=off)
        assert by_kernels.iterations.tolist() == in_torch.iterations.tolist()
        np.testing.assert_allclose(by_kernels.residuals.numpy(), in_torch.residuals.numpy(), atol=off)
        assert by_kernels.live.tolist() == in_torch.live.tolist()


def compare_alone(kind: torch.dtype) -> None:
    """Conjugate gradient in one kernel is conjugate gradient in torch; the interpreter has one program at a time."""
    n = 37
    S = sparse_symmetric(n, 9)
    scale = np.sqrt(S.sum(1))
    matrix = matrix_of((S / scale[:, None] / scale).astype(np.float32))
    y = torch.rand(n, 1, dtype=kind)
    for right, iterations, enough in ((y, 6, 1e-12), (y, 60, 1e-3), (0 * y, 5, 1e-6), (y, 0, 1e-6)):
        alone = gradient.solve_column(matrix, right, 0.9, iterations, enough)
        in_torch = gradient._InTorch(matrix, right, 0.9, enough)
        for _ in range(iterations):
            in_torch.iterate()
        np.testing.assert_allclose(alone.scores.numpy(), in_torch.x.numpy(), atol=1e-5)
        assert alone.iterations.tolist() == in_torch.iterations.tolist()
        np.testing.assert_allclose(alone.residuals.numpy(), in_torch.residuals.numpy(), atol=1e-5)


def compare_with_closed_form() -> None:
    """Iterations after the solution is reached do no harm, in the precision of float32 neither."""
    for seed, n in ((21, 6), (23, 3), (4, 10)):
        S = sparse_symmetric(n, seed)
        scale = np.sqrt(np.maximum(S.sum(1), 1e-9))
        S = (S / scale[:, None] / scale).astype(np.float32)
        y = torch.zeros(n, 1)
        y[:2, 0] = torch.tensor([0.3, 0.9])
        for enough in (1e-6, 1e-10):
            solved = gradient.solve_column(matrix_of(S), y, 0.99, 40, enough)
            truth = 0.01 * np.linalg.inv(np.eye(n) - 0.99 * S.astype(np.float64)) @ y.numpy()
            np.testing.assert_allclose(solved.scores.numpy(), truth, atol=1e-4 * truth.max())
            assert float(solved.residuals[0]) < 1e-5


def compare_some(kind: torch.dtype) -> None:
    """Products of queries with some rows are those of NumPy."""
    queries, vectors = torch.randn(5, 40), torch.randn(90, 40).to(kind)
    some = torch.arange(0, 90, 7, dtype=torch.int32)
    truth = queries.numpy() @ vectors.float().numpy()[some.numpy()].T
    rows.BLOCK = 16
    for count in (len(some), 1):  # the last block is not full
        made = rows.products_with(queries, vectors, some[:count])
        np.testing.assert_allclose(made.numpy(), truth[:, :count], atol=1e-5)
    rows._has_kernels = lambda _: True  # type: ignore[assignment]
    for most, memory in ((2**20, 2**20), (40 * 40 * 4, 2**20), (2**20, 200)):  # at once, block by block, by turns
        held = rows.TorchVectorSet(vectors.numpy(), "cpu", most=most)
        ids, similarities = held.search(queries.numpy(), 3, subset=some.numpy(), memory=memory)
        np.testing.assert_allclose(similarities, -np.sort(-truth, axis=1)[:, :3], atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(truth, ids.astype(np.int64), 1), similarities, atol=1e-5)


def compare_parts() -> None:
    """A part that is normalised anew, and pooled scores, are those of torch alone."""
    n = 13
    S = sparse_symmetric(n, 3)
    S[5], S[:, 5] = 0, 0  # a region without neighbours
    degrees = torch.rand(n) + 1
    kept = torch.tensor([0, 2, 3, 5, 8, 9, 12])
    roots, longest = degrees.double().sqrt(), int((S > 0).sum(axis=1).max())
    truth, sums = matrices.restrict_matrix(matrix_of(S), kept, roots, longest)
    made, made_sums = matrices.restrict_by_kernels(matrix_of(S), kept.int(), roots, longest)
    made = made._replace(entries=made.entries[: int(made.starts[-1])])  # there is more room than entries
    for one, other in zip((*made, made_sums), (*truth, sums), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-6)
    starts, weights = torch.tensor([0, 1, 4, 4, 7]), torch.rand(7)
    for b in (1, 3):
        scores = torch.rand(7, b)
        for regions in (None, torch.tensor([6, 1, 2, 0, 3, 5, 4], dtype=torch.int32)):
            pooled = matrices.pool_by_kernels(starts, weights, regions, scores)
            own = weights if regions is None else weights[regions]
            expected = [(own[a:b, None] * scores[a:b]).sum(dim=0).tolist() for a, b in pairwise(starts.tolist())]
            np.testing.assert_allclose(pooled.numpy(), expected, atol=1e-6)


def compare_runs() -> None:
    """The list of regions of runs is that of NumPy."""
    for begins, counts in (([3, 40, 41, 90], [5, 1, 40, 2]), ([0], [1]), ([2, 9, 30, 33, 99], [3, 3, 3, 3, 1])):
        runs = RowRanges(np.array(begins), np.concatenate([[0], np.cumsum(counts)]))
        starts, first = torch.from_numpy(runs.starts).int(), torch.from_numpy(runs.begins).int()
        truth = np.concatenate([np.arange(a, a + b) for a, b in zip(begins, counts, strict=True)])
        np.testing.assert_array_equal(transfer.write_regions(runs, starts, first).numpy(), truth)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gradient.PROGRAMS = 1
    gradient.COLUMN_LAUNCH = gradient.ColumnLaunch(programs=1)
    for exact in (True, False):
        compare_tiles(exact)
    for width in (1, 3):
        compare_products(width)
        for precision in (torch.float32, torch.float64):
            compare_descents(width, precision)
    for precision in (torch.float32, torch.float64):
        compare_alone(precision)
    compare_with_closed_form()
    for held in (torch.float32, torch.float16):
        compare_some(held)
    compare_parts()
    compare_runs()

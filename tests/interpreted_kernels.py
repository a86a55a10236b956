"""The Triton kernels in Triton's interpreter, against NumPy: run with TRITON_INTERPRET=1, by `test_cuda`."""

import warnings

import numpy as np
import torch
import triton.language as tl

from manifind.kernels.cuda import launch, sparse
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


def compare_products(b: int) -> None:
    """A product and a step are those of dense matrices."""
    n = 9
    S = np.triu(np.random.default_rng(b).random((n, n)) * (np.random.default_rng(b + 1).random((n, n)) < 0.4), 1)
    S = (S + S.T).astype(np.float32)
    rows, columns = S.nonzero()
    starts = torch.from_numpy(np.searchsorted(rows, np.arange(n + 1)))
    entries = starts, torch.from_numpy(columns.astype(np.int32)), torch.from_numpy(S[rows, columns])
    p, q = torch.randn(n, b), torch.empty(n, b)
    sums = torch.zeros(3, b)
    if b == 1:
        sparse.product_of_one[(3,)](*entries, p, q, sums, 0.9, n, ROWS=4, ENTRIES=2, TIMES=2, KIND=tl.float32)
    else:
        sparse.product_of_many[(3,)](*entries, p, q, sums, 0.9, n, b, ROWS=4, ENTRIES=2, B=4, KIND=tl.float32)
    truth = p.numpy() - 0.9 * S @ p.numpy()
    np.testing.assert_allclose(q.numpy(), truth, atol=1e-5)
    np.testing.assert_allclose(sums.sum(0).numpy(), (p.numpy() * truth).sum(0), atol=1e-4)
    x, r, steps = torch.randn(n, b), torch.randn(n, b), torch.rand(b)
    further, residual = x + p * steps, r - q * steps
    sparse.descend[(3,)](x, r, p, q, steps, sums, n, b, ROWS=4, B=1 if b == 1 else 4)
    np.testing.assert_allclose(x.numpy(), further.numpy(), atol=1e-5)
    np.testing.assert_allclose(r.numpy(), residual.numpy(), atol=1e-5)
    np.testing.assert_allclose(sums.sum(0).numpy(), (residual**2).sum(0).numpy(), atol=1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for exact in (True, False):
        compare_tiles(exact)
    for width in (1, 3):
        compare_products(width)

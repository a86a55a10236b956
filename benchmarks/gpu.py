"""What one GPU does: neighbours of 2.2 M regions, the paper's largest set, S, diffusion, truncated search; photos.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --regions 1000000 --dimensions 512
    python benchmarks/gpu.py --only truncated

It makes its own data, planted manifolds and noise, from a fresh seed; checks lists against float32 and scores against
SciPy; and prints one table with the floor (bytes or operations at the rates that were measured first) and plain PyTorch
beside each time, and how fast photos are extracted (``gpu_photos.py``). Of the dimensions, the first is that of all
lines; for the others there are neighbours alone. Needs ``manifind[torch]`` and a GPU.

Data: made here, n = 2,200,000, d = 512 and 2,048, k = 200.
"""

import argparse
import secrets
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

import gpu_photos
from gpu_photos import Row, printed
from manifind import Manifold
from manifind.diffusion.seeding import Seed
from manifind.graph.affinity import SLACK
from manifind.groups import Layout, aggregate
from manifind.kernels import backend, dense_columns
from manifind.kernels.cuda import matrix as matrices
from manifind.kernels.cuda.gradient import conjugate_gradient

PLANTED, REGIONS_OF_MANIFOLD, ANCHORS, NOISE = 0.75, 400, 5, 0.5
REGIONS_OF_IMAGE = 22
SHARE = 40
"""Plain PyTorch is timed on one row of so many."""

Array = npt.NDArray[Any]


def planted(n: int, d: int, seed: int) -> Any:
    """Regions along chains of anchors, with noise, and others anywhere, in random order."""
    torch.manual_seed(seed)
    unit = torch.nn.functional.normalize
    X = torch.empty(n, d, device="cuda")
    manifolds, done = max(1, int(n * PLANTED) // REGIONS_OF_MANIFOLD), 0
    for start in range(0, manifolds, 200):
        count = min(200, manifolds - start)
        anchors = unit(torch.randn(count, ANCHORS, d, device="cuda"), dim=2)
        along = torch.rand(count, REGIONS_OF_MANIFOLD, device="cuda") * (ANCHORS - 1)
        at = along.long().clamp_max(ANCHORS - 2)
        share = (along - at)[..., None]
        here, there = (anchors.gather(1, (at + i)[..., None].expand(-1, -1, d)) for i in (0, 1))
        x = unit(here * (1 - share) + there * share, dim=2)
        x = unit(x + NOISE * unit(torch.randn_like(x), dim=2), dim=2).view(-1, d)
        X[done : done + len(x)] = x
        done += len(x)
    for start in range(done, n, 10**5):
        X[start : start + 10**5] = unit(torch.randn(min(10**5, n - start), d, device="cuda"), dim=1)
    order = torch.randperm(n, device="cuda")
    out = np.empty((n, d), np.float32)
    for start in range(0, n, 10**5):
        out[start : start + 10**5] = X[order[start : start + 10**5]].cpu().numpy()
    return out


def seconds(work: Callable[[], Any], times: int = 5) -> float:
    """Return the median time of some work on the device, after it was done once."""
    work()
    taken = []
    for _ in range(times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def rates() -> dict[str, float]:
    """Measure the ceilings: products in eight bits and in half precision, and copying."""
    a = torch.randint(-127, 128, (8192, 8192), dtype=torch.int8, device="cuda")
    h = torch.randn(8192, 8192, device="cuda").half()
    big, other = torch.empty(2**30, device="cuda"), torch.empty(2**30, device="cuda")
    big.normal_()
    return {
        "eight bits": 2 * 8192**3 / seconds(lambda: torch._int_mm(a, a.T)),
        "half": 2 * 8192**3 / seconds(lambda: h @ h.T),
        "copy": 2 * big.nbytes / seconds(lambda: other.copy_(big)),
    }


def plain_neighbours(X: Any, k: int) -> float:
    """Time blocks of products and topk in half precision on a part of the rows; return what all would take."""
    half = X.half()
    n = len(X) // SHARE

    def work() -> None:
        for start in range(0, n, 4096):
            (half[start : min(n, start + 4096)] @ half.T).topk(k + 1, dim=1)

    return seconds(work, 1) * len(X) / n


def recall(X: Array, ids: Array, scores: Array, k: int, sample: int, seed: int) -> tuple[float, float]:
    """Return the share of true neighbours in the lists of sampled rows, and how far scores are off."""
    held = torch.from_numpy(X).cuda()
    rows = np.random.default_rng(seed).choice(len(X), min(sample, len(X)), replace=False)
    found, off = 0, 0.0
    for start in range(0, len(rows), 1000):
        some = torch.from_numpy(rows[start : start + 1000]).cuda()
        truth = held[some] @ held.T
        truth[torch.arange(len(some), device="cuda"), some] = -torch.inf
        last = truth.topk(k, dim=1).values[:, -1:]
        own = truth.gather(1, torch.from_numpy(ids[some.cpu().numpy()]).cuda().long())
        found += int((own >= last - 1e-6).sum())
        off = max(off, float((own - torch.from_numpy(scores[some.cpu().numpy()]).cuda()).abs().max()))
    return found / (len(rows) * k), off


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regions", type=int, default=2_200_000)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("-k", type=int, default=200)
    parser.add_argument("--memory", type=int, default=2**28, help="bytes of scratch for candidates")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--only", choices=["neighbours", "truncated"], help="one part; the second builds S unchecked")
    given = parser.parse_args()
    n, k = given.regions, given.k
    measured = rates()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, seed {given.seed}")
    print(", ".join(f"{name} {rate / 1e12:.3g} T/s" for name, rate in measured.items()), flush=True)
    print(gpu_photos.HEAD)
    device: Any = backend("cuda")
    if given.only == "truncated":
        X = planted(n, given.dimensions[0], given.seed)
        ids, scores = device.vector_set(X).self_join(k // 2, memory=given.memory)
        S, degrees = device.mutual_graph(ids, scores, 3.0, slack=SLACK, normalised=True)
        for row in truncated(X, S, degrees, ids, scores, k // 2, measured["copy"]):
            printed(row)
        return
    X, ids, scores = neighbours(device, n, given.dimensions[0], k, given, measured)
    if given.only is None:
        # The paper's graph of this size has some 75 edges a region: half of these lists leave about as many.
        S, degrees = device.mutual_graph(ids[:, : k // 2], scores[:, : k // 2], 3.0, slack=SLACK, normalised=True)
        for row in diffusion(device.operator(S, degrees), S, measured["copy"], given.seed):
            printed(row)
        for row in truncated(X, S, degrees, ids, scores, k // 2, measured["copy"]):
            printed(row)
        del S
        for row in gpu_photos.rows(measured["copy"], measured["half"], given.seed):
            printed(row)
    del X, ids, scores
    for d in given.dimensions[1:]:
        neighbours(device, n, d, k, given, measured)


def neighbours(
    device: Any, n: int, d: int, k: int, given: argparse.Namespace, measured: dict[str, float]
) -> tuple[Array, Array, Array]:
    """Time and check the neighbours of planted regions, and S; return the regions and their lists."""
    torch.cuda.empty_cache()
    X = planted(n, d, given.seed)
    torch.cuda.empty_cache()
    small = device.vector_set(X[:70_000])  # compiles the kernels
    small.self_join(k, memory=given.memory)
    begun = time.perf_counter()
    rows = device.vector_set(X)
    ids, scores = rows.self_join(k, memory=given.memory)
    found = time.perf_counter()
    S, degrees = device.mutual_graph(ids, scores, 3.0, slack=SLACK, normalised=True)
    system = device.operator(S, degrees)
    torch.cuda.synchronize()
    ready = time.perf_counter()
    del rows, system
    share, off = recall(X, ids, scores, k, 10_000, given.seed)
    plain = plain_neighbours(torch.from_numpy(X).cuda(), k)
    floor = 2 * n * n * d / measured["eight bits"]
    note = f"recall {share:.7f}, off {off:.1e}"
    printed((f"neighbours, {n:,} × {d}, k = {k}", found - begun, floor, plain, note))
    printed(("  … and S ready for queries", ready - begun, floor, None, f"{S.nnz / n:.1f} edges a region"))
    return X, ids, scores


def diffusion(system: Any, S: sp.csr_array, copy: float, seed: int) -> list[Row]:
    """Time 20 iterations for one query and for 64, on the device and from seeds to scores."""
    warnings.simplefilter("ignore")  # torch says that its sparse matrices are new
    arrays = (torch.from_numpy(one).cuda() for one in (S.indptr.astype(np.int32), S.indices, S.data))
    plain = torch.sparse_csr_tensor(*arrays, size=S.shape)
    begun = time.perf_counter()
    system.in_order()
    torch.cuda.synchronize()
    print(f"S put in order in {time.perf_counter() - begun:.2f} s", flush=True)
    return [row for b in (1, 64) for row in _of_columns(system, S, plain, b, copy, np.random.default_rng(seed))]


def _of_columns(system: Any, S: sp.csr_array, plain: Any, b: int, copy: float, rng: np.random.Generator) -> list[Row]:
    n = S.shape[0]
    seeds = [
        Seed(np.sort(rng.choice(n, 50, replace=False)).astype(np.int32), rng.random(50).astype(np.float32))
        for _ in range(b)
    ]
    matrix, order = system.ordered
    y = torch.from_numpy(dense_columns(seeds, n)).cuda()
    held = y[order]
    alone = seconds(lambda: conjugate_gradient(matrix, held, 0.99, 20, 1e-12))
    whole = seconds(lambda: system.solve_seeds(seeds, 0.99, 20, 1e-12), 3)
    by_torch = 20 * seconds(lambda: plain @ y, 3)
    least = 20 * (S.nnz * 8 + n * 8 + n * b * 4 * 11) / copy
    solution = system.solve_seeds(seeds, 0.99, 20, 1e-12)
    f = solution.scores[:, 0].astype(np.float64)
    right = 0.01 * dense_columns(seeds[:1], n)[:, 0]
    true = np.linalg.norm(right - (f - 0.99 * (S @ f))) / np.linalg.norm(right)
    note = f"residual {solution.residuals[0]:.2e}, by SciPy {true:.2e}"
    return [
        (f"20 iterations, {b} queries, {S.nnz / n:.0f} edges, on device", alone, least, by_torch, note),
        ("  … from seeds to scores", whole, least, None, f"{whole / b * 1e3:.2f} ms a query"),
    ]


def truncated(
    X: Array,
    S: sp.csr_array,
    degrees: Array,
    ids: Array,
    scores: Array,
    k: int,
    copy: float,
) -> list[Row]:
    """Time a search on a shortlist of 10,000 images, from descriptors to ranking."""
    n = len(X)
    layout = Layout.of((np.arange(n) // REGIONS_OF_IMAGE).astype(np.int32))
    arrays = {
        "vectors": X,
        "images": layout.images,
        "starts": layout.starts,
        "neighbour_ids": ids,
        "neighbour_similarities": scores,
        "S_data": S.data,
        "S_indices": S.indices,
        "S_indptr": S.indptr,
        "degrees": degrees,
        "weights": np.ones(n, np.float32),
        "global_vectors": aggregate(X, layout),
    }
    manifold = Manifold.from_arrays({"k": k, "query_k": 50, "device": "cuda"}, arrays)
    query = X[:REGIONS_OF_IMAGE]
    taken = seconds(lambda: manifold.search(query, 100, shortlist=10_000), 9)
    ranking = manifold.search(query, 100, shortlist=10_000)
    by_torch, images, size, entries = plain_truncated(manifold, query)
    # The descriptors of the part and its rows of S are read once, and 20 times what is left of these and the vectors.
    rows = 10_000 * REGIONS_OF_IMAGE
    moved = rows * X.shape[1] * 4 + 8 * S.nnz * rows // n + 20 * (8 * entries + 11 * 4 * rows)
    same = len(set(images) & set(ranking.images.tolist()))
    whole = seconds(lambda: manifold.search(query, 100), 5)
    return [
        ("search of 10,000 images, end to end", taken, moved / copy, by_torch, f"{same} of 100 as by PyTorch"),
        (f"search of all {len(layout.images):,} images", whole, 0.0, None, f"{size:,} regions were in the shortlist"),
    ]


def plain_truncated(manifold: Manifold, query: Array) -> tuple[float, list[int], int, int]:
    """Time the same search by PyTorch alone, all of the collection on the device.

    Return also the images that it finds, and the regions and entries of the part.
    """
    state: Any = manifold._fitted
    vectors = next(iter(state.rows.blocks())).vectors
    globals_ = torch.from_numpy(state.global_vectors).cuda()
    starts, system = torch.from_numpy(state.layout.starts).cuda(), state.system
    weights, held = torch.from_numpy(state.weights).cuda(), torch.from_numpy(query).cuda()
    size = entries = 0

    def work() -> list[int]:
        nonlocal size, entries
        chosen = (globals_ @ held.sum(dim=0)).topk(10_000).indices.sort().values
        rows = (starts[chosen][:, None] + torch.arange(REGIONS_OF_IMAGE, device="cuda")).view(-1)
        part, _ = matrices.renormalise(matrices.part(system.matrix, rows), system.degrees[rows].double().sqrt())
        size, entries = len(rows), len(part.columns)
        found = (held @ vectors[rows].T).topk(50, dim=1)
        sums = torch.zeros(size, device="cuda").index_add_(0, found.indices.view(-1), found.values.view(-1) ** 3)
        kept = sums.topk(50)
        r = torch.zeros(size, device="cuda").index_copy_(0, kept.indices, 0.01 * kept.values)
        matrix = torch.sparse_csr_tensor(part.starts, part.columns.contiguous(), part.values.contiguous(), (size, size))
        x, p, rr = torch.zeros_like(r), r.clone(), r @ r
        for _ in range(20):
            q = p - 0.99 * (matrix @ p)
            step = rr / (p @ q)
            x, r = x + step * p, r - step * q
            snapshot = r @ r
            p, rr = r + snapshot / rr * p, snapshot
        scores = (x * weights[rows]).view(-1, REGIONS_OF_IMAGE).sum(dim=1)
        images: list[int] = chosen[scores.topk(100).indices].tolist()
        return images

    return seconds(work, 5), work(), size, entries


if __name__ == "__main__":
    main()

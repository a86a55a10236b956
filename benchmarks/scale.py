"""What grows beyond one machine: regions compared by Dask's workers, and a collection of many photos.

    python benchmarks/scale.py workers [--rows N] [--k 50] [--workers 2] [--repeats 3] [--order Q] [--json]
    python benchmarks/scale.py photos [--shortlist 10000] [--regions 5] [--d 512] [--k 100] [--queries 5] [--json]

workers  the cost of comparing all pairs by workers on one machine, against one process: the regions of Oxford5k where
         they are at hand, else synthetic ones (``harness.py``); in this process with all cores, and by workers of one
         thread each, whose lists must be the same to the bit. The two take turns, and of each the fastest turn counts:
         seconds by the clock and, because other work disturbs the clock, the processor's. --order divides the work by
         the plane of that order (`block_design`), whatever the workers would choose: 2 is seven tasks
photos   the cost of a query does not depend on the size of the collection, but for the search of its descriptors, which
         is the database's. So packed rows are made of as many photos as a shortlist has, with edges of which a part
         leads to photos outside of it, kept in files (`folder`), and searched: the latency of each part is measured.
         Then it is counted what one million, ten and a hundred million such photos take: bytes, tasks, network and
         processor's hours, from unit costs that are measured here (packing, comparing, solving) or elsewhere in the
         project (extraction)

Data: made here; for workers the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, k = 50.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from harness import collection, make_parser
from manifind.distributed import block_design as planes
from manifind.distributed.block_design import choose_order, task_rows
from manifind.distributed.workers import MAX_TASK_PHOTOS, DaskWorkers
from manifind.features import load_extractor
from manifind.graph import Neighbours, exact_neighbours
from manifind.index import QueryRegions, QueryView, retrieve
from manifind.index.build.learning import PART
from manifind.index.build.learning import PHOTOS as WHITENED
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.manifest import SHIPPED, WhiteningOrigin
from manifind.remote.folder import FolderStore
from manifind.remote.row_format import Edges, PackedPhoto, pack, row_number
from manifind.remote.shortlist import shortlist_snapshot
from manifind.remote.store import Row
from manifind.types import FloatArray

PHOTOS = (1_000_000, 10_000_000, 100_000_000)
PART_INSIDE = 0.5
"""Edges of a shortlist's photos that lead to photos of the shortlist."""
MUTUAL = 0.45
"""Of the k neighbours of a region, those that are mutual."""
EXTRACTED_PER_SECOND = 10.0
"""Photos of Oxford5k, which are about 1,024 pixels long, that two quiet cores extract in a second from their files on,
with local features: measured (``docs/descriptors.md``). Without features it is 15.4."""
EXTRACTED_ON_GPU_PER_SECOND = 510.0
"""Photos that an NVIDIA H200 extracts in a second from their files on, with local features (``docs/gpu.md``)."""
MACHINES = 50
"""How many compare regions."""
WORKER_BYTES = 2**34
"""What the rows of a task may take on a worker of 64 GiB."""
DESCRIPTORS = 5
TURNS = 5
"""How often regions are compared, of which the fastest counts: other work makes the others slower."""
SEEN = 21
"""Regions of a photo before they are reduced to means."""


def unit(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    rows = rng.standard_normal((n, d)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def packed_rows(shortlist: int, regions: int, d: int, k: int) -> list[bytes]:
    """Return the rows of photos whose edges are symmetric among them."""
    rng = np.random.default_rng(0)
    n, degree = shortlist * regions, round(MUTUAL * k)
    half = max(1, round(degree * PART_INSIDE / 2))
    pairs = np.stack([np.repeat(np.arange(n), half), rng.integers(0, n, n * half)])
    pairs = np.unique(np.sort(pairs[:, pairs[0] // regions != pairs[1] // regions], axis=0), axis=1)
    values: FloatArray = np.asarray(rng.uniform(0.05, 0.6, pairs.shape[1]), np.float32)
    ends, starts = np.concatenate([pairs, pairs[::-1]], axis=1)
    order = np.argsort(ends, kind="stable")
    ends, starts, values = ends[order], starts[order], np.concatenate([values, values])[order]
    outside = degree - round(degree * PART_INSIDE)
    bounds = np.searchsorted(ends, np.arange(n + 1))
    made = []
    for photo in range(shortlist):
        own = range(photo * regions, (photo + 1) * regions)
        inside = [starts[bounds[row] : bounds[row + 1]] for row in own]
        counts = np.array([len(one) + outside for one in inside], np.int32)
        strangers = [rng.integers(2**40, 2**60, outside) for _ in own]
        photos = np.concatenate([np.concatenate([a // regions, b]) for a, b in zip(inside, strangers, strict=True)])
        which = np.concatenate([np.concatenate([one % regions, np.zeros(outside, np.int64)]) for one in inside])
        weights = [np.full(outside, 0.2, np.float32)] * regions
        kept = [values[bounds[row] : bounds[row + 1]] for row in own]
        affinities = np.concatenate([np.concatenate(both) for both in zip(kept, weights, strict=True)])
        edges = Edges(counts, photos.astype(np.int64), which.astype(np.int32), affinities)
        said = {"key": f"{photo}.jpg", "sha256": f"{photo:064x}", "bytes": 0, "mtime_ns": 0, "width": 1, "height": 1}
        vectors = unit(rng, regions, d).astype(np.float16)
        made.append(
            pack(PackedPhoto(vectors, np.ones((regions, 4), np.float32), np.ones(regions, np.float32), edges, said))
        )
    return made


def on_line(shortlist: int, regions: int, d: int, k: int, queries: int) -> dict[str, Any]:
    """Measure each part of a query, in the processor's seconds: other work does not disturb them."""
    rows = packed_rows(shortlist, regions, d, k)
    given = {"k": k, "query_k": 50, "alpha": 0.99}
    config = BuildConfig(Path("/nowhere"), load_extractor(), given, None, "mobilenet_v2", WhiteningOrigin(SHIPPED))
    manifest = config.manifest
    numbers = np.array([row_number(photo, 1) for photo in range(shortlist)], np.int64)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore(Path(folder) / "rows")
        store.create(d, shortlist)
        none = np.empty((0, d), np.float32)
        store.upsert([Row(int(numbers[i]), i, 1, 0, none, row) for i, row in enumerate(rows)])
        for seed in range(queries):
            query = unit(np.random.default_rng(1000 + seed), 21, d)
            moments = [time.process_time()]
            fetched = [row for row in store.fetch(numbers) if row is not None]
            moments.append(time.process_time())
            part = shortlist_snapshot(np.arange(shortlist), fetched, number=1, stamp=str(seed), manifest=manifest)
            moments.append(time.process_time())
            retrieve(part, [QueryRegions.of([QueryView(query, np.zeros((21, 4), np.float32))])], 100)
            moments.append(time.process_time())
            times.append(np.diff(moments))
    medians = dict(zip(("rows", "system", "solution"), np.median(times, axis=0).tolist(), strict=True))
    return {
        "shortlist": shortlist,
        "regions": shortlist * regions,
        "edges": int(part.manifold.S_.nnz),
        "row_bytes": sum(map(len, rows)) / len(rows),
        "seconds": medians,
    }


def comparing(d: int, k: int) -> tuple[float, float]:
    """Return the processor's seconds to compare a pair of regions, and to keep the list of one."""
    spent = []
    for n in (8_000, 24_000):
        rows = unit(np.random.default_rng(0), n, d)
        turns = []
        for _ in range(TURNS):
            start = time.process_time()
            exact_neighbours(rows, k)
            turns.append(time.process_time() - start)
        spent.append((n, min(turns)))
    (a, at_a), (b, at_b) = spent
    pair = 2 * (at_b / b - at_a / a) / (b - a)
    return pair, max(0.0, at_a / a - pair * a / 2)


def off_line(photos: int, regions: int, d: int, k: int, row_bytes: float, pair: float, each: float) -> dict[str, Any]:
    """Count what a collection takes."""
    n = photos * regions
    q = choose_order(n, 4 * d, WORKER_BYTES, MACHINES)
    points = q * q + q + 1
    return {
        "photos": photos,
        "packed_gb": photos * row_bytes / 1e9,
        "database_gb": photos * DESCRIPTORS * (4 * d + 48) / 1e9,
        "vectors_gb": n * 4 * d / 1e9,
        "order": q,
        "tasks": 2 * points + photos // MAX_TASK_PHOTOS + photos // WHITENED + photos * SEEN // PART,
        "task_gb": task_rows(n, q) * 4 * d / 1e9,
        "network_tb": (q + 1) * n * (4 * d + 16 * k) / 1e12,
        "extract_core_hours": photos * 2 / EXTRACTED_PER_SECOND / 3600,
        "extract_gpu_hours": photos / EXTRACTED_ON_GPU_PER_SECOND / 3600,
        "compare_core_hours": ((q + 1) ** 2 / points * pair * n**2 / 2 + (q + 1) * n * each) / 3600,
    }


def spent(processes: list[psutil.Process]) -> float:
    """Return the processor's seconds that processes have taken."""
    return float(sum(sum(one.cpu_times()[:2]) for one in processes))


def measure_workers(rows: int | None, k: int, count: int, repeat: int, order: int | None) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    name, vectors, _, _ = collection(rows)
    X = np.ascontiguousarray(vectors, np.float32)
    if order is not None:
        planes.ORDERS = (order,)
    told: dict[str, Any] = {"collection": name, "n": len(X), "k": k, "workers": count, "order": order, "same": True}
    turns: dict[str, list[tuple[float, float]]] = {"here": [], "by_workers": []}
    exact_neighbours(X[:2000], k)
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        processes = [
            psutil.Process(),
            *(psutil.Process(pid) for pid in client.run(lambda: __import__("os").getpid()).values()),
        ]
        client.run(lambda: __import__("manifind.distributed.tasks") and None)

        def timed(way: str, work: Callable[[], Neighbours]) -> Neighbours:
            start, cpu = time.perf_counter(), spent(processes)
            found = work()
            turns[way].append((time.perf_counter() - start, spent(processes) - cpu))
            return found

        for _ in range(repeat):
            here = timed("here", lambda: exact_neighbours(X, k))
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "all.f32"
                X.tofile(file)
                there = timed(
                    "by_workers",
                    lambda file=file: exact_neighbours(DaskWorkers(client).knn_builder(X, file), k),  # type: ignore[misc]
                )
            same = (here.ids == there.ids).all() and (here.similarities == there.similarities).all()
            told["same"] = told["same"] and bool(same)
    for way, taken in turns.items():
        wall, cpu = zip(*taken, strict=True)
        told[way] = {"wall_s": min(wall), "cpu_s": min(cpu), "turns": taken}
    told["ratio"] = {one: told["by_workers"][one] / told["here"][one] for one in ("wall_s", "cpu_s")}
    return told


def print_photos(shortlist: int, regions: int, d: int, k: int, queries: int, *, as_json: bool) -> None:
    told = on_line(shortlist, regions, d, k, queries)
    pair, each = comparing(d, k)
    lines = [off_line(p, regions, d, k, told["row_bytes"], pair, each) for p in PHOTOS]
    if as_json:
        print(json.dumps({"on_line": told, "pair_s": pair, "list_s": each, "off_line": lines}, indent=1))
        return
    seconds = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in told["seconds"].items())
    print(
        f"a shortlist of {told['shortlist']:,} photos, {told['regions']:,} regions, {told['edges']:,} entries, "
        f"{told['row_bytes']:,.0f} bytes a row: {seconds} of the processor"
    )
    print(f"a pair of regions {1e9 * pair:.2f} ns, a list {1e6 * each:.0f} µs of one core")
    for line in lines:
        print(json.dumps({name: round(value, 2) for name, value in line.items()}))


def print_workers(told: dict[str, Any]) -> None:
    here, there, ratio = told["here"], told["by_workers"], told["ratio"]
    print(
        f"{told['collection']}, {told['n']:,} regions, k {told['k']}: one process {here['wall_s']:.1f} s "
        f"(processor {here['cpu_s']:.1f} s), {told['workers']} workers {there['wall_s']:.1f} s (processor "
        f"{there['cpu_s']:.1f} s): {ratio['wall_s']:.2f} times the time, {ratio['cpu_s']:.2f} times the processor's; "
        f"lists {'the same' if told['same'] else 'NOT THE SAME'}"
    )


def main() -> None:
    parser = make_parser(__doc__, "rows", "k", "repeats", k=None)
    parser.add_argument("part", choices=["workers", "photos"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--order", type=int)
    parser.add_argument("--shortlist", type=int, default=10_000)
    parser.add_argument("--regions", type=int, default=5)
    parser.add_argument("--d", type=int, default=512)
    parser.add_argument("--queries", type=int, default=5)
    given = parser.parse_args()
    if given.part == "photos":
        print_photos(given.shortlist, given.regions, given.d, given.k or 100, given.queries, as_json=given.json)
        return
    told = measure_workers(given.rows, given.k or 50, given.workers, given.repeats, given.order)
    if given.json:
        print(json.dumps(told, indent=1))
    else:
        print_workers(told)


if __name__ == "__main__":
    main()

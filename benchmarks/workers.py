"""What it costs to compare all pairs of regions by Dask's workers on one machine, against one process.

    python benchmarks/workers.py [--rows N] [--k K] [--workers 2] [--repeats 3] [--order Q] [--json]

The neighbours of the regions of Oxford5k where they are at hand, else of synthetic ones (``harness.py``): in this
process with all cores, and by workers of one thread each, whose lists must be the same to the bit. The two take turns,
and of each the fastest turn counts: wall-clock seconds and, because other work disturbs the clock, the processor's.
--order divides the work by the plane of that order (`block_design`), whatever the workers would choose: 2 is
seven tasks, as many machines would do it.
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
from manifind.distributed.workers import DaskWorkers
from manifind.graph import Neighbours, exact_neighbours


def spent(processes: list[psutil.Process]) -> float:
    """Return the processor's seconds that processes have taken."""
    return float(sum(sum(one.cpu_times()[:2]) for one in processes))


def measure(rows: int | None, k: int, count: int, repeat: int, order: int | None) -> dict[str, Any]:
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


def main() -> None:
    parser = make_parser(__doc__, "rows", "k", "repeats")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--order", type=int)
    arguments = parser.parse_args()
    told = measure(arguments.rows, arguments.k, arguments.workers, arguments.repeat, arguments.order)
    if arguments.json:
        print(json.dumps(told, indent=1))
        return
    here, there, ratio = told["here"], told["by_workers"], told["ratio"]
    print(
        f"{told['collection']}, {told['n']:,} regions, k {told['k']}: one process {here['wall_s']:.1f} s "
        f"(processor {here['cpu_s']:.1f} s), {told['workers']} workers {there['wall_s']:.1f} s (processor "
        f"{there['cpu_s']:.1f} s): {ratio['wall_s']:.2f} times the time, {ratio['cpu_s']:.2f} times the processor's; "
        f"lists {'the same' if told['same'] else 'NOT THE SAME'}"
    )


if __name__ == "__main__":
    main()

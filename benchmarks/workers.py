"""What it costs to compare all pairs of regions by Dask's workers on one machine, against one process.

    python benchmarks/workers.py [--rows N] [--k K] [--workers 2] [--json]

The neighbours of the regions of Oxford5k where they are at hand, else of synthetic ones (``setting.py``): first in this
process with all cores, then by workers of one thread each, whose lists must be the same to the bit. Wall-clock seconds
and, because other work disturbs the clock, the processor's seconds of both.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from manifind.cluster.workers import DaskWorkers
from manifind.graph import exact_neighbours
from setting import collection


def spent(processes: list[psutil.Process]) -> float:
    """Return the processor's seconds that processes have taken."""
    return float(sum(sum(one.cpu_times()[:2]) for one in processes))


def measure(rows: int | None, k: int, count: int) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    name, vectors, _, _ = collection(rows)
    X = np.ascontiguousarray(vectors, np.float32)
    me = psutil.Process()
    exact_neighbours(X[:2000], k)
    start, cpu = time.perf_counter(), spent([me])
    here = exact_neighbours(X, k)
    told: dict[str, Any] = {"collection": name, "n": len(X), "k": k, "workers": count}
    told["here"] = {"wall_s": time.perf_counter() - start, "cpu_s": spent([me]) - cpu}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        X.tofile(Path(folder) / "all.f32")
        processes = [me, *(psutil.Process(pid) for pid in client.run(lambda: __import__("os").getpid()).values())]
        client.run(lambda: __import__("manifind.cluster.tasks") and None)
        start, cpu = time.perf_counter(), spent(processes)
        there = exact_neighbours(DaskWorkers(client).rows(X, Path(folder) / "all.f32"), k)
        told["by_workers"] = {"wall_s": time.perf_counter() - start, "cpu_s": spent(processes) - cpu}
    told["same"] = bool((here.ids == there.ids).all() and (here.similarities == there.similarities).all())
    told["ratio"] = {name: told["by_workers"][name] / told["here"][name] for name in ("wall_s", "cpu_s")}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON instead of words")
    arguments = parser.parse_args()
    told = measure(arguments.rows, arguments.k, arguments.workers)
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

"""What graph, query and memory cost against the number of regions, and a plot of it.

    python benchmarks/growth.py [--most 1000000] [--k 50] [--query-k 50] [--threads T] [--plot FILE] [--json]

4,302 … --most regions: those of Oxford5k where they are at hand, else synthetic ones, and beyond them regions made of
them by noise, which it says. The graph is what ``graph="auto"`` picks, with its recall; up to --exact regions all pairs
are compared too. A query is its neighbours, and 20 iterations of conjugate gradient: one on the whole graph, one on the
neighbourhood of the query, 64 together, SciPy's. `search` and `search_many` are all that a user waits for, beside faiss
(tuned) for the query's neighbours and SciPy's solver. Memory is that of the vectors, of lists and S, and the most that
the process held besides files.

    python benchmarks/growth.py --memory --most 2200000 --k 200

compares all pairs of so many memory-mapped regions for --steps steps only, long enough to touch all that it will hold,
and says what that was and how long all would take.

Data: the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, and regions made of them by noise; k =
query_k = 50, all threads.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from harness import BATCH, Clock, Row, collection, cpu, limits, make_near, make_parser, print_results, versions
from manifind import Manifold, kernels
from manifind.graph import exact_neighbours, normalised_affinity
from manifind.types import FloatArray
from speed import right_hand_sides, solve_times

SIZES = (4_302, 31_686, 106_887, 300_000, 530_000, 1_000_000)
"""The first three are those of 200, 1,500 and all 5,063 photos of Oxford5k."""
FAISS_UP_TO = 110_000
"""Regions up to which faiss compares all pairs too."""
FEW = 10_000
"""Regions up to which `fit` and faiss take turns five times: a single run of a tenth of a second tells little."""


def held(most: bool = False) -> int:
    """Return the bytes that this process holds beside files, or with them the most that it ever held."""
    name = "VmHWM" if most else "RssAnon"
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def curve(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    rows = []
    sizes = [n for n in SIZES if n < arguments.most]
    for n in [*sizes, arguments.most]:
        _, vectors, image_of, queries = collection(n)
        manifold = Manifold(k=arguments.k, query_k=arguments.query_k, memory=2**30)
        fit, flat_graph = partial(manifold.fit, vectors, image_of), None
        if n <= FAISS_UP_TO:
            by_faiss = partial(flat, vectors, vectors, arguments.k + 1)
            fitting, flat_graph = clock.in_turns(5 if n <= FEW else 1, fit, by_faiss)
        else:
            fitting, _ = clock.once(fit)
        pairs = None
        if manifold.graph_.method != "exact" and n <= arguments.exact:
            pairs, _ = clock.once(partial(exact_neighbours, vectors, arguments.k, memory=2**30))
        affinity, _ = clock.once(partial(normalised_affinity, manifold.neighbours_))
        search = partial(kernels.as_vector_set(vectors).search, queries[0], arguments.query_k)
        search()  # compresses, once
        near, theirs = clock.in_turns(5, search, partial(flat, vectors, queries[0], arguments.query_k))
        manifold.search_many(queries, top=100)  # orders the graph, once
        turn = itertools.cycle(queries)
        one, many = partial(next_search, manifold, turn), partial(manifold.search_many, queries, top=100)
        single, batch = clock.in_turns(5, one, many)
        solved = solve_times(manifold, right_hand_sides(manifold, queries), clock, arguments.repeats)
        lists = sum(a.nbytes for a in (*manifold.neighbours_, manifold.S_.data, manifold.S_.indices))
        rows.append(
            {
                "n": n,
                "graph": manifold.graph_.method,
                "recall": manifold.graph_.recall,
                "fit s": fitting,
                "all pairs s": pairs,
                "affinity s": affinity,
                "faiss / fit": None if flat_graph is None else flat_graph / fitting,
                "neighbours ms": 1e3 * near,
                "search ms": 1e3 * single,
                f"search_many, {BATCH} ms": 1e3 * batch / BATCH,
                "faiss + SciPy / search": (1e3 * theirs + solved[0]["ms"]) / (1e3 * single),
                "faiss + SciPy / search_many": (1e3 * theirs + solved[0]["ms"]) / (1e3 * batch / BATCH),
                **{f"{row['method']} ms": row["ms"] for row in solved},
                "local images at 100": solved[2]["images at 100"],
                "vectors MB": vectors.nbytes / 1e6,
                "lists and S MB": lists / 1e6,
                "most held MB": held(most=True) / 1e6,
            }
        )
        print(f"{n:,} regions done", file=sys.stderr, flush=True)
    return rows


def next_search(manifold: Manifold, queries: Iterator[FloatArray]) -> None:
    manifold.search(next(queries), top=100)


def flat(vectors: FloatArray, queries: FloatArray, k: int) -> None:
    """Search by faiss, tuned: it multiplies matrices however few the queries."""
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = 1
    faiss.knn(queries, vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)
    faiss.cvar.distance_compute_blas_threshold = before


class Enough(Exception):
    """Ends a search that was only to begin."""


def memory(arguments: argparse.Namespace, _: Clock) -> list[Row]:
    """Compare all pairs of memory-mapped regions, for some steps."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        file = Path(folder) / "vectors.npy"
        _save(file, arguments.most)
        vectors: FloatArray = np.load(file, mmap_mode="r")
        n, k = arguments.most, arguments.k
        began = time.perf_counter()
        before = most = held()
        done = 0

        def progress(at: int, _: int) -> None:
            nonlocal done, most
            done, most = at, max(most, held())
            if at >= arguments.steps * 4096:
                raise Enough

        with suppress(Enough):
            exact_neighbours(vectors, k, memory=arguments.scratch, progress=progress)
        taken = time.perf_counter() - began
    share = 1 - (1 - done / n) ** 2  # of the pairs
    return [
        {
            "n": n,
            "k": k,
            "scratch MB": arguments.scratch / 1e6,
            "lists MB": 8 * n * k / 1e6,
            "held MB": (most - before) / 1e6,
            "vectors, in a file MB": vectors.nbytes / 1e6,
            "rows done": done,
            "s": taken,
            "s, all": taken / share,
        }
    ]


def _save(file: Path, rows: int) -> None:
    """Write so many regions to a file, a block at a time."""
    _, vectors, _, _ = collection(None)
    out = np.lib.format.open_memmap(file, "w+", np.float32, (rows, vectors.shape[1]))
    rng = np.random.default_rng(0)
    for start in range(0, rows, 2**16):
        make_near(vectors, rng, out[start : start + 2**16])
    out.flush()


def plot(rows: list[Row], file: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4.2))
    n = [row["n"] for row in rows]
    panels = {
        "graph, seconds": ("fit s", "all pairs s", "affinity s"),
        "query, ms": ("SciPy cg, float64 ms", "one ms", "one, local ms", f"{BATCH} together ms", "neighbours ms"),
        "memory, MB": ("vectors MB", "lists and S MB", "most held MB"),
    }
    for own, (title, columns) in zip(axes, panels.items(), strict=True):
        for column in columns:
            at = [(size, row[column]) for size, row in zip(n, rows, strict=True) if row[column]]
            if at:
                own.loglog(*zip(*at, strict=True), "o-", label=column.rsplit(" ", 1)[0])
        own.set(xlabel="regions", title=title)
        own.grid(alpha=0.3, which="both")
        own.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = make_parser(__doc__, "k", "query_k", "threads", "repeats")
    parser.add_argument("--most", type=int, default=1_000_000, help="regions")
    parser.add_argument("--exact", type=int, default=300_000, help="regions up to which all pairs are compared too")
    parser.add_argument("--plot", help="the picture to write")
    parser.add_argument("--memory", action="store_true", help="what comparing all pairs holds")
    parser.add_argument("--steps", type=int, default=3, help="of 4,096 rows, with --memory")
    parser.add_argument("--scratch", type=int, default=2**31, help="bytes of scratch, with --memory")
    parser.add_argument("--folder", help="where the regions are written, with --memory")
    arguments = parser.parse_args()
    kernels.set_threads(arguments.threads)
    clock = Clock(arguments.threads)
    work: Callable[[argparse.Namespace, Clock], list[Row]] = memory if arguments.memory else curve
    setting: dict[str, Any] = {
        "data": collection(None)[0],
        "k": arguments.k,
        "query_k": arguments.query_k,
        "threads": arguments.threads,
        "cpu": cpu(),
        "core": kernels.machine()["instructions"],
        "versions": versions(),
        "limits": limits(clock),
    }
    rows = work(arguments, clock)
    if arguments.plot:
        plot(rows, arguments.plot)
    print_results(setting, rows, as_json=arguments.json)


if __name__ == "__main__":
    main()

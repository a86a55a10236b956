"""How fast each stage is, as ratios to named peers measured in the same run, beside the machine's own limits.

    python benchmarks/speed.py STAGE [--rows N] [--k 200] [--threads T] [--repeats 5] [--json]

graph       neighbours of all regions, exact and in eight bits with little slack, against faiss `IndexFlatIP`; with
            --nn-descent against pynndescent too
affinity    S from the neighbour lists, against the same in NumPy and SciPy
query       conjugate gradient, 20 iterations: one query, 64 together, and ``engine="local"``, against SciPy's float64
            `cg` on one thread; the images among the first 100 that agree
neighbours  the neighbours of one query's regions, against `IndexFlatIP` with its BLAS threshold lowered
truncation  the part of the graph that a shortlist of 2,500 photos leaves, and the solution on it, against SciPy
engines     time, memory and mAP of every engine that `Manifold.search` knows, on Oxford5k
growth      graph, query and memory against n, 10,000 … --rows regions (synthetic ones beyond what is at hand), and a
            plot of them with --plot FILE

On the regions of Oxford5k where they are at hand, else on synthetic ones, which it says. Rivals take turns; times are
medians, of CPU time with one thread and of the clock with more, so that one thread can be measured on a busy machine.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faiss
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg
from threadpoolctl import threadpool_limits

import oxford5k_data
from manifind import Manifold, kernels
from manifind.diffusion import ENGINES, dense, seed
from manifind.graph import (
    Neighbours,
    exact_neighbours,
    nn_descent_neighbours,
    normalise,
    normalised_affinity,
    restrict,
)
from manifind.graph.affinity import _mutual_affinity as plain_affinity
from manifind.kernels import nearest, nearest_others
from manifind.validation import FloatArray, IntArray
from setting import BATCH, collection, cpu, in_turns, versions

Row = dict[str, Any]


class Clock:
    """CPU time with one thread, the wall's with more."""

    def __init__(self, threads: int) -> None:
        self._now = time.process_time if threads == 1 else time.perf_counter

    def in_turns(self, repeats: int, *works: Callable[[], object]) -> list[float]:
        """Return the median seconds of each."""
        return in_turns(repeats, *works, now=self._now)


def limits(clock: Clock) -> Row:
    """Measure the rate of a matrix product and of reading memory, here and now."""
    a = np.random.default_rng(0).random((1024, 1024), np.float32)
    much = np.ones(2**26, np.float32)  # zeros would be one page, read again and again
    product, reading = clock.in_turns(5, lambda: a @ a, lambda: much.max())
    return {"sgemm_gflops": 2 * 1024**3 / product / 1e9, "read_gb_s": much.nbytes / reading / 1e9}


def recall(ids: IntArray, vectors: FloatArray, k: int) -> float:
    """Return the share of the lists that reaches the k-th true similarity, over a sample; ties count as found."""
    sample = np.random.default_rng(0).choice(len(vectors), min(500, len(vectors)), replace=False)
    _, truth = faiss.knn(vectors[sample], vectors, k + 1, metric=faiss.METRIC_INNER_PRODUCT)[::-1]
    worst = truth[:, k][:, None] - 1e-6
    reached = np.einsum("id,ikd->ik", vectors[sample], vectors[ids[sample]]) >= worst
    return float(reached.mean())


def graph(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    _, vectors, _, _ = collection(arguments.rows)
    n, d = vectors.shape
    found: dict[str, IntArray] = {}

    def flat() -> None:
        index = faiss.IndexFlatIP(d)
        index.add(vectors)
        found["faiss IndexFlatIP"] = index.search(vectors, arguments.k + 1)[1][:, 1:]

    works: dict[str, Callable[[], None]] = {"faiss IndexFlatIP": flat}
    if kernels.compiled():
        works["exact"] = lambda: found.update({"exact": nearest_others(vectors, arguments.k, memory=2**30)[0]})
        works["eight bits"] = lambda: found.update(
            {"eight bits": nearest_others(vectors, arguments.k, memory=2**30, deviations=0.5)[0]}
        )
    if arguments.nn_descent:
        nn_descent_neighbours(vectors[:500], 10)  # compiles
        works["pynndescent"] = lambda: found.update({"pynndescent": nn_descent_neighbours(vectors, arguments.k).ids})
    seconds = clock.in_turns(arguments.repeats, *works.values())
    return [
        {
            "method": name,
            "seconds": taken,
            "ratio": seconds[0] / taken,
            "recall": recall(found[name], vectors, arguments.k),
            "gflops": 2 * n * n * d / taken / 1e9,
        }
        for name, taken in zip(works, seconds, strict=True)
    ]


def affinity(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    lists = exact_neighbours(collection(arguments.rows)[1], arguments.k)
    gamma = 3.0
    seconds = clock.in_turns(
        arguments.repeats,
        lambda: normalise(plain_affinity(lists, gamma)),
        lambda: normalised_affinity(lists, gamma),
    )
    return [
        {"method": name, "ms": 1e3 * taken, "ratio": seconds[0] / taken}
        for name, taken in zip(("NumPy and SciPy", "normalised_affinity"), seconds, strict=True)
    ]


def fitted(arguments: argparse.Namespace) -> tuple[Manifold, list[FloatArray]]:
    _, vectors, image_of, queries = collection(arguments.rows)
    return Manifold(k=arguments.k, query_k=arguments.query_k).fit(vectors, image_of), queries


def right_hand_sides(manifold: Manifold, queries: list[FloatArray]) -> FloatArray:
    found = [Neighbours(*nearest(query, manifold.vectors_, manifold.query_k)) for query in queries]
    return dense([seed(one, manifold.query_k, manifold.gamma) for one in found], len(manifold.vectors_))


def query(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    manifold, queries = fitted(arguments)
    y = right_hand_sides(manifold, queries)
    return solvers(manifold.S_, manifold._part(None).pool, y, clock, arguments.repeats)


def solvers(S: sp.csr_array, pool: sp.csr_array, y: FloatArray, clock: Clock, repeats: int) -> list[Row]:
    system = sp.csr_array(sp.eye_array(len(y)) - 0.99 * S.astype(np.float64))
    turn = iter(range(10**9))

    def scipy_cg(column: int | None = None) -> Any:
        with threadpool_limits(1):
            b = 0.01 * y[:, next(turn) % BATCH if column is None else column].astype(np.float64)
            return cg(system, b, rtol=1e-6, maxiter=20)[0]

    def one(engine: str) -> Any:
        column = next(turn) % BATCH
        return ENGINES[engine](S, y[:, column : column + 1], 0.99, 20, 1e-6)

    together = kernels.conjugate_gradient(S, y, 0.99, 20, 1e-6)  # orders the graph, once
    works: dict[str, Callable[[], Any]] = {
        "SciPy cg, float64": scipy_cg,
        "one": lambda: one("cg"),
        "one, local": lambda: one("local"),
        f"{BATCH} together": lambda: kernels.conjugate_gradient(S, y, 0.99, 20, 1e-6),
    }
    seconds = clock.in_turns(repeats, *works.values())
    seconds[-1] /= BATCH

    def first(f: FloatArray) -> set[int]:
        return set(np.argsort(-(pool @ f), kind="stable")[:100].tolist())

    sample = range(0, BATCH, 8)
    truth = [first(scipy_cg(column)) for column in sample]
    scores = {
        "SciPy cg, float64": None,
        "one": kernels.conjugate_gradient(S, y[:, :1], 0.99, 20, 1e-6).scores,
        "one, local": ENGINES["local"](S, y[:, list(sample)], 0.99, 20, 1e-6).scores,
        f"{BATCH} together": together.scores[:, list(sample)],
    }
    agreement = {
        name: 1.0
        if f is None
        else float(np.mean([len(first(f[:, at]) & truth[at]) / min(100, pool.shape[0]) for at in range(f.shape[1])]))
        for name, f in scores.items()
    }
    return [
        {
            "method": name,
            "ms_a_query": 1e3 * taken,
            "ratio": seconds[0] / taken,
            "images_at_100": agreement[name],
            "edges": int(S.nnz),
        }
        for name, taken in zip(works, seconds, strict=True)
    ]


def neighbours(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    _, vectors, _, queries = collection(arguments.rows)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    k = min(arguments.query_k, len(vectors))
    turn = iter(range(10**9))

    def flat(which: int | None = None) -> IntArray:
        before = faiss.cvar.distance_compute_blas_threshold
        faiss.cvar.distance_compute_blas_threshold = 1
        ids: IntArray = index.search(queries[next(turn) % BATCH if which is None else which], k)[1]
        faiss.cvar.distance_compute_blas_threshold = before
        return ids

    for _ in range(2):  # the second search compresses
        nearest(queries[0], vectors, k)
    theirs, ours = clock.in_turns(4 * arguments.repeats, flat, lambda: nearest(queries[next(turn) % BATCH], vectors, k))
    found = np.mean(
        [
            len(np.intersect1d(a, b)) / k
            for at in range(10)
            for a, b in zip(flat(at), nearest(queries[at], vectors, k)[0], strict=True)
        ]
    )
    return [
        {"method": "faiss IndexFlatIP, BLAS", "ms": 1e3 * theirs, "ratio": 1.0, "recall": 1.0},
        {"method": "nearest", "ms": 1e3 * ours, "ratio": theirs / ours, "recall": float(found)},
    ]


def truncation(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    manifold, queries = fitted(arguments)
    S, degrees, layout = manifold.S_, manifold.degrees_, manifold.layout_
    size = min(2500, max(1, len(layout.images) // 2))
    rng = np.random.default_rng(0)
    rows = layout.regions_of(np.sort(rng.choice(len(layout.images), size, replace=False)))
    y = right_hand_sides(manifold, queries[:1])[rows]

    def scipys() -> None:
        root = np.sqrt(degrees.astype(np.float64))
        A = S[rows][:, rows].multiply(root[rows][:, None]).multiply(root[rows][None, :])
        degree = np.asarray(A.sum(axis=1)).ravel()
        scale = np.divide(1, np.sqrt(degree), out=np.zeros(len(rows)), where=degree > 0)
        part = sp.csr_array(A.multiply(scale[:, None]).multiply(scale[None, :]))
        system = sp.csr_array(sp.eye_array(len(rows)) - 0.99 * part)
        with threadpool_limits(1):
            cg(system, 0.01 * y[:, 0].astype(np.float64), rtol=1e-6, maxiter=20)

    def ours() -> None:
        kernels.conjugate_gradient(restrict(S, degrees, rows), y, 0.99, 20, 1e-6)

    theirs, mine = clock.in_turns(arguments.repeats, scipys, ours)
    return [
        {"method": "SciPy", "ms": 1e3 * theirs, "ratio": 1.0, "photos": size, "regions": len(rows)},
        {"method": "restrict and solve", "ms": 1e3 * mine, "ratio": theirs / mine, "photos": size},
    ]


def engines(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    manifold, queries = fitted(arguments)
    task = None
    if oxford5k_data.at_hand() and arguments.rows is None:
        protocol = oxford5k_data.oxford5k()
        queries, task = protocol.queries, protocol.tasks["Oxford5k"]
    rows = []
    manifold.search_many(queries[:32])
    for engine in ENGINES:
        if engine == "iteration":
            manifold.set_params(max_iter=110, tol=1e-3)
        rankings = manifold.search_many(queries, engine=engine)
        turn = itertools.cycle(queries)

        def one(engine: str = engine, turn: Iterator[FloatArray] = turn) -> None:
            manifold.search(next(turn), engine=engine)

        single, many = clock.in_turns(arguments.repeats, one, partial(manifold.search_many, queries, engine=engine))
        manifold.set_params(max_iter=20, tol=1e-6)
        rows.append(
            {
                "method": engine,
                "ms_one": 1e3 * single,
                "ms_of_many": 1e3 * many / len(queries),
                "map": None if task is None else task.mean_average_precision(rankings),
            }
        )
    return rows


def growth(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    _, vectors, image_of, queries = collection(None)
    largest = arguments.rows or len(vectors)
    if largest > len(vectors):  # more of the same: regions between others
        rng = np.random.default_rng(0)
        more = vectors[rng.integers(len(vectors), size=largest - len(vectors))]
        more = more + rng.normal(scale=0.7 / np.sqrt(more.shape[1]), size=more.shape).astype(np.float32)
        more /= np.linalg.norm(more, axis=1, keepdims=True)
        vectors = np.concatenate([vectors, more])
        image_of = np.concatenate([image_of, image_of[-1] + 1 + np.arange(len(more), dtype=np.int32) // 21])
    rows = []
    sizes = [n for n in (10_000, 30_000, 100_000, 300_000, 1_000_000) if n < largest]
    for n in [*sizes, largest]:
        part = np.ascontiguousarray(vectors[:n])
        manifold = Manifold(k=arguments.k, query_k=arguments.query_k)
        (fitting,) = clock.in_turns(1, partial(manifold.fit, part, image_of[:n]))
        y = right_hand_sides(manifold, queries)
        solved = solvers(manifold.S_, manifold._part(None).pool, y, clock, 3)
        taken = {row["method"]: row["ms_a_query"] for row in solved}
        held = manifold.S_.data.nbytes + manifold.S_.indices.nbytes + sum(a.nbytes for a in manifold.neighbours_)
        rows.append({"n": n, "fit_s": fitting, **taken, "graph_bytes": held, "vector_bytes": part.nbytes})
    if arguments.plot:
        plot(rows, arguments.plot)
    return rows


def plot(rows: list[Row], file: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4))
    n = [row["n"] for row in rows]
    left.loglog(n, [row["fit_s"] for row in rows], "o-")
    left.set_ylabel("graph, seconds")
    for name in ("SciPy cg, float64", "one", "one, local", f"{BATCH} together"):
        middle.loglog(n, [row[name] for row in rows], "o-", label=name)
    middle.set_ylabel("solution, ms a query")
    middle.legend()
    for name, label in (("vector_bytes", "vectors"), ("graph_bytes", "lists and S")):
        right.loglog(n, [row[name] / 2**20 for row in rows], "o-", label=label)
    right.set_ylabel("memory, MiB")
    right.legend()
    for axes in (left, middle, right):
        axes.set_xlabel("regions")
    figure.tight_layout()
    figure.savefig(file)


STAGES: dict[str, Callable[[argparse.Namespace, Clock], list[Row]]] = {
    "graph": graph,
    "affinity": affinity,
    "query": query,
    "neighbours": neighbours,
    "truncation": truncation,
    "engines": engines,
    "growth": growth,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--rows", type=int, help="only so many regions")
    parser.add_argument("--k", type=int, default=200)
    parser.add_argument("--query-k", type=int, default=200)
    parser.add_argument("--threads", type=int, default=kernels.thread_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nn-descent", action="store_true", help="graph: against pynndescent too")
    parser.add_argument("--plot", help="growth: the picture to write")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    kernels.set_threads(arguments.threads)
    clock = Clock(arguments.threads)
    name, vectors, _, queries = collection(arguments.rows)
    setting: Row = {
        "stage": arguments.stage,
        "data": name,
        "n": len(vectors),
        "d": vectors.shape[1],
        "k": arguments.k,
        "query_k": arguments.query_k,
        "regions_a_query": float(np.mean([len(query) for query in queries])),
        "threads": arguments.threads,
        "cpu": cpu(),
        "core": kernels.system()["instructions"],
        "versions": versions(),
        "limits": limits(clock),
    }
    rows = STAGES[arguments.stage](arguments, clock)
    if arguments.json:
        print(json.dumps({**setting, "rows": rows}, indent=1))
        return
    for key, value in setting.items():
        print(f"{key:16} {value}")
    for row in rows:
        shown = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        print(", ".join(shown))


if __name__ == "__main__":
    main()

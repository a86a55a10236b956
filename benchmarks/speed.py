"""How fast each stage is, as ratios to named peers measured in the same run, beside the machine's own limits.

    python benchmarks/speed.py STAGE [--rows N] [--k 200] [--query-k 200] [--threads T] [--repeats 5] [--json]

graph       neighbours of all regions, exact, against faiss `IndexFlatIP`
descent     NN-Descent against pynndescent, and against comparing all pairs
affinity    the mutual affinity and its normalisation, from the lists, against NumPy and SciPy
query       conjugate gradient, 20 iterations: one query, 64 together, and ``solver="local"``, against SciPy's float64
            `cg` on one thread; the images among the first 100 that agree
neighbours  the neighbours of 21 regions of a query, against `IndexFlatIP` with its BLAS threshold lowered
truncation  the part of the graph that a shortlist of 2,500 photos leaves, and the solution on it, against SciPy
solvers     time, memory and mAP of every solver that `Manifold.search` knows, on Oxford5k
paper       one query and many, from descriptors to ranking, beside what the paper reports for Oxford5k

On the regions of Oxford5k where they are at hand, else on synthetic ones, which it says; with more --rows than that,
on regions made of them by noise. Rivals take turns; times are medians, of CPU time with one thread and of the clock
with more, so that one thread can be measured on a busy machine. ``benchmarks/growth.py`` has the cost against n.

Data: the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, k = query_k = 200, all threads.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faiss
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg
from threadpoolctl import threadpool_limits

import harness
from harness import BATCH, Clock, Row, collection, cpu, limits, make_parser, print_results, versions
from manifind import Manifold, kernels
from manifind.baselines import RegionalDiffusion
from manifind.baselines.diffusion import PREPARED_SOLVERS
from manifind.diffusion import SOLVERS, Seed, SolverOptions, seed
from manifind.graph import Neighbours, exact_neighbours, normalise, normalised_affinity
from manifind.graph import nn_descent_neighbours as descent_neighbours
from manifind.graph.affinity import SLACK
from manifind.kernels import dense_columns
from manifind.kernels.cpu.affinity import mutual_affinity as plain_affinity
from manifind.types import FloatArray, IntArray

ALPHA, STEPS, TOL = 0.99, 20, 1e-6
PAPER = {"ms": 664.0, "ms_cg": 600.0, "cores": 4}
"""Iscen et al., CVPR 2017: the average query on Oxford5k with regional diffusion."""


def recall(ids: IntArray, vectors: FloatArray, k: int) -> float:
    """Return the share of the lists that reaches the k-th true similarity, over a sample; ties count as found."""
    sample = np.random.default_rng(0).choice(len(vectors), min(500, len(vectors)), replace=False)
    _, truth = faiss.knn(vectors[sample], vectors, k + 1, metric=faiss.METRIC_INNER_PRODUCT)[::-1]
    worst = truth[:, k][:, None] - 1e-6
    return float(
        np.mean([(vectors[ids[i]] @ vectors[i] >= last).mean() for i, last in zip(sample, worst, strict=True)])
    )


def graphs(
    works: dict[str, Callable[[], IntArray]], vectors: FloatArray, arguments: argparse.Namespace, clock: Clock
) -> list[Row]:
    """Time ways to find neighbours against the first of them, and look how many of the true ones each found."""
    found: dict[str, IntArray] = {}

    def keep(name: str) -> None:
        found[name] = works[name]()

    n, d = vectors.shape
    seconds = clock.in_turns(arguments.repeats, *(partial(keep, name) for name in works))
    return [
        {
            "method": name,
            "s": taken,
            "ratio": seconds[0] / taken,
            "recall": recall(found[name], vectors, arguments.k),
            "of sgemm": 2 * n * n * d / taken / 1e9 / arguments.limits["sgemm_gflops"],
        }
        for name, taken in zip(works, seconds, strict=True)
    ]


def graph(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    _, vectors, _, _ = collection(arguments.rows)
    k = arguments.k

    def flat() -> IntArray:
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        ids: IntArray = index.search(vectors, k + 1)[1][:, 1:]
        return ids

    works: dict[str, Callable[[], IntArray]] = {
        "faiss IndexFlatIP": flat,
        "exact": lambda: exact_neighbours(vectors, k, memory=2**30).ids,
    }
    return graphs(works, vectors, arguments, clock)


def descent(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    from pynndescent import NNDescent

    _, vectors, _, _ = collection(arguments.rows)
    k = arguments.k

    def theirs(some: FloatArray, width: int) -> IntArray:
        found = NNDescent(some, metric="dot", n_neighbors=width + 1, n_jobs=arguments.threads, random_state=0)
        ids: IntArray = found.neighbor_graph[0][:, 1:]
        return ids

    theirs(vectors[:500], min(k, 100))  # compiles
    works: dict[str, Callable[[], IntArray]] = {
        "pynndescent": lambda: theirs(vectors, k),
        "nn-descent": lambda: descent_neighbours(vectors, k).ids,
    }
    if not arguments.without_exact:
        works["exact"] = lambda: exact_neighbours(vectors, k, memory=2**30).ids
    return graphs(works, vectors, arguments, clock)


def affinity(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    lists = exact_neighbours(collection(arguments.rows)[1], arguments.k)
    gamma = 3.0
    seconds = clock.in_turns(
        arguments.repeats,
        lambda: normalise(plain_affinity(*lists, gamma, SLACK)),
        lambda: normalised_affinity(lists, gamma),
    )
    size = lists.ids.nbytes + lists.similarities.nbytes
    return [
        {"method": name, "ms": 1e3 * taken, "ratio": seconds[0] / taken, "of reading": reading(size, taken, arguments)}
        for name, taken in zip(("NumPy and SciPy", "normalised_affinity"), seconds, strict=True)
    ]


def reading(size: float, seconds: float, arguments: argparse.Namespace) -> float:
    """Return how near reading `size` bytes once in so many seconds comes to the machine's rate."""
    return size / seconds / 1e9 / float(arguments.limits["read_gb_s"])


def fitted(arguments: argparse.Namespace) -> tuple[Manifold, list[FloatArray]]:
    _, vectors, image_of, queries = collection(arguments.rows)
    return Manifold(k=arguments.k, query_k=arguments.query_k).fit(vectors, image_of), queries


def right_hand_sides(manifold: Manifold, queries: list[FloatArray]) -> FloatArray:
    rows = kernels.as_vector_set(manifold.vectors_)
    found = [Neighbours(*rows.search(query, manifold.query_k)) for query in queries]
    return dense_columns([seed(one, manifold.query_k, manifold.gamma) for one in found], len(manifold.vectors_))


def query(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    manifold, queries = fitted(arguments)
    rows = solve_times(manifold, right_hand_sides(manifold, queries), clock, arguments.repeats)
    size = 8 * manifold.S_.nnz * STEPS  # an entry of S once an iteration, whatever the columns that share it
    for row in rows:
        taken = row["ms"] / 1e3 * row.pop("together")
        row["of reading"] = None if "local" in row["method"] else reading(size, taken, arguments)
    return rows


def solve_times(manifold: Manifold, y: FloatArray, clock: Clock, repeats: int) -> list[Row]:
    """Time the solvers by query, and compare the first hundred images."""
    S, pool = manifold.S_, kernels.Pool(manifold.layout_.starts, manifold.weights_)
    own_system = kernels.backend().operator(S, manifold.degrees_)
    seeds = [Seed(rows := np.flatnonzero(one).astype(np.int32), one[rows]) for one in y.T]
    divided = own_system.aggregate() if kernels.compiled() else None
    system = sp.csr_array(sp.eye_array(len(y)) - ALPHA * S.astype(np.float64))
    turn = iter(range(10**9))

    def scipy_cg(column: int | None = None) -> Any:
        with threadpool_limits(1):
            b = (1 - ALPHA) * y[:, next(turn) % BATCH if column is None else column].astype(np.float64)
            return cg(system, b, rtol=TOL, maxiter=STEPS)[0]

    def solved(solver: str, columns: list[int]) -> FloatArray:
        prepared = divided if solver == "local" else None
        return (
            SOLVERS[solver]
            .solve(own_system, [seeds[i] for i in columns], SolverOptions(ALPHA, STEPS, TOL), prepared)
            .scores
        )

    everything, sample = list(range(BATCH)), list(range(0, BATCH, 8))
    solved("cg", everything)  # orders the graph, once
    solved("local", sample[:1])  # divides it, once
    works: dict[str, Callable[[], Any]] = {
        "SciPy cg, float64": scipy_cg,
        "one": lambda: solved("cg", [next(turn) % BATCH]),
        "one, local": lambda: solved("local", [next(turn) % BATCH]),
        f"{BATCH} together": lambda: solved("cg", everything),
    }
    seconds = clock.in_turns(repeats, *works.values())
    seconds[-1] /= BATCH

    def first(f: FloatArray) -> set[int]:
        return set(np.argsort(-pool.pool_scores(f), kind="stable")[:100].tolist())

    truth = [first(scipy_cg(column)) for column in sample]
    scores = {
        "one": np.concatenate([solved("cg", [column]) for column in sample], axis=1),
        "one, local": solved("local", sample),
        f"{BATCH} together": solved("cg", everything)[:, sample],
    }

    def agreement(f: FloatArray) -> float:
        most = min(100, len(pool.starts) - 1)
        return float(np.mean([len(first(own) & true) / most for own, true in zip(f.T, truth, strict=True)]))

    return [
        {
            "method": name,
            "ms": 1e3 * taken,
            "ratio": seconds[0] / taken,
            "images at 100": agreement(scores[name]) if name in scores else 1.0,
            "together": BATCH if "together" in name else 1,
        }
        for name, taken in zip(works, seconds, strict=True)
    ]


def neighbours(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    _, vectors, _, given = collection(arguments.rows)
    queries = [np.resize(query, (21, vectors.shape[1])) for query in given]  # the first again where there are fewer
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

    def ours(which: int | None = None) -> IntArray:
        return rows.search(queries[next(turn) % BATCH if which is None else which], k)[0]

    rows = kernels.as_vector_set(vectors)
    ours()  # compresses, once
    everything = np.concatenate(queries)
    works = {"faiss IndexFlatIP, BLAS": flat, "nearest": ours, f"nearest, {BATCH} queries": None}
    seconds = clock.in_turns(4 * arguments.repeats, flat, ours)
    seconds += [one / BATCH for one in clock.in_turns(arguments.repeats, lambda: rows.search(everything, k))]
    found = np.mean(
        [len(np.intersect1d(a, b)) / k for at in range(10) for a, b in zip(flat(at), ours(at), strict=True)]
    )
    return [
        {
            "method": name,
            "ms": 1e3 * taken,
            "ratio": seconds[0] / taken,
            "recall": 1.0 if name.startswith("faiss") else float(found),
            "of sgemm": 2 * vectors.size * 21 / taken / 1e9 / arguments.limits["sgemm_gflops"],
        }
        for name, taken in zip(works, seconds, strict=True)
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
        system = sp.csr_array(sp.eye_array(len(rows)) - ALPHA * part)
        with threadpool_limits(1):
            cg(system, (1 - ALPHA) * y[:, 0].astype(np.float64), rtol=TOL, maxiter=STEPS)

    def ours() -> None:
        whole.restrict(rows).solve(y, ALPHA, STEPS, TOL)

    whole = kernels.backend().operator(S, degrees)

    seconds = clock.in_turns(arguments.repeats, scipys, ours)
    entries = int(np.diff(S.indptr)[rows].sum())
    kept = S[rows][:, rows].nnz
    return [
        {
            "method": name,
            "ms": 1e3 * taken,
            "ratio": seconds[0] / taken,
            "photos": size,
            "of reading": reading(8 * entries + 8 * kept * STEPS, taken, arguments),
        }
        for name, taken in zip(("SciPy", "restrict and solve"), seconds, strict=True)
    ]


def solvers(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    manifold, queries = fitted(arguments)
    task = None
    if harness.at_hand() and arguments.rows is None:
        protocol = harness.oxford5k()
        queries, task = protocol.queries, protocol.tasks["Oxford5k"]
    rows = []
    manifold.search_many(queries[:32])
    n = len(manifold.vectors_)
    size = min(arguments.size, n)
    kept = {"offline": 8 * n * size, "spectral": 4 * n * size}
    for solver in (*SOLVERS, *PREPARED_SOLVERS):
        preparing: float = 0.0
        estimator: Any = manifold
        if solver in SOLVERS and SOLVERS[solver].prepare is not None:
            preparing, _ = clock.once(partial(manifold.prepare, solver))
        if solver in PREPARED_SOLVERS:
            baseline = RegionalDiffusion(solver=solver, size=size, k=manifold.k, query_k=manifold.query_k)
            baseline.fit(manifold.vectors_, manifold.layout_.image_of, find=lambda *_: manifold.neighbours_)
            preparing, estimator = baseline.costs()["prepare_seconds"], baseline
        if solver == "iteration":
            manifold.set_params(max_iter=110, tol=1e-3)
        chosen = {} if solver in PREPARED_SOLVERS else {"solver": solver}
        rankings = estimator.search_many(queries, **chosen)
        turn = itertools.cycle(queries)

        def one(estimator: Any = estimator, chosen: Any = chosen, turn: Iterator[FloatArray] = turn) -> None:
            estimator.search(next(turn), **chosen)

        singles, many = (
            clock.in_turns(times, work)[0]
            for times, work in (
                (4 * arguments.repeats, one),
                (arguments.repeats, partial(estimator.search_many, queries, **chosen)),
            )
        )
        manifold.set_params(max_iter=STEPS, tol=TOL)
        rows.append(
            {
                "method": solver,
                "ms, one": 1e3 * singles,
                "ms, of many": 1e3 * many / len(queries),
                "mAP": None if task is None else task.mean_average_precision(rankings),
                "off line s": preparing,
                "kept MB": kept.get(solver, 0) / 1e6,
            }
        )
    return rows


def paper(arguments: argparse.Namespace, clock: Clock) -> list[Row]:
    manifold, queries = fitted(arguments)
    manifold.search_many(queries)
    turn = itertools.cycle(queries)
    one, local, many = clock.in_turns(
        arguments.repeats,
        lambda: manifold.search(next(turn), top=100),
        lambda: manifold.search(next(turn), top=100, solver="local"),
        lambda: manifold.search_many(queries, top=100),
    )
    lines = {f"paper, {PAPER['cores']} cores": PAPER["ms"] / 1e3}
    lines |= {"one query": one, "one query, local": local, f"of {BATCH} together": many / BATCH}
    return [{"method": name, "ms": 1e3 * taken, "ratio": PAPER["ms"] / 1e3 / taken} for name, taken in lines.items()]


STAGES: dict[str, Callable[[argparse.Namespace, Clock], list[Row]]] = {
    "graph": graph,
    "descent": descent,
    "affinity": affinity,
    "query": query,
    "neighbours": neighbours,
    "truncation": truncation,
    "solvers": solvers,
    "paper": paper,
}


def main() -> None:
    parser = make_parser(__doc__, "rows", "threads", k=200, query_k=200, repeats=5)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--size", type=int, default=1000, help="solvers: of what those that prepare keep")
    parser.add_argument("--without-exact", action="store_true", help="descent: do not compare all pairs")
    arguments = parser.parse_args()
    kernels.set_threads(arguments.threads)
    clock = Clock(arguments.threads)
    name, vectors, _, queries = collection(arguments.rows)
    arguments.limits = limits(clock)
    setting: Row = {
        "stage": arguments.stage,
        "data": name,
        "n": len(vectors),
        "d": vectors.shape[1],
        "k": arguments.k,
        "query_k": arguments.query_k,
        "regions_a_query": float(np.mean([len(query) for query in queries])),
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "cpu": cpu(),
        "core": kernels.machine()["instructions"],
        "versions": versions(),
        "limits": arguments.limits,
    }
    del vectors
    rows = STAGES[arguments.stage](arguments, clock)
    print_results(setting, rows, as_json=arguments.json)


if __name__ == "__main__":
    main()

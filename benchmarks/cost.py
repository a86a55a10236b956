"""What the graph and a query cost, as ratios to faiss and SciPy measured in the same run.

    python benchmarks/cost.py [--k 200] [--query-k 200] [--rows N] [--repeats 3] [--json]

On the regions of Oxford5k where they are at hand (``harness.py``), else on synthetic ones, which it says. Rivals
take turns and medians are compared. The peers:

graph   `Manifold.fit` against filling and searching a faiss `IndexFlatIP` with all regions, k + 1 neighbours each
memory  peak resident memory of a process that loads the descriptors and fits, beyond its size with only the libraries
        loaded, against the size of the descriptors in float32
query   one `Manifold.search` against SciPy's float64 `cg` (20 iterations, one BLAS thread) plus the search of the
        query's regions in `IndexFlatIP` with faiss's BLAS threshold lowered
batch   `Manifold.search_many` of 64 queries against 64 single searches, by query

Each ratio is what manifind takes as a part of what its peer takes: less is better.

Data: the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, k = query_k = 200, all threads; else
synthetic ones.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg
from threadpoolctl import threadpool_limits

from harness import BATCH, collection, cpu, in_turns, make_parser, versions
from manifind import Manifold, kernels
from manifind.diffusion import seed
from manifind.graph import Neighbours
from manifind.kernels import dense_columns
from manifind.types import FloatArray, IntArray


def graph_cost(vectors: FloatArray, image_of: IntArray, k: int, repeats: int) -> dict[str, Any]:
    def peer() -> None:
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        index.search(vectors, k + 1)

    ours, theirs = in_turns(repeats, lambda: Manifold(k=k).fit(vectors, image_of), peer)
    return {"manifind_s": ours, "peer_s": theirs, "ratio": ours / theirs, "at_most": 1.3}


MEASURE_MEMORY = """
import sys
import numpy as np
from pathlib import Path
from manifind import Manifold
def peak():  # not getrusage, whose maximum survives exec
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
before = peak()
vectors, image_of = np.load(sys.argv[1]), np.load(sys.argv[2])
Manifold(k=int(sys.argv[3])).fit(vectors, image_of)
print(before, peak(), vectors.nbytes)
"""


def memory_cost(vectors: FloatArray, image_of: IntArray, k: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("vectors.npy", "image_of.npy")]
        np.save(files[0], vectors)
        np.save(files[1], image_of)
        command = [sys.executable, "-c", MEASURE_MEMORY, *map(str, files), str(k)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, peak, size = map(int, printed.split())
    used = peak - before
    return {"manifind_bytes": used, "peer_bytes": size, "ratio": used / size, "at_most": 3.0}


def query_costs(
    manifold: Manifold, queries: list[FloatArray], repeats: int
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    n, d = manifold.vectors_.shape
    index = faiss.IndexFlatIP(d)
    index.add(manifold.vectors_)
    S = manifold.S_.astype(np.float64)
    system = sp.csr_array(sp.eye_array(n) - manifold.alpha * S)
    rows = kernels.as_vector_set(manifold.vectors_)
    seeds = [
        seed(Neighbours(*rows.search(query, manifold.query_k)), manifold.query_k, manifold.gamma) for query in queries
    ]
    right = [(1 - manifold.alpha) * dense_columns([one], n)[:, 0].astype(np.float64) for one in seeds]
    turn = iter(range(10**9))

    def ours() -> None:
        manifold.search(queries[next(turn) % BATCH], top=100)

    def solve() -> None:
        with threadpool_limits(1, user_api="blas"):
            cg(system, right[next(turn) % BATCH], rtol=1e-6, maxiter=20)

    def find() -> None:
        before = faiss.cvar.distance_compute_blas_threshold
        faiss.cvar.distance_compute_blas_threshold = 1
        index.search(queries[next(turn) % BATCH], manifold.query_k)
        faiss.cvar.distance_compute_blas_threshold = before

    single, solving, finding = in_turns(20 * repeats, ours, solve, find)
    one, many = in_turns(
        repeats,
        lambda: [manifold.search(query, top=100) for query in queries],
        lambda: manifold.search_many(queries, top=100),
    )
    query = {
        "manifind_ms": 1e3 * single,
        "peer_ms": 1e3 * (solving + finding),
        "peer_solve_ms": 1e3 * solving,
        "peer_neighbours_ms": 1e3 * finding,
        "ratio": single / (solving + finding),
        "at_most": 1.0,
    }
    batch = {
        "manifind_ms_a_query": 1e3 * many / BATCH,
        "one_at_a_time_ms": 1e3 * one / BATCH,
        "ratio": many / one,
        "at_most": 0.4,
    }
    return query, batch, {"edges": int(S.nnz), "edges_a_region": S.nnz / n}


def main() -> None:
    parser = make_parser(__doc__, "rows", "repeats", k=200, query_k=200)
    arguments = parser.parse_args()
    name, vectors, image_of, queries = collection(arguments.rows)
    setting = {
        "data": name,
        "n": len(vectors),
        "d": vectors.shape[1],
        "k": arguments.k,
        "query_k": arguments.query_k,
        "regions_a_query": float(np.mean([len(query) for query in queries])),
        "threads": faiss.omp_get_max_threads(),
        "cpu": cpu(),
        "versions": versions(),
    }
    manifold = Manifold(k=arguments.k, query_k=arguments.query_k).fit(vectors, image_of)
    query, batch, graph = query_costs(manifold, queries, arguments.repeats)
    del manifold
    costs = {
        "graph": graph_cost(vectors, image_of, arguments.k, max(1, arguments.repeats // 2)),
        "memory": memory_cost(vectors, image_of, arguments.k),
        "query": query,
        "batch": batch,
    }
    if arguments.json:
        print(json.dumps({**setting, **graph, "costs": costs}, indent=1))
        return
    for key, value in {**setting, **graph}.items():
        print(f"{key:16} {value}")
    for stage, cost in costs.items():
        rest = ", ".join(f"{key} {value:.4g}" for key, value in cost.items() if key not in ("ratio", "at_most"))
        print(f"{stage:8} ratio {cost['ratio']:.2f} (at most {cost['at_most']}); {rest}")


if __name__ == "__main__":
    main()

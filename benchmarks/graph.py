"""Exact neighbours and NN-Descent against faiss `IndexFlatIP`: time, and recall of the true neighbours.

    python benchmarks/graph.py [--k 50 --k 200] [--rows N] [--json]

On the regions of Oxford5k where they are at hand, else on synthetic ones, which it says. NN-Descent compiles once
before it is timed.
"""

import argparse
import json
import time
from typing import Any

import faiss
import numpy as np

from manifind.graph import exact_neighbours, nn_descent_neighbours
from manifind.validation import FloatArray
from setting import collection, cpu


def measure(vectors: FloatArray, k: int) -> list[dict[str, Any]]:
    def flat() -> Any:
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index.search(vectors, k + 1)[1]

    began = time.perf_counter()
    truth = flat()
    theirs = time.perf_counter() - began
    rows = [{"method": "faiss IndexFlatIP", "k": k, "seconds": theirs, "against_faiss": 1.0, "recall": 1.0}]
    sample = np.random.default_rng(0).choice(len(vectors), min(1000, len(vectors)), replace=False)
    for name, search in (("exact", exact_neighbours), ("nn-descent", nn_descent_neighbours)):
        began = time.perf_counter()
        ids = search(vectors, k).ids
        ours = time.perf_counter() - began
        recall = np.mean([len(np.intersect1d(ids[i], truth[i][truth[i] != i][:k])) / k for i in sample])
        rows.append({"method": name, "k": k, "seconds": ours, "against_faiss": theirs / ours, "recall": float(recall)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, action="append")
    parser.add_argument("--rows", type=int, help="only so many regions")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    data, vectors, _, _ = collection(arguments.rows)
    nn_descent_neighbours(vectors[:500], 10)
    setting = {
        "data": data,
        "n": len(vectors),
        "d": vectors.shape[1],
        "threads": faiss.omp_get_max_threads(),
        "cpu": cpu(),
    }
    rows = [row for k in arguments.k or [50, 200] for row in measure(vectors, k)]
    if arguments.json:
        print(json.dumps({**setting, "rows": rows}, indent=1))
        return
    print(", ".join(f"{key} {value}" for key, value in setting.items()))
    for row in rows:
        print(
            f"k {row['k']:4}  {row['method']:18} {row['seconds']:8.1f} s  {row['against_faiss']:5.2f} × faiss  "
            f"recall {row['recall']:.4f}"
        )


if __name__ == "__main__":
    main()

"""What keeping descriptors in half precision does to rankings, on Oxford5k.

    python benchmarks/float16.py [--k K] [--json]

The same collection in single precision, and rounded to float16 as an index keeps it. Prints the mAP of both, how many
of the first 100 images they have in common, and how far scores are apart. Queries are of single precision in both, as
they are for an index. The descriptors at hand were stored rounded: single precision is had by moving each entry at
random within the interval that rounds to it.
"""

import argparse
import json
from typing import Any

import numpy as np

import oxford5k_data
from manifind import Manifold
from manifind.ranking import Ranking
from manifind.types import FloatArray


def compare(single: list[Ranking], half: list[Ranking]) -> dict[str, float]:
    common = [len(np.intersect1d(a.images[:100], b.images[:100])) / 100 for a, b in zip(single, half, strict=True)]
    apart = [
        float(np.abs(a.scores[np.argsort(a.images)] - b.scores[np.argsort(b.images)]).max() / a.scores[0])
        for a, b in zip(single, half, strict=True)
    ]
    return {"first_100_in_common": float(np.mean(common)), "scores_apart_by_at_most": max(apart)}


def before_rounding(rounded: FloatArray) -> FloatArray:
    """Return what the entries may have been before they were rounded to half precision."""
    rng = np.random.default_rng(0)
    finer = rounded.copy()
    for start in range(0, len(finer), 2**14):
        block = finer[start : start + 2**14]
        interval = np.spacing(np.abs(block).astype(np.float16)).astype(np.float32)
        block += rng.uniform(-0.499, 0.499, block.shape).astype(np.float32) * interval
    return finer


def measure(k: int) -> dict[str, Any]:
    protocol = oxford5k_data.oxford5k()
    (task,) = protocol.tasks.values()
    rounded = protocol.vectors.astype(np.float16).astype(np.float32)
    finer = before_rounding(rounded)
    rankings = [
        Manifold(k=k, query_k=50).fit(vectors, protocol.image_of).search_many(protocol.queries)
        for vectors in (finer, rounded)
    ]
    single, half = (task.mean_average_precision(one) for one in rankings)
    return {"k": k, "query_k": 50, "n": len(rounded), "single": single, "half": half, **compare(*rankings)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="print JSON instead of words")
    arguments = parser.parse_args()
    if not oxford5k_data.at_hand():
        raise SystemExit(f"the descriptors of Oxford5k are not at hand; lay them at {oxford5k_data.FOLDER}.")
    measured = measure(arguments.k)
    if arguments.json:
        print(json.dumps(measured, indent=1))
        return
    print(
        "Oxford5k, mAP (trapezoid), n {n}, k {k}, query_k {query_k}: single {single:.2f}, half {half:.2f}; of the "
        "first 100 images {first_100_in_common:.2%} in common; scores apart by at most {scores_apart_by_at_most:.1e} "
        "of the first".format(**measured)
    )


if __name__ == "__main__":
    main()

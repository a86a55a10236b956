"""How well shortlists hold the right photos: mAP against the size of the shortlist, on Oxford5k.

    python benchmarks/shortlists.py [--k K] [--sizes 100,250,…] [--json]

A collection in a store is searched on a shortlist, so that its ranking is no better than the shortlist. Each way keeps
some descriptors of each photo and asks with some of the query; each descriptor of the query gets as many rows as the
shortlist has photos, and a photo counts the cubed similarities of its best row to each. Printed are the rows that a
photo has in the store, the descriptors that a query asks with, and the mAP of diffusion on the shortlist; the last line
is diffusion on the whole collection. Ways are chosen on the 55 queries of Oxford5k and reported on the 70 of the
Revisited protocol, whose query photos are not in the collection.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import harness
from harness import make_parser
from manifind import Manifold
from manifind.gmm import compact
from manifind.groups import aggregate_one
from manifind.types import FloatArray, IntArray

Rows = tuple[FloatArray, IntArray]
Ask = Callable[[FloatArray], FloatArray]


def with_sum(query: FloatArray) -> FloatArray:
    return aggregate_one(query)


def with_regions(query: FloatArray) -> FloatArray:
    return query


def with_both(query: FloatArray) -> FloatArray:
    return np.concatenate([aggregate_one(query), query])


def with_means(count: int) -> Ask:
    def means(query: FloatArray) -> FloatArray:
        return compact(query, np.zeros(len(query), np.int32), regions_per_image=count).vectors

    return means


def ways(protocol: harness.Protocol) -> dict[str, tuple[Rows, Ask]]:
    """Return each way by name: the rows of the collection with the photos they are of, and what a query asks with."""
    images = np.unique(protocol.image_of)
    sums = protocol.whole_images, images
    found: dict[str, tuple[Rows, Ask]] = {
        "global descriptor; asked with the query's": (sums, with_sum),
        "global descriptor; asked with the query's regions": (sums, with_regions),
    }
    for count in (2, 3, 5):
        few = compact(protocol.vectors, protocol.image_of, regions_per_image=count)
        rows = few.vectors, few.image_of
        found[f"{count} means; asked with the query's global descriptor"] = rows, with_sum
        found[f"{count} means; asked with {count} means of the query"] = rows, with_means(count)
        found[f"{count} means; asked with the query's regions"] = rows, with_regions
        both = np.concatenate([sums[0], few.vectors]), np.concatenate([sums[1], few.image_of])
        found[f"global descriptor and {count} means; asked with both and the regions"] = both, with_both
    found["all regions; asked with the query's regions"] = (protocol.vectors, protocol.image_of), with_regions
    return found


def shortlist(rows: Rows, asked: FloatArray, size: int, images: int) -> npt.NDArray[np.intp]:
    """Return the photos of the best rows: each descriptor asked with gets `size` rows."""
    vectors, of = rows
    similarities = asked @ vectors.T
    counted = np.zeros((len(asked), images), np.float32)
    for one, row in enumerate(similarities):
        best = np.argpartition(-row, min(size, len(row) - 1))[:size]
        np.maximum.at(counted[one], of[best], np.maximum(row[best], 0) ** 3)
    scores = counted.sum(axis=0)
    reached = np.flatnonzero(scores)
    return np.sort(reached[np.argsort(-scores[reached], kind="stable")[:size]])


def measure(k: int, sizes: list[int]) -> dict[str, Any]:
    measured: dict[str, Any] = {"k": k, "sizes": sizes}
    for name, protocol in (("Oxford5k", harness.oxford5k()), ("Revisited", harness.revisited())):
        manifold = Manifold(k=k, query_k=50).fit(protocol.vectors, protocol.image_of)
        images = int(protocol.image_of.max()) + 1
        lines = []
        for way, (rows, ask) in ways(protocol).items():
            asked = [ask(query) for query in protocol.queries]
            found = {}
            for size in sizes:
                lists = [shortlist(rows, one, size, images) for one in asked]
                rankings = manifold.search_many(protocol.queries, shortlist=lists)
                found[size] = {
                    task: one.mean_average_precision(rankings) for task, one in protocol.tasks.items() if task != "Easy"
                }
            lines.append(
                {
                    "way": way,
                    "rows_a_photo": len(rows[0]) / images,
                    "asked_with": float(np.mean([len(one) for one in asked])),
                    "map": found,
                }
            )
            print(name, json.dumps(lines[-1]), file=sys.stderr)
        whole = manifold.search_many(protocol.queries)
        lines.append(
            {"way": "no shortlist", "map": {t: one.mean_average_precision(whole) for t, one in protocol.tasks.items()}}
        )
        measured[name] = lines
    return measured


def main() -> None:
    parser = make_parser(__doc__, "k")
    parser.add_argument("--sizes", default="100,250,500,1000")
    arguments = parser.parse_args()
    harness.require_oxford5k()
    measured = measure(arguments.k, [int(size) for size in arguments.sizes.split(",")])
    if arguments.json:
        print(json.dumps(measured, indent=1))
        return
    sizes = measured["sizes"]
    for name in ("Oxford5k", "Revisited"):
        print(f"\n{name}, mAP (trapezoid), k {measured['k']}, query_k 50")
        print(f"| way | rows a photo | asked with | {' | '.join(map(str, sizes))} |")
        print(f"| --- | --- | --- |{' --- |' * len(sizes)}")
        for line in measured[name]:
            if line["way"] == "no shortlist":
                print(f"| no shortlist | | | {' / '.join(f'{v:.1f}' for v in line['map'].values())} |")
                continue
            cells = [" / ".join(f"{value:.1f}" for value in line["map"][size].values()) for size in sizes]
            print(f"| {line['way']} | {line['rows_a_photo']:.1f} | {line['asked_with']:.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

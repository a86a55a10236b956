"""What a collection in a store answers, and how soon: Oxford5k, searched on shortlists of photos.

    python benchmarks/stores.py shortlists [--k 50] [--sizes 100,250,500,1000] [--json]
    python benchmarks/stores.py folder:///tmp/stores/exact milvus://127.0.0.1:19530/flat?index=FLAT …
                                [--k 50] [--sizes 500,1000] [--descriptors 5] [--wait SECONDS] [--json]

Data: the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512, k = query_k = 50, all threads.

shortlists  mAP against the size of the shortlist. Each way keeps some descriptors of each photo and asks with some of
            the query; each descriptor of the query gets as many rows as the shortlist has photos, and a photo counts
            the cubed similarities of its best row to each. Printed are the rows of a photo in the store, the
            descriptors that a query asks with, and the mAP of diffusion on the shortlist; the last line is the whole
            collection. Ways are chosen on the 55 queries of Oxford5k and reported on the 70 of the Revisited protocol
an address  how long publishing takes; and for each size of the shortlist the mAP, which part of the exact shortlist
            the store finds, how many queries rank their first 100 photos as the manifold does in process on the same
            shortlist, and how long each part of a query takes in the median: the shortlist, the rows, the system, the
            solution. Milvus takes an index into use some seconds after it was built: --wait so many before searching
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import harness
from harness import make_parser
from manifind import Manifold
from manifind.features import load_extractor
from manifind.gmm import compact
from manifind.groups import aggregate_one
from manifind.index import Index, QueryRegions, QueryView, Snapshot, retrieve
from manifind.index.config import RetrievalConfig
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import Catalogue, ImageRecord
from manifind.index.storage.manifest import SHIPPED, WhiteningOrigin
from manifind.ranking import Ranking
from manifind.remote.collection import StoredCollection
from manifind.remote.publish import DEFAULT_DESCRIPTORS, publish, shortlist_descriptors
from manifind.remote.row_format import photo_number
from manifind.remote.shortlist import shortlist_snapshot
from manifind.remote.store import Address, store_at
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


def measure_shortlists(k: int, sizes: list[int]) -> dict[str, Any]:
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


def index_of(protocol: harness.Protocol, k: int) -> Index:
    """Return an index in memory of descriptors whose photos are not at hand, kept in half precision."""
    manifold = Manifold(k=k, query_k=50).fit(protocol.vectors.astype(np.float16).astype(np.float32), protocol.image_of)
    records = [
        ImageRecord(i, f"{i:06d}.jpg", f"{i:064x}", 0, 0, 1024, 768) for i in range(len(manifold.layout_.images))
    ]
    boxes = np.zeros((len(manifold.vectors_), 4), np.float32)
    given = {"k": k, "query_k": 50, "alpha": 0.99}
    config = BuildConfig(Path("/nowhere"), load_extractor(), given, None, "mobilenet_v2", WhiteningOrigin(SHIPPED))
    state = Snapshot(1, "benchmark", config.manifest, Catalogue.of(records, []), manifold, boxes, None, {})
    return Index(Path("/nowhere/regions.manifind"), state)


def query(regions: FloatArray) -> QueryRegions:
    return QueryRegions.of([QueryView(regions, np.zeros((len(regions), 4), np.float32))])


def exact_shortlists(index: Index, queries: list[FloatArray], size: int, descriptors: int) -> list[set[int]]:
    """Return the photos that a store with exact search would choose, by number in the index."""
    manifold = index.manifold
    spans = [slice(a, b) for a, b in zip(manifold.layout_.starts[:-1], manifold.layout_.starts[1:], strict=True)]
    # Copies, as publishing makes them: means of the same rows elsewhere in memory may settle otherwise.
    means = [shortlist_descriptors(np.array(manifold.vectors_[span], np.float32), descriptors) for span in spans]
    vectors, of = np.concatenate(means), np.repeat(np.arange(len(means)), [len(one) for one in means])
    chosen = []
    for one in queries:
        similarities = shortlist_descriptors(one, descriptors) @ vectors.T
        scores = np.zeros(len(means))
        for row in similarities:
            best = np.argsort(-row)[:size]
            counted = np.zeros(len(means))
            np.maximum.at(counted, of[best], np.maximum(row[best], 0) ** 3)
            scores += counted
        chosen.append(set(np.argsort(-scores, kind="stable")[:size].tolist()))
    return chosen


def measure_store(
    address: str, index: Index, protocol: harness.Protocol, sizes: list[int], descriptors: int, wait: float
) -> Any:
    where = Address.parse(address)
    store = store_at(where)
    start = time.perf_counter()
    publish(index, store, descriptors=descriptors, grace=0)
    told: dict[str, Any] = {"address": where.shown, "publish_s": time.perf_counter() - start, "sizes": []}
    time.sleep(wait)
    number = {photo_number(one.key): one.number for one in index.catalogue.images}
    (task,) = protocol.tasks.values()
    for size in sizes:
        state = StoredCollection.open(where, store, RetrievalConfig(remote_photos=size))
        exact = exact_shortlists(index, protocol.queries, size, descriptors)
        rankings, times, overlaps, equal = [], [], [], 0
        for regions, right in zip(protocol.queries, exact, strict=True):
            moments = [time.perf_counter()]
            ((photos, rows),) = state.shortlists([regions])
            moments.append(time.perf_counter())
            packed = [row for row in store.fetch(rows) if row is not None]
            moments.append(time.perf_counter())
            facts: dict[str, Any] = {"number": 1, "stamp": "", "manifest": state.manifest}
            part = shortlist_snapshot(photos, packed, **facts)
            moments.append(time.perf_counter())
            (search,) = retrieve(part, [query(regions)], None)
            moments.append(time.perf_counter())
            times.append(np.diff(moments))
            own = np.array([number[int(photo)] for photo in np.sort(photos)])
            rankings.append(Ranking(own[search.ranking.images].astype(np.int32), search.ranking.scores))
            overlaps.append(len(right & set(own.tolist())) / len(right))
            here = index.manifold.search(regions, shortlist=np.sort(own))
            equal += bool((here.images[:100] == rankings[-1].images[:100]).all())
        parts = dict(zip(("shortlist", "rows", "system", "solution"), np.median(times, axis=0).tolist(), strict=True))
        told["sizes"].append(
            {
                "size": size,
                "map": task.mean_average_precision(rankings),
                "of_the_exact_shortlist": float(np.mean(overlaps)),
                "ranked_as_in_process": equal,
                "seconds": parts,
            }
        )
    store.close()
    return told


def print_shortlists(k: int, sizes: list[int], *, as_json: bool) -> None:
    measured = measure_shortlists(k, sizes)
    if as_json:
        print(json.dumps(measured, indent=1))
        return
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


def print_stores(addresses: list[str], arguments: Any, sizes: list[int]) -> None:
    protocol = harness.oxford5k()
    index = index_of(protocol, arguments.k)
    for address in addresses:
        told = measure_store(address, index, protocol, sizes, arguments.descriptors, arguments.wait)
        if arguments.json:
            print(json.dumps(told), flush=True)
            continue
        print(f"{told['address']}: published in {told['publish_s']:.0f} s")
        for one in told["sizes"]:
            seconds = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in one["seconds"].items())
            print(
                f"  shortlist {one['size']}: mAP {one['map']:.2f}, {one['of_the_exact_shortlist']:.1%} of the exact "
                f"one, {one['ranked_as_in_process']} of {len(protocol.queries)} ranked as in process; {seconds}",
                flush=True,
            )


def main() -> None:
    parser = make_parser(__doc__, "k")
    parser.add_argument("what", nargs="+", metavar="shortlists | ADDRESS …")
    parser.add_argument("--sizes", help="of shortlists; 100,250,500,1000, or 500,1000 for addresses")
    parser.add_argument("--descriptors", type=int, default=DEFAULT_DESCRIPTORS)
    parser.add_argument("--wait", type=float, default=0.0)
    arguments = parser.parse_args()
    harness.require_oxford5k()
    alone = arguments.what == ["shortlists"]
    sizes = [int(size) for size in (arguments.sizes or ("100,250,500,1000" if alone else "500,1000")).split(",")]
    if alone:
        print_shortlists(arguments.k, sizes, as_json=arguments.json)
    else:
        print_stores(arguments.what, arguments, sizes)


if __name__ == "__main__":
    main()

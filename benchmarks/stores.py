"""What a collection in a store answers, and how soon: Oxford5k, published to addresses.

    python benchmarks/stores.py folder:///tmp/stores/exact milvus://127.0.0.1:19530/flat?index=FLAT …
                                [--k K] [--sizes 500,1000] [--descriptors 5] [--wait SECONDS] [--json]

For each address: how long publishing takes; and for each size of the shortlist the mAP, which part of the exact
shortlist the store finds, how many queries rank their first 100 photos as the manifold does in process on the same
shortlist, and how long each part of a query takes in the median: the shortlist, the rows, the system, the solution.
Milvus takes an index into use some seconds after it was built: --wait so many before searching.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import harness
from harness import make_parser
from manifind import Manifold
from manifind.features import load_extractor
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
from manifind.types import FloatArray


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


def measure(
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
            facts: dict[str, Any] = {"number": 1, "stamp": "", "manifest": state.manifest, "chance": 0.4}
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


def main() -> None:
    parser = make_parser(__doc__, "k")
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--sizes", default="500,1000")
    parser.add_argument("--descriptors", type=int, default=DEFAULT_DESCRIPTORS)
    parser.add_argument("--wait", type=float, default=0.0)
    arguments = parser.parse_args()
    harness.require_oxford5k()
    protocol = harness.oxford5k()
    index = index_of(protocol, arguments.k)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    for address in arguments.addresses:
        told = measure(address, index, protocol, sizes, arguments.descriptors, arguments.wait)
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


if __name__ == "__main__":
    main()

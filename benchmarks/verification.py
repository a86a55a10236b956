"""How long it takes to verify the first photos of an answer by the features that an index keeps of them.

    python benchmarks/verification.py INDEX --truth TRUTH [--queries FOLDER] [--asked 14] [--first 50] [--repeats 3]
                                   [--json]

TRUTH is any that ``manifind evaluate --truth`` reads; photos of queries are looked for in the index, and those outside
it in FOLDER. The query's features are at hand, the photos' are unpacked. What is printed, over queries, evenly spaced:

manifind   milliseconds to look at the first photos as `Index.search` does: on the clock, by all threads; of the
           processor, by all threads; of the processor, by one thread alone
opencv     the same for OpenCV: brute force with cross-checking, then a homography by USAC, on the same features in as
           many threads; only where OpenCV is installed
ratio      OpenCV's time in parts of manifind's, the median of queries
verified   how many photos each of them verifies: `LIMITS` by manifind, as many inliers by OpenCV
voting     milliseconds of the processor, by one thread, in which the features of a query find the ten nearest among
           those of up to `AMONG` photos, and how much longer faiss takes (`knn_hamming`)

Data: an index of photos by its own parameters, all threads and one.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cutoff import Known, spaced
from harness import make_parser
from manifind.geometry import Features, PackedFeatures, VerificationConfig, VotingConfig, pack
from manifind.geometry.packing import gray_codes
from manifind.index import Index, QueryRegions, SearchConfig, extract_query_view, retrieve
from manifind.index.search.image_features import feature_kind, load_or_locate_features
from manifind.index.search.query import QueryFeatures, extract_query_features
from manifind.index.search.verification import verify_sources
from manifind.io import read_photo
from manifind.kernels import knn_hamming, set_threads, thread_count
from manifind.types import Box

Asked = tuple[Features, Box | None, list[PackedFeatures]]
Look = Callable[[Features, Box | None, Sequence[PackedFeatures]], int]
"""Looks at photos and returns how many it verifies."""
LIMITS = VerificationConfig()
SEED, AFTER = 7, 1000
"""Of OpenCV's chance, and how many maps it tries at most."""


def asked(known: Known, most: int, first: int) -> list[Asked]:
    """Return what queries look for, and what the index keeps of their first photos."""
    snapshot, found = known.index.state, []
    if snapshot.local is None:
        sys.exit("the index keeps no local features; make it with `manifind index PHOTOS --local-features`.")
    for query in spaced(known.protocol.queries, most):
        pixels = read_photo(known.file(query.image)).pixels
        view = extract_query_view(known.index.extractor, pixels, query.box)
        (retrieval,) = retrieve(snapshot, [QueryRegions.of([view])], None)
        features, box, _ = extract_query_features(pixels, query.box, kind=feature_kind(snapshot))
        images = retrieval.ranking.images[:first].tolist()
        photos = load_or_locate_features(snapshot, [snapshot.catalogue[image] for image in images])
        found.append((features, box, [one for one in photos if isinstance(one, PackedFeatures)]))
    return found


def by_manifind(query: Features, box: Box | None, photos: Sequence[PackedFeatures]) -> int:
    return sum(one.verified is True for one in verify_sources([QueryFeatures(query, box)], photos))


def by_opencv(query: Features, box: Box | None, photos: Sequence[PackedFeatures]) -> int:
    import cv2

    cv2.setNumThreads(1)
    side = max(query.width, query.height) if box is None else max(box[2] - box[0], box[3] - box[1])

    def look(kept: PackedFeatures) -> bool:
        photo = kept.features()
        found = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(query.descriptors, photo.descriptors)
        if len(found) < 4:
            return False
        a = query.keypoints[[one.queryIdx for one in found]] / side
        b = photo.keypoints[[one.trainIdx for one in found]] / max(photo.width, photo.height)
        cv2.setRNGSeed(SEED)
        _, inliers = cv2.findHomography(a, b, cv2.USAC_DEFAULT, LIMITS.image_tolerance, maxIters=AFTER)
        return inliers is not None and int(inliers.sum()) >= LIMITS.min_inliers

    with ThreadPoolExecutor(thread_count()) as pool:
        return sum(pool.map(look, photos))


def timed(look: Look, one: Asked) -> tuple[float, float, int]:
    """Return milliseconds on the clock, milliseconds of the processor, and how many were verified."""
    clock, processor = time.perf_counter(), time.process_time()
    verified = look(*one)
    return 1000 * (time.perf_counter() - clock), 1000 * (time.process_time() - processor), verified


def measured(queries: Sequence[Asked], ways: dict[str, Look], rounds: int) -> dict[str, Any]:
    """Return medians over queries of the least of some rounds; the ways take turns."""
    threads = thread_count()
    times: dict[str, list[list[tuple[float, float, int]]]] = {}
    for one in queries:
        seen: dict[str, list[tuple[float, float, int]]] = {}
        for _ in range(rounds):
            for name, look in ways.items():
                seen.setdefault(name, []).append(timed(look, one))
                set_threads(1)
                seen.setdefault(f"{name}, one thread", []).append(timed(look, one))
                set_threads(threads)
        for name, some in seen.items():
            times.setdefault(name, []).append(some)
    result: dict[str, Any] = {"queries": len(queries), "threads": threads}
    for name in ways:
        clock, processor, verified = (np.array([[row[i] for row in some] for some in times[name]]) for i in range(3))
        alone = np.array([[row[1] for row in some] for some in times[f"{name}, one thread"]])
        result[name] = {
            "ms_on_the_clock": float(np.median(clock.min(axis=1))),
            "ms_on_the_clock_worst": float(clock.min(axis=1).max()),
            "ms_of_the_processor": float(np.median(processor.min(axis=1))),
            "ms_of_the_processor_one_thread": float(np.median(alone.min(axis=1))),
            "verified": int(verified[:, 0].sum()),
        }
    if len(ways) > 1:
        ours, theirs = (
            np.array([min(row[1] for row in some) for some in times[f"{name}, one thread"]]) for name in ways
        )
        result["ratio"] = float(np.median(theirs / ours))
    return result


def voting(known: Known, queries: Sequence[Asked], rounds: int) -> dict[str, float]:
    """Return how long voters take to find the nearest features, and how much longer faiss takes."""
    import faiss

    local = known.index.state.local
    if local is None:
        sys.exit("the index keeps no local features; make it with `manifind index PHOTOS --local-features`.")
    rows = local.rows[: local.starts[min(VotingConfig().max_images, len(local.starts) - 1)]]
    codes, threads = gray_codes(rows, local.keeping.kind), thread_count()
    k = min(VotingConfig().neighbours, len(codes))
    set_threads(1)
    times = []
    for features, _, _ in queries:
        asking = gray_codes(pack(features), local.keeping.kind)
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(processor(lambda: knn_hamming(asking, codes, k)))  # noqa: B023
            theirs.append(processor(lambda: faiss.knn_hamming(asking, codes, k)))  # noqa: B023
        times.append((min(ours), min(theirs)))
    set_threads(threads)
    mine, other = np.array(times).T
    return {"features": len(codes), "ms": float(np.median(mine)), "ratio": float(np.median(other / mine))}


def processor(work: Callable[[], object]) -> float:
    """Return the milliseconds of the processor that work takes."""
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


def main() -> None:
    parser = make_parser(__doc__, "repeats")
    parser.add_argument("index", type=Path)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--queries", type=Path, help="the folder of queries' photos that are not in the index")
    parser.add_argument("--asked", type=int, default=14, help="how many queries, evenly spaced")
    parser.add_argument("--first", type=int, default=SearchConfig().depth.first, help="how many photos of each answer")
    args = parser.parse_args()
    ways: dict[str, Look] = {"manifind": by_manifind}
    try:
        import cv2  # noqa: F401
    except ImportError:
        pass
    else:
        ways["opencv"] = by_opencv
    known = Known(Index.open(args.index), args.truth, args.queries)
    queries = asked(known, args.asked, args.first)
    result = measured(queries, ways, args.repeats) | {"voting": voting(known, queries, args.repeats)}
    if args.json:
        json.dump(result, sys.stdout, indent=1)
        return
    for name, value in result.items():
        print(name, json.dumps(value))


if __name__ == "__main__":
    main()

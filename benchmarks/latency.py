"""How long a search takes, by stage, beside faiss, SciPy and OpenCV doing the same steps.

    python benchmarks/latency.py INDEX [--queries 24] [--top 20] [--alone] [--json]

INDEX is an index of photos whose files are at hand, or a folder of photos, which is indexed first. Queries are photos
of the index, evenly spaced, each with the box of its middle half; the first query is not counted. Rows are the stages
of `Index.search_steps`, from the call to the result: the ranking, the verified ranking, and the last result. Columns
are the median and the 95th percentile of wall time and of processor time (all threads), in milliseconds.

The peers, with the same network: faiss `IndexFlatIP` (its BLAS threshold lowered) for the neighbours of the query,
SciPy `cg` in float32 for 20 iterations, NumPy for pooling; OpenCV's SIFT of the box, `BFMatcher` both ways with a ratio
test and `estimateAffinePartial2D` against 500 features of each of the first 50 photos, extracted beforehand; then the
same retrieval, and verification of 25, as after query expansion; at last SIFT of the files of six photos at full
resolution. `--alone` leaves them out.

Data: an index of photos by its own parameters, all threads.
"""

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator, cg

from harness import Row, cpu, make_parser, print_results, versions
from manifind import Index
from manifind.index import Stage
from manifind.io import key_to_path, read_photo
from manifind.types import Box

cv2: Any = importlib.import_module("cv2")
Pixels = npt.NDArray[np.uint8]
RANKING, VERIFIED, COMPLETE = "first result", "verified", "complete"
FIRST, CLOSER, LONG_SIDES = 50, 6, (768, 1152)


def clocks() -> npt.NDArray[np.float64]:
    """Return the wall's clock and that of the processor, of all threads."""
    return np.array([time.perf_counter(), time.process_time()])


def queries_of(index: Index, count: int) -> list[tuple[str, Box]]:
    """Return photos of an index, evenly spaced, with the box of their middle half."""
    records = index.catalogue.images
    places = np.unique(np.linspace(0, len(records) - 1, count + 1).astype(int))
    return [
        (one.key, (one.width / 4, one.height / 4, 3 * one.width / 4, 3 * one.height / 4))
        for one in (records[place] for place in places)
    ]


def search(index: Index, key: str, box: Box, top: int) -> dict[str, npt.NDArray[np.float64]]:
    """Return the times from the call of a search to its results."""
    times: dict[str, npt.NDArray[np.float64]] = {}
    file, started = key_to_path(index.root, key), clocks()
    for result in index.search_steps(str(file), box, top=top):
        if result.progress is None and result.stage == Stage.RETRIEVED:
            times.setdefault(RANKING, clocks() - started)
        elif result.progress is None:
            times.setdefault(VERIFIED, clocks() - started)
        times[COMPLETE] = clocks() - started
    return times


class Peers:
    """faiss, SciPy and OpenCV on the descriptors and photos of an index."""

    def __init__(self, index: Index) -> None:
        self._index, manifold = index, index.manifold
        vectors = np.asarray(manifold.vectors_, np.float32)
        self._flat = faiss.IndexFlatIP(vectors.shape[1])
        self._flat.add(vectors)
        faiss.cvar.distance_compute_blas_threshold = 1
        S, self._alpha = manifold.S_.astype(np.float32), np.float32(manifold.alpha)
        self._system = LinearOperator(S.shape, matvec=lambda x: x - self._alpha * (S @ x), dtype=np.float32)
        self._query_k, self._starts = int(manifold.query_k), manifold.layout_.starts[:-1]
        self._sift = cv2.SIFT_create(500)
        self._features: dict[int, Any] = {}

    def search(self, key: str, box: Box) -> dict[str, npt.NDArray[np.float64]]:
        """Do the steps of a search; return the times from the start to its results."""
        file, started = key_to_path(self._index.root, key), clocks()
        pixels = read_photo(file).pixels
        x0, y0, x1, y1 = map(int, box)
        part = np.ascontiguousarray(pixels[y0:y1, x0:x1])
        vectors = self._index.extractor.extract(part).vectors
        ranking = self._retrieve(vectors)
        times, began = {RANKING: clocks() - started}, clocks()
        self._prepare(ranking[:FIRST])  # stored beforehand: not counted
        started += clocks() - began
        query = self._sift_of(part, 768)
        for image in ranking[:FIRST]:
            self._match(query, self._features[image])
        times[VERIFIED] = clocks() - started
        again = self._retrieve(np.concatenate([vectors, vectors[:4]]))
        began = clocks()
        self._prepare(again[:FIRST])
        started += clocks() - began
        for image in again[: FIRST // 2]:
            self._match(query, self._features[image])
        for image in again[:CLOSER]:
            self._match(query, self._sift_of(self._photo(image, LONG_SIDES[1]), LONG_SIDES[1], 3_000))
        times[COMPLETE] = clocks() - started
        return times

    def _retrieve(self, vectors: npt.NDArray[np.float32]) -> list[int]:
        """Return the images, best first: eq. 8, 4 and 13 of the paper, pooled by the largest score."""
        similarities, ids = self._flat.search(vectors, self._query_k)
        y = np.zeros(self._flat.ntotal, np.float32)
        np.add.at(y, ids.ravel(), np.maximum(similarities.ravel(), 0) ** 3)
        f, _ = cg(self._system, y, rtol=1e-6, maxiter=20)
        ranking: list[int] = np.argsort(-np.maximum.reduceat(f, self._starts))[: 2 * FIRST].tolist()
        return ranking

    def _prepare(self, images: Sequence[int]) -> None:
        for image in images:
            if image not in self._features:
                self._features[image] = self._sift_of(self._photo(image, LONG_SIDES[0]), LONG_SIDES[0])

    def _photo(self, image: int, long_side: int) -> Pixels:
        return read_photo(key_to_path(self._index.root, self._index.catalogue[image].key), long_side=long_side).pixels

    def _sift_of(self, pixels: Pixels, long_side: int, limit: int = 500) -> Any:
        scale = min(1.0, long_side / max(pixels.shape[:2]))
        grey = cv2.cvtColor(
            cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY
        )
        return (self._sift if limit == 500 else cv2.SIFT_create(limit)).detectAndCompute(grey, None)

    def _match(self, query: Any, photo: Any) -> int:
        """Return how many matches one transform takes over."""
        (points, ours), (others, theirs) = query, photo
        if ours is None or theirs is None or min(len(ours), len(theirs)) < 2:
            return 0
        matcher = cv2.BFMatcher()
        back = {pair.queryIdx: pair.trainIdx for pair in matcher.match(theirs, ours)}
        good = [
            a
            for a, b in matcher.knnMatch(ours, theirs, k=2)
            if a.distance < 0.88 * b.distance and back[a.trainIdx] == a.queryIdx
        ]
        if len(good) < 4:
            return 0
        pairs = (np.array([points[m.queryIdx].pt for m in good]), np.array([others[m.trainIdx].pt for m in good]))
        _, inliers = cv2.estimateAffinePartial2D(*pairs, ransacReprojThreshold=6)
        return 0 if inliers is None else int(inliers.sum())


def measure(
    name: str, work: Callable[[str, Box], dict[str, npt.NDArray[np.float64]]], queries: Sequence[tuple[str, Box]]
) -> Iterator[Row]:
    """Yield a row for each stage; the first query warms up."""
    times = [work(*query) for query in queries][1:]
    for stage in (RANKING, VERIFIED, COMPLETE):
        seconds = 1000 * np.array([of[stage] for of in times if stage in of])
        if len(seconds):
            medians, late = np.median(seconds, axis=0), np.quantile(seconds, 0.95, axis=0)
            yield {
                "what": name,
                "stage": stage,
                "wall ms": medians[0],
                "wall 95 %": late[0],
                "processor ms": medians[1],
                "processor 95 %": late[1],
            }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--queries", type=int, default=24)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = (arguments.index / "manifest.json").exists()
        index = Index.open(arguments.index) if made else Index.create(Path(folder) / "i.manifind", arguments.index)
        queries = queries_of(index, arguments.queries)
        rows = list(measure("manifind", lambda key, box: search(index, key, box, arguments.top), queries))
        if not arguments.alone:
            rows += measure("faiss + SciPy + OpenCV", Peers(index).search, queries)
        conditions = {
            "index": arguments.index.name,
            "photos": len(index),
            "regions": len(index.boxes),
            "queries": len(queries) - 1,
            "cpu": cpu(),
            **versions(),
            "opencv": cv2.__version__,
        }
        print_results(conditions, rows, as_json=arguments.json)


if __name__ == "__main__":
    main()

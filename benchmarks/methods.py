"""Why methods do on Oxford5k what they do: the figures of docs/oxford5k.md.

    python benchmarks/methods.py [--part expansion | helped | solvers | photos | float16 ...] [--json]
    python benchmarks/methods.py --part hamming --index INDEX --truth TRUTH [--words 4096]

The table of all methods is ``manifind evaluate``'s. Average precision is the trapezoid, as in Oxford's own program; mAP
is in percent. ``expansion`` is what the number of images does to query expansion, and why; ``solvers`` is what the
solvers that work off line keep of conjugate gradient's mAP; ``photos`` is Hamming query expansion on planted scenes,
``hamming`` the same on the local features that an index stores (RootSIFT, 1,000 a photo), for the queries of TRUTH.
``helped`` reads what ``manifind evaluate`` wrote: mAP before and after expansion, for queries with at least four of the
first five images right before it, and for all others. ``float16`` is what keeping descriptors in half precision does to
mAP, to the first 100 images and to scores. The descriptors at hand were stored rounded: for single precision, each
entry moves at random within the interval that rounds to it.

Data: the descriptors of Oxford5k (``harness.py``), n = 106,887, d = 512; k = query_k = 50 or as a part says, all
threads.
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

import harness
from cutoff import Known
from manifind import Index, Manifold, __version__
from manifind.baselines import (
    AlphaQueryExpansion,
    AverageQueryExpansion,
    HammingQueryExpansion,
    ImageScorer,
    NearestImages,
    RegionalDiffusion,
    RegionMatchExpansion,
)
from manifind.baselines.similarity import unit
from manifind.demo.scenes import make_scenes
from manifind.evaluation import mean_average_precision
from manifind.geometry import extract
from manifind.graph import exact_neighbours
from manifind.io import ListedFile, list_photos, read_photo
from manifind.kernels import thread_count
from manifind.types import FloatArray

Row = dict[str, Any]
Protocol = harness.Protocol
EVALUATED = Path(__file__).resolve().parents[1] / "docs" / "oxford5k" / "results.json"
PAIRS = (("nearest", "aqe"), ("nearest", "alpha-qe"), ("r-match", "r-match-aqe"))
WELL = 4
"""Of the first five images, how many a query that begins well has right."""


def scored(method: ImageScorer, protocol: Protocol) -> Row:
    began = time.perf_counter()
    method.fit(protocol.vectors, protocol.image_of)
    fitted = time.perf_counter()
    rankings = method.search_many(protocol.queries)
    searched = time.perf_counter()
    figures = {name: task.mean_average_precision(rankings) for name, task in protocol.tasks.items()}
    return figures | {"fit_s": fitted - began, "ms_a_query": 1e3 * (searched - fitted) / len(rankings)}


def expansion(oxford: Protocol) -> Iterator[Row]:
    task = oxford.tasks["Oxford5k"]
    plain = NearestImages().fit(oxford.vectors, oxford.image_of)
    rankings = plain.search_many(oxford.queries)
    for count in (1, 2, 3, 5, 10, 20, 50):
        first = [
            ranking.images[~np.isin(ranking.images, junk)][:count]
            for ranking, junk in zip(rankings, task.junk, strict=True)
        ]
        right = [own[np.isin(own, wanted)] for own, wanted in zip(first, task.positives, strict=True)]
        ideal = [
            plain.search(unit(query + plain.global_vectors_[own].sum(axis=0, keepdims=True)))
            for query, own in zip(oxford.whole_queries, right, strict=True)
        ]
        yield {
            "images": count,
            "right_among_them": float(np.mean([len(own) / count for own in right])),
            "similarity_of_the_last": float(np.mean([ranking.scores[count - 1] for ranking in rankings])),
            "AQE": scored(AverageQueryExpansion(neighbours=count), oxford)["Oxford5k"],
            "AQE_by_the_right_ones_only": task.mean_average_precision(ideal),
            "alphaQE": scored(AlphaQueryExpansion(neighbours=count), oxford)["Oxford5k"],
            "R-match+AQE": scored(RegionMatchExpansion(neighbours=count), oxford)["Oxford5k"],
        }


def solvers(oxford: Protocol) -> Iterator[Row]:
    task = oxford.tasks["Oxford5k"]
    lists = exact_neighbours(oxford.vectors, 50)
    whole_lists = exact_neighbours(oxford.whole_images, 50)
    whole = oxford.whole_images, None, whole_lists, oxford.whole_queries, 10
    regional = oxford.vectors, oxford.image_of, lists, oxford.queries, 50
    cases: list[tuple[str, Any, list[tuple[str, int]]]] = [
        ("global, k = 50", whole, [("cg", 1), *(("offline", s) for s in (100, 300, 1000))]),
        ("global, k = 50", whole, [("spectral", rank) for rank in (100, 300)]),
        ("regional, k = 50", regional, [("cg", 1), ("offline", 500)]),
        ("regional, k = 50", regional, [("spectral", 300)]),
    ]
    for graph, (vectors, image_of, known, queries, query_k), settings in cases:
        for solver, size in settings:
            baseline = RegionalDiffusion(k=50, query_k=query_k, solver=solver, size=size)
            began = time.process_time()
            baseline.fit(vectors, image_of, find=lambda *_, known=known: known)
            ready, began_search = time.process_time(), time.perf_counter()
            rankings = baseline.search_many(queries)
            yield {
                "graph": graph,
                "solver": solver,
                "size": size,
                "Oxford5k": task.mean_average_precision(rankings),
                "fit_cpu_s": ready - began,
                "ms_a_query": 1e3 * (time.perf_counter() - began_search) / len(queries),
            }


def helped(_: Protocol) -> Iterator[Row]:
    results = json.loads(EVALUATED.read_text())["results"]
    for column in dict.fromkeys(row["column"] for row in results):
        rows = {row["method"]: row for row in results if row["column"] == column}
        for plain, expanded in PAIRS:
            pairs: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            before, after = rows[plain], rows[expanded]
            for a, b, right in zip(
                before["average_precisions"], after["average_precisions"], before["right_of_first_5"], strict=True
            ):
                if a is not None:
                    pairs[right >= WELL].append((a, b))
            for well, values in pairs.items():
                if values:
                    yield {
                        "column": column,
                        "method": expanded,
                        "queries": f"{len(values)} {'with four of the first five right' if well else 'others'}",
                        "before": float(np.mean([a for a, _ in values])),
                        "after": float(np.mean([b for _, b in values])),
                    }


def float16(oxford: Protocol) -> Iterator[Row]:
    task = oxford.tasks["Oxford5k"]
    rounded = oxford.vectors.astype(np.float16).astype(np.float32)
    single, half = (
        Manifold(k=50, query_k=50).fit(vectors, oxford.image_of).search_many(oxford.queries)
        for vectors in (before_rounding(rounded), rounded)
    )
    pairs = list(zip(single, half, strict=True))
    yield {
        "single": task.mean_average_precision(single),
        "half": task.mean_average_precision(half),
        "first_100_in_common": float(np.mean([np.isin(a.images[:100], b.images[:100]).mean() for a, b in pairs])),
        "scores_apart_by_at_most": max(
            float(np.abs(a.scores[np.argsort(a.images)] - b.scores[np.argsort(b.images)]).max() / a.scores[0])
            for a, b in pairs
        ),
    }


def before_rounding(rounded: FloatArray) -> FloatArray:
    """Return what the entries may have been before they were rounded to half precision."""
    rng = np.random.default_rng(0)
    finer = rounded.copy()
    for start in range(0, len(finer), 2**14):
        block = finer[start : start + 2**14]
        interval = np.spacing(np.abs(block).astype(np.float16)).astype(np.float32)
        block += rng.uniform(-0.499, 0.499, block.shape).astype(np.float32) * interval
    return finer


def photos(_: Protocol) -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        scenes = make_scenes(folder)
        files = [file for file in list_photos(scenes.folder) if isinstance(file, ListedFile)]
        method = HammingQueryExpansion(words=4096).fit([file.path for file in files])
        place = {file.key: i for i, file in enumerate(files)}
        wanted = [[place[one.file] for one in scenes.truth if one.shows == query.shows] for query in scenes.queries]
        asked = [(scenes.queries_folder / query.file, query.box) for query in scenes.queries]
        for name, growth, reliable in (("HQE", 1.0, 10), ("twice the words", 2.0, 10), ("first search", 1.0, 10**9)):
            method.growth, method.reliable = growth, reliable
            rankings = method.search_many(asked)
            yield {"method": name, "scenes": 100 * mean_average_precision(rankings, wanted)}


class StoredDescriptors(Sequence[FloatArray]):
    """The local descriptors of an index's photos, in the order by which a ground truth numbers them."""

    def __init__(self, known: Known) -> None:
        snapshot = known.index.state
        if snapshot.local is None:
            raise SystemExit("the index stores no local features; add them: manifind index PHOTOS --local-features.")
        self.config, self._stored = snapshot.local.keeping, snapshot.local
        records = {record.key: record for record in known.index.catalogue.images}
        self._records = [
            records[known.key_of[i]] if i in known.key_of else None for i in range(len(known.protocol.images))
        ]

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, image: Any) -> Any:
        record = self._records[image]
        if record is None:
            return np.empty((0, 128), np.float32)
        return self._stored.of_photo(record).features().descriptors


def hamming(index: Path, truth: Path, words: int) -> Iterator[Row]:
    """Yield mAP of each column, of the expanded query and of the first search alone."""
    known = Known(Index.open(index), truth, None)
    images = StoredDescriptors(known)
    began = time.process_time()
    method = HammingQueryExpansion(words=words).fit_descriptors(images)
    fitted = time.process_time() - began
    features = [
        extract(read_photo(known.file(query.image)).pixels, query.box, **images.config.fields).descriptors
        for query in known.protocol.queries
    ]
    for name, reliable in (("HQE", 10), ("first search", 10**9)):
        method.reliable = reliable
        began = time.process_time()
        rankings = [method.search_descriptors(one) for one in features]
        yield {
            "method": name,
            "photos": len(images),
            "words": words,
            **{known.protocol.column(task): task.mean_average_precision(rankings) for task in known.protocol.tasks},
            "fit_cpu_s": fitted,
            "cpu_ms_a_query": 1e3 * (time.process_time() - began) / len(features),
        }


PARTS = {"expansion": expansion, "helped": helped, "solvers": solvers, "photos": photos, "float16": float16}


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("--part", choices=[*PARTS, "hamming"], action="append", help="only this part; may be repeated")
    parser.add_argument("--index", type=Path, help="hamming: an index with local features")
    parser.add_argument("--truth", type=Path, help="hamming: any that manifind evaluate --truth reads")
    parser.add_argument("--words", type=int, default=4096, help="hamming: of the vocabulary")
    arguments = parser.parse_args()
    parts: list[str] = arguments.part or list(PARTS)
    results: Row = {"version": __version__, "definition": "trapezoid", "threads": thread_count()}
    if {"expansion", "solvers", "float16"} & set(parts):
        harness.require_oxford5k()
    oxford = harness.oxford5k() if harness.at_hand() else None
    for part in parts:
        if part == "hamming":
            if arguments.index is None or arguments.truth is None:
                parser.error("--part hamming needs --index and --truth")
            rows = hamming(arguments.index, arguments.truth, arguments.words)
        else:
            rows = PARTS[part](cast(Protocol, oxford))
        results[part] = list(rows)
        if not arguments.json:
            print(f"\n{part}\n{harness.table(results[part])}", flush=True)
    if arguments.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

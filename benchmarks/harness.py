"""What benchmarks share: their data, their options, timing in turns, and the printing of results.

The data are region descriptors of Oxford5k where they are at hand, in the folder that ``MANIFIND_DATA`` names or in
``../shared/data`` beside the repository: 5,063 photos (Philbin et al. 2007), 106,887 regions, MobileNetV2, 512
dimensions after whitening; 55 queries with their ground truth, and the 70 queries of the Revisited protocol
(Radenović et al. 2018) on 4,993 of the photos. Elsewhere `collection` makes synthetic regions, and says so.

Every benchmark takes ``--threads`` (all cores by default) and ``--json``; those that repeat their work ``--repeats``,
of which the median counts. Indexes, photos and ground truths stand on the command line. ``scripts/figures`` runs them.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import faiss
import numpy as np
import scipy

from manifind import __version__
from manifind.evaluation import Task, read_truth
from manifind.evaluation.dataset import EvaluationSet, prepare
from manifind.evaluation.descriptors import read_collection, read_queries
from manifind.groups import Layout, aggregate, aggregate_one
from manifind.kernels import set_threads, thread_count
from manifind.types import FloatArray, IntArray

DATA = Path(os.environ.get("MANIFIND_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
FOLDER = DATA / "oxford5k"
BATCH = 64
Result = TypeVar("Result")
Row = dict[str, Any]


def at_hand() -> bool:
    """Return whether the descriptors of Oxford5k are there."""
    return (FOLDER / "vectors.npy").is_file()


@dataclass(frozen=True)
class Protocol:
    """The descriptors of Oxford5k with a ground truth."""

    data: EvaluationSet

    @property
    def vectors(self) -> FloatArray:
        return self._regions[0]

    @property
    def image_of(self) -> IntArray:
        return self._regions[1]

    @cached_property
    def queries(self) -> list[FloatArray]:
        assert self.data.queries.regional is not None  # noqa: S101
        return self.data.queries.regional.split()

    @property
    def tasks(self) -> dict[str, Task]:
        return {task.name: task for task in self.data.protocol.tasks}

    @cached_property
    def whole_images(self) -> FloatArray:
        """Global descriptors, a row for each image number."""
        return aggregate(self.vectors, Layout.of(self.image_of))

    @cached_property
    def whole_queries(self) -> list[FloatArray]:
        """The global descriptor of each query."""
        return [aggregate_one(query) for query in self.queries]

    @property
    def _regions(self) -> tuple[FloatArray, IntArray]:
        assert self.data.images.regional is not None  # noqa: S101
        return self.data.images.regional.vectors, self.data.images.regional.of


def oxford5k() -> Protocol:
    """Return the 55 queries of Oxford5k."""
    return _read("oxford5k")


def revisited() -> Protocol:
    """Easy, Medium and Hard; image numbers are places in the ground truth's own list of photos."""
    return _read("roxford5k")


def _read(name: str) -> Protocol:
    collection, _ = read_collection(FOLDER)
    truth = read_truth(FOLDER / f"ground_{name}.json", collection.names)
    return Protocol(prepare(truth, collection, read_queries(FOLDER / f"queries_{name}.npz")))


def require_oxford5k() -> None:
    """End the program in one sentence where the descriptors of Oxford5k are not at hand."""
    if not at_hand():
        raise SystemExit(f"the descriptors of Oxford5k are not at hand; lay them at {FOLDER}.")


OPTIONS: dict[str, dict[str, Any]] = {
    "rows": {"type": int, "help": "only so many regions, or more than there are"},
    "k": {"type": int, "default": 50, "help": "neighbours of each region"},
    "query_k": {"type": int, "default": 50, "help": "neighbours of each region of a query"},
    "threads": {"type": int, "default": thread_count(), "help": "of all libraries"},
    "repeats": {"type": int, "default": 3, "help": "runs of each work, of which the median counts"},
    "json": {"action": "store_true", "help": "print JSON instead of a table"},
}


class BenchmarkParser(argparse.ArgumentParser):
    """Reads the options of a benchmark, and lets all libraries have ``--threads`` threads."""

    def parse_args(self, *given: Any, **more: Any) -> Any:
        options = super().parse_args(*given, **more)
        set_threads(options.threads)
        return options


def make_parser(doc: str | None, *names: str, **defaults: Any) -> BenchmarkParser:
    """Return a parser of the options of these names, and of those with another default.

    Every benchmark takes ``--threads`` and ``--json``; those that repeat their work ``--repeats``.
    """
    parser = BenchmarkParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in dict.fromkeys([*names, *defaults, "threads", "json"]):
        option = OPTIONS[name] | ({"default": defaults[name]} if name in defaults else {})
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    return parser


def collection(rows: int | None) -> tuple[str, FloatArray, IntArray, list[FloatArray]]:
    """Return what the data is, its regions, and 64 queries; more regions than there are are made up, which it says."""
    if at_hand():
        protocol = oxford5k()
        vectors, image_of, queries = protocol.vectors, protocol.image_of, protocol.queries
        name = "Oxford5k regions"
    else:
        rng = np.random.default_rng(0)
        image_of = np.repeat(np.arange(5000, dtype=np.int32), 21)
        views = rng.standard_normal((3000, 512))[rng.integers(3000, size=len(image_of))]
        vectors = (views + 0.7 * rng.standard_normal(views.shape)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        queries = [vectors[at * 21 : at * 21 + 21] for at in range(BATCH)]
        name = "synthetic regions (no Oxford5k at hand)"
    queries = (queries * (BATCH // len(queries) + 1))[:BATCH]
    if rows is not None and rows > len(vectors):
        name += f", and {rows - len(vectors):,} made of them by noise"
        return name, *_grown(vectors, image_of, rows), queries
    return name, vectors[:rows], image_of[:rows], queries


def _grown(vectors: FloatArray, image_of: IntArray, rows: int) -> tuple[FloatArray, IntArray]:
    """Add regions near others, 21 of different ones to a photo."""
    rng = np.random.default_rng(0)
    n, d = vectors.shape
    grown = np.empty((rows, d), np.float32)
    grown[:n] = vectors
    for start in range(n, rows, 2**16):
        make_near(vectors, rng, grown[start : start + 2**16])
    more = image_of[-1] + 1 + np.arange(rows - n, dtype=np.int32) // 21
    return grown, np.concatenate([image_of, more])


def make_near(vectors: FloatArray, rng: np.random.Generator, out: FloatArray) -> None:
    """Fill `out` with unit rows near some of `vectors`."""
    out[:] = vectors[rng.integers(len(vectors), size=len(out))]
    out += rng.standard_normal(out.shape, np.float32) * np.float32(0.7 / np.sqrt(out.shape[1]))
    out /= np.linalg.norm(out, axis=1, keepdims=True)


def in_turns(
    repeats: int, *works: Callable[[], object], snapshot: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the median seconds of each, by the wall's clock or another."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, taken in zip(works, seconds, strict=True):
            began = snapshot()
            work()
            taken.append(snapshot() - began)
    return [median(taken) for taken in seconds]


class Clock:
    """CPU time with one thread, so that it can be measured on a busy machine; the wall's with more."""

    def __init__(self, threads: int) -> None:
        self._snapshot = time.process_time if threads == 1 else time.perf_counter

    def in_turns(self, repeats: int, *works: Callable[[], object]) -> list[float]:
        """Return the median seconds of each."""
        return in_turns(repeats, *works, snapshot=self._snapshot)

    def once(self, work: Callable[[], Result]) -> tuple[float, Result]:
        """Return the seconds that it took, and what it returned."""
        began = self._snapshot()
        result = work()
        return self._snapshot() - began, result


def limits(clock: Clock) -> dict[str, float]:
    """Measure the rate of a matrix product and of reading memory, here and now."""
    a = np.random.default_rng(0).random((1024, 1024), np.float32)
    much = np.ones(2**26, np.float32)  # zeros would be one page, read again and again
    product, reading = clock.in_turns(5, lambda: a @ a, lambda: much.max())
    return {"sgemm_gflops": 2 * 1024**3 / product / 1e9, "read_gb_s": much.nbytes / reading / 1e9}


def versions() -> dict[str, str]:
    return {
        "manifind": __version__,
        "faiss": faiss.__version__,
        "scipy": scipy.__version__,
        "numpy": np.__version__,
    }


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(rows: list[Row]) -> str:
    """Lay rows out in columns."""

    def shown(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

    columns = list(rows[0])
    cells = [columns, *([shown(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    aligned = [
        [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in cells
    ]
    return "\n".join("  ".join(line) for line in aligned)


def print_results(conditions: Row, rows: list[Row], *, as_json: bool) -> None:
    """Print what was measured, and on what machine and data."""
    if as_json:
        print(json.dumps({**conditions, "rows": rows}, indent=1))
        return
    for key, value in conditions.items():
        print(f"{key:16} {value}")
    print(table(rows))

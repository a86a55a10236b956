"""The data and the machine of the benchmarks, timing in turns, and the printing of results."""

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import faiss
import numpy as np
import scipy

import oxford5k_data
from manifind import __version__
from manifind.types import FloatArray, IntArray

BATCH = 64
Result = TypeVar("Result")
Row = dict[str, Any]


def collection(rows: int | None) -> tuple[str, FloatArray, IntArray, list[FloatArray]]:
    """Return what the data is, its regions, and 64 queries; more regions than there are are made up, which it says."""
    if oxford5k_data.at_hand():
        protocol = oxford5k_data.oxford5k()
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

"""What the benchmarks run on and how they take turns."""

import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import faiss
import numpy as np
import scipy

import oxford5k_data
from manifind import __version__
from manifind.validation import FloatArray, IntArray

BATCH = 64


def collection(rows: int | None) -> tuple[str, FloatArray, IntArray, list[FloatArray]]:
    """Return what the data is, its regions, and 64 queries."""
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
    return name, vectors[:rows], image_of[:rows], queries


def in_turns(repeats: int, *works: Callable[[], object], now: Callable[[], float] = time.perf_counter) -> list[float]:
    """Return the median seconds of each, by the wall's clock or another."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, taken in zip(works, seconds, strict=True):
            began = now()
            work()
            taken.append(now() - began)
    return [median(taken) for taken in seconds]


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

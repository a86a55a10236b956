"""What a build will take, before it begins: time, disk and memory.

Time is measured, not guessed: a picture of noise is described and a few products are multiplied on this machine, which
takes a fraction of a second. Bytes are counted from the arrays that will be written and the lists that will be held.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manifind import kernels
from manifind.describe import Describer
from manifind.describe.ahead import MEMORY
from manifind.describe.limits import MAX_BYTES
from manifind.errors import InvalidInput
from manifind.graph import AUTO, choose, expected_seconds
from manifind.index.gather import Plan
from manifind.index.generation import Generation
from manifind.index.recipe import Recipe
from manifind.manifold import LARGEST_CHANGE
from manifind.types import FloatArray

LONG = 200
"""Photos to describe from which a build is long enough to be announced."""

MUTUAL = 0.5
"""Share of neighbours that are mutual, at most, in collections that were seen (0.44 on Oxford5k at k = 100)."""

TEMPORARY = {True: 1.25, False: 3}
"""How many times the graph is in memory while mutual neighbours are picked out, with the compiled core and without."""

BARE = 2**28
"""Bytes that Python, its libraries and a network take."""

PROGRAM = BARE + MEMORY
"""The same, with the photos being read."""

LEAST_SCRATCH = 2**24

DOWNHILL = 0.8
"""Describing photos from files against describing one picture again and again: decoding runs beside it."""


@dataclass(frozen=True)
class Estimate:
    """What a build is expected to take."""

    photos: int
    """To describe."""
    regions: int
    """In all."""
    seconds: float
    disk: int
    """Bytes while it runs, beyond what is there now."""
    kept: int
    """Bytes of the finished index."""
    memory: int
    """Bytes of memory at its height."""

    def __str__(self) -> str:
        return (
            f"{self.photos:,} photos to describe, {self.regions:,} regions in all: about {duration(self.seconds)}, "
            f"{size(self.kept)} on disk ({size(self.disk)} while it runs), {size(self.memory)} of memory"
        )


Announce = Callable[[Estimate], None]


def prepared(
    path: Path, recipe: Recipe, chosen: Plan, known: Generation | None, memory: int | None, announce: Announce | None
) -> int:
    """Refuse what cannot fit on the disk or in `memory`, announce what will take long, and return what scratch to use.

    Work that is small in every respect is neither measured nor refused.
    """
    long = len(chosen.new) >= LONG
    expected = estimate(recipe, chosen, known, timed=long and announce is not None)
    free = shutil.disk_usage(path).free
    if chosen.new and expected.disk > free:
        raise OSError(
            errno.ENOSPC,
            f"{size(expected.disk)} are needed for {expected.regions:,} regions and {size(free)} are free; free some "
            "space, or choose another disk",
            os.fspath(path),
        )
    scratch = recipe.manifold().check_params().memory
    if memory is not None:
        held = expected.memory - scratch
        if memory < held + LEAST_SCRATCH:
            raise InvalidInput(
                f"memory is {size(memory)}, and a graph of {expected.regions:,} regions needs "
                f"{size(held + LEAST_SCRATCH)}; give that much, or make the index with a smaller k or with means."
            )
        scratch = min(scratch, memory - held)
    if announce is not None and long:
        announce(expected)
    return scratch


def reading_limits(memory: int | None) -> dict[str, int]:
    """Return what `read_ahead` may take of the memory that a build has: all that is left while nothing else is held."""
    if memory is None:
        return {}
    share = max(memory - BARE, LEAST_SCRATCH)
    return {"memory": share, "max_bytes": min(share, MAX_BYTES)}


def estimate(recipe: Recipe, chosen: Plan, known: Generation | None, *, timed: bool = True) -> Estimate:
    """Return what it will take to describe the new photos of a plan and to bring the graph to all of them."""
    checked, d = recipe.manifold().check_params(), recipe.dimension
    photos = len(chosen.known) + len(chosen.new)
    each = recipe.regions_a_photo if known is None else len(known.boxes) / len(known.catalogue)
    n, new = round(photos * each), round(len(chosen.new) * each)
    width = min(checked.k + checked.reserve, max(1, n - 1))
    edges = round(n * min(checked.k, n) * MUTUAL)
    lists = 8 * n * width
    kept = n * (2 * d + 16 + 8 + 8) + lists + 8 * edges + 4 * photos * d + 300 * photos
    whole = known is None or new > LARGEST_CHANGE * n
    # Before a whitening is learnt, all channels are kept; afterwards it is kept, in single precision.
    channels = recipe.describer.backbone.spec.channels
    raw = 0 if recipe.learning is None else new * (2 * channels + 16)
    kept += 0 if d == channels and recipe.learning is None else 4 * channels * (d + 1)
    scratch = raw + n * 2 * d + new * (2 * d + 16) + (4 * n * d if whole else 0)
    seconds = 0.0
    if timed:
        method = choose(n, checked.k) if checked.graph == AUTO else checked.graph
        share = expected_seconds(method, n, checked.k, d) / max(expected_seconds("exact", n, checked.k, d), 1e-9)
        multiplications = share * n * n * d if whole else 2 * n * new * d
        seconds = len(chosen.new) * seconds_a_photo(recipe.describer) + multiplications * _seconds_a_multiplication(d)
    memory = PROGRAM + checked.memory + lists + round(TEMPORARY[kernels.compiled()] * 8 * edges)
    return Estimate(len(chosen.new), n, seconds, kept + scratch, kept, memory)


def seconds_a_photo(describer: Describer) -> float:
    """Return how long it takes to describe a photo, measured on a picture of noise."""
    side = describer.long_side
    picture = np.random.default_rng(0).integers(0, 256, (side * 3 // 4, side, 3), dtype=np.uint8)
    describer.describe(picture)  # the first is slower
    return _fastest(lambda: describer.describe(picture)) / DOWNHILL


def _seconds_a_multiplication(d: int) -> float:
    rows: FloatArray = np.random.default_rng(0).standard_normal((2048, d), np.float32)
    return _fastest(lambda: kernels.as_rows(rows).nearest(rows, 100)) / (len(rows) ** 2 * d)


def _fastest(work: Callable[[], object], times: int = 2) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def size(count: float) -> str:
    """Return bytes as people read them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"

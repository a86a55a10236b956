"""What a build will take, before it begins: time, disk and memory.

Time is measured, not guessed: a picture of noise is described and two small graphs are built on this machine, by the
kernels that will build the large one. Bytes are counted from the arrays that will be written and the lists that will be
held.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from manifind import kernels
from manifind.describe import Describer
from manifind.describe.ahead import MEMORY
from manifind.describe.backbone import available_cores
from manifind.describe.limits import MAX_BYTES
from manifind.diffusion.engines import WHOLE_UP_TO
from manifind.errors import InvalidInput
from manifind.graph import AUTO, choose, exact_neighbours, expected_seconds
from manifind.graph.choosing import DESCENT, EXACT
from manifind.index.making.gather import Plan
from manifind.index.state.generation import Generation
from manifind.index.state.kept import Keeping, keep
from manifind.index.state.recipe import Recipe
from manifind.kernels import as_rows
from manifind.manifold import LARGEST_CHANGE
from manifind.types import FloatArray

LONG = 200
"""With this many photos to describe, a build takes long enough to be announced."""

TRIED = 2048, 6144
"""How many regions the two graphs have that are built to see how long a large one takes."""

DIVISION = 60
"""How many bytes on disk a region of a divided graph takes."""

MUTUAL = 0.5
"""Share of neighbours that are mutual, at most, in collections that were seen (0.44 on Oxford5k at k = 100)."""

TEMPORARY = {True: 1.25, False: 3}
"""How many times the graph is in memory while mutual neighbours are picked out, with the compiled core and without."""

BARE = 2**28
"""How many bytes Python, its libraries and a network take."""

PROGRAM = BARE + MEMORY
"""How many bytes they take together with the photos that are being read."""

HELD_OF_A_REGION = 100
"""How many bytes of a region are held where workers make the graph: where it is, its box, its weight and its degree."""

LEAST_SCRATCH = 2**24

DOWNHILL = 0.8
"""Describing photos from files against describing one picture again and again: decoding runs beside it."""


@dataclass(frozen=True)
class Estimate:
    """What a build is expected to take."""

    photos: int
    """How many photos are to be described."""
    regions: int
    """How many regions there will be in all."""
    seconds: float
    disk: int
    """How many bytes of disk the build takes while it runs, beyond what is there now."""
    finished: int
    """How many bytes the finished index has on disk."""
    memory: int
    """The most bytes of memory that the build takes."""

    def __str__(self) -> str:
        return (
            f"{self.photos:,} photos to describe, {self.regions:,} regions in all: about {duration(self.seconds)}, "
            f"{size(self.finished)} on disk ({size(self.disk)} while it runs), {size(self.memory)} of memory"
        )


Announce = Callable[[Estimate], None]


def admitted(
    path: Path,
    recipe: Recipe,
    chosen: Plan,
    known: Generation | None,
    memory: int | None,
    announce: Announce | None,
    *,
    elsewhere: bool = False,
) -> int:
    """Refuse what cannot fit on the disk or in `memory`, announce what will take long, and return what scratch to use.

    Work that is small in every respect is neither measured nor refused. Of work that is done `elsewhere`, by workers,
    nobody here knows how long it takes: nothing is announced.
    """
    long = len(chosen.new) >= LONG and not elsewhere
    expected = estimate(recipe, chosen, known, timed=long and announce is not None, elsewhere=elsewhere)
    free = shutil.disk_usage(path).free
    supplemented = known is not None and known.local is None and recipe.geometry is not None
    if (chosen.new or supplemented) and expected.disk > free:
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


def estimate(
    recipe: Recipe, chosen: Plan, known: Generation | None, *, timed: bool = True, elsewhere: bool = False
) -> Estimate:
    """Return what it will take to describe the new photos of a plan and to bring the graph to all of them.

    Where the graph is made `elsewhere`, lists and S lie in files on their way here, and this process maps them.
    """
    checked, d = recipe.manifold().check_params(), recipe.dimension
    photos = len(chosen.known) + len(chosen.new)
    each = recipe.regions_a_photo if known is None else len(known.boxes) / len(known.catalogue)
    n, new = round(photos * each), round(len(chosen.new) * each)
    width = min(checked.k + checked.reserve, max(1, n - 1))
    edges = round(n * min(checked.k, n) * MUTUAL)
    divided = n > WHOLE_UP_TO and kernels.compiled()
    whitening = recipe.describer.whitening
    finished = n * (2 * d + 16 + 8 + 8) + 8 * n * width + 8 * edges + 4 * photos * d + 300 * photos
    finished += DIVISION * n if divided else 0
    kept = 0 if recipe.geometry is None else recipe.geometry.bytes
    finished += photos * kept
    if recipe.learning is not None:
        finished += 4 * recipe.describer.backbone.spec.channels * (d + 1)
    elif whitening is not None:
        finished += whitening.mean.nbytes + whitening.project.nbytes
    whole = known is None or new > LARGEST_CHANGE * n
    # Before a whitening is learnt, all channels are kept.
    channels = recipe.describer.backbone.spec.channels
    seen = replace(recipe, means=None).regions_a_photo
    raw = 0 if recipe.learning is None else len(chosen.new) * seen * (2 * channels + 16)
    journals = 1 if recipe.learning is None else 2
    scratch = raw + n * 2 * d + new * (2 * d + 16) + (4 * (n + photos) * d if whole else 0)
    late = len(chosen.known) if known is not None and known.local is None else 0
    scratch += (photos + journals * len(chosen.new) + late) * kept
    method = choose(n, checked.k) if checked.graph == AUTO else checked.graph
    seconds = 0.0
    if timed:
        graph = graph_seconds(method, n, checked.k, d) if whole else 2 * n * new * _seconds_a_comparison(d)
        seconds = len(chosen.new) * seconds_a_photo(recipe.describer, recipe.geometry) + graph
    if elsewhere:
        scratch += 3 * 8 * n * width + 8 * edges  # the lists of tasks, merged, and taken in
        scratch += 0 if whole else 4 * photos * d
        graph_bytes = HELD_OF_A_REGION * n + 2 * 8 * edges
    else:
        graph_bytes = graph_memory(method if whole else None, n, width, d, edges)
    memory = PROGRAM + checked.memory + graph_bytes
    return Estimate(len(chosen.new), n, seconds, finished + scratch, finished, memory)


def graph_memory(method: str | None, n: int, width: int, d: int, edges: int) -> int:
    """Return the bytes that the graph of `n` regions takes at most while it is made, beyond scratch.

    Parameters
    ----------
    method : {"exact", "nn-descent"}, optional
        How neighbours are found; None where the lists are there and follow a change.
    n, width, d, edges : int
        Regions, neighbours kept of each, dimensions, and entries of S.
    """
    lists = 8 * n * width
    graph = round(TEMPORARY[kernels.compiled()] * 8 * edges)
    if n > WHOLE_UP_TO and kernels.compiled():
        graph += 8 * edges  # the division works on a copy
    if method == DESCENT:
        # A copy of the rows in eight bits, longer entries, and what was compared with what (`Descending.descend`).
        return lists + graph + n * d + 12 * n * width + 1024 * n
    return lists + graph + (n * d if method is None else 0)


def graph_seconds(method: str, n: int, k: int, d: int) -> float:
    """Return how long the graph of `n` regions takes, from two small ones built by the same kernels.

    Comparing all pairs takes a part that grows with the regions and a part that grows with their square. NN-Descent is
    expected to be as much slower or faster here than elsewhere as comparing all pairs is.
    """
    few, more = (min(n, size) for size in TRIED)
    at_few = _seconds_to_compare(few, k, d)
    if few == n:
        return at_few
    at_more = _seconds_to_compare(more, k, d)
    square = (at_more / more - at_few / few) / (more - few)
    known = expected_seconds(EXACT, n, k, d)
    # Where other work disturbs the clock, no better than what is known and no worse than a hundredth of it.
    square = min(max(square, 0.5 * known / n**2), 100 * known / n**2)
    each = max(0.0, at_few / few - square * few)
    if method == EXACT:
        return each * n + square * n**2
    return each * n + expected_seconds(method, n, k, d) * square * n**2 / known


def seconds_a_photo(describer: Describer, keeping: Keeping | None = None) -> float:
    """Return how long it takes to describe a photo and to find its features, measured on a picture of noise."""
    side = describer.long_side
    picture = np.random.default_rng(0).integers(0, 256, (side * 3 // 4, side, 3), dtype=np.uint8)

    def work() -> None:
        describer.describe(picture)
        if keeping is not None and describer.beside is None:
            keep(picture, keeping)

    work()  # the first is slower
    _, threads = describer.for_threads()
    if threads <= available_cores():
        return _fastest(work) / DOWNHILL
    # Photos are described together, more of them than there are cores.
    with ThreadPoolExecutor(threads) as pool:
        return _fastest(lambda: list(pool.map(lambda _: work(), range(threads)))) / threads / DOWNHILL


def _seconds_to_compare(n: int, k: int, d: int) -> float:
    rows = _noise(n, d)
    return _fastest(lambda: exact_neighbours(rows, min(k, n - 1)))


def _seconds_a_comparison(d: int) -> float:
    """Return how long it takes to compare a new region with one that is there."""
    rows, queries = as_rows(_noise(TRIED[1], d)), _noise(TRIED[0], d)
    rows.nearest(queries[:1], 1)  # the rows are compressed by the first search
    return _fastest(lambda: rows.nearest(queries, 100)) / (TRIED[0] * TRIED[1])


def _noise(n: int, d: int) -> FloatArray:
    rows: FloatArray = np.random.default_rng(0).standard_normal((n, d), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _fastest(work: Callable[[], object]) -> float:
    """Return how long some work takes: the less of two times, as other work may disturb one."""
    seconds = []
    for _ in range(2):
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

"""Estimate the disk and the memory that a build takes, before it begins.

Bytes are counted from the arrays that will be written and the lists that will be held.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from manifind import kernels
from manifind.errors import DiskFullError, InvalidInputError
from manifind.graph import AUTO, choose_knn_method
from manifind.index.build.gather import ExtractionPlan
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.snapshot import Snapshot
from manifind.io.limits import MAX_BYTES
from manifind.io.prefetch import MEMORY
from manifind.kernels import NN_DESCENT
from manifind.kernels.costs import COSTS

MIN_ANNOUNCED_PHOTOS = 200
"""With this many photos to extract, a build takes long enough to be announced."""

MIN_SCRATCH_BYTES = 2**24


@dataclass(frozen=True)
class Estimate:
    """What a build is expected to take."""

    photos: int
    """How many photos are to be extracted."""
    regions: int
    """How many regions there will be in all."""
    disk: int
    """How many bytes of disk the build takes while it runs, beyond what is there now."""
    finished: int
    """How many bytes the finished index has on disk."""
    memory: int
    """The most bytes of memory that the build takes."""

    def __str__(self) -> str:
        return (
            f"{self.photos:,} photos to extract, {self.regions:,} regions in all: "
            f"{size(self.finished)} on disk ({size(self.disk)} while it runs), {size(self.memory)} of memory"
        )


OnEstimate = Callable[[Estimate], None]


def check_resources(
    path: Path,
    config: BuildConfig,
    chosen: ExtractionPlan,
    known: Snapshot | None,
    memory: int | None,
    on_estimate: OnEstimate | None,
    *,
    distributed: bool = False,
) -> int:
    """Check the disk and the `memory`, announce a long build, and return the bytes of scratch to use.

    `distributed` says that workers make the graph.
    """
    expected = estimate(config, chosen, known, distributed=distributed)
    free = shutil.disk_usage(path).free
    supplemented = known is not None and known.local is None and config.local_features is not None
    if (chosen.new or supplemented) and expected.disk > free:
        raise DiskFullError(
            f"{path} needs {size(expected.disk)} for {expected.regions:,} regions and {size(free)} are free; free some "
            "space, or choose another disk."
        )
    scratch = config.manifold().check_params().memory
    if memory is not None:
        held = expected.memory - scratch
        if memory < held + MIN_SCRATCH_BYTES:
            raise InvalidInputError(
                f"memory is {size(memory)}, and a graph of {expected.regions:,} regions needs "
                f"{size(held + MIN_SCRATCH_BYTES)}; give that much, or make the index with a smaller k or with means."
            )
        scratch = min(scratch, memory - held)
    if on_estimate is not None and len(chosen.new) >= MIN_ANNOUNCED_PHOTOS:
        on_estimate(expected)
    return scratch


def reading_limits(memory: int | None) -> dict[str, int]:
    """Return the memory that `extract_ahead` may take: all of a build's that is left while nothing else is held."""
    if memory is None:
        return {}
    share = max(memory - COSTS.base_bytes, MIN_SCRATCH_BYTES)
    return {"memory": share, "max_bytes": min(share, MAX_BYTES)}


def estimate(
    config: BuildConfig, chosen: ExtractionPlan, known: Snapshot | None, *, distributed: bool = False
) -> Estimate:
    """Return what it will take to extract the new photos of a plan and to bring the graph to all of them.

    Where the graph is made `distributed`, lists and S lie in files on their way here, and this process maps them.
    """
    checked, d = config.manifold().check_params(), config.dimension
    photos = len(chosen.known) + len(chosen.new)
    each = config.regions_a_photo if known is None else len(known.boxes) / len(known.catalogue)
    n, new = round(photos * each), round(len(chosen.new) * each)
    width = min(checked.k + checked.reserve, max(1, n - 1))
    edges = round(n * min(checked.k, n) * COSTS.max_mutual_share)
    divided = n > COSTS.max_whole_regions and kernels.compiled()
    whitening = config.extractor.whitening
    finished = n * (2 * d + 16 + 8 + 8) + 8 * n * width + 8 * edges + 4 * photos * d + 300 * photos
    finished += COSTS.two_level_region_bytes * n if divided else 0
    kept = 0 if config.local_features is None else config.local_features.bytes
    finished += photos * kept
    if config.learning is not None:
        finished += 4 * config.extractor.backbone.spec.channels * (d + 1)
    elif whitening is not None:
        finished += whitening.mean.nbytes + whitening.project.nbytes
    whole = known is None or new > COSTS.max_new_share * n
    # Before a whitening is learnt, all channels are kept.
    channels = config.extractor.backbone.spec.channels
    seen = replace(config, regions_per_image=None).regions_a_photo
    raw = 0 if config.learning is None else len(chosen.new) * seen * (2 * channels + 16)
    journals = 1 if config.learning is None else 2
    scratch = raw + n * 2 * d + new * (2 * d + 16) + (4 * (n + photos) * d if whole else 0)
    late = len(chosen.known) if known is not None and known.local is None else 0
    scratch += (photos + journals * len(chosen.new) + late) * kept
    method = choose_knn_method(n, checked.k) if checked.knn == AUTO else checked.knn
    if distributed:
        scratch += 3 * 8 * n * width + 8 * edges  # the lists of tasks, merged, and taken in
        scratch += 0 if whole else 4 * photos * d
        graph_bytes = COSTS.held_region_bytes * n + 2 * 8 * edges
    else:
        graph_bytes = graph_memory(method if whole else None, n, width, d, edges)
    memory = COSTS.base_bytes + MEMORY + checked.memory + graph_bytes
    return Estimate(len(chosen.new), n, finished + scratch, finished, memory)


def graph_memory(method: str | None, n: int, width: int, d: int, edges: int) -> int:
    """Return the bytes that the graph of `n` regions takes at most while it is made, beyond scratch.

    `method` is None where the lists are there and follow a change; `width` neighbours are kept of each region, and
    `edges` are the entries of S.
    """
    lists = 8 * n * width
    graph = round((COSTS.core_graph_factor if kernels.compiled() else COSTS.numpy_graph_factor) * 8 * edges)
    if n > COSTS.max_whole_regions and kernels.compiled():
        graph += 8 * edges  # the division works on a copy
    if method == NN_DESCENT:
        # A copy of the rows in eight bits, longer entries, and what was compared with what (`VectorSet.nn_descent`).
        return lists + graph + n * d + 12 * n * width + 1024 * n
    return lists + graph + (n * d if method is None else 0)


def size(count: float) -> str:
    """Return bytes as people read them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"

"""A whitening learnt from the photos of an index, while they are extracted for it.

Photos are extracted once: their vectors before whitening go into a journal of their own, as they are made. Once all are
there, their moments give the whitening, and the vectors are whitened into the journal that every index is made from.
Both journals are on disk and are taken up again after an interruption; memory does not grow with the collection.

Adding up the moments and whitening the vectors is work for workers, where there are any: `Sums.of` and `whitened` are
what they do, on parts that do not depend on how many they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from manifind.features import Moments, Regions, Whitening
from manifind.features.moments import Sums, centre
from manifind.index.build.gather import Workers, reduce_regions
from manifind.index.build.journal import Journal
from manifind.index.build.whitening_choice import choose_whitening
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.manifest import LEARNT, WhiteningOrigin
from manifind.kernels.threads import thread_count
from manifind.types import StageProgress

ROWS = 2**13
"""How many rows the moments are taken of at a time."""

PART = 2**17
"""How many rows are added up on their own, before the sums are added to those of others."""

PHOTOS = 256
"""Photos that are whitened at a time: a product of so many rows is ten times as fast as one for each photo."""

SAMPLE = 20_000
"""Regions that tell over how many dimensions descriptors are spread."""


class Sliced(Protocol):
    """Rows of which one reads a slice at a time: an array, or a file elsewhere."""

    def __getitem__(self, span: slice, /) -> npt.NDArray[Any]:
        """Return some rows."""


Run = tuple[int, int]
"""Where some rows of the journal begin and end."""


def train_whitening(
    config: BuildConfig, raw: Journal, images: list[ImageRecord], report: StageProgress, workers: Workers | None = None
) -> BuildConfig:
    """Return the config with the whitening that the photos in the journal teach."""
    assert config.learning is not None  # noqa: S101 (asked by whoever calls)
    report("learning", 0, len(images))
    vectors, _ = raw.arrays()
    runs = _runs(raw, images)
    parts = [list(part) for part in split_runs(runs, PART)]
    around = centre(next(in_blocks(vectors, runs)))
    if workers is None:
        sums: Iterable[Sums] = (Sums.of(in_blocks(vectors, part), around) for part in parts)
    else:
        sums = workers.sum_rows(raw, parts, around)
    moments = Moments.of_sums(reduce(Sums.plus, sums), around, config.extractor.pooled_by)
    prior, choice = config.learning.prior, None
    if prior is None or config.local_features is None:
        learnt = config.learning.whitening(moments)
    else:
        learnt, choice = choose_whitening(
            config.learning, moments, raw, images, config.local_features, lambda *done: report("learning", *done)
        )
    step = max(1, len(vectors) // SAMPLE)
    origin = WhiteningOrigin(
        LEARNT,
        len(images),
        None if prior is None else config.learning.weight,
        spread(learnt.apply(np.asarray(vectors[::step], np.float32))),
        choice,
    )
    return replace(config, extractor=config.extractor.with_whitening(learnt), whitening=origin, learning=None)


def whiten(
    config: BuildConfig,
    raw: Journal,
    journal: Journal,
    images: list[ImageRecord],
    report: StageProgress,
    workers: Workers | None = None,
) -> None:
    """Whiten the vectors of photos from one journal into the other."""
    (vectors, boxes), local = raw.arrays(), raw.local()
    whitening = config.extractor.whitening
    assert whitening is not None  # noqa: S101 (it was just learnt)
    groups = [images[start : start + PHOTOS] for start in range(0, len(images), PHOTOS)]
    groups = [group for group in groups if any(journal.get(image.sha256) is None for image in group)]
    runs = [[_run(raw, image) for image in group] for group in groups]
    whitened_groups: Iterator[list[Regions]]
    if workers is None:
        whitened_groups = _whiten_in_threads(whitening, vectors, boxes, runs, config.regions_per_image)
    else:
        whitened_groups = workers.whiten(raw, config, runs)
    done = len(images) - sum(map(len, groups))
    for group, regions in zip(groups, whitened_groups, strict=True):
        for image, photo in zip(group, regions, strict=True):
            entry = raw.get(image.sha256)
            if entry is not None and journal.get(image.sha256) is None:
                kept = np.asarray(local[entry.local : entry.local + entry.features])
                journal.append(image.sha256, entry.width, entry.height, photo.vectors, photo.boxes, kept)
        done += len(group)
        report("whitening", done, len(images))


def whitened(
    whitening: Whitening,
    vectors: Sliced,
    boxes: Sliced,
    photos: Sequence[Run],
    regions_per_image: int | None,
) -> list[Regions]:
    """Whiten the vectors of some photos together, and reduce each to its means where there are to be any.

    BLAS uses one thread: how it divides a product decides the last bits, which are to be those of any machine.
    """
    with threadpool_limits(1, user_api="blas"):
        rows = whitening.apply(np.concatenate([vectors[first:end] for first, end in photos]))
    ends = np.cumsum([end - first for first, end in photos])
    return [
        reduce_regions(Regions(vectors_of_photo, np.asarray(boxes[first:end])), regions_per_image)
        for vectors_of_photo, (first, end) in zip(np.split(rows, ends[:-1]), photos, strict=True)
    ]


def _whiten_in_threads(
    whitening: Whitening,
    vectors: Sliced,
    boxes: Sliced,
    groups: Sequence[Sequence[Run]],
    regions_per_image: int | None,
) -> Iterator[list[Regions]]:
    """Yield the photos of each group whitened, as many groups at a time as there are threads."""
    threads = thread_count()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for at in range(0, len(groups), threads):
            yield from pool.map(
                lambda photos: whitened(whitening, vectors, boxes, photos, regions_per_image),
                groups[at : at + threads],
            )


def in_blocks(vectors: Sliced, runs: Iterable[Run]) -> Iterator[npt.NDArray[np.float16]]:
    """Yield the rows of some runs, many at a time."""
    for block in split_runs(runs, ROWS):
        yield np.concatenate([vectors[first:end] for first, end in block])


def split_runs(runs: Iterable[Run], size: int) -> Iterator[list[Run]]:
    """Cut runs into parts of `size` rows; the last may have fewer."""
    part: list[Run] = []
    room = size
    for first, end in runs:
        while first < end:
            taken = min(room, end - first)
            part.append((first, first + taken))
            first, room = first + taken, room - taken
            if not room:
                yield part
                part, room = [], size
    if part:
        yield part


def spread(vectors: npt.NDArray[np.floating]) -> float:
    """Return over how many dimensions unit vectors are spread: all of them where they vary evenly.

    It is 1 / ‖E[v vᵀ]‖², the number of directions that would hold them if each held as much as the next.
    """
    rows = np.asarray(vectors, np.float32)
    second = rows.T @ rows / len(rows)
    return float(1 / np.square(second, dtype=np.float64).sum())


def _run(raw: Journal, image: ImageRecord) -> Run:
    entry = raw.get(image.sha256)
    assert entry is not None  # noqa: S101 (it was extracted just now, or by a run before)
    return entry.first, entry.first + entry.regions


def _runs(raw: Journal, images: list[ImageRecord]) -> list[Run]:
    """Return where the rows of photos stand in the journal, in order; what stands side by side is one run."""
    runs: list[Run] = []
    for first, end in sorted(_run(raw, image) for image in images):
        if runs and runs[-1][1] == first:
            runs[-1] = runs[-1][0], end
        else:
            runs.append((first, end))
    return runs

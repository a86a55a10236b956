"""Plan which photos to extract, extract them, and record the outcomes in a journal.

A photo of unchanged size and time is the same photo; otherwise its content hash decides. Known content, of the index or
of an interrupted run, is not extracted again, even if the file was moved or renamed.

`Workers` extract, whiten and compare regions in place of the building process. `manifind.distributed` implements them
with Dask's workers, and is imported when a client is given.
"""

import importlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from manifind.errors import UnreadableImageError
from manifind.features import RegionExtractor, Regions
from manifind.features.backbone import available_cores
from manifind.features.moments import DoubleArray, Sums
from manifind.geometry.packing import Packed
from manifind.gmm import compact
from manifind.index.build.decode_workers import Readers
from manifind.index.build.journal import NO_FEATURES, Journal
from manifind.index.build.plan import SyncPlan, frames_of
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import ImageRecord, Photos, SkippedRecord, SkipReason
from manifind.index.storage.local_features import LocalFeatureConfig, keep
from manifind.index.storage.snapshot import Snapshot
from manifind.io import ListedFile, Photo, content_hash, extract_ahead, key_to_path
from manifind.io.files import modified_ns
from manifind.io.prefetch import begin_ahead
from manifind.io.video import containing_file
from manifind.kernels import KnnGraphBuilder
from manifind.kernels.threads import thread_count
from manifind.storage import store
from manifind.types import FloatArray, StageProgress, Vectors


@dataclass(frozen=True)
class ExtractionPlan:
    """The photos of an index, known and new, before any is extracted."""

    known: list[ImageRecord]
    """The photos that have descriptors already. They are numbered later."""
    new: list[tuple[ListedFile, str]]
    """Files to extract, with their content hashes."""
    skipped: list[SkippedRecord]


def plan_extraction(
    planned: SyncPlan, journal: Journal, before: Photos | None, report: StageProgress, frames: float | None = None
) -> ExtractionPlan:
    """Compare the files with the index, and list those to extract; of films, a frame every `frames` seconds."""
    known, new, skipped = list(planned.unread), [], list(planned.skipped)
    first_of = {image.sha256: image.key for image in known}
    for file, content in _expand_films(planned, before, report, frames, skipped):
        try:
            old = None if before is None else before.of_key(file.key) or before.skipped_of(file.key)
            same = old is not None and (old.bytes, old.mtime_ns) == (file.size, file.mtime_ns)
            digest = content or (old.sha256 if old is not None and same else None) or content_hash(file.path)
        except UnreadableImageError as error:
            skipped.append(SkippedRecord(file.key, SkipReason.UNREADABLE, error.reason))
            continue
        if digest in first_of:
            skipped.append(_skipped_file(file, SkipReason.DUPLICATE, first_of[digest], digest))
            continue
        if same and isinstance(old, SkippedRecord) and old.code is not SkipReason.DUPLICATE:
            skipped.append(old)  # as unreadable as it was
            continue
        first_of[digest] = file.key
        stored = (None if before is None else before.of_content(digest)) or journal.get(digest)
        if stored is None:
            new.append((file, digest))
        else:
            known.append(_record(file, digest, stored.width, stored.height))
    return ExtractionPlan(known, new, skipped)


def _expand_films(
    planned: SyncPlan, before: Photos | None, report: StageProgress, frames: float | None, skipped: list[SkippedRecord]
) -> Iterator[tuple[ListedFile, str | None]]:
    """Yield the planned photos, those of films with their contents; skipped files are added to `skipped`."""
    for done, file in enumerate(planned.found, 1):
        if frames is None or not file.film:
            yield file, None
        elif isinstance(frames_or_skipped := frames_of(file, frames, before, planned.removed), SkippedRecord):
            skipped.append(frames_or_skipped)
        else:
            for frame, content in frames_or_skipped:
                if frame.key in planned.removed:
                    skipped.append(SkippedRecord(frame.key, SkipReason.REMOVED))
                else:
                    yield frame, content
        report("files", done, len(planned.found))


class ExtractedPhoto(NamedTuple):
    """The descriptors, boxes and local features of a photo."""

    width: int
    height: int
    vectors: FloatArray
    boxes: FloatArray
    local: Packed
    """Its local features, where they are stored."""


Outcomes = Generator[tuple[ListedFile, ExtractedPhoto | UnreadableImageError], None, None]
"""What became of photos, in the order in which they were given."""


RegionsAndFeatures = tuple[Regions, Packed]
"""A photo's regions in pixels as it was read, and its local features."""


def extract_features(
    pixels: npt.NDArray[np.uint8], extractor: RegionExtractor, keeping: LocalFeatureConfig | None
) -> RegionsAndFeatures:
    """Return the regions of a photo and, if `keeping` asks for them, its local features."""
    return extractor.extract(pixels), NO_FEATURES if keeping is None else keep(pixels, keeping).rows


def scale_to_file(photo: Photo, found: RegionsAndFeatures, regions_per_image: int | None) -> ExtractedPhoto:
    """Return a photo's reduced regions, with boxes in pixels of its file."""
    regions, local = reduce_regions(found[0], regions_per_image), found[1]
    height, width, _ = photo.pixels.shape
    enlarged = np.array([photo.width / width, photo.height / height] * 2, np.float32)
    return ExtractedPhoto(photo.width, photo.height, regions.vectors, regions.boxes * enlarged, local)


def extract_locally(
    found: Sequence[ListedFile],
    extractor: RegionExtractor,
    regions_per_image: int | None,
    keeping: LocalFeatureConfig | None,
    **limits: int,
) -> Outcomes:
    """Extract photos in this process; `limits` are `extract_ahead`'s."""
    extract = _extract_on_device if extractor.uses_device else _extract_in_threads
    with closing(extract(found, extractor, keeping, **limits)) as photos:
        for file, photo, regions in photos:
            if isinstance(photo, UnreadableImageError) or regions is None:
                assert isinstance(photo, UnreadableImageError)  # noqa: S101 (every other has regions)
                yield file, photo
            else:
                yield file, scale_to_file(photo, regions, regions_per_image)


Extractions = Generator[tuple[ListedFile, Photo | UnreadableImageError, RegionsAndFeatures | None], None, None]
"""Photos as they were read, and what was extracted of each; None where a photo cannot be read."""


def _extract_in_threads(
    found: Sequence[ListedFile], extractor: RegionExtractor, keeping: LocalFeatureConfig | None, **limits: int
) -> Extractions:
    """Extract photos on the processor, each in the thread that reads it."""
    side_by_side, threads = extractor.for_threads()
    limits = {**limits, "threads": threads, "long_side": extractor.long_side}
    return extract_ahead(found, partial(extract_features, extractor=side_by_side, keeping=keeping), **limits)


def _extract_on_device(
    found: Sequence[ListedFile], extractor: RegionExtractor, keeping: LocalFeatureConfig | None, **limits: int
) -> Extractions:
    """Extract photos on a device, while the processor reads photos in separate processes."""
    memory = {"memory": limits.pop("memory")} if "memory" in limits else {}
    left = extractor.extract_local is not None
    reading = Readers(extractor.seen_size, keeping, left=left, long_side=extractor.long_side, **limits)
    begin = lambda photo: extractor.begin(photo.pixels)  # noqa: E731
    with (
        reading as readers,
        closing(begin_ahead(found, readers.read, begin, threads=available_cores(), **memory)) as photos,
    ):
        for file, photo, regions in photos:
            if isinstance(photo, UnreadableImageError) or regions is None:
                yield file, photo, None
            else:
                yield file, photo, (regions, regions.local_features if photo.local is None else photo.local)


def record_outcomes(
    chosen: ExtractionPlan,
    outcomes: Outcomes,
    journal: Journal,
    report: StageProgress,
    on_partial: Callable[[list[ImageRecord]], None] | None = None,
) -> tuple[list[ImageRecord], list[SkippedRecord]]:
    """Append the new photos of a plan to the journal.

    Return all photos, numbered in the order of their keys, and what is skipped. `on_partial` is called after each new
    photo with all that have descriptors; the list goes on to grow.
    """
    images, skipped = list(chosen.known), list(chosen.skipped)
    hashes = {file.key: digest for file, digest in chosen.new}
    report("photos", 0, len(chosen.new))
    with closing(outcomes) as photos:
        for done, (file, photo) in enumerate(photos, 1):
            if isinstance(photo, UnreadableImageError):
                # What an extra or more memory could read is tried again, and what may have been torn while it was read.
                lasting = is_unchanged(file, gone=False) and not photo.temporary
                known = _skipped_file(file, SkipReason.UNREADABLE, photo.reason, hashes[file.key])
                skipped.append(known if lasting else SkippedRecord(file.key, SkipReason.UNREADABLE, photo.reason))
            elif not is_unchanged(file):
                skipped.append(SkippedRecord(file.key, SkipReason.CHANGED))
            else:
                digest = hashes[file.key]
                journal.append(digest, *photo)
                images.append(_record(file, digest, photo.width, photo.height))
                if on_partial is not None:
                    on_partial(images)
            report("photos", done, len(chosen.new))
    return _number_images(images), sorted(skipped, key=lambda file: file.key)


def _skipped_file(one: ListedFile, code: SkipReason, detail: str, digest: str) -> SkippedRecord:
    """Return a skipped file with its content hash, size and time: it is not read again while these stay the same."""
    return SkippedRecord(one.key, code, detail, digest, one.size, one.mtime_ns)


def is_unchanged(one: ListedFile, *, gone: bool = True) -> bool:
    """Whether a file is still the one that was listed and hashed.

    `gone` is the answer for a file that is no longer there.
    """
    try:
        status = containing_file(one.path).stat()
    except OSError:
        return gone  # what was read was read
    return (status.st_size, modified_ns(status)) == (one.size, one.mtime_ns)


def reduce_regions(regions: Regions, regions_per_image: int | None) -> Regions:
    """Put the means of a mixture in place of the regions. The box of a mean is that of the region most like it."""
    if regions_per_image is None:
        return regions
    fewer = compact(regions.vectors, np.zeros(len(regions.vectors), np.int32), regions_per_image=regions_per_image)
    likeness = fewer.vectors @ regions.vectors.T
    likeness[fewer.row_of != np.arange(len(fewer.vectors))[:, None]] = -np.inf
    return Regions(fewer.vectors, regions.boxes[likeness.argmax(axis=1)])


def _record(one: ListedFile, digest: str, width: int, height: int) -> ImageRecord:
    return ImageRecord(-1, one.key, digest, one.size, one.mtime_ns, width, height)


def _number_images(images: Iterable[ImageRecord]) -> list[ImageRecord]:
    return [replace(image, number=number) for number, image in enumerate(sorted(images, key=lambda image: image.key))]


# -- local features of photos whose regions are known -----------------------------------------------------------------

LATE_JOURNAL = "features"
"""The journal in the writer's folder of local features for photos whose regions are known."""
NO_REGIONS = np.empty((0, 1), np.float32), np.empty((0, 4), np.float32)


def supplement_journal(writer: store.Writer, config: BuildConfig) -> Journal:
    """Open the journal of features that were made so far, of photos as this config sees them."""
    keeping = config.local_features
    assert keeping is not None  # noqa: S101 (asked by whoever calls)
    return Journal(writer.work / LATE_JOURNAL, f"{keeping.fields} at {config.extractor.long_side}", 1)


def without_features(images: Sequence[ImageRecord], known: Snapshot | None, config: BuildConfig) -> list[ImageRecord]:
    """Return the photos that lack local features and are to have some."""
    if known is None or known.local is not None or config.local_features is None:
        return []
    return [image for image in images if known.catalogue.of_content(image.sha256) is not None]


def extract_missing_features(
    images: Sequence[ImageRecord], config: BuildConfig, journal: Journal, report: StageProgress, **limits: int
) -> list[str]:
    """Make the features of photos, all that are not in the journal yet; return the keys of those that cannot be read.

    `limits` are `extract_ahead`'s.
    """
    keeping = config.local_features
    assert keeping is not None  # noqa: S101 (asked by whoever calls)
    left = [image for image in images if journal.get(image.sha256) is None]
    of_key = {image.key: image for image in left}
    files = (ListedFile(image.key, key_to_path(config.root, image.key), image.bytes, image.mtime_ns) for image in left)
    options = {**limits, "threads": max(1, thread_count()), "long_side": config.extractor.long_side}
    unreadable = []
    report("features", 0, len(left))
    with closing(extract_ahead(files, partial(_local_features, keeping), **options)) as photos:
        for done, (file, photo, rows) in enumerate(photos, 1):
            image = of_key[file.key]
            if isinstance(photo, UnreadableImageError) or rows is None or not is_unchanged(file, gone=False):
                unreadable.append(file.key)
            else:
                journal.append(image.sha256, image.width, image.height, *NO_REGIONS, rows)
            report("features", done, len(left))
    return unreadable


def _local_features(keeping: LocalFeatureConfig, pixels: npt.NDArray[np.uint8]) -> Packed:
    return keep(pixels, keeping).rows


# -- by other processes ---------------------------------------------------------------------------------------------

WORKERS_MODULE = "manifind.distributed.workers"
"""The module whose function `workers` makes workers of a client or of a scheduler's address."""


class Workers(Protocol):
    """Do the long parts of a build in other processes, with the same result."""

    def extract(
        self, found: Sequence[ListedFile], config: BuildConfig, regions_per_image: int | None, work: Path
    ) -> Outcomes:
        """Yield what becomes of photos, in their order; what is finished may be kept in the folder `work`."""

    def sum_rows(self, raw: Journal, parts: Sequence[Sequence[tuple[int, int]]], around: DoubleArray) -> Iterator[Sums]:
        """Add up the rows of each part of a journal around a point: a part is the runs of rows that it has."""

    def whiten(
        self, raw: Journal, config: BuildConfig, groups: Sequence[Sequence[tuple[int, int]]]
    ) -> Iterator[list[Regions]]:
        """Yield `learning.whitened` of each group of photos, which are runs of rows."""

    def knn_builder(self, vectors: Vectors, file: Path) -> KnnGraphBuilder:
        """Return a builder of the k-NN graph of vectors that lie in a file, whose work workers do."""

    def clean_up(self, work: Path) -> None:
        """Remove what was kept in the folder `work` or elsewhere: the index is written."""

    def close(self) -> None:
        """Close a connection that was opened here."""


@contextmanager
def connect_workers(client: Any) -> Iterator[Workers | None]:
    """Yield the workers of a Dask client, or of the scheduler at an address; None where there is no client."""
    if client is None:
        yield None
        return
    made: Workers = importlib.import_module(WORKERS_MODULE).workers(client)
    try:
        yield made
    finally:
        if made is not client:
            made.close()

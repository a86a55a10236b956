"""A folder of photos → an index on disk.

Photos are listed, those already described (in the index that is there, or by a run that was interrupted) are kept, the
others are described into a journal, and the graph is built on all of them. What becomes visible is the finished index.
"""

import shutil
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manifind import store
from manifind.describe import Describer, Found, Skipped, Unreadable, content_hash, list_photos, read_ahead
from manifind.errors import InvalidInput, ManifindWarning
from manifind.index.catalogue import Catalogue, ImageRecord, SkippedRecord
from manifind.index.journal import Entry, Journal
from manifind.manifold import Manifold
from manifind.validation import FloatArray

KIND, FORMAT = "index", 1
CATALOGUE = "images.sqlite"
JOURNAL = ".part"
"""Ending of the folder beside the index where photos described so far are kept until it is finished."""

Progress = Callable[[str, int, int], None]
"""Called with a stage ("photos" or "graph"), how much of it is done, and how much there is."""


@dataclass(frozen=True)
class Changes:
    """What bringing an index up to date did, in photos."""

    described: int
    kept: int
    removed: int
    skipped: int


class Before(NamedTuple):
    """The photos of the index that is being brought up to date, and their regions."""

    catalogue: Catalogue
    starts: Any
    vectors: FloatArray
    boxes: FloatArray


class _Source(NamedTuple):
    """Where the regions of a photo are: in the index as it was, or in the journal."""

    vectors: FloatArray
    boxes: FloatArray
    entry: Entry


def build(
    path: Path,
    root: Path,
    describer: Describer,
    manifold: Manifold,
    fields: dict[str, Any],
    *,
    before: Before | None = None,
    progress: Progress | None = None,
) -> Changes:
    """Describe what is new in the folder `root`, build the graph, and write the index to the folder `path`."""
    report = progress or (lambda *_: None)
    manifold.check_params()
    store.check_target(path, KIND)
    found, skipped = listed(root)
    if not found and not skipped:
        raise InvalidInput(f"{root} has no photos; give a folder with at least one.")
    beside = path.with_name(f"{path.name}{JOURNAL}")
    with Journal(beside, describer.fingerprint()["sha256"], describer.dimension) as journal:
        photos, kept, described = _gather(found, skipped, describer, journal, before, report)
        if not photos:
            shutil.rmtree(beside, ignore_errors=True)
            reasons = "; ".join(f"{one.key}: {one.reason}" for one in skipped[:3])
            raise InvalidInput(f"{root} has no photo that can be read ({reasons}); give a folder with at least one.")
        catalogue = Catalogue(photos, sorted(skipped, key=lambda one: one.key))
        if before is not None and (catalogue.images, catalogue.skipped) == (
            before.catalogue.images,
            before.catalogue.skipped,
        ):
            shutil.rmtree(beside, ignore_errors=True)
            return Changes(described=0, kept=len(photos), removed=0, skipped=len(skipped))
        vectors, boxes, image_of = _assembled(photos, journal, before, beside)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ManifindWarning)  # a folder of a few photos has fewer regions than k
            manifold.fit(vectors, image_of, progress=lambda done, total: report("graph", done, total))
        parameters, arrays = manifold.to_arrays()
        store.write(
            path,
            KIND,
            FORMAT,
            {**fields, "root": str(root.resolve()), "manifold": parameters},
            {**arrays, "boxes": boxes, **_whitening(describer)},
            {CATALOGUE: catalogue.write},
        )
        shutil.rmtree(beside, ignore_errors=True)
    gone = (
        0 if before is None else len({image.key for image in before.catalogue.images} - {photo.key for photo in photos})
    )
    return Changes(described=described, kept=kept, removed=gone, skipped=len(skipped))


def listed(root: Path) -> tuple[list[Found], list[SkippedRecord]]:
    """Return the photos below a folder, and what only looks like one."""
    if not root.is_dir():
        raise InvalidInput(f"{root} is not a folder; give the folder that holds the photos.")
    found, skipped = [], []
    for one in list_photos(root):
        if isinstance(one, Skipped):
            skipped.append(SkippedRecord(one.key, one.reason))
        else:
            found.append(one)
    return found, skipped


def _gather(
    found: list[Found],
    skipped: list[SkippedRecord],
    describer: Describer,
    journal: Journal,
    before: Before | None,
    report: Progress,
) -> tuple[list[ImageRecord], int, int]:
    """Return the photos in order of their keys, how many were known, and how many are new and were described."""
    hashes: dict[str, str] = {}
    sizes: dict[str, tuple[int, int]] = {}
    first_of: dict[str, str] = {}
    wanted: list[Found] = []
    for one in found:
        old = None if before is None else before.catalogue.of_key(one.key)
        try:
            same = old is not None and (old.bytes, old.mtime_ns) == (one.size, one.mtime_ns)
            digest = old.sha256 if old is not None and same else content_hash(one.path)
        except Unreadable as error:
            skipped.append(SkippedRecord(one.key, error.reason))
            continue
        if digest in first_of:
            skipped.append(SkippedRecord(one.key, f"the same content as {first_of[digest]}"))
            continue
        first_of[digest] = one.key
        hashes[one.key] = digest
        known = (None if before is None else before.catalogue.of_content(digest)) or journal.get(digest)
        if known is not None:
            sizes[one.key] = known.width, known.height
        else:
            wanted.append(one)

    report("photos", 0, len(wanted))
    described = 0
    with closing(read_ahead(wanted, long_side=describer.long_side)) as photos_read:
        for done, (one, photo) in enumerate(photos_read, 1):
            if isinstance(photo, Unreadable):
                skipped.append(SkippedRecord(one.key, photo.reason))
            else:
                regions = describer.describe(photo.pixels)
                height, width, _ = photo.pixels.shape
                enlarged = np.array([photo.width / width, photo.height / height] * 2, np.float32)
                journal.append(hashes[one.key], photo.width, photo.height, regions.vectors, regions.boxes * enlarged)
                sizes[one.key] = photo.width, photo.height
                described += 1
            report("photos", done, len(wanted))

    readable = sorted((one for one in found if one.key in sizes), key=lambda one: one.key)
    photos = [
        ImageRecord(number, one.key, hashes[one.key], one.size, one.mtime_ns, *sizes[one.key])
        for number, one in enumerate(readable)
    ]
    return photos, len(photos) - described, described


def _assembled(
    photos: list[ImageRecord], journal: Journal, before: Before | None, folder: Path
) -> tuple[FloatArray, FloatArray, Any]:
    """Lay out the regions of all photos in order, in files beside the journal."""
    journal_vectors, journal_boxes = journal.arrays()
    sources: list[_Source] = []
    for photo in photos:
        entry = journal.get(photo.sha256)
        if entry is not None:
            sources.append(_Source(journal_vectors, journal_boxes, entry))
        else:
            image = None if before is None else before.catalogue.of_content(photo.sha256)
            assert before is not None and image is not None  # noqa: S101, PT018 (it is in one of the two)
            first, end = int(before.starts[image.number]), int(before.starts[image.number + 1])
            sources.append(_Source(before.vectors, before.boxes, Entry(image.width, image.height, first, end - first)))
    counts = np.array([source.entry.regions for source in sources])
    n, d = int(counts.sum()), journal_vectors.shape[1]
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (n, d))
    boxes = np.empty((n, 4), np.float32)
    at = 0
    for source in sources:
        rows = slice(source.entry.first, source.entry.first + source.entry.regions)
        vectors[at : at + source.entry.regions] = source.vectors[rows]
        boxes[at : at + source.entry.regions] = source.boxes[rows]
        at += source.entry.regions
    return vectors, boxes, np.repeat(np.arange(len(photos), dtype=np.int32), counts)


def _whitening(describer: Describer) -> dict[str, FloatArray]:
    if describer.whitening is None:
        return {}
    return {"whitening_mean": describer.whitening.mean, "whitening_project": describer.whitening.project}

"""The regions of all photos laid out in order, from where they are: the index before, and journals.

Vectors and local features go into files of the writer's folder: memory does not grow with the collection.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.geometry import FEATURE_BYTES
from manifind.geometry.packing import Packed
from manifind.groups import Layout, aggregate
from manifind.index.build.journal import NO_FEATURES, Journal
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import LocalFeatureConfig, StoredLocalFeatures
from manifind.index.storage.snapshot import Snapshot
from manifind.storage import disk
from manifind.types import FloatArray, IntArray, Vectors

ROWS = 2**14
"""How many rows are copied at a time."""

PHOTOS = 2**10
"""Photos whose regions are summed up at a time."""

VECTORS, LOCAL, GLOBAL = "all.f16", "all.u8", "photos.f32"
"""The files in the writer's folder: the vectors of all regions in order, and of all photos the local features and the
global descriptors."""


class MergedRegions(NamedTuple):
    """The regions of all photos in order."""

    vectors: npt.NDArray[np.float16]
    boxes: FloatArray
    image_of: IntArray
    origin: IntArray | None = None
    """Which region each one was in the generation before, -1 where it is new; None where that does not matter."""
    local: StoredLocalFeatures | None = None
    """The local features of the photos, where they are kept."""


def merge_regions(images: list[ImageRecord], journal: Journal, before: Snapshot | None, folder: Path) -> MergedRegions:
    """Lay out the regions of all photos in order, the vectors in a file of the folder."""
    journal_vectors, journal_boxes = journal.arrays()
    spans = []  # whether in the journal, the first row, and how many
    for image in images:
        old = None if before is None else before.catalogue.of_content(image.sha256)
        if before is not None and old is not None:
            first, end = before.manifold.layout_.starts[old.number : old.number + 2].tolist()
            spans.append((False, first, end - first))
        else:
            entry = journal.get(image.sha256)
            assert entry is not None  # noqa: S101 (it is in one of the two)
            spans.append((True, entry.first, entry.regions))
    new, first, counts = (np.array(column) for column in zip(*spans, strict=True))
    starts = np.cumsum(counts) - counts
    n, d = int(counts.sum()), journal_vectors.shape[1]
    rows = np.repeat(first - starts, counts) + np.arange(n)
    is_new = np.repeat(new, counts)
    origin = np.where(is_new, -1, rows).astype(np.int32)
    vectors = disk.scratch(folder / VECTORS, np.float16, (n, d))
    boxes = np.empty((n, 4), np.float32)
    for start in range(0, n, ROWS):
        block = slice(start, start + ROWS)
        fresh = is_new[block]
        vectors[block][fresh], boxes[block][fresh] = (
            journal_vectors[rows[block][fresh]],
            journal_boxes[rows[block][fresh]],
        )
        if before is not None:
            vectors[block][~fresh] = before.manifold.vectors_[rows[block][~fresh]]
            boxes[block][~fresh] = before.boxes[rows[block][~fresh]]
    return MergedRegions(vectors, boxes, np.repeat(np.arange(len(images), dtype=np.int32), counts), origin)


def merge_local_features(
    images: list[ImageRecord],
    journal: Journal,
    before: Snapshot | None,
    late: Journal | None,
    keeping: LocalFeatureConfig,
    folder: Path,
) -> StoredLocalFeatures:
    """Lay out the local features of all photos in order, in a file of the folder; `late` has those made afterwards."""
    spans: list[tuple[Packed, int, int]] = []
    new, afterwards = journal.local(), NO_FEATURES if late is None else late.local()
    for image in images:
        old = None if before is None else before.catalogue.of_content(image.sha256)
        if before is not None and before.local is not None and old is not None:
            spans.append((before.local.rows, *before.local.span(old.number)))
        elif late is not None and old is not None:
            made = late.get(image.sha256)  # nothing where its file could not be read
            spans.append((afterwards, 0, 0) if made is None else (afterwards, made.local, made.local + made.features))
        else:
            entry = journal.get(image.sha256)
            assert entry is not None  # noqa: S101 (it is in one of the two)
            spans.append((new, entry.local, entry.local + entry.features))
    counts = [end - first for _, first, end in spans]
    rows = disk.scratch(folder / LOCAL, np.uint8, (sum(counts), FEATURE_BYTES)) if any(counts) else NO_FEATURES
    at = 0
    for source, first, end in spans:
        rows[at : at + end - first] = source[first:end]
        at += end - first
    return StoredLocalFeatures.from_rows(keeping, counts, rows)


def merge_global_descriptors(vectors: Vectors, image_of: IntArray, folder: Path) -> FloatArray | None:
    """Return the photos' global descriptors in a file of the folder; None where the manifold is to make its own.

    That is where regions are photos, or where those of a photo cancel out, which leaves it without a direction.
    """
    layout = Layout.of(image_of)
    photos = len(layout.images)
    if photos == len(vectors):
        return None
    made = disk.scratch(folder / GLOBAL, np.float32, (photos, vectors.shape[1]))
    for start in range(0, photos, PHOTOS):
        block = slice(start, min(start + PHOTOS, photos))
        starts = layout.starts[block.start : block.stop + 1]
        block_layout = Layout(layout.images[block], starts - starts[0])
        made[block] = aggregate(vectors[starts[0] : starts[-1]].astype(np.float32, copy=False), block_layout)
        if not made[block].any(axis=1).all():
            return None
    return made

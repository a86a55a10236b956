"""Local features for an index that keeps none: made of its photos' files, without extracting their regions again.

Features go into a journal of their own as they are made, so that an interrupted run goes on where it stopped. The
graph, the descriptors and the whitening stay as they are: the new generation has the same files and two more.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial

import numpy as np
import numpy.typing as npt

from manifind.errors import UnreadableImageError
from manifind.geometry.packing import Packed
from manifind.index.build.gather import is_unchanged
from manifind.index.build.journal import Journal
from manifind.index.storage.build_config import BuildConfig
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import LocalFeatureConfig, keep
from manifind.index.storage.snapshot import Snapshot
from manifind.io import ListedFile, extract_ahead, key_to_path
from manifind.kernels.threads import thread_count
from manifind.storage import store
from manifind.types import StageProgress

NAME = "features"
"""What the journal is called in the writer's folder."""
NO_REGIONS = np.empty((0, 1), np.float32), np.empty((0, 4), np.float32)


def supplement_journal(writer: store.Writer, config: BuildConfig) -> Journal:
    """Open the journal of features that were made so far, of photos as this config sees them."""
    keeping = config.local_features
    assert keeping is not None  # noqa: S101 (asked by whoever calls)
    return Journal(writer.work / NAME, f"{keeping.fields} at {config.extractor.long_side}", 1)


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
    found = (ListedFile(image.key, key_to_path(config.root, image.key), image.bytes, image.mtime_ns) for image in left)
    options = {**limits, "threads": max(1, thread_count()), "long_side": config.extractor.long_side}
    unreadable = []
    report("features", 0, len(left))
    with closing(extract_ahead(found, partial(_rows, keeping), **options)) as photos:
        for done, (one, photo, rows) in enumerate(photos, 1):
            image = of_key[one.key]
            if isinstance(photo, UnreadableImageError) or rows is None or not is_unchanged(one, gone=False):
                unreadable.append(one.key)
            else:
                journal.append(image.sha256, image.width, image.height, *NO_REGIONS, rows)
            report("features", done, len(left))
    return unreadable


def _rows(keeping: LocalFeatureConfig, pixels: npt.NDArray[np.uint8]) -> Packed:
    return keep(pixels, keeping).rows

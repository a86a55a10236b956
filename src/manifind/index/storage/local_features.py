"""The local features that an index keeps of its photos, so that geometry need read few of their files.

They are made in the pass that extracts the regions, in 38 bytes each (`manifind.geometry.packing`), and are laid one
photo after the other in one array.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import DamagedError, MissingExtraError
from manifind.geometry import FEATURE_BYTES, Features, PackedFeatures, extract, pack
from manifind.geometry.packing import Packed
from manifind.index.storage.catalogue import ImageRecord

ARRAYS = ("features", "feature_starts")
"""The names of the two arrays in an index."""
MAX_KEYPOINTS = 3_000
"""How many features of a photo an index may store."""


@dataclass(frozen=True)
class LocalFeatureConfig:
    """What is stored of each photo. Chosen on small objects in clutter (docs/trials.md)."""

    kind: str = "sift"
    max_keypoints: int = 1_000
    """The most features that are stored of a photo."""
    long_side: int = 1152
    """Pixels of a photo's long side when its features are extracted."""
    max_enlargement: float = 2.0
    """Smaller photos are enlarged by this factor at most."""

    @property
    def fields(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return asdict(self)

    @property
    def bytes(self) -> int:
        """The most bytes that the features of a photo take."""
        return FEATURE_BYTES * self.max_keypoints

    def available(self) -> bool:
        """Return whether features of this kind can be made here."""
        try:
            keep(np.zeros((16, 16, 3), np.uint8), self)
        except MissingExtraError:
            return False
        return True


LOCAL_FEATURES = LocalFeatureConfig()
"""What a new index stores."""
COARSE_FEATURES = LocalFeatureConfig(max_keypoints=500, long_side=768, max_enlargement=1.0)
"""What indexes stored of photos before, and what is extracted of the files of an index without stored features."""


def keep(pixels: npt.NDArray[np.uint8], keeping: LocalFeatureConfig = LOCAL_FEATURES) -> PackedFeatures:
    """Return what an index keeps of a photo."""
    features = extract_image_features(pixels, keeping)
    return PackedFeatures(pack(features), features.width, features.height, keeping.kind)


def extract_image_features(pixels: npt.NDArray[np.uint8], config: LocalFeatureConfig) -> Features:
    """Return the features of a photo that such an index stores, before they are packed."""
    return extract(pixels, **config.fields)


@dataclass(frozen=True, eq=False)
class StoredLocalFeatures:
    """The features of all photos of an index, memory-mapped."""

    keeping: LocalFeatureConfig
    rows: Packed
    """The packed features of all photos, (n, 38)."""
    starts: npt.NDArray[np.int64]
    """Where the features of each photo start. The last entry is where those of the last photo end."""

    @classmethod
    def of(
        cls, keeping: LocalFeatureConfig, arrays: Mapping[str, npt.NDArray[Any]], photos: int
    ) -> "StoredLocalFeatures":
        """Take the arrays of an index, or raise `DamagedError`; nothing is read but their ends."""
        rows, starts = (arrays.get(name) for name in ARRAYS)
        if rows is None or starts is None:
            raise DamagedError("features or feature_starts is missing; repair the index.")
        fits = rows.ndim == 2 and rows.shape[1] == FEATURE_BYTES and rows.dtype == np.uint8 and starts.dtype == np.int64
        if not fits or starts.shape != (photos + 1,) or starts[0] != 0 or starts[-1] != len(rows):
            raise DamagedError("features are of another collection; repair the index.")
        return cls(keeping, rows, starts)

    @classmethod
    def from_rows(cls, keeping: LocalFeatureConfig, counts: Sequence[int], rows: Packed) -> "StoredLocalFeatures":
        """Return features that lie in `rows` in order, so many of each photo."""
        return cls(keeping, rows, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def some(self, images: Sequence[int]) -> "StoredLocalFeatures":
        """Return the features of some photos, in this order, in memory."""
        parts = [self.rows[slice(*self.span(image))] for image in images]
        rows = np.concatenate(parts) if parts else self.rows[:0]
        return self.from_rows(self.keeping, [len(part) for part in parts], rows)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What an index writes."""
        return dict(zip(ARRAYS, (self.rows, self.starts), strict=True))

    def span(self, image: int) -> tuple[int, int]:
        """Return where the features of a photo start and end."""
        first, end = (int(start) for start in self.starts[image : image + 2])
        if not 0 <= first <= end <= min(len(self.rows), first + self.keeping.max_keypoints):
            raise DamagedError(f"feature_starts leads photo {image} to no features; repair the index.")
        return first, end

    def checked(self, images: npt.NDArray[np.integer]) -> tuple[Packed, npt.NDArray[np.int64]]:
        """Return the features of all photos and their starts, or raise `DamagedError` where some photos have none."""
        first, end = self.starts[images], self.starts[images + 1]
        fits = (first >= 0) & (first <= end) & (end <= np.minimum(len(self.rows), first + self.keeping.max_keypoints))
        if not fits.all():
            self.span(int(images[np.argmin(fits)]))
        return self.rows, self.starts

    def of_photo(self, photo: ImageRecord) -> PackedFeatures:
        """Return the features of a photo of the catalogue."""
        first, end = self.span(photo.number)
        return PackedFeatures(self.rows[first:end], max(1, photo.width), max(1, photo.height), self.keeping.kind)

    def of_photos(self, photos: Sequence[ImageRecord]) -> list[PackedFeatures]:
        """Return the features of several photos."""
        return [self.of_photo(photo) for photo in photos]

"""Loads local features for verification, from an index or from image files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.geometry import Features, PackedFeatures, VerificationConfig, extract
from manifind.index.config import FullResolutionConfig
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import COARSE_FEATURES, LOCAL_FEATURES, extract_image_features
from manifind.index.storage.snapshot import AnySnapshot
from manifind.io import key_to_path, read_photo
from manifind.io.limits import MAX_PIXELS
from manifind.types import Box


class ImageFile(NamedTuple):
    """An image to be verified at full resolution: its file, and the size that it had when it was indexed."""

    file: Path
    width: int
    height: int


FeatureSource = PackedFeatures | Path | ImageFile
"""Stored local features, a file whose strongest features are extracted, or a file of which all are."""


def feature_kind(snapshot: AnySnapshot) -> str:
    """Return the kind of local feature by which images of an index are verified."""
    return LOCAL_FEATURES.kind if snapshot.local is None else snapshot.local.keeping.kind


def load_or_locate_features(snapshot: AnySnapshot, images: Sequence[ImageRecord]) -> Sequence[PackedFeatures | Path]:
    """Return the stored features of images, fetched at once from a remote collection, or where their files are."""
    if snapshot.local is None:
        return [key_to_path(snapshot.manifest.root, image.key) for image in images]
    return snapshot.local.of_photos(images)


def read_features(source: PackedFeatures | Path, *, kind: str = LOCAL_FEATURES.kind) -> Features | None:
    """Return the features of an image in its own pixels; None where its file cannot be read."""
    if isinstance(source, PackedFeatures):
        return source.features()
    config = replace(COARSE_FEATURES, kind=kind)
    try:
        photo = read_photo(source, long_side=config.long_side)
    except UnreadableImageError:
        return None
    return extract_image_features(photo.pixels, config).resized(photo.width, photo.height)


def extract_full_resolution(
    image: ImageFile, query: Features, config: FullResolutionConfig | None = None
) -> Features | None:
    """Return all features of an image file, in its own pixels; low-contrast ones too if the query has them.

    None where the file cannot be read, or has another size.
    """
    config = config or FullResolutionConfig()
    try:
        # The file may be another by now: no larger photo is decoded.
        pixels = max(1, min(image.width * image.height, MAX_PIXELS))
        photo = read_photo(image.file, max_pixels=pixels, long_side=config.long_side)
    except UnreadableImageError:
        return None
    if (photo.width, photo.height) != (image.width, image.height):
        return None
    features = extract(
        photo.pixels,
        kind=query.kind,
        max_keypoints=config.max_keypoints,
        long_side=config.long_side,
        max_enlargement=config.max_enlargement,
        low_contrast=query.low_contrast,
    )
    return features.resized(photo.width, photo.height)


def unchanged_file(snapshot: AnySnapshot, image: ImageRecord) -> ImageFile | None:
    """Return the file of an image if it has as many bytes as when it was indexed.

    None for frames of films, and for links that lead out of the collection: a service does not follow these.
    """
    try:
        file = key_to_path(snapshot.manifest.root, image.key)
        same = file.stat().st_size == image.bytes and file.resolve().is_relative_to(snapshot.manifest.root.resolve())
    except (OSError, InvalidInputError):
        return None
    return ImageFile(file, image.width, image.height) if same else None


def stored_part(
    snapshot: AnySnapshot, image: ImageRecord, box: Box | None, config: VerificationConfig | None = None
) -> Features | None:
    """Return the stored features of a part of an image; None where they are too few to verify anything."""
    if snapshot.local is None:
        return None
    features = snapshot.local.of_photo(image).features()
    part = features if box is None else features.within(box)
    return part if len(part) >= (config or VerificationConfig()).min_query_keypoints else None

"""The local features of photos, wherever they come from: those that an index keeps, or else those of a photo's file.

Whoever asks geometry something of photos of an index takes their features from here: answers that are verified, chains
that are confirmed, points that are drawn, repeats that are compared, pairs that teach.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.describe import key_to_path, read_photo
from manifind.errors import Unreadable
from manifind.geometry import KINDS, Features, extract
from manifind.geometry.verification import TEXTURE
from manifind.index.asking.query import whole_box
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.index.state.kept import KEEPING, Kept
from manifind.types import Box

QUERY_FEATURES = 700
"""How many features of a query are matched."""
SMOOTH = 300
"""A query that has at least `TEXTURE` and fewer features than this is smooth: faint ones count too, of the query and of
photos that get a closer look."""
CLOSELY, ENLARGED = 1152, 2.0
"""The long side of a photo that gets a closer look, in pixels. A smaller photo is enlarged by this factor at most. That
shows more detail than the index keeps the features of, and takes two to three times as long."""
ALL = 3_000
"""How many features of a photo are matched on a closer look: few photos have more."""

Sought = tuple[Features, Box | None]
"""The features of what is looked for, and its box in the query's photo; None is all of it."""


class Whole(NamedTuple):
    """A photo that gets a closer look: its file, and the size that it had when it was described."""

    file: Path
    width: int
    height: int


def query_features(pixels: npt.NDArray[np.uint8], box: Box | None, *, kind: str = KEEPING.kind) -> Features:
    """Return the features of what is looked for; faint ones too, where it is smooth."""
    found = extract(pixels, box, kind=kind, most=QUERY_FEATURES)
    if KINDS[kind].detect_faint is None or not TEXTURE <= len(found) < SMOOTH:
        return found
    return extract(pixels, box, kind=kind, most=QUERY_FEATURES, faint=True)


def sought_in(pixels: npt.NDArray[np.uint8], box: Sequence[float] | None, *, kind: str = KEEPING.kind) -> Sought:
    """Return the features of what is looked for in a photo, and its box in whole pixels; None is all of it."""
    part = None if box is None else whole_box(box, *pixels.shape[1::-1])
    return query_features(pixels, part, kind=kind), part


def photo_features(pixels: npt.NDArray[np.uint8], *, kind: str = KEEPING.kind, most: int = KEEPING.most) -> Features:
    """Return the features of a photo that is looked at."""
    return extract(pixels, kind=kind, most=most)


def kind_of(now: State) -> str:
    """Return the kind of local feature by which photos of an index are verified."""
    return KEEPING.kind if now.local is None else now.local.keeping.kind


def kept_or_file(now: State, photo: ImageRecord) -> Kept | Path:
    """Return what an index keeps of a photo, or where its file is; no file is read yet."""
    return kept_or_files(now, [photo])[0]


def kept_or_files(now: State, photos: Sequence[ImageRecord]) -> Sequence[Kept | Path]:
    """Return what an index keeps of photos, or where their files are: what lies in a store is fetched at once."""
    if now.local is None:
        return [key_to_path(now.manifest.root, photo.key) for photo in photos]
    return now.local.of_photos(photos)


def features_of(photo: Kept | Path, *, kind: str = KEEPING.kind) -> Features | None:
    """Return the features of a photo in its own pixels; None where its file cannot be read."""
    if isinstance(photo, Kept):
        return photo.features()
    try:
        read = read_photo(photo, long_side=KINDS[kind].long_side)
    except Unreadable:
        return None
    return photo_features(read.pixels, kind=kind).resized(read.width, read.height)


def close_features(photo: Whole, query: Features) -> Features | None:
    """Return all features of a photo that gets a closer look for a query, in its own pixels.

    Faint ones are among them if they are among the query's. None where the file cannot be read, or has another size.
    """
    try:
        read = read_photo(photo.file, long_side=CLOSELY)
    except Unreadable:
        return None
    if (read.width, read.height) != (photo.width, photo.height):
        return None
    height, width = read.pixels.shape[:2]
    by = min(ENLARGED, CLOSELY / max(width, height))
    pixels = read.pixels
    if by > 1:
        larger = Image.fromarray(pixels).resize((round(by * width), round(by * height)), Image.Resampling.BICUBIC)
        pixels = np.asarray(larger)
    found = extract(pixels, kind=query.kind, most=ALL, long_side=CLOSELY, faint=query.faint)
    return found.resized(read.width, read.height)


def part_of(now: State, photo: ImageRecord, box: Box | None) -> Features | None:
    """Return the features that an index keeps of a part of a photo; None where it has too few to say anything."""
    if now.local is None:
        return None
    features = now.local.of_photo(photo).features()
    part = features if box is None else features.within(box)
    return part if len(part) >= TEXTURE else None

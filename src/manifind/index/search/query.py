"""What a search looks for, and by when: views of an object as region descriptors and as local features; the deadline.

`extract_query_view` makes the region descriptors of a part of a photo, `QueryRegions.of` one query of several views.
`extract_query_features` makes the local features that spatial verification matches. All of these are frozen: a search
runs in any thread, while the index moves on to its next snapshot. `pixels_of` and `record_of` take a photo however it
is given: its file, the key of a photo in the collection, its bytes, its pixels, or an image of Pillow's.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.boxes import parse_box
from manifind.errors import InvalidInputError, UnreadableImageError
from manifind.features import RegionExtractor
from manifind.geometry import Features, extract, mirror, mirror_box
from manifind.index.config import SearchConfig
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import LOCAL_FEATURES
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.io import Photo, content_hash, key_of, key_to_path, read_photo, upright_pixels
from manifind.io.video import is_photo_there
from manifind.types import Box, FloatArray, IntArray


@dataclass(frozen=True)
class Deadline:
    """A moment at which a search must return what it has."""

    at: float | None = None
    """By `time.monotonic`; None is never."""

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline so many seconds from now; None is never."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def seconds_left(self) -> float:
        """How many seconds are left, infinity without a deadline; negative once it has passed."""
        return float("inf") if self.at is None else self.at - time.monotonic()

    @property
    def has_passed(self) -> bool:
        """Whether the moment has passed."""
        return self.seconds_left < 0

    def check(self) -> None:
        """Raise `TimeoutError` if it has passed."""
        if self.has_passed:
            raise TimeoutError("the search was cut short by its deadline.")


NO_DEADLINE = Deadline()


T = TypeVar("T")


class QueryView(NamedTuple):
    """The region descriptors of a part of a photo; boxes are in pixels of the whole photo."""

    vectors: FloatArray
    boxes: FloatArray
    rows: IntArray | None = None
    """The regions of the collection that these are, if they are."""


@dataclass(frozen=True, eq=False)
class QueryRegions:
    """All regions of a query, positive and negative."""

    vectors: FloatArray
    """(m, d), of all views one after the other."""
    boxes: FloatArray
    """(m, 4)"""
    view_of: npt.NDArray[np.int32]
    """(m,): the view of each region; -1 for expansion regions."""
    rows: IntArray
    """(m,): which region of the collection each is, -1 if none."""
    negatives: FloatArray | None = None
    """(r, d): the regions of the negative examples."""
    n_mirrored: int = 0
    """How many of the regions, the last ones before expansion regions, are of mirrored photos: some where mirrored
    objects are searched for."""

    @classmethod
    def of(
        cls,
        views: Sequence[QueryView],
        negatives: Sequence[QueryView] = (),
        *,
        mirrored: Sequence[QueryView] = (),
    ) -> Self:
        """Make one query of several views of an object, and of views of what it is not.

        `mirrored` are the same views of the mirrored photos, with boxes in the photos as they were given.
        """
        if not views:
            raise InvalidInputError(
                "the query has no photo; give at least one that shows the object.", code="query-without-photo"
            )
        both = [*views, *mirrored]
        numbers = np.array([*range(len(views)), *range(len(mirrored))], np.int32)
        return cls(
            np.concatenate([view.vectors for view in both]),
            np.concatenate([view.boxes for view in both]),
            np.repeat(numbers, [len(view.vectors) for view in both]),
            np.concatenate([np.full(len(v.vectors), -1, np.int32) if v.rows is None else v.rows for v in both]),
            np.concatenate([view.vectors for view in negatives]) if negatives else None,
            sum(len(view.vectors) for view in mirrored),
        )

    @property
    def orientations(self) -> list[FloatArray]:
        """The regions without those of mirrored photos, and without those of photos as given, where it has both.

        Expansion regions are in either.
        """
        if not self.n_mirrored:
            return [self.vectors]
        end = len(self.vectors) - self.n_expansion_regions
        start = end - self.n_mirrored
        return [np.delete(self.vectors, slice(start, end), axis=0), self.vectors[start:]]

    @property
    def n_expansion_regions(self) -> int:
        """How many of the regions, the last ones, come from verified images."""
        return int((self.view_of < 0).sum())

    @property
    def n_views(self) -> int:
        """How many photos show what is searched for."""
        return int(self.view_of.max(initial=-1)) + 1

    def first_views(self, n: int) -> Self:
        """Return the regions of the first photos, and all negative ones; not those of the query's expansion."""
        kept = (self.view_of >= 0) & (self.view_of < n)
        n_mirrored = int(kept[len(kept) - self.n_expansion_regions - self.n_mirrored :].sum())
        return replace(
            self,
            vectors=self.vectors[kept],
            boxes=self.boxes[kept],
            view_of=self.view_of[kept],
            rows=self.rows[kept],
            n_mirrored=n_mirrored,
        )

    def with_expansion(self, regions: QueryView) -> Self:
        """Return the query with regions of the collection that show its object."""
        assert regions.rows is not None  # noqa: S101 (they are of the collection)
        return replace(
            self,
            vectors=np.concatenate([self.vectors, regions.vectors]),
            boxes=np.concatenate([self.boxes, regions.boxes]),
            view_of=np.concatenate([self.view_of, np.full(len(regions.vectors), -1, np.int32)]),
            rows=np.concatenate([self.rows, regions.rows]),
        )


class QueryFeatures(NamedTuple):
    """The local features of one view of a query."""

    features: Features
    box: Box | None
    """The object in the view's photo; None is all of it."""
    mirrored: bool = False
    """Whether features and box are those of the mirrored photo."""

    @property
    def is_part(self) -> bool:
        """Whether the object is a part of its photo."""
        return self.features.is_part(self.box)

    def mirror(self) -> "QueryFeatures":
        """Return the view in the mirrored photo."""
        box = None if self.box is None else mirror_box(self.box, self.features.width)
        return QueryFeatures(mirror(self.features), box, not self.mirrored)


def with_mirrored(views: Sequence[QueryFeatures]) -> list[QueryFeatures]:
    """Return the views of a query, and the mirrored ones after them."""
    return [*views, *(view.mirror() for view in views)]


def view_numbers(views: Sequence[QueryFeatures]) -> list[int]:
    """Return the number of the photo that each view is of: mirrored views follow the others in the same order."""
    given = sum(not view.mirrored for view in views)
    return [number - given if view.mirrored else number for number, view in enumerate(views)]


@dataclass(frozen=True, eq=False)
class SearchQuery:
    """One query of the search pipeline, with everything but the configuration that decides its result."""

    regions: QueryRegions
    local_features: Callable[[], Sequence[QueryFeatures]] | None = None
    """Makes the local features of each view; called once the images are ranked. None: nothing is verified."""
    method: str = "regional"
    top: int | None = 20
    """How many results to return; None for all."""
    verify: int = 0
    """How many images to verify first."""
    expand: bool = True
    """Whether verified images expand the query."""
    own: frozenset[int] = frozenset()
    """Images that the query itself was taken from; they match themselves and say nothing about others."""
    excluded: frozenset[int] = frozenset()
    """Images that are not to be among the results."""
    own_by_view: tuple[frozenset[int], ...] = ()
    """Those of `own` that each view was taken from; empty where the views are not told apart."""
    number_images: Callable[[Snapshot], tuple[Sequence[frozenset[int]], frozenset[int]]] | None = None
    """Returns `own_by_view` and `excluded` by the numbers of the snapshot that was searched: a remote collection is
    searched on a shortlist, whose images have numbers of their own. None: the numbers above hold."""
    max_excluded: int = 0
    """How many images `number_images` excludes at most: so many more are retrieved."""


def extract_query_view(
    extractor: RegionExtractor,
    pixels: npt.NDArray[np.uint8],
    box: Sequence[float] | None,
    *,
    mirrored: bool = False,
) -> QueryView:
    """Extract the region descriptors of a part of a photo from all pixels of the photo.

    Those of the mirrored photo have boxes in the photo as it was given.
    """
    x0, y0, x1, y1 = whole_box(box, pixels.shape[1], pixels.shape[0])
    part = pixels[y0:y1, x0:x1]
    regions = extractor.extract(np.ascontiguousarray(part[:, ::-1] if mirrored else part))
    boxes = regions.boxes
    if mirrored:
        boxes = np.stack([x1 - x0 - boxes[:, 2], boxes[:, 1], x1 - x0 - boxes[:, 0], boxes[:, 3]], axis=1)
    return QueryView(regions.vectors, boxes + np.array([x0, y0, x0, y0], np.float32))


def stored_query_view(snapshot: AnySnapshot, record: ImageRecord) -> QueryView:
    """Return the stored region descriptors of an image of the collection."""
    if not isinstance(snapshot, Snapshot):
        return snapshot.stored_query_view(record)
    rows = snapshot.regions_of(record.number)
    return QueryView(
        np.array(snapshot.manifold.vectors_[rows], np.float32),
        np.array(snapshot.boxes[rows], np.float32),
        np.arange(rows.start, rows.stop, dtype=np.int32),
    )


def extract_query_features(
    pixels: npt.NDArray[np.uint8],
    box: Sequence[float] | None,
    *,
    kind: str = LOCAL_FEATURES.kind,
    config: SearchConfig | None = None,
) -> QueryFeatures:
    """Extract the local features of a part of a photo; of a low-texture part, low-contrast ones too."""
    config = config or SearchConfig()
    limits = config.local_query
    part = None if box is None else whole_box(box, *pixels.shape[1::-1])
    features = extract(pixels, part, kind=kind, max_keypoints=limits.max_keypoints)
    if config.matching.min_query_keypoints <= len(features) < limits.low_texture_keypoints:
        features = extract(pixels, part, kind=kind, max_keypoints=limits.max_keypoints, low_contrast=True)
    return QueryFeatures(features, part)


def in_background(function: Callable[[], T]) -> Callable[[], T]:
    """Call a function in another thread now; return a function that waits for what it returned."""
    with_thread = ThreadPoolExecutor(1)
    future = with_thread.submit(function)
    with_thread.shutdown(wait=False)
    return future.result


def whole_box(box: Sequence[float] | None, width: int, height: int) -> tuple[int, int, int, int]:
    """Return the box in whole pixels within a photo of this size; all of it where there is no box."""
    if box is None:
        return 0, 0, width, height
    corners = np.array(parse_box(box))
    x0, y0 = np.clip(np.floor(corners[:2]), 0, [width, height]).astype(int).tolist()
    x1, y1 = np.clip(np.ceil(corners[2:]), 0, [width, height]).astype(int).tolist()
    if x0 >= x1 or y0 >= y1:
        shown = ", ".join(f"{corner:g}" for corner in corners)
        raise InvalidInputError(
            f"box is ({shown}), which has no part of the {width} × {height} photo; give x0 < x1 and y0 < y1 within it.",
            code="box-outside",
        )
    return x0, y0, x1, y1


def rounded_box(row: npt.NDArray[np.floating]) -> Box:
    """Return a box to a tenth of a pixel."""
    x0, y0, x1, y1 = (round(float(value), 1) for value in row)
    return x0, y0, x1, y1


Source = str | os.PathLike[str] | bytes | npt.NDArray[np.uint8] | Image.Image
"""A photo: its path, the key of one in the collection, its bytes, its pixels (h, w, 3), or an image of Pillow's."""


def pixels_of(snapshot: AnySnapshot, image: Source) -> npt.NDArray[np.uint8]:
    """Return the upright pixels (h, w, 3) of a photo, however it is given."""
    if isinstance(image, Image.Image):
        return upright_pixels(image)
    pixels = image if isinstance(image, np.ndarray) else _read(snapshot, image).pixels
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise InvalidInputError(f"image has shape {pixels.shape} and dtype {pixels.dtype}; give (h, w, 3) of uint8.")
    return pixels


def photo_of(snapshot: AnySnapshot, key: str, *, long_side: int | None = None) -> Photo:
    """Read a photo of the collection; the key of a file that is identical to one serves as well."""
    record = snapshot.catalogue.photo_of(key)
    if record is None:
        raise InvalidInputError(
            f"{key!r} is not in the collection; give a key that `search` returned.", code="unknown-key"
        )
    return read_photo(key_to_path(snapshot.manifest.root, record.key), long_side=long_side)


def record_of(snapshot: AnySnapshot, image: Source) -> ImageRecord | None:
    """Return the photo of the collection that this is: by its key, by the path of its file, or by its content."""
    catalogue, root = snapshot.catalogue, snapshot.manifest.root
    if isinstance(image, bytes):
        return catalogue.of_content(hashlib.sha256(image).hexdigest())
    if isinstance(image, np.ndarray | Image.Image):
        return None
    if not is_photo_there(image):
        return catalogue.photo_of(os.fspath(image))
    for path in (Path(os.path.normpath(Path(image).absolute())), Path(image).resolve()):
        if path.is_relative_to(root):
            found = catalogue.photo_of(key_of(root, path))
            if found is not None:
                return found
    try:
        return catalogue.of_content(content_hash(image))
    except UnreadableImageError:
        return None


def _read(snapshot: AnySnapshot, image: str | os.PathLike[str] | bytes) -> Photo:
    if isinstance(image, bytes):
        return read_photo(image)
    if not isinstance(image, str | os.PathLike):
        raise InvalidInputError(
            f"image is a {type(image).__name__}; give a path, a key, bytes, pixels or an image of Pillow's."
        )
    if is_photo_there(image):
        return read_photo(image)
    if snapshot.catalogue.photo_of(os.fspath(image)) is None:
        raise InvalidInputError(
            f"{image} is neither a file nor a key of the collection; give the path of a photo, or of one of the "
            f"collection its path below {snapshot.manifest.root}."
        )
    return photo_of(snapshot, os.fspath(image))

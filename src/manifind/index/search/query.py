"""What a search looks for: views of an object as region descriptors, and as local features.

`extract_query_view` makes the region descriptors of a part of a photo, `QueryRegions.of` one query of several views.
`extract_query_features` makes the local features that spatial verification matches. All of these are frozen: a search
runs in any thread, while the index moves on to its next snapshot.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.features import RegionExtractor
from manifind.geometry import Features, extract
from manifind.index.config import SearchConfig
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import LOCAL_FEATURES
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.types import Box, FloatArray, IntArray

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

    @classmethod
    def of(cls, views: Sequence[QueryView], negatives: Sequence[QueryView] = ()) -> Self:
        """Make one query of several views of an object, and of views of what it is not."""
        if not views:
            raise InvalidInputError(
                "the query has no photo; give at least one that shows the object.", code="query-without-photo"
            )
        return cls(
            np.concatenate([view.vectors for view in views]),
            np.concatenate([view.boxes for view in views]),
            np.repeat(np.arange(len(views), dtype=np.int32), [len(view.vectors) for view in views]),
            np.concatenate([np.full(len(v.vectors), -1, np.int32) if v.rows is None else v.rows for v in views]),
            np.concatenate([view.vectors for view in negatives]) if negatives else None,
        )

    @property
    def n_expansion_regions(self) -> int:
        """How many of the regions, the last ones, come from verified images."""
        return int((self.view_of < 0).sum())

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

    @property
    def is_part(self) -> bool:
        """Whether the object is a part of its photo."""
        return self.features.is_part(self.box)


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
    number_images: Callable[[Snapshot], tuple[frozenset[int], frozenset[int]]] | None = None
    """Returns `own` and `excluded` by the numbers of the snapshot that was searched: a remote collection is searched on
    a shortlist, whose images have numbers of their own. None: the numbers above hold."""
    max_excluded: int = 0
    """How many images `number_images` excludes at most: so many more are retrieved."""


def extract_query_view(
    extractor: RegionExtractor, pixels: npt.NDArray[np.uint8], box: Sequence[float] | None
) -> QueryView:
    """Extract the region descriptors of a part of a photo from all pixels of the photo."""
    x0, y0, x1, y1 = whole_box(box, pixels.shape[1], pixels.shape[0])
    regions = extractor.extract(np.ascontiguousarray(pixels[y0:y1, x0:x1]))
    return QueryView(regions.vectors, regions.boxes + np.array([x0, y0, x0, y0], np.float32))


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
    try:
        corners = np.asarray(box, np.float64)
    except (TypeError, ValueError):
        corners = np.empty(0)
    if corners.shape != (4,) or not np.isfinite(corners).all():
        raise InvalidInputError(f"box is {box!r}; give four numbers x0, y0, x1, y1 in pixels.", code="box-numbers")
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

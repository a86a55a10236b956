"""The keypoints that match between a query and an image under one transform: what *Why?* draws.

Lines between the keypoints, drawn over the two photos side by side, show what was verified. The transform lays one
photo over the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.errors import MissingExtraError, UnreadableImageError
from manifind.geometry import Features, verify
from manifind.index.config import SearchConfig
from manifind.index.search.image_features import (
    extract_full_resolution,
    extract_image_features,
    feature_kind,
    load_or_locate_features,
    read_features,
    stored_part,
    unchanged_file,
)
from manifind.index.search.image_source import Source, pixels_of, record_of
from manifind.index.search.query import QueryFeatures, extract_query_features, whole_box
from manifind.index.search.verification import sureness
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot
from manifind.types import FloatArray


@dataclass(frozen=True, eq=False)
class MatchingPoints:
    """Keypoints of a query and of an image that match, pair by pair, in pixels of the upright photos."""

    verified: bool | None
    """Whether they verify the image; None where the query has too little texture to tell."""
    query: FloatArray
    """(m, 2): x and y in the query's photo."""
    photo: FloatArray
    """(m, 2): where the same points are in the other photo."""
    transform: npt.NDArray[np.float64] | None
    """(3, 3): takes (x, y, 1) of the query's photo to (x, y, 1) of the other, up to a factor; None if there is none."""
    inliers: int
    """How many of the points lie at distinct places."""
    view: int = 0
    """Which of the query's views it is."""


def match_views(
    views: Sequence[QueryFeatures], photo: Features | None, config: SearchConfig | None = None
) -> MatchingPoints:
    """Return the points that match between an image and the view of a query that matches most surely."""
    found = [_match(view, photo, number, config or SearchConfig()) for number, view in enumerate(views)]
    return max(found, key=lambda one: sureness(one.verified, one.inliers))


def match_views_full_resolution(
    snapshot: AnySnapshot, views: Sequence[QueryFeatures], image: ImageRecord, config: SearchConfig | None = None
) -> MatchingPoints | None:
    """Return the same from all features of an image's file, if they verify it; None otherwise."""
    config = config or SearchConfig()
    file = unchanged_file(snapshot, image)
    if file is None:
        return None
    of_contrast = {
        view.features.low_contrast: extract_full_resolution(file, view.features, config.full_resolution)
        for view in views
    }
    found = [_match(view, of_contrast[view.features.low_contrast], i, config) for i, view in enumerate(views)]
    best = max(found, key=lambda one: sureness(one.verified, one.inliers))
    return best if best.verified else None


def matching_points(
    snapshot: AnySnapshot,
    image: Source,
    other: Source,
    box: Sequence[float] | None = None,
    config: SearchConfig | None = None,
) -> MatchingPoints:
    """Return the points that match between two photos; see `Index.matching_points`.

    Images with stored features are read from their files only where these do not verify, as in a search.
    """
    config = config or SearchConfig()
    kind = feature_kind(snapshot)
    record = None if snapshot.local is None else record_of(snapshot, other)
    photo = None if record is None else read_features(load_or_locate_features(snapshot, [record])[0])
    if photo is None:
        photo = extract_image_features(pixels_of(snapshot, other), kind=kind)
    points = match_views([_stored_or_extracted(snapshot, image, box, config)], photo, config)
    if record is None or points.verified is not False or unchanged_file(snapshot, record) is None:
        return points
    try:
        query = extract_query_features(pixels_of(snapshot, image), box, kind=kind, config=config)
        return match_views_full_resolution(snapshot, [query], record, config) or points
    except (UnreadableImageError, MissingExtraError):
        return points


def _match(query: QueryFeatures, photo: Features | None, view: int, config: SearchConfig) -> MatchingPoints:
    none = np.empty((0, 2), np.float32)
    if photo is None:
        return MatchingPoints(None, none, none, None, 0, view)
    verdict = verify(query.features, photo, query.box, config=config.matching)
    if not verdict.instances:
        return MatchingPoints(verdict.verified, none, none, None, 0, view)
    surest = verdict.instances[0]
    a, b = surest.matches.T
    pairs = query.features.keypoints[a], photo.keypoints[b]
    return MatchingPoints(verdict.verified, *pairs, surest.transform, surest.inliers, view)


def _stored_or_extracted(
    snapshot: AnySnapshot, image: Source, box: Sequence[float] | None, config: SearchConfig
) -> QueryFeatures:
    """Return the local features of a query: the stored ones, where the index has enough of them."""
    record = None if snapshot.local is None else record_of(snapshot, image)
    if record is not None:
        part = None if box is None else whole_box(box, record.width, record.height)
        stored = stored_part(snapshot, record, part, config.matching)
        if stored is not None:
            return QueryFeatures(stored, part)
    return extract_query_features(pixels_of(snapshot, image), box, kind=feature_kind(snapshot), config=config)

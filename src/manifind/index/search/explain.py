"""Why an image was found: the keypoints that match, and the chain of regions that leads to it.

`matching_points` are the inliers of two photos: lines between them, drawn over the photos side by side, show what was
verified. `explain_result` is the chain along which most of the query's score could flow to an image
(`manifind.manifold.paths`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError, MissingExtraError, UnreadableImageError
from manifind.geometry import Features, mirror_points, mirror_transform, verify
from manifind.index.config import SearchConfig
from manifind.index.search.image_features import (
    extract_full_resolution,
    feature_kind,
    load_or_locate_features,
    read_features,
    stored_part,
    unchanged_file,
)
from manifind.index.search.query import (
    QueryFeatures,
    Source,
    extract_query_features,
    pixels_of,
    record_of,
    rounded_box,
    view_numbers,
    whole_box,
    with_mirrored,
)
from manifind.index.search.retrieval import Retrieval
from manifind.index.search.verification import sureness
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import COARSE_FEATURES, extract_image_features
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.manifold.paths import best_path
from manifind.types import Box, FloatArray


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
    mirrored: bool | None = None
    """Whether the transform mirrors; None where a mirrored object was not looked for."""


def match_views(
    views: Sequence[QueryFeatures], photo: Features | None, config: SearchConfig | None = None
) -> MatchingPoints:
    """Return the points that match between an image and the view of a query that matches most surely."""
    return _surest([(view, photo) for view in views], config or SearchConfig())


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
    best = _surest([(view, of_contrast[view.features.low_contrast]) for view in views], config)
    return best if best.verified else None


def matching_points(
    snapshot: AnySnapshot,
    image: Source,
    other: Source,
    box: Sequence[float] | None = None,
    config: SearchConfig | None = None,
    *,
    mirrored: bool = False,
) -> MatchingPoints:
    """Return the points that match between two photos; see `Index.matching_points`.

    Images with stored features are read from their files only where these do not verify, as in a search.
    """
    config = config or SearchConfig()
    kind = feature_kind(snapshot)
    record = None if snapshot.local is None else record_of(snapshot, other)
    photo = None if record is None else read_features(load_or_locate_features(snapshot, [record])[0])
    if photo is None:
        photo = extract_image_features(pixels_of(snapshot, other), replace(COARSE_FEATURES, kind=kind))
    view = _stored_or_extracted(snapshot, image, box, config)
    points = match_views(with_mirrored([view]) if mirrored else [view], photo, config)
    if record is None or points.verified is not False or unchanged_file(snapshot, record) is None:
        return points
    try:
        view = extract_query_features(pixels_of(snapshot, image), box, kind=kind, config=config)
        views = with_mirrored([view]) if mirrored else [view]
        return match_views_full_resolution(snapshot, views, record, config) or points
    except (UnreadableImageError, MissingExtraError):
        return points


def _surest(pairs: Sequence[tuple[QueryFeatures, Features | None]], config: SearchConfig) -> MatchingPoints:
    """Return the points that match in the surest pair of a view and the features of an image."""
    views = [view for view, _ in pairs]
    found = [
        _match(view, photo, number, config) for (view, photo), number in zip(pairs, view_numbers(views), strict=True)
    ]
    best = max(range(len(found)), key=lambda one: sureness(found[one].verified, found[one].inliers))
    both_ways = any(view.mirrored for view in views)
    return replace(found[best], mirrored=views[best].mirrored) if both_ways else found[best]


def _match(query: QueryFeatures, photo: Features | None, view: int, config: SearchConfig) -> MatchingPoints:
    none = np.empty((0, 2), np.float32)
    if photo is None:
        return MatchingPoints(None, none, none, None, 0, view)
    verdict = verify(query.features, photo, query.box, config=config.matching)
    if not verdict.instances:
        return MatchingPoints(verdict.verified, none, none, None, 0, view)
    surest = verdict.instances[0]
    a, b = surest.matches.T
    points, transform = query.features.keypoints[a], surest.transform
    if query.mirrored:
        width = query.features.width
        points, transform = mirror_points(points, width), mirror_transform(transform, width)
    return MatchingPoints(verdict.verified, points, photo.keypoints[b], transform, surest.inliers, view)


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


@dataclass(frozen=True)
class Place:
    """A region of a photo of the collection, or of the query where `key` is None."""

    key: str | None
    box: Box
    view: int = 0
    """Which of the query's photos the region is in."""


@dataclass(frozen=True)
class Link:
    """Two regions that look alike."""

    source: Place
    target: Place
    similarity: float
    """The inner product of their descriptors."""
    flow: float
    """The share α s_ij of the source's score that flows to the target. For the first link it is the value that the
    query seeded, divided by the largest seed."""
    verified: bool | None = None
    """Whether geometry finds the source in the target's photo; None where it was not asked or cannot say."""
    inliers: int | None = None
    """How many points match, where geometry finds the source."""

    @property
    def within(self) -> bool:
        """Whether both are regions of one photo, where there is nothing to confirm."""
        return self.source.key == self.target.key


@dataclass(frozen=True)
class Chain:
    """The links from the query to a photo."""

    key: str
    links: tuple[Link, ...]

    @property
    def keys(self) -> list[str]:
        """The photos on the way, each once, the last the one that was found."""
        keys = [link.target.key for link in self.links if link.target.key is not None]
        return [key for i, key in enumerate(keys) if i == 0 or keys[i - 1] != key]


def explain_result(retrieval: Retrieval, image: int) -> Chain:
    """Return the chain of photos that led from a query to one of the images of its ranking."""
    if retrieval.ranking.seed is None:
        raise InvalidInputError(
            f"method {retrieval.method!r} follows no chain; search with method='regional' to explain.",
            code="method-without-chain",
        )
    snapshot, query = retrieval.snapshot, retrieval.query
    # What speaks against the query seeds below zero: no chain begins there.
    seed, manifold, rows = retrieval.ranking.seed.positive(), snapshot.manifold, snapshot.regions_of(image)
    key = snapshot.catalogue[image].key
    targets = np.arange(rows.start, rows.stop, dtype=np.int32)
    path = best_path(
        manifold.S_, float(manifold.alpha), seed, retrieval.ranking.regions, targets, retrieval.config.explained_regions
    )
    if path is None:
        return Chain(key, ())
    X = manifold.vectors_
    start = int(path.regions[0])
    likeness = query.vectors @ X[start].astype(np.float32)
    nearest = int(likeness.argmax())
    seeded = seed.values[np.searchsorted(seed.regions, start)] / seed.values.max()
    view = int(query.view_of[nearest])
    # A chain may begin at an expansion region.
    from_query = (
        Place(None, rounded_box(query.boxes[nearest]), view)
        if view >= 0
        else _place(snapshot, int(query.rows[nearest]))
    )
    places = [_place(snapshot, int(region)) for region in path.regions]
    links = [Link(from_query, places[0], float(likeness[nearest]), float(seeded))]
    for i, (a, b) in enumerate(pairwise(path.regions)):
        links.append(Link(places[i], places[i + 1], _product(X[a], X[b]), float(path.flows[i])))
    return Chain(key, tuple(links))


def verify_chain(chain: Chain, match: Callable[[Link], MatchingPoints | None]) -> Chain:
    """Return a chain whose links from photo to photo say whether geometry joins the two.

    `match` returns the points that match between the source of a link and its target's photo; None where it cannot.
    """

    def seen(link: Link) -> Link:
        points = None if link.within else match(link)
        if points is None:
            return link
        return replace(link, verified=points.verified, inliers=points.inliers if points.verified else None)

    return replace(chain, links=tuple(map(seen, chain.links)))


def _product(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    return float(a.astype(np.float32) @ b.astype(np.float32))


def _place(snapshot: Snapshot, region: int) -> Place:
    number = int(np.searchsorted(snapshot.manifold.layout_.starts, region, side="right")) - 1
    return Place(snapshot.catalogue[number].key, rounded_box(snapshot.boxes[region]))

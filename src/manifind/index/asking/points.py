"""The points that two photos have in common under one map: what a person wants to see who asks why.

Lines between the points, drawn over the two photos side by side, show what geometry saw. The map lays one photo over
the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.errors import MissingExtra, Unreadable
from manifind.geometry import Features, Verdict, verify
from manifind.index.asking.closer import all_features, file_as_it_was
from manifind.index.asking.features import (
    Sought,
    features_of,
    kept_or_file,
    kind_of,
    part_of,
    photo_features,
    sought_in,
)
from manifind.index.asking.query import whole_box
from manifind.index.asking.sources import Source, pixels_of, record_of
from manifind.index.state.generation import State
from manifind.types import Box, FloatArray


@dataclass(frozen=True, eq=False)
class MatchingPoints:
    """Points of a query and of a photo that match, pair by pair, in pixels of the upright photos."""

    verified: bool | None
    """Whether they are enough, and all over what is looked for; None where the query has too little texture to tell."""
    query: FloatArray
    """(m, 2): x and y in the query's photo."""
    photo: FloatArray
    """(m, 2): where the same points are in the other photo."""
    map: npt.NDArray[np.float64] | None
    """(3, 3): takes (x, y, 1) of the query's photo to (x, y, 1) of the other, up to a factor; None if there is none."""
    inliers: int
    """How many of the points lie at places of their own."""

    @classmethod
    def of(cls, query: Features, photo: Features, box: Box | None = None) -> "MatchingPoints":
        """Match the features of two photos; `box` is the object in the query's."""
        return cls.told(verify(query, photo, box), query, photo)

    @classmethod
    def told(cls, verdict: Verdict, query: Features, photo: Features) -> "MatchingPoints":
        """Return the points of a verdict's surest instance."""
        if not verdict.instances:
            none = np.empty((0, 2), np.float32)
            return cls(verdict.verified, none, none, None, 0)
        surest = verdict.instances[0]
        a, b = surest.pairs.T
        return cls(verdict.verified, query.points[a], photo.points[b], surest.map, surest.inliers)


def matching_points(now: State, image: Source, other: Source, box: Sequence[float] | None = None) -> MatchingPoints:
    """Return the points that match between two photos, under the map that geometry finds; see `Index.matching_points`.

    Photos whose features the collection keeps are read from their files only where these do not verify: a search may
    have had a closer look too.
    """
    query, part = _part(now, image, box)
    found = None if now.local is None else record_of(now, other)
    photo = None if found is None else features_of(kept_or_file(now, found))
    points = MatchingPoints.of(query, photo or photo_features(pixels_of(now, other), kind=kind_of(now)), part)
    if found is None or points.verified is not False or file_as_it_was(now, found) is None:
        return points
    try:
        query, part = sought_in(pixels_of(now, image), box, kind=kind_of(now))
        everything = all_features(now, found, query)
    except (Unreadable, MissingExtra):
        return points
    closer = points if everything is None else MatchingPoints.of(query, everything, part)
    return closer if closer.verified else points


def _part(now: State, image: Source, box: Sequence[float] | None) -> Sought:
    """Return the features of what is looked for, and its box: those that the index keeps, where they are enough."""
    record = None if now.local is None else record_of(now, image)
    if record is not None:
        part = None if box is None else whole_box(box, record.width, record.height)
        known = part_of(now, record, part)
        if known is not None:
            return known, part
    return sought_in(pixels_of(now, image), box, kind=kind_of(now))

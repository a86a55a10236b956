"""What geometry says of photos, one by one.

Regions say that a photo shows something like the query. Local features, matched under one map, say that it shows this
very thing, and where (`manifind.geometry`). `checked` looks at photos, from the features that an index kept of them or
from their files; `looked_at` at photos of an index, for a query of one photo or several.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from manifind.geometry import LIMITS, Features, Instance, Verdict, verify
from manifind.geometry.maps import Map
from manifind.index.asking.answer import Outline
from manifind.index.asking.features import Sought, Whole, close_features, features_of, kept_or_files
from manifind.index.state.generation import Generation
from manifind.index.state.kept import Kept
from manifind.kernels.threads import thread_count
from manifind.types import Box, FloatArray


class Seen(NamedTuple):
    """How geometry found the object of a box in a photo."""

    box: Box
    """The object in the query's photo."""
    map: Map
    points: FloatArray
    """(k, 2): the points of the query that match."""
    size: tuple[int, int]
    """Width and height of the photo."""
    view: int = 0
    """Which of the query's photos it is."""


@dataclass(frozen=True)
class Checked:
    """What geometry says of one photo."""

    verified: bool | None
    """None where it cannot say: the query has too little texture, or the photo's file cannot be read."""
    inliers: int = 0
    """How many points match under the map of the surest instance, verified or not."""
    outline: Outline | None = None
    """Where the map puts the corners of the query's box."""
    box: Box | None = None
    """Round the outline, within the photo."""
    others: tuple[Outline, ...] = ()
    """The outlines of the object's further instances."""
    perhaps: Box | None = None
    """Where the object would be, in a photo in which points match that are doubtful (`geometry.Instance`)."""
    agreeing: int = field(default=0, repr=False, compare=False)
    """How many points agree on one map at most, be they enough or not."""
    closely: bool = field(default=False, repr=False, compare=False)
    """Whether it had a closer look: all features of its file were compared."""
    seen: Seen | None = field(default=None, repr=False, compare=False)
    """How it was found, in a verified photo, where a part of a photo is looked for."""


def checked(
    query: Features,
    box: Box | None,
    photos: Sequence[Kept | Path | Whole],
    *,
    until: float | None = None,
) -> list[Checked]:
    """Return what geometry says of each photo.

    Parameters
    ----------
    query : Features
        Those of what is looked for.
    box : (x0, y0, x1, y1), optional
        What is looked for in the query's photo; all of it by default.
    photos : sequence of Kept, Path or Whole
        Features that were kept, of the same kind as the query's, or files; of a `Whole` all features are compared.
    until : float, optional
        The moment by `time.monotonic` at which to give up: `TimeoutError` is raised.
    """
    look = partial(_look, query, box, until)
    threads = min(thread_count(), len(photos))
    # Each thread has photos of its own; a product of two small matrices gains nothing from more.
    with threadpool_limits(1, user_api="blas"):
        if threads < 2:
            return [look(photo) for photo in photos]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(look, photos))


def _look(query: Features, box: Box | None, until: float | None, photo: Kept | Path | Whole) -> Checked:
    if until is not None and time.monotonic() > until:
        raise TimeoutError("photos were not looked at in time.")
    features = close_features(photo, query) if isinstance(photo, Whole) else features_of(photo, kind=query.kind)
    if features is None:
        return Checked(None)
    limits = LIMITS[query.kind]
    part = query.is_part(box)
    # Of a part, few points that are doubtful are told too: beside verified photos they say something.
    told = replace(limits, inliers=limits.of_part) if part else limits
    verdict = verify(query, features, box, limits=told)
    found = replace(_checked(verdict), agreeing=verdict.agreeing, closely=isinstance(photo, Whole))
    if box is None or not part or not found.verified:
        return found
    sure = verdict.instances[0]
    return replace(found, seen=Seen(box, sure.map, query.points[sure.pairs[:, 0]], (features.width, features.height)))


def _checked(verdict: Verdict) -> Checked:
    if not verdict.instances:
        return Checked(verdict.verified)
    first, *more = verdict.instances
    x0, y0, x1, y1 = (round(side, 1) for side in first.box)
    if first.doubtful:
        return Checked(False, first.inliers, perhaps=(x0, y0, x1, y1))
    others = tuple(_outline(one) for one in more if not one.doubtful)
    return Checked(True, first.inliers, _outline(first), (x0, y0, x1, y1), others)


def _outline(instance: Instance) -> Outline:
    a, b, c, d = ((round(float(x), 1), round(float(y), 1)) for x, y in instance.outline)
    return a, b, c, d


def looked_at(
    now: Generation,
    images: Sequence[int],
    views: Sequence[Sought],
    *,
    until: float | None = None,
) -> dict[int, Checked]:
    """Return what geometry says of photos of an index, by their numbers: the surest of several views counts."""
    photos = kept_or_files(now, [now.catalogue[image] for image in images])
    return dict(zip(images, surest_of(views, photos, until=until), strict=True))


def surest_of(
    views: Sequence[Sought],
    photos: Sequence[Kept | Path | Whole],
    *,
    until: float | None = None,
) -> list[Checked]:
    """Return what geometry says of each photo, by the view that is surest; other parameters as in `checked`."""
    by_view = [
        [_of_view(check, view) for check in checked(query, box, photos, until=until)]
        for view, (query, box) in enumerate(views)
    ]
    return [max(some, key=_sureness) for some in zip(*by_view, strict=True)]


def _sureness(check: Checked) -> tuple[bool, int, bool, int]:
    """Return what makes one view of the query surer than another: one without texture says nothing."""
    return check.verified is True, check.inliers, check.verified is not None, check.agreeing


def _of_view(check: Checked, view: int) -> Checked:
    return check if check.seen is None else replace(check, seen=check.seen._replace(view=view))

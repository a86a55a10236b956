"""Two photos -> whether one shows the object of the other, where, and by how many matching points.

Features are matched, one map is found that as many pairs as possible agree with, and the photo is verified where enough
do. The map takes the four corners of the query's box to the object's outline in the photo. What the outline covers is
then set aside and the rest of the photo is looked at again: each instance of the object gets its own outline.

An instance may be doubtful, which is told and verifies nothing. Points that crowd in a part of the query's box say that
this part is the same, a print or a piece of what is behind the object, and not that the object is. A few points that
look only roughly alike say that both photos show something of one kind: two faces have eyes, nose and mouth in the same
arrangement.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.boxes import shared_area
from manifind.errors import InvalidInput
from manifind.geometry import maps
from manifind.geometry.extraction import KINDS
from manifind.geometry.features import Features, check_box
from manifind.geometry.maps import Map
from manifind.geometry.matching import Pairs, pairs_of
from manifind.geometry.robust import Matches, find_map
from manifind.types import Box

INSTANCES = 8
"""How many instances of an object are looked for in a photo."""
CENTRAL, INNER = 4, 0.7
"""How many matching points must lie in the inner part of a box, and how much of its width and height that is: at the
edge of a box there is more of what is behind the object than of the object."""
SPREAD = 0.065
"""How far matching points must be spread over a box: the geometric mean of their standard deviations across and down,
in parts of its width and height. Points all over it have 0.29."""
CELLS, EVEN = 4, 0.36
"""Into how many cells across and down a box is divided, and how many of them matching points must reach, in parts of
those that as many of the query's features would reach if they were drawn by lot; chosen on planted scenes and packages,
where it costs one in a hundred of the photos that are right."""
MANY, MANY_OF = 30, 500
"""So many matching points, of so many features of the photo, verify it even if they crowd in a part of the box: a box
that is drawn loosely has the object in a part of it. Of more features it takes as many times more points."""
SAME = 0.5
"""The part of the smaller of two instances' boxes that the other may cover: beyond it, they are one instance."""
TEXTURE = 20
"""Features that a query must have before their absence in a photo says anything."""


@dataclass(frozen=True)
class Limits:
    """When a kind of feature is believed; chosen on Oxford5k (``benchmarks/geometry.py``)."""

    ratio: float
    """How much nearer than its runner-up a match must be."""
    tolerances: tuple[float, float]
    """How far a pair may lie from the map, in parts of the long side of the query's box and of the photo."""
    inliers: int
    """How many pairs at places of their own must agree."""
    of_part: int
    """How many are enough where a part of a photo is looked for, unless they are doubtful."""
    alike: tuple[float, float] | None = None
    """The similarity of descriptors above which a pair counts, and how much all pairs together must have above it: few
    must look more alike than many. None: looks do not count."""


LIMITS = {
    "sift": Limits(ratio=0.94, tolerances=(0.015, 0.01), inliers=6, of_part=4, alike=(0.88, 0.2)),
    "xfeat": Limits(ratio=0.95, tolerances=(0.015, 0.01), inliers=15, of_part=15),
}
"""When each kind of local feature is believed."""


@dataclass(frozen=True, eq=False)
class Instance:
    """One place where a photo shows the object."""

    map: Map
    """(3, 3): from pixels of the query's photo to pixels of this photo."""
    outline: npt.NDArray[np.float64]
    """(4, 2): the corners of the query's box, clockwise from its upper left; parts may lie outside the photo."""
    box: Box
    """Round the object, within the photo: round the outline, whose corners count less where the query has a box."""
    inliers: int
    """Matching points at places of their own."""
    pairs: Pairs
    """(k, 2): the features that agree, the query's and the photo's, by their places."""
    doubtful: bool = False
    """Whether the matching points verify nothing: they are not `MANY`, and lie in a part of the query's box alone or
    look too little alike."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What geometry says of a photo."""

    verified: bool | None
    """None where the query has too little texture for a photo without matches to mean anything."""
    instances: tuple[Instance, ...] = ()
    """Where the object is, the surest first; where only a part of it is, last."""
    agreeing: int = 0
    """How many pairs at places of their own agree on one map at most, be they enough or not."""

    @property
    def inliers(self) -> int:
        """Matching points of the surest instance."""
        return self.instances[0].inliers if self.instances else 0


def verify(query: Features, photo: Features, box: Box | None = None, *, limits: Limits | None = None) -> Verdict:
    """Return whether a photo shows the query, and where.

    Parameters
    ----------
    query, photo : Features
        Of the same kind.
    box : (x0, y0, x1, y1), optional
        The object in the query's photo, all of it by default.
    limits : Limits, optional
        The kind's own by default.
    """
    if photo.kind != query.kind:
        raise InvalidInput(f"the query has {query.kind} features and the photo has {photo.kind}; give one kind.")
    whole = (0.0, 0.0, float(query.width), float(query.height))
    inside = check_box(box or whole, query.width, query.height)
    instances, agreeing = _instances(query, photo, inside, limits or LIMITS[query.kind])
    otherwise = False if len(query) >= TEXTURE else None
    return Verdict(True if any(not one.doubtful for one in instances) else otherwise, instances, agreeing)


def _instances(query: Features, photo: Features, box: Box, limits: Limits) -> tuple[tuple[Instance, ...], int]:
    """Return where the object is, and how many pairs agree at most."""
    found: list[Instance] = []
    most = 0
    left = np.arange(len(photo))
    similar = photo.descriptors @ query.descriptors.T
    while len(found) < INSTANCES and len(left):
        pairs = pairs_of(similar if len(left) == len(similar) else similar[left], ratio=limits.ratio)
        pairs[:, 1] = left[pairs[:, 1]]
        one, agreeing = _instance(query, photo, pairs, box, limits)
        most = max(most, agreeing)
        if one is None or any(shared_area(one.box, other.box) > SAME for other in found):
            break
        found.append(one)
        if one.doubtful and one.inliers < LIMITS[query.kind].inliers:
            break  # it is weak evidence at best, and so would be what else is there
        left = left[~_covered(one, photo.points[left])]
    return tuple(sorted(found, key=lambda one: (one.doubtful, -one.inliers))), most


def _instance(query: Features, photo: Features, pairs: Pairs, box: Box, limits: Limits) -> tuple[Instance | None, int]:
    """Return the instance that most pairs agree on, where it is one, and how many pairs do."""
    part = query.is_part(box)
    least = min(limits.of_part, limits.inliers) if part else limits.inliers
    if len(pairs) < least:
        return None, 0
    a, b = pairs.T
    oriented = KINDS[query.kind].oriented
    matches = Matches(
        query.points[a],
        photo.points[b],
        photo.scales[b] / query.scales[a] if oriented else None,
        photo.angles[b] - query.angles[a] if oriented else None,
    )
    tolerances = (
        limits.tolerances[0] * max(box[2] - box[0], box[3] - box[1]),
        limits.tolerances[1] * max(photo.width, photo.height),
    )
    agreement = find_map(matches, box, tolerances, least=least)
    if agreement is None:
        return None, 0
    if agreement.distinct < least:
        return None, agreement.distinct
    matching = matches.a[agreement.inliers]
    if part and not _on_object(matching, box):
        return None, agreement.distinct
    outline = maps.apply(agreement.map, maps.corners(box))
    around = maps.apply(agreement.map, maps.rounded(box)) if part else outline
    size = np.array([photo.width, photo.height], np.float64)
    (x0, y0), (x1, y1) = np.clip(around.min(axis=0), 0, size), np.clip(around.max(axis=0), 0, size)
    if x0 >= x1 or y0 >= y1:
        return None, agreement.distinct
    tight = float(x0), float(y0), float(x1), float(y1)
    agreed = pairs[agreement.inliers]
    doubtful = len(matching) < MANY * max(1, len(photo) / MANY_OF) and (
        not _alike(query, photo, agreed, agreement.distinct, limits)
        or (part and _crowded(query.points[_within(agreement.map, query, photo)], matching, box))
    )
    if doubtful and agreement.distinct < limits.inliers:
        return None, agreement.distinct
    return Instance(agreement.map, outline, tight, agreement.distinct, agreed, doubtful), agreement.distinct


def _alike(query: Features, photo: Features, pairs: Pairs, distinct: int, limits: Limits) -> bool:
    """Return whether pairs at so many places of their own look enough alike."""
    if limits.alike is None:
        return True
    above, together = limits.alike
    similar = np.einsum("ij,ij->i", query.descriptors[pairs[:, 0]], photo.descriptors[pairs[:, 1]])
    return distinct * (float(similar.mean()) - above) >= together


def _on_object(points: npt.NDArray[np.float32], box: Box) -> bool:
    """Return whether points of a box may well be of the object in it, rather than of what is behind the object."""
    corner, size = np.array(box[:2]), np.array([box[2] - box[0], box[3] - box[1]])
    at = (points - corner) / size
    central = int((np.abs(at - 0.5) < INNER / 2).all(axis=1).sum())
    return central >= CENTRAL and bool(np.sqrt(at.std(axis=0).prod()) >= SPREAD)


def _within(to: Map, query: Features, photo: Features) -> npt.NDArray[np.bool_]:
    """Return which features of a query a map takes into a photo."""
    at = maps.apply(to, query.points)
    with np.errstate(invalid="ignore"):
        return np.asarray((at >= 0).all(axis=1) & (at < (photo.width, photo.height)).all(axis=1))


def _crowded(visible: npt.NDArray[np.float32], matching: npt.NDArray[np.float32], box: Box) -> bool:
    """Return whether matching points reach far fewer cells of a box than as many drawn from all that can be seen."""
    seen, reached = (_in_cells(points, box) for points in (visible, matching))
    shares = np.maximum(seen, reached > 0)
    expected = float((1 - (1 - shares / shares.sum()) ** reached.sum()).sum())
    return int((reached > 0).sum()) < EVEN * expected


def _in_cells(points: npt.NDArray[np.float32], box: Box) -> npt.NDArray[np.intp]:
    """Return how many points lie in each cell of a box."""
    corner, size = np.array(box[:2]), np.array([box[2] - box[0], box[3] - box[1]])
    cells = np.clip(((points - corner) / size * CELLS).astype(int), 0, CELLS - 1)
    return np.bincount(cells @ (1, CELLS), minlength=CELLS**2)


def _covered(instance: Instance, points: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return which points lie within an instance's outline, which is convex."""
    sides = np.roll(instance.outline, -1, axis=0) - instance.outline
    beyond = points[:, None] - instance.outline
    return np.asarray((sides[:, 0] * beyond[..., 1] - sides[:, 1] * beyond[..., 0] >= 0).all(axis=1))

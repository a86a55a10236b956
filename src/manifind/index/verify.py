"""The first photos of an answer, checked by geometry.

Regions say that a photo shows something like the query. Local features, matched under one map, say that it shows this
very thing, and where (`manifind.geometry`). `checked` looks at photos, from the features that an index kept of them or
from their files; `VerifiedAnswer` is an answer that has been looked at: verified photos come first, in the order in
which they were found, with outline, tight box and the number of matching points.

The line of such an answer rests on geometry. Verified photos stand above it, and beside them photos in which fewer
points match the object in a box than it takes to verify one (`PERHAPS`; where nothing else speaks for any, `ALONE`), or
in which points match a part of the box alone. A photo from another side, which no map connects with the query, is
reached by diffusion alone: it stands above the line if it scores at least `AS_WELL_AS` of what verified photos score in
the mean, and where a part of a photo is looked for, if it also resembles both the query and what verified photos show
of the object. Where nothing was verified, the line is that of the scores (`manifind.index.evidence`); a query without
points that geometry could have matched must then resemble a photo `UNTEXTURED` times as much as others.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from manifind.checks import whole_number
from manifind.geometry import LIMITS, Features, Instance, Verdict, verify
from manifind.geometry.maps import Map
from manifind.geometry.shape import fitted
from manifind.index.answer import Answer, Hit, Outline
from manifind.index.evidence import Evidence, resembles_both
from manifind.index.features import Sought, features_of, kept_or_files, kind_of, query_features
from manifind.index.generation import Generation, State
from manifind.index.kept import KEEPING, Kept
from manifind.index.query import Search
from manifind.index.voted import AMONG, voted
from manifind.kernels.threads import thread_count
from manifind.types import Box, FloatArray

FIRST = 50
"""How many photos of an answer are looked at first."""
WORTH, DEEPER = 0.1, 4
"""What part of the photos that were looked at last must be verified for as many more to be looked at, and how many
times as many photos as at first are looked at in the end; chosen on planted scenes and Holidays."""
PERHAPS = {"sift": 4}
"""How many points must match, by kind of feature, for a photo to stand above the line beside verified ones where the
object was given by a box; chosen on planted scenes. Without a box, photos of other things have as many."""
ALONE = 5
"""How many points must match for such a photo to stand above the line where neither another is verified nor scores say
anything: of 216 strangers to four collections, none found a photo with as many."""
AS_WELL_AS, AS_WELL_AS_WHOLE = 0.25, 0.75
"""How much of the mean score of verified photos another photo must reach to stand above the line, where a part of a
photo is looked for (chosen on planted scenes and small objects in clutter) and where all of it is (on Holidays)."""
UNTEXTURED = 2.0
"""How many times as much as others a query must resemble a photo that has no points to match; patches of sky and of
even colour do not, in Holidays and in Oxford5k."""


def first_photos(now: State, method: str, asked: int | None = None) -> int:
    """Return how many photos geometry looks at before it has seen any: as many as were asked for, or as is usual.

    That is `FIRST` by regional diffusion where the index keeps local features, and none elsewhere.
    """
    if asked is None:
        return FIRST if now.local is not None and method == "regional" else 0
    return whole_number(asked, "verify", least=0)


def deepest(first: int) -> int:
    """Return how many photos of a ranking geometry may look at: of so many, local features vote for some."""
    return max(DEEPER * first, AMONG) if first else 0


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
    """Where the object would be, in a photo that too few points match for it to be verified (`PERHAPS`), or
    in which points match a part of the query's box alone."""
    seen: Seen | None = field(default=None, repr=False, compare=False)
    """How it was found, in a verified photo, where a part of a photo is looked for."""


def checked(
    query: npt.NDArray[np.uint8] | Features,
    box: Box | None,
    photos: Sequence[Kept | Path],
    *,
    kind: str = KEEPING.kind,
    until: float | None = None,
) -> list[Checked]:
    """Return what geometry says of each photo.

    Parameters
    ----------
    query : (h, w, 3) uint8 array or Features
        The query's photo, or the features of what is looked for in it.
    box : (x0, y0, x1, y1), optional
        What is looked for in it.
    photos : sequence of Kept or Path
        Features that were kept, or files.
    kind : str
        Of local features; those that were kept are of this kind.
    until : float, optional
        The moment by `time.monotonic` at which to give up: `TimeoutError` is raised.
    """
    features = query if isinstance(query, Features) else query_features(query, box, kind=kind)
    look = partial(_look, features, box, kind, until)
    threads = min(thread_count(), len(photos))
    # Each thread has photos of its own; a product of two small matrices gains nothing from more.
    with threadpool_limits(1, user_api="blas"):
        if threads < 2:
            return [look(photo) for photo in photos]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(look, photos))


def _look(query: Features, box: Box | None, kind: str, until: float | None, photo: Kept | Path) -> Checked:
    if until is not None and time.monotonic() > until:
        raise TimeoutError("photos were not looked at in time.")
    features = features_of(photo, kind=kind)
    if features is None:
        return Checked(None)
    limits = LIMITS[kind]
    part = box is not None and tuple(box) != (0, 0, query.width, query.height)
    fewer = replace(limits, inliers=PERHAPS.get(kind, limits.inliers)) if part else limits
    found = _checked(verdict := verify(query, features, box, limits=fewer), limits.inliers)
    if box is None or not part or not found.verified:
        return found
    sure = verdict.instances[0]
    return replace(found, seen=Seen(box, sure.map, query.points[sure.pairs[:, 0]], (features.width, features.height)))


def _checked(verdict: Verdict, least: int) -> Checked:
    """Return what a verdict says where so many points verify a photo."""
    if not verdict.instances:
        return Checked(verdict.verified)
    first, *more = verdict.instances
    x0, y0, x1, y1 = (round(side, 1) for side in first.box)
    if first.inliers < least or first.crowded:
        return Checked(False, first.inliers, perhaps=(x0, y0, x1, y1))
    others = tuple(_outline(one) for one in more if one.inliers >= least and not one.crowded)
    return Checked(True, first.inliers, _outline(first), (x0, y0, x1, y1), others)


def _outline(instance: Instance) -> Outline:
    a, b, c, d = ((round(float(x), 1), round(float(y), 1)) for x, y in instance.outline)
    return a, b, c, d


class VerifiedAnswer(Answer):
    """An answer whose first photos were looked at: the verified ones first, then those that perhaps show the object.

    Parameters
    ----------
    answer : Answer
    looked_at : mapping of int to Checked
        What geometry says, by the photos' numbers.
    top : int, optional
        How many hits at most.
    before : VerifiedAnswer, optional
        The answer to the query before verified photos joined it.
    part : bool
        Whether a part of a photo is looked for, rather than all of it; as in `before` where that is given.
    """

    def __init__(
        self,
        answer: Answer,
        looked_at: Mapping[int, Checked],
        top: int | None = None,
        before: "VerifiedAnswer | None" = None,
        *,
        part: bool = False,
    ) -> None:
        super().__init__(answer.search, own=answer.own, left_out=answer.left_out, top=len(answer))
        self._looked_at = looked_at
        self._shapes: dict[int, FloatArray] | None = None
        self._part: bool = part if before is None else before._part
        images = answer.images
        own = np.isin(images, list(answer.own))
        verified = np.array([self._says(image) is True for image in images.tolist()], bool)
        # Regions that joined the query resemble themselves: what scores say is said by the query as it was given.
        self._scored: int | None = self._by_scores(answer) if before is None else before._scored
        points = np.array([self._points(image) for image in images.tolist()], int)
        perhaps, believed = (points > 0) & ~verified, verified.copy()
        self._found = bool((verified & ~own).any())
        if self._found:
            believed |= perhaps | own
            believed |= self._as_well(answer, verified & ~own, believed)
        else:
            # Many points on a part of the box alone are mostly of what is behind the object.
            few = (points >= ALONE) & (points < LIMITS[kind_of(answer.search.generation)].inliers)
            perhaps &= few & (self._scored == answer._only_own())
            self._found = bool((perhaps & ~own).any())
            believed |= (perhaps | own) & self._found
        # What the query was taken from comes first, whatever has joined the query.
        order = np.lexsort((~own, ~believed, ~perhaps, ~verified))[:top]
        self._images, self._scores = images[order], answer.scores[order]
        self.verified: int = int(verified[order].sum())
        self._believed = int(believed[order].sum())
        self.refined = before is not None
        self._known = frozenset(looked_at if before is None else before.looked_at)
        self._given = None if before is None else before.evidence
        self._asked = answer.search if before is None else before.search

    def _as_well(
        self, answer: Answer, verified: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return which photos stand above the line by what they score, of those of which this is not known."""
        least = (AS_WELL_AS if self._part else AS_WELL_AS_WHOLE) * float(answer.scores[verified].mean())
        well = ~known & (answer.scores >= least)
        if self._part:
            places = np.flatnonzero(well)
            well[places] = [resembles_both(answer.search, int(image)) for image in answer.images[places]]
        return well

    def _by_scores(self, answer: Answer) -> int | None:
        """Return how many hits are likely by what they score, where geometry verified none."""
        found = answer.evidence
        if found is None:
            return None
        textured = any(check.verified is False for check in self._looked_at.values())
        needed = (1 if textured else UNTEXTURED) * found.chance
        return answer.likely if found.similarity > needed or found.stands_out else self._only_own()

    @property
    def asked(self) -> Search:
        """The search for the query as it was given."""
        return self._asked

    @property
    def evidence(self) -> Evidence | None:
        """What speaks for the photos; what the query resembles is said by the query as it was given."""
        found = super().evidence
        if found is None or self._given is None:
            return found
        given = self._given
        return replace(found, similarity=given.similarity, stands_out=given.stands_out)

    @property
    def likely(self) -> int | None:
        """How many of the first hits are believed to show the object: see the module."""
        if self._found:
            return self._believed
        return self._scored if self._scored is None else min(self._scored, len(self))

    def reached(self) -> "VerifiedAnswer":
        """Return the same answer without the photos that no score reached."""
        return self._some(self._scores > 0)

    def cut(self, top: int | None) -> "VerifiedAnswer":
        """Return the first hits of the same answer; None for all."""
        return self._some(np.arange(len(self)) < (len(self) if top is None else top))

    def _some(self, kept: npt.NDArray[np.bool_]) -> "VerifiedAnswer":
        left = copy(self)
        left._images, left._scores, left._hits = self._images[kept], self._scores[kept], {}
        left.verified = int(kept[: self.verified].sum())
        left._believed = int(kept[: self._believed].sum())
        return left

    @property
    def looked_at(self) -> Mapping[int, Checked]:
        """What geometry says of the photos that it looked at, by their numbers."""
        return self._looked_at

    def _says(self, image: int) -> bool | None:
        return self._looked_at[image].verified if image in self._looked_at else None

    def _points(self, image: int) -> int:
        """Return how many points match in a photo that they do not verify; none where they are too few to count."""
        return 0 if self._perhaps(image) is None else self._looked_at[image].inliers

    def _perhaps(self, image: int) -> Box | None:
        return self._looked_at[image].perhaps if image in self._looked_at else None

    def _box(self, image: int, check: Checked) -> Box | None:
        """Return the box of a verified photo, by the shape that all verified photos together give the object."""
        if check.seen is None or check.box is None or image in self._own:
            return check.box
        if self._shapes is None:
            self._shapes = _shapes(check for image, check in self._looked_at.items() if image not in self._own)
        x0, y0, x1, y1 = fitted(
            check.seen.map, self._shapes[check.seen.view], check.seen.box, check.box, check.seen.size
        )
        return round(x0, 1), round(y0, 1), round(x1, 1), round(y1, 1)

    def _hit(self, place: int) -> Hit:
        hit = super()._hit(place)
        check = self._looked_at.get(hit.image)
        if check is None or not check.verified:
            where = self._perhaps(hit.image) if place < self._believed else None
            return replace(hit, verified=self._says(hit.image), box=where or hit.box)
        return replace(
            hit,
            verified=True,
            box=self._box(hit.image, check),
            outline=check.outline,
            inliers=check.inliers,
            others=check.others,
            refined=hit.image not in self._known,
        )


def _shapes(checks: Iterable[Checked]) -> dict[int, FloatArray]:
    """Return the points of each of the query's photos that some verified photo confirmed."""
    confirmed: dict[int, list[FloatArray]] = {}
    for check in checks:
        if check.seen is not None:
            confirmed.setdefault(check.seen.view, []).append(check.seen.points)
    return {view: np.unique(np.concatenate(some), axis=0) for view, some in confirmed.items()}


def verified_answer(
    answer: Answer,
    views: Sequence[Sought],
    *,
    first: int = FIRST,
    most: int | None = None,
    top: int | None = None,
    until: float | None = None,
    deeper_until: float | None = None,
) -> VerifiedAnswer:
    """Look at the first photos of an answer and return it with what geometry says.

    While at least `WORTH` of the photos looked at last are verified, as many more are looked at: of an object that many
    photos show, the later ones show it otherwise. As many again, wherever they stand, are those that the features in a
    box vote for (`manifind.index.voted`). Where the index keeps no features, the files of the first photos are read,
    and no more than these.

    Parameters
    ----------
    answer : Answer
    views : sequence of features and boxes
        What is looked for in each of the query's photos; no box is all of it. The surest of them counts.
    first : int
        How many photos are looked at, at least.
    most : int, optional
        How many at most, without those that are voted for; by default `DEEPER` times as many where the index keeps
        features.
    top : int, optional
        How many hits to return at most.
    until : float, optional
        The moment by `time.monotonic` at which to give up: `TimeoutError` is raised.
    deeper_until : float, optional
        The moment at which to look at no more than the first ones; `until` by default.
    """
    now = answer.search.generation
    if most is None:
        most = first if now.local is None else DEEPER * first
    images = answer.images[:most].tolist()
    known = looked_at(now, images[:first], views, until=until)
    last = known
    until = until if deeper_until is None else deeper_until
    try:
        while len(known) < len(images) and sum(check.verified is True for check in last.values()) >= WORTH * len(last):
            last = looked_at(now, images[len(known) : len(known) + first], views, until=until)
            known |= last
        if until is None or time.monotonic() < until:
            promising = [image for image in voted(now, answer.images, views, first) if image not in known]
            known |= looked_at(now, promising, views, until=until)
    except TimeoutError:
        pass  # what was looked at is answered with
    part = all(box is not None for _, box in views)
    return VerifiedAnswer(answer, known, top, part=part)


def looked_at(
    now: Generation,
    images: Sequence[int],
    views: Sequence[Sought],
    *,
    until: float | None = None,
) -> dict[int, Checked]:
    """Return what geometry says of photos of an index, by their numbers: the surest of several views counts."""
    photos = kept_or_files(now, [now.catalogue[image] for image in images])
    kind = kind_of(now)
    by_view = [
        [_of_view(check, view) for check in checked(query, box, photos, kind=kind, until=until)]
        for view, (query, box) in enumerate(views)
    ]
    surest = [max(some, key=lambda one: one.inliers) for some in zip(*by_view, strict=True)]
    return dict(zip(images, surest, strict=True))


def _of_view(check: Checked, view: int) -> Checked:
    return check if check.seen is None else replace(check, seen=check.seen._replace(view=view))

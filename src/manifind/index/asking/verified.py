"""An answer that geometry has looked at, and its line.

Verified photos come first, in the order in which they were found, with outline, tight box and the number of matching
points.

The line of such an answer rests on geometry. Verified photos stand above it, and beside them photos in which points
match that verify nothing by themselves: too few, on a part of the box alone, or too little alike. A photo from another
side, which no map connects with the query, is reached by diffusion alone: it stands above the line if it scores at
least `AS_WELL_AS` of what verified photos score in the mean, and where a part of a photo is looked for, if it also
resembles both the query and what verified photos show of the object. Where nothing was verified, the line is that of
the scores (`asking.evidence`); a query without points that geometry could have matched must then resemble a photo
`UNTEXTURED` times as much as others.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from manifind.geometry.shape import fitted
from manifind.index.asking.answer import Answer, Hit
from manifind.index.asking.evidence import Evidence, resembles_both
from manifind.index.asking.looking import Checked
from manifind.index.asking.query import Search
from manifind.types import Box, FloatArray

AS_WELL_AS, AS_WELL_AS_WHOLE = 0.25, 0.75
"""How much of the mean score of verified photos another photo must reach to stand above the line, where a part of a
photo is looked for (chosen on planted scenes and small objects in clutter) and where all of it is (on Holidays)."""
UNTEXTURED = 2.0
"""How many times as much as others a query must resemble a photo that has no points to match; patches of sky and of
even colour do not, in Holidays and in Oxford5k."""


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
        self._ranked, self._top, self._before = answer, top, before
        self._looked_at = looked_at
        self._shapes: dict[int, FloatArray] | None = None
        self._part: bool = part if before is None else before._part
        images = answer.images
        own = np.isin(images, list(answer.own))
        verified = np.array([self._says(image) is True for image in images.tolist()], bool)
        # Regions that joined the query resemble themselves: what scores say is said by the query as it was given.
        self._scored: int | None = self._by_scores(answer) if before is None else before._scored
        believed = verified.copy()
        self._found: bool = bool((verified & ~own).any())
        # Points that are doubtful say something beside a photo that is verified, and nothing by themselves.
        perhaps = ~verified & np.array([self._perhaps(image) is not None for image in images.tolist()], bool)
        perhaps &= self._found
        if self._found:
            believed |= perhaps | own
            clearly = verified & ~own & np.array([not self._looked_closely(image) for image in images.tolist()], bool)
            believed |= self._as_well(answer, clearly if clearly.any() else verified & ~own, believed)
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
        """Return which photos stand above the line by what they score, of those of which this is not known.

        It is compared with what verified photos score, those that took a closer look left out: they score less.
        """
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
        return answer.likely if found.similarity > needed else self._only_own()

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
        return replace(found, similarity=self._given.similarity)

    @property
    def likely(self) -> int | None:
        """How many of the first hits are believed to show the object: see the module."""
        if self._found:
            return self._believed
        return self._scored if self._scored is None else min(self._scored, len(self))

    @property
    def found(self) -> bool:
        """Whether a photo is verified that is not the query's own."""
        return self._found

    @property
    def ranking(self) -> list[int]:
        """The numbers of all photos of the answer in the order of their scores, before geometry looked at any."""
        images: list[int] = self._ranked.images.tolist()
        return images

    def knowing(self, more: Mapping[int, Checked]) -> "VerifiedAnswer":
        """Return the same answer with what geometry says of more photos, or on a closer look."""
        if not more:
            return self
        known = {**self._looked_at, **more}
        return VerifiedAnswer(self._ranked, known, self._top, self._before, part=self._part)

    def reached(self) -> "VerifiedAnswer":
        """Return the same answer without the photos that no score reached."""
        return self._some(self._scores > 0)

    def cut(self, top: int | None) -> "VerifiedAnswer":
        """Return the first hits of the same answer; None for all."""
        left = self._some(np.arange(len(self)) < (len(self) if top is None else top))
        left._top = top if self._top is None or top is None else min(top, self._top)
        return left

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

    def _looked_closely(self, image: int) -> bool:
        return image in self._looked_at and self._looked_at[image].closely

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

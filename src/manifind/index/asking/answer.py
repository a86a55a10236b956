"""What a search returns: the photos that were found, best first, and how far to believe in them.

An `Answer` is a sequence of `Hit`s that are made when they are looked at: a search of a large collection ranks all of
its photos, and somebody looks at twenty.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload

import numpy as np

from manifind.index.asking.evidence import Evidence, evidence
from manifind.index.asking.query import RegionShare, Search
from manifind.types import Box, FloatArray, IntArray

Outline = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
"""Four corners, x and y, in pixels of the upright photo."""


class HasLine(Protocol):
    """An answer that says how many of its first photos it believes in."""

    @property
    def likely(self) -> int | None:
        """How many of the first are believed to show the object; None where the method does not know."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """What an index or a service says of a photo that was found."""

    rank: int
    key: str
    score: float
    box: Box | None
    """One box round the object; only regional diffusion knows where it is."""
    regions: tuple[RegionShare, ...]
    """The regions with the largest shares of the score, best first; only regional diffusion knows them."""
    also_at: tuple[str, ...]
    """The keys of files in the collection that are byte for byte the same."""
    verified: bool | None = None
    """Whether geometry confirms that the photo shows the object; None where it was not asked."""
    outline: Outline | None = None
    """Where geometry puts the corners of the query's box."""
    inliers: int | None = None
    """How many points match under that map."""
    others: tuple[Outline, ...] = ()
    """The outlines of the object's further instances in the photo."""
    refined: bool = False
    """Whether only the second pass reached the photo. In the second pass the photos verified in the first one join the
    query."""
    _answer: HasLine = field(repr=False, compare=False)

    @property
    def likely(self) -> bool | None:
        """Whether the photo stands above the line; None where the method draws no line."""
        return None if self._answer.likely is None else self.rank <= self._answer.likely


@dataclass(frozen=True, kw_only=True)
class Hit(Match):
    """A photo that an index found, with what it takes to explain why."""

    image: int
    """The photo's number in the index."""
    _answer: "Answer" = field(repr=False, compare=False)

    @property
    def search(self) -> Search:
        """The search that explains it: the query's as it was given, before verified photos joined it."""
        return self._answer.asked


class Answer(Sequence[Hit]):
    """The photos of a ranking, best first.

    Parameters
    ----------
    search : Search
        The ranking, and the query and the state of the index that it came from.
    own : collection of int
        Photos of the collection that the query itself was taken from; they match themselves and are no evidence.
    left_out : collection of int
        Photos that are not to be among the hits.
    top : int, optional
        How many hits at most.
    reached : bool
        Leave out the photos that no score reached.
    """

    def __init__(
        self,
        search: Search,
        *,
        own: Collection[int] = (),
        left_out: Collection[int] = (),
        top: int | None = None,
        reached: bool = False,
    ) -> None:
        self.search = search
        self._own, self._left_out = frozenset(own), frozenset(left_out)
        images, scores = search.ranking.images, search.ranking.scores
        wanted = ~np.isin(images, list(self._left_out)) & ((scores > 0) | (not reached))
        places = np.flatnonzero(wanted)[:top]
        self._images: IntArray = images[places]
        self._scores: FloatArray = scores[places]
        self._hits: dict[int, Hit] = {}
        self._evidence: Evidence | None = None
        self._weighed = False
        self.verified: int | None = None
        """How many of the first hits are verified; None where geometry was not asked."""
        self.refined = False
        """Whether verified photos joined the query, which was then answered once more."""

    @property
    def own(self) -> frozenset[int]:
        """The numbers of the photos that the query was taken from."""
        return self._own

    @property
    def left_out(self) -> frozenset[int]:
        """The numbers of the photos that are not to be among the hits."""
        return self._left_out

    @property
    def asked(self) -> Search:
        """The search for the query as it was given."""
        return self.search

    @property
    def method(self) -> str:
        """How the photos were ranked."""
        return self.search.method

    @property
    def generation(self) -> int:
        """The number of the state of the index that was searched."""
        return self.search.generation.number

    @property
    def images(self) -> IntArray:
        """The numbers of all photos that were found."""
        return self._images

    @property
    def scores(self) -> FloatArray:
        """The scores of all hits."""
        return self._scores

    @property
    def evidence(self) -> Evidence | None:
        """What speaks for each photo of the ranking; None for methods that do not know.

        It is computed when it is first asked for, and kept.
        """
        if not self._weighed:
            self._evidence = evidence(self.search, self._own | self._left_out)
            self._weighed = True
        return self._evidence

    @property
    def likely(self) -> int | None:
        """How many of the first hits are believed to show the object; None for methods that do not know."""
        found = self.evidence
        if found is None:
            return None
        return int((self._scores >= found.score).sum()) if found.score > 0 else self._only_own()

    def _only_own(self) -> int:
        """Return how many hits are likely where nothing resembles the query but the photos that it was taken from."""
        others = np.flatnonzero(~np.isin(self._images, list(self._own)))
        return int(others[0]) if len(others) else len(self)

    def reached(self) -> "Answer":
        """Return the same answer without the photos that no score reached."""
        return Answer(self.search, own=self._own, left_out=self._left_out, top=len(self), reached=True)

    def of_image(self, image: int) -> Hit | None:
        """Return the hit of the photo of this number, if it is among the hits; no other is made."""
        places = np.flatnonzero(self._images == image)
        return self[int(places[0])] if len(places) else None

    def __len__(self) -> int:
        return len(self._images)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> list[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | list[Hit]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        if place not in self._hits:
            self._hits[place] = self._hit(place)
        return self._hits[place]

    def __iter__(self) -> Iterator[Hit]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        likely = "" if self.likely is None else f", {self.likely} of them likely"
        return f"Answer({len(self)} photos by {self.method!r}{likely})"

    def _hit(self, place: int) -> Hit:
        image, catalogue = int(self._images[place]), self.search.generation.catalogue
        record = catalogue[image]
        return Hit(
            rank=place + 1,
            key=record.key,
            score=float(self._scores[place]),
            box=self.search.where(image),
            regions=self.search.shares(image),
            also_at=catalogue.copies_of(record.sha256),
            image=image,
            _answer=self,
        )

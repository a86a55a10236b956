"""The result of a search: images best first, and which of them are matches.

Verified images come first, in the order of their scores, with outline, tight box and the number of inliers.

Where an image besides the query's own is verified, the cutoff rests on the verified ones. They are matches, and beside
them images with a weak instance: too few inliers, on a part of the box alone, or too little alike. An image from
another side, which no transform connects with the query, is reached by diffusion alone: it is a match if it scores at
least a part of what verified images score in the mean (`CutoffConfig.min_verified_ratio_box`), and where the query is a
box, if it also resembles both the query and its expansion regions. Where nothing is verified, the scores decide
(`manifind.index.search.confidence`); a query without keypoints needs more resemblance.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Self, overload

import numpy as np
import numpy.typing as npt

from manifind.geometry.object_box import fit_object_box
from manifind.index.config import CutoffConfig, SearchConfig
from manifind.index.search.confidence import Confidence, measure_confidence, resembles_query_and_expansion
from manifind.index.search.query import QueryFeatures, QueryRegions, SearchQuery, rounded_box
from manifind.index.search.retrieval import RegionShare, Retrieval
from manifind.index.search.verification import Outline, Verification
from manifind.types import Box, FloatArray, IntArray


class Stage(StrEnum):
    """The last step of the pipeline that a result has been through."""

    RETRIEVED = "retrieved"
    VERIFIED = "verified"
    EXPANDED = "expanded"
    FULL_RESOLUTION = "full resolution"


class Grade(StrEnum):
    """What is known of a result, the surest first."""

    VERIFIED = "verified"
    """Spatial verification confirms that the image shows this very object."""
    SHARES_PART = "shares a part"
    """A part of the query appears in the image: the same logo, print, label or background. No match."""
    LIKELY = "likely"
    """A match by its score alone."""
    UNLIKELY = "not likely"
    """Merely among the nearest."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """One result, as an index or a service returns it."""

    rank: int
    key: str
    score: float
    box: Box | None
    """One box round the object; only regional diffusion knows where it is."""
    regions: tuple[RegionShare, ...]
    """The regions with the largest shares of the score, best first; only regional diffusion knows them."""
    duplicates: tuple[str, ...]
    """The keys of files in the collection that are byte for byte the same."""
    is_match: bool | None = None
    """Whether the image is believed to show the object; None where the method has no cutoff."""
    verified: bool | None = None
    """Whether spatial verification confirms that the image shows the object; None where it was not verified."""
    grade: Grade | None = None
    """What is known of the image; None where the method has no cutoff."""
    outline: Outline | None = None
    """The corners of the query's box in the image."""
    part: Outline | None = None
    """The corners of the part that an image of grade `SHARES_PART` shares with the query."""
    inliers: int | None = None
    """How many keypoints agree on the transform, of the object or of the shared part."""
    other_outlines: tuple[Outline, ...] = ()
    """The outlines of the object's further instances in the image."""
    expanded: bool = False
    """True if only query expansion found this image."""
    mirrored: bool | None = None
    """Whether a verified image shows the object mirrored; None where mirrored objects were not searched for."""


@dataclass(frozen=True, kw_only=True)
class Hit(Match):
    """A result of an index: plain data, which outlives the index."""

    image: int
    """The image's number in the index."""
    query: QueryRegions = field(repr=False, compare=False)
    """The query as it was given: `Index.explain` retrieves it again."""
    method: str = field(default="regional", repr=False)


@dataclass(frozen=True, eq=False)
class Order:
    """Images in the order of a result."""

    images: IntArray
    scores: FloatArray
    n_verified: int | None = None
    """How many of the first are verified; None where none was to be verified."""
    n_matches: int | None = None
    """How many of the first are matches; None where the method has no cutoff."""
    by_verification: bool = False
    """Whether verified images decide which others are matches: one is verified that is not the query's own."""

    def with_images(self, images: Sequence[int]) -> "Order":
        """Return the order with further images at its end, those that it lacks, with the lowest of its scores."""
        missing = np.setdiff1d(np.array(images, self.images.dtype), self.images)
        if not len(missing):
            return self
        lowest = np.full(len(missing), min(self.scores.tolist(), default=0), self.scores.dtype)
        return replace(
            self, images=np.concatenate([self.images, missing]), scores=np.concatenate([self.scores, lowest])
        )

    def select(self, mask: npt.NDArray[np.bool_]) -> "Order":
        """Return some of the images, in the same order."""
        n_verified, n_matches = (None if n is None else int(mask[:n].sum()) for n in (self.n_verified, self.n_matches))
        return Order(self.images[mask], self.scores[mask], n_verified, n_matches, self.by_verification)


def order_by_score(images: IntArray, scores: FloatArray, own: Collection[int], confidence: Confidence | None) -> Order:
    """Return images in the order of their scores; matches are those above the cutoff."""
    if confidence is None:
        return Order(images, scores)
    above = int((scores >= confidence.cutoff).sum()) if confidence.cutoff > 0 else _count_own_first(images, own)
    return Order(images, scores, None, above)


def order_verified(
    images: IntArray,
    scores: FloatArray,
    own: Collection[int],
    verifications: Mapping[int, Verification],
    n_matches_by_score: int | None,
    resembles: Callable[[int], bool],
    *,
    is_part: bool,
    config: CutoffConfig,
) -> Order:
    """Return images with the verified ones first, then weak matches, then other matches, then the rest.

    Parameters
    ----------
    images, scores : array
        The ranking, best first.
    own : collection of int
        The images that the query was taken from.
    verifications : mapping
        Of the images that were verified.
    n_matches_by_score : int, optional
        How many are matches where none is verified.
    resembles : callable
        Whether an image resembles both the query and its expansion regions.
    is_part : bool
        Whether the query is a part of its photo.
    config : CutoffConfig
    """
    known = [verifications.get(image) for image in images.tolist()]
    is_own = np.isin(images, list(own))
    verified = np.array([one is not None and one.verified is True for one in known], bool)
    others = verified & ~is_own
    shared = np.array([one is not None and one.shares_part for one in known], bool)
    matches, weak = verified.copy(), np.zeros(len(images), bool)
    if others.any():
        # Weak instances say something beside a verified image, and nothing by themselves.
        weak = ~verified & np.array([one is not None and one.weak_match_box is not None for one in known], bool)
        matches |= weak | is_own
        # Images verified at full resolution only score less than the others.
        clear = others & np.array([one is None or not one.full_resolution for one in known], bool)
        ratio = config.min_verified_ratio_box if is_part else config.min_verified_ratio_whole
        least = ratio * float(scores[clear if clear.any() else others].mean())
        high = ~matches & ~shared & (scores >= least)
        if is_part:
            places = np.flatnonzero(high)
            high[places] = [resembles(int(image)) for image in images[places]]
        matches |= high
    decides = bool(others.any())
    n_matches, below = int(matches.sum()), np.zeros(len(images), bool)
    if not decides and n_matches_by_score is not None:
        # An image that shares a part is no match by its score either.
        n_matches = n_matches_by_score - int(shared[:n_matches_by_score].sum())
        below = shared | (np.arange(len(images)) >= n_matches_by_score)
    # The query's own image comes first, even after query expansion.
    order = np.lexsort((below, ~is_own, ~matches, ~weak, ~verified))
    known_cutoff = decides or n_matches_by_score is not None
    return Order(images[order], scores[order], int(verified.sum()), n_matches if known_cutoff else None, decides)


def _count_own_first(images: IntArray, own: Collection[int]) -> int:
    """Return how many images at the head are the query's own."""
    others = np.flatnonzero(~np.isin(images, list(own)))
    return int(others[0]) if len(others) else len(images)


def _n_matches_by_score(
    ranking: Order,
    own: Collection[int],
    verifications: Mapping[int, Verification],
    confidence: Confidence | None,
    config: CutoffConfig,
) -> int | None:
    """Return how many images are matches if none is verified: a query without keypoints needs more resemblance."""
    if confidence is None:
        return None
    has_keypoints = any(one.verified is False for one in verifications.values())
    needed = (1 if has_keypoints else config.textureless_factor) * confidence.null_similarity
    return ranking.n_matches if confidence.similarity > needed else _count_own_first(ranking.images, own)


class Progress(NamedTuple):
    """How far a step of the pipeline is."""

    checked: int
    """Images that are verified or found not to match."""
    total: int
    """Images that the step verifies."""
    reads_files: bool = False
    """Whether the images to be verified next are read from their files, which takes longer."""


@dataclass(eq=False)
class SearchState:
    """What a search has computed so far. A search that was cut short goes on from here, and computes nothing twice."""

    query: SearchQuery
    depth: int | None
    """Images that a retrieval returns; None for all."""
    candidates: int | None
    """Images of a ranking that may be results; None for all."""
    views: tuple[QueryFeatures, ...] = ()
    """The local features of the query, once they are extracted."""
    by_view: dict[tuple[int, bool, bool], dict[int, Verification]] = field(default_factory=dict)
    """Of each photo of the query, as it is given or mirrored, by stored features or at full resolution."""
    verifications: dict[int, Verification] = field(default_factory=dict)
    """The surest of all views: by stored features, or by the files of an index that stores none."""
    full_resolution: dict[int, Verification] = field(default_factory=dict)
    """The surest of all views at full resolution."""
    matches_of_results: dict[tuple[int, int, Box], int] = field(default_factory=dict)
    """The inliers of pairs of results (`manifind.index.search.grading`)."""
    voted: list[int] | None = None
    """The images with the most votes, once they are counted."""
    retrievals: dict[bytes, Retrieval] = field(default_factory=dict)
    """Of the expanded query, by the bytes of its rows."""
    shorter: "SearchState | None" = None
    """The search for the query without its last photo, where it has several."""
    shorter_retrieval: Retrieval | None = None
    """The ranking that the shorter search begins with."""
    n_containing: int = 0
    """How many searches for more photos contain this one, each the next."""


@dataclass(frozen=True, eq=False)
class SearchResult(Sequence[Hit]):
    """The images of a search, best first; hits are made when they are looked at.

    `SearchResult.of` makes one from a retrieval and its verifications.
    """

    retrieval: Retrieval = field(repr=False)
    """The ranking, of the expanded query if the query was expanded."""
    order: Order = field(repr=False)
    confidence: Confidence | None
    """What speaks for the results; None for methods that do not know."""
    config: SearchConfig = field(repr=False)
    verifications: Mapping[int, Verification] = field(default_factory=dict, repr=False)
    """By the images' numbers; empty where nothing was verified."""
    own: frozenset[int] = frozenset()
    """The numbers of the images that the query was taken from."""
    unexpanded: "SearchResult | None" = field(default=None, repr=False)
    """The result before query expansion, if the query was expanded."""
    by_score: Order = field(default_factory=lambda: Order(np.empty(0, np.int32), np.empty(0, np.float32)), repr=False)
    """All candidate images in the order of their scores."""
    n_matches_by_score: int | None = field(default=None, repr=False)
    """How many are matches if none is verified."""
    stage: Stage = Stage.RETRIEVED
    complete: bool = False
    """Whether the pipeline came to its end; a deadline may have cut it short."""
    unchecked_images: tuple[int, ...] = ()
    """The numbers of the images that were to be verified next when the search was cut short."""
    progress: Progress | None = None
    """How far the next step is: the images are those of the step before."""
    state: SearchState | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        query: SearchQuery,
        retrieval: Retrieval,
        *,
        config: SearchConfig,
        candidates: int | None = None,
        unexpanded: Self | None = None,
        state: SearchState | None = None,
    ) -> Self:
        """Return the result of a ranking; nothing is verified yet.

        Parameters
        ----------
        query : SearchQuery
        retrieval : Retrieval
            Its ranking.
        config : SearchConfig
        candidates : int, optional
            How many images of the ranking may be results; None for all.
        unexpanded : SearchResult, optional
            The result of the query as it was given, where `retrieval` is that of the expanded query.
        state : SearchState, optional
            What the search has computed so far.
        """
        images, scores = retrieval.ranking.images, retrieval.ranking.scores
        places = np.flatnonzero(~np.isin(images, list(query.excluded)))[:candidates]
        confidence = measure_confidence(retrieval, query.own | query.excluded, config.cutoff)
        order = order_by_score(images[places], scores[places], query.own, confidence)
        if unexpanded is not None and confidence is not None and unexpanded.confidence is not None:
            # Expansion regions match themselves, so the original query says whether anything matches.
            confidence = replace(confidence, similarity=unexpanded.confidence.similarity)
        return cls(
            retrieval, order, confidence, config, own=query.own, unexpanded=unexpanded, by_score=order, state=state
        )

    def with_verifications(self, verifications: Mapping[int, Verification], stage: Stage, *, is_part: bool) -> Self:
        """Return the result with verifications of some of its images, all of those so far.

        `is_part` says whether the query is a part of its photo.
        """
        missing = [image for image, one in verifications.items() if one.verified]
        ranking = self.by_score.with_images(missing)
        n_matches = (
            _n_matches_by_score(ranking, self.own, verifications, self.confidence, self.config.cutoff)
            if self.unexpanded is None
            else self.unexpanded.n_matches_by_score
        )
        order = order_verified(
            ranking.images,
            ranking.scores,
            self.own,
            verifications,
            n_matches,
            lambda image: resembles_query_and_expansion(self.retrieval, image),
            is_part=is_part,
            config=self.config.cutoff,
        )
        return replace(self, order=order, verifications=verifications, n_matches_by_score=n_matches, stage=stage)

    # -- what was found -----------------------------------------------------------------------------------------------

    @property
    def n_matches(self) -> int | None:
        """How many of the first results are believed to show the object; None where the method has no cutoff."""
        n = self.order.n_matches
        return None if n is None else min(n, len(self))

    @property
    def n_verified(self) -> int | None:
        """How many of the first results are verified; None where none was to be verified."""
        return self.order.n_verified

    @property
    def n_other_matches(self) -> int | None:
        """How many matches are not the query's own images, which match themselves; None as for `n_matches`."""
        return None if self.n_matches is None else int((~self._is_own[: self.n_matches]).sum())

    @property
    def nearest_may_match(self) -> bool:
        """Whether no other image is a match, and yet the nearest may show the object.

        So it is unless the query is a photo from elsewhere that resembles no image more than unrelated images do: a
        query without texture cannot be verified, and a photo of the collection was taken where others were.
        """
        others = self.images[~self._is_own].tolist()
        if not others or self.n_other_matches != 0:
            return False
        textureless = bool(self.verifications) and all(
            one.verified is None for image, one in self.verifications.items() if image not in self.own
        )
        resembles = self.confidence is None or self.confidence.similarity > self.confidence.null_similarity
        return len(others) < len(self.images) or textureless or resembles

    @property
    def _is_own(self) -> npt.NDArray[np.bool_]:
        return np.isin(self.images, list(self.own))

    @property
    def images(self) -> IntArray:
        """The numbers of the images."""
        return self.order.images

    @property
    def scores(self) -> FloatArray:
        """Their scores."""
        return self.order.scores

    @property
    def method(self) -> str:
        """How the images were ranked."""
        return self.retrieval.method

    @property
    def mirrored(self) -> bool:
        """Whether mirrored objects were searched for too."""
        return self.original.query.n_mirrored > 0

    @property
    def generation(self) -> int:
        """The number of the snapshot that was searched."""
        return self.retrieval.snapshot.number

    @property
    def original(self) -> Retrieval:
        """The ranking of the query as it was given."""
        return self.retrieval if self.unexpanded is None else self.unexpanded.retrieval

    @property
    def has_verified(self) -> bool:
        """Whether an image is verified that is not the query's own."""
        return self.order.by_verification

    @property
    def n_unchecked(self) -> int:
        """How many images were to be verified next; a service may cut a search short within a step, in its progress."""
        if self.complete:
            return 0
        left = 0 if self.progress is None else self.progress.total - self.progress.checked
        return max(left, len(self.unchecked_images))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The keys of the photos that were to be verified next when the search was cut short: `Index.resume_steps`."""
        catalogue = self.retrieval.snapshot.catalogue
        return tuple(catalogue[image].key for image in self.unchecked_images)

    def head(self, top: int | None) -> Self:
        """Return the first results; None for all."""
        if top is None or top >= len(self.order.images):
            return self
        return replace(self, order=self.order.select(np.arange(len(self.order.images)) < top))

    def nonzero(self) -> Self:
        """Return the results that a score reached."""
        return replace(self, order=self.order.select(self.order.scores > 0))

    def hit_of(self, image: int) -> Hit | None:
        """Return the hit of an image, if it is among the results."""
        places = np.flatnonzero(self.images == image)
        return self[int(places[0])] if len(places) else None

    def __len__(self) -> int:
        return len(self.order.images)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> list[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | list[Hit]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        if place not in self._hits:
            self._hits[place] = self._make_hit(place)
        return self._hits[place]

    def __iter__(self) -> Iterator[Hit]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        matches = "" if self.n_matches is None else f", {self.n_matches} of them matches"
        return f"SearchResult({len(self)} photos by {self.method!r}{matches}, {self.stage})"

    def _repr_html_(self) -> str:
        """Return the first photos as a notebook shows them."""
        from manifind.index.search.notebook import result_html

        return result_html(self)

    # -- hits ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _hits(self) -> dict[int, Hit]:
        return {}

    @cached_property
    def _object_points(self) -> dict[int, FloatArray]:
        others = (one for image, one in self.verifications.items() if image not in self.own)
        return _confirmed_points(others)

    def _make_hit(self, place: int) -> Hit:
        image, retrieval = int(self.images[place]), self.retrieval
        catalogue = retrieval.snapshot.catalogue
        record = catalogue[image]
        hit = Hit(
            rank=place + 1,
            key=record.key,
            score=float(self.scores[place]),
            box=retrieval.locate(image),
            regions=retrieval.shown_regions(image),
            duplicates=catalogue.copies_of(record.sha256),
            is_match=None if self.n_matches is None else place < self.n_matches,
            image=image,
            query=self.original.query,
            method=self.method,
        )
        if hit.is_match is not None:
            hit = replace(hit, grade=Grade.LIKELY if hit.is_match else Grade.UNLIKELY)
        known = self.verifications.get(image)
        if known is None:
            return hit
        if not known.verified:
            hit = replace(hit, verified=known.verified)
            if hit.is_match:
                return replace(hit, box=(known.weak_match_box if self.has_verified else None) or hit.box)
            if known.part is not None:
                return replace(hit, grade=Grade.SHARES_PART, part=known.part, inliers=known.inliers)
            return hit
        return replace(
            hit,
            verified=True,
            grade=Grade.VERIFIED,
            box=self._object_box(image, known),
            outline=known.outline,
            inliers=known.inliers,
            other_outlines=known.other_outlines,
            expanded=self.unexpanded is not None and image not in self.unexpanded.verifications,
            mirrored=known.mirrored,
        )

    def _object_box(self, image: int, known: Verification) -> Box | None:
        """Return the box of a verified image, by the shape that all verified images together give the object."""
        geometry = known.geometry
        if geometry is None or known.box is None or image in self.own:
            return known.box
        points = self._object_points[geometry.view]
        return rounded_box(np.array(fit_object_box(geometry.transform, points, geometry.box, known.box, geometry.size)))


def _confirmed_points(verifications: Iterable[Verification]) -> dict[int, FloatArray]:
    """Return the keypoints of each of the query's views that some verified image confirmed."""
    confirmed: dict[int, list[FloatArray]] = {}
    for one in verifications:
        if one.geometry is not None:
            confirmed.setdefault(one.geometry.view, []).append(one.geometry.inliers)
    return {view: np.unique(np.concatenate(points), axis=0) for view, points in confirmed.items()}

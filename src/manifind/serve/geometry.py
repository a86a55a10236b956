"""Geometry for many at once: features of queries kept at hand, answers verified where there is time, points on demand.

::

    a query's photo   ──▶ its features, once for each box ──┐
    a ranking         ──▶ its first photos ─────────────────┴─▶ verified, or as it was where time is short
    a taught query    ──▶ solved once more ──▶ its first photos, or the verified answer where time is short
    an answer         ──▶ a closer look at its most promising photos, while no other search waits
    two photos        ──▶ the points that match in them
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from manifind.errors import MissingExtra
from manifind.geometry import Features
from manifind.index import MatchingPoints
from manifind.index.asking.closer import all_features, closer_answer
from manifind.index.asking.features import Sought, kind_of, photo_features, sought_in
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.pages.answers import points_data
from manifind.recently_used import RecentlyUsed
from manifind.serve.metrics import Metrics
from manifind.serve.problems import Problem
from manifind.serve.rendering import Rendering
from manifind.serve.schemas import ViewRequest
from manifind.serve.settings import Settings
from manifind.serve.stages import Stage

S = TypeVar("S")
T = TypeVar("T")
FEATURES_BYTES = 64_000_000
"""What features of queries may take, kept for when the same box is asked for again."""
TIME_FOR_CLOSER = 0.6
"""The part of the time that is left in which photos get a closer look: the last one may take a while."""
PHOTOS_A_SECOND = 4.0
"""Photos whose features are extracted, and answers that are verified, until it was measured."""


class Geometry:
    """Extracts features in threads of its own, and verifies one answer at a time with all of them.

    A search has `answers` of them, one for each collection, that wait for each other.
    """

    def __init__(self, rendering: Rendering, settings: Settings, metrics: Metrics, *, answers: int = 1) -> None:
        self._rendering = rendering
        self._metrics = metrics
        self._seconds = settings.verify_seconds * answers
        self._answers = answers
        self._extract = Stage(
            "extract",
            settings.describe_threads,
            seconds=self._seconds,
            pace=PHOTOS_A_SECOND,
            metrics=metrics,
        )
        # Verifying shares the photos of one answer out to threads of its own.
        self._verify = Stage("verify", 1, seconds=self._seconds, pace=PHOTOS_A_SECOND, metrics=metrics)
        # A stage of its own, so that the pace of verifying is known without it.
        self._closer = Stage("closer", 1, seconds=self._seconds, pace=PHOTOS_A_SECOND, metrics=metrics)
        self._features: RecentlyUsed[Sought] = RecentlyUsed(FEATURES_BYTES)

    async def query(self, now: State, view: ViewRequest) -> Sought:
        """Return the features of what a view shows, and its box, as `Index.search` finds them in the photo's file.

        Where a whole photo of the collection has no file that can be read, those that the index keeps serve.
        """
        kind = kind_of(now)
        name = kind, self._rendering.named(now, view), None if view.box is None else tuple(view.box)
        known = self._features.get(name)
        if known is None:
            try:
                photo = await self._rendering.photo(now, view)
            except Problem:
                if view.key is None or view.box is not None or view.lies_in is not None or now.local is None:
                    raise
                return await self.photo(now, view.key), None
            known = await self._extracted(lambda: sought_in(photo.pixels, view.box, kind=kind))
            self._features.put(name, known, known[0].descriptors.nbytes + known[0].points.nbytes)
        return known

    async def photo(self, now: State, key: str) -> Features:
        """Return the features of a photo of the collection: those that the index keeps, or else those of its file."""
        if now.local is not None:
            local, record = now.local, self._rendering.record(now, key)
            # In a thread: the features may lie in a store, on another machine.
            return await asyncio.to_thread(lambda: local.of_photo(record).features())
        pixels = (await self._rendering.photo(now, ViewRequest(key=key))).pixels
        return await self._extracted(lambda: photo_features(pixels))

    async def _extracted(self, work: Callable[[], T]) -> T:
        def measured() -> T:
            with self._metrics.stage("extract"):
                return work()

        return await self._extract.do(1, measured)

    async def points(self, now: State, views: Sequence[ViewRequest], key: str) -> dict[str, Any]:
        """Return the points that match in a photo and in the view of the query that has most of them."""
        try:
            photo = await self.photo(now, key)
            queries = [await self.query(now, view) for view in views]
        except MissingExtra as missing:
            raise Problem(422, f"{missing}.") from None

        def surest(found: Iterable[MatchingPoints]) -> tuple[int, MatchingPoints]:
            # One that is verified before one with more points that are doubtful.
            return max(
                enumerate(found),
                key=lambda one: (one[1].verified or False, one[1].inliers, one[1].verified is not None),
            )

        def matched() -> tuple[int, MatchingPoints]:
            with self._metrics.stage("points"):
                return surest(MatchingPoints.of(query, photo, box) for query, box in queries)

        def closely(record: ImageRecord) -> tuple[int, MatchingPoints]:
            with self._metrics.stage("points"):
                of_file = {query.faint: all_features(now, record, query) for query, _ in queries}
                return surest(MatchingPoints.of(query, of_file[query.faint] or photo, box) for query, box in queries)

        place, most = await self._extract.do(1, matched)
        if most.verified is False and now.local is not None:
            # As a search does, which has a closer look too.
            record = self._rendering.record(now, key)
            with suppress(Problem):
                closer = await self._extract.do(1, lambda: closely(record))
                place, most = closer if closer[1].verified else (place, most)
        return {"view": place, **points_data(most)}

    async def sought(self, now: State, views: Sequence[ViewRequest]) -> tuple[Sought, ...]:
        """Return what geometry looks for; nothing where the views cannot be looked at in time."""
        try:
            async with asyncio.timeout(self._seconds):
                return tuple([await self.query(now, view) for view in views])
        except (TimeoutError, Problem):
            self._metrics.unverified.inc()
            return ()

    async def in_time(self, work: Callable[[float], T]) -> tuple[T | None, float]:
        """Verify an answer, if there is time: None where others are before it or it takes too long.

        `work` is given the moment until which it may go on, and raises `TimeoutError` where it does not come to an end.
        The moment is returned too, for what is left of the time.
        """
        until = time.monotonic() + self._seconds
        try:
            return await self._looked(lambda: work(until), until), until
        except (TimeoutError, Problem):
            self._metrics.unverified.inc()
            return None, until

    async def again(self, solve: Callable[[], Awaitable[S]], work: Callable[[S], T], until: float) -> T | None:
        """Solve once more and look at what that found; None where it is not done by a moment of `time.monotonic`."""
        try:
            async with asyncio.timeout(until - time.monotonic()):
                found = await solve()
            return await self._looked(lambda: work(found), until)
        except (TimeoutError, Problem):
            return None

    async def closer(self, answer: VerifiedAnswer, views: Sequence[Sought], until: float) -> VerifiedAnswer:
        """Give photos of an answer a closer look; it stays as it is where other searches wait or it takes too long."""
        if self._verify.amount + self._closer.amount >= self._answers:
            return answer
        left = until - time.monotonic()

        def looked() -> VerifiedAnswer:
            with self._metrics.stage("closer"):
                return closer_answer(answer, views, until=until - (1 - TIME_FOR_CLOSER) * left)

        try:
            async with asyncio.timeout(left):
                return await self._closer.do(1, looked)
        except (TimeoutError, Problem):
            return answer

    async def _looked(self, work: Callable[[], T], until: float) -> T:
        def measured() -> T:
            with self._metrics.stage("verify"):
                return work()

        async with asyncio.timeout(until - time.monotonic()):
            return await self._verify.do(1, measured)

    def stop(self) -> None:
        """Do no more."""
        self._extract.stop()
        self._verify.stop()
        self._closer.stop()

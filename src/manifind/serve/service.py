"""What the service does, without a word of HTTP: views → queries → batches → answers."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from manifind.checks import unit_vectors
from manifind.describe import Describer
from manifind.errors import ManifindError, MissingExtra
from manifind.index import Index, QueryRegions, Search, View, rank, stored_view, view
from manifind.index.asking.evidence import chance_similarity
from manifind.index.asking.features import Sought
from manifind.index.asking.refine import NONE, VERIFIED, looked_at_again, taught_query, verified_in_time
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.verify import deepest, first_photos
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.generation import State
from manifind.manifold import batch_size
from manifind.recently_used import RecentlyUsed
from manifind.serve.admission import Admission
from manifind.serve.answers import Job, answer_of, explanation, found_by, shown
from manifind.serve.batcher import Batcher
from manifind.serve.browsing import Browsing
from manifind.serve.common import Common
from manifind.serve.dated import Dated
from manifind.serve.problems import Problem, busy
from manifind.serve.schemas import ExplainRequest, GeometryRequest, SearchRequest, ViewRequest
from manifind.serve.served import Served

log = logging.getLogger("manifind.serve")
T = TypeVar("T")

RECORDS = 20_000
"""Photos of which what the index has is kept at hand."""

TRIES = 20
"""Times that a query is described before it is given up, while the index changes its describer."""

DESCRIBED_BYTES = 64_000_000
"""What descriptions of queries may take, kept for when the same box is asked for again."""


class _Moved(Exception):
    """The index has moved on to descriptions of another kind."""


class Service:
    """An index, answered for many at once.

    Parameters
    ----------
    index : Index
    common : Common
        What it shares with the other collections of the same service.
    """

    def __init__(self, index: Index, common: Common) -> None:
        self.common = common
        self.settings, self.metrics = common.settings, common.metrics
        self.pictures, self.rendering, self.geometry = common.pictures, common.rendering, common.geometry
        self._describing = common.describing
        self.served = Served(index, self.metrics)
        self.dated = Dated(self.once)
        self._browse = Browsing(common.browsing, self.once)
        self._admission = Admission(self.settings, self.metrics)
        self.ready = False
        self._described: RecentlyUsed[View] = RecentlyUsed(DESCRIBED_BYTES)
        self._records: RecentlyUsed[ImageRecord] = RecentlyUsed(RECORDS)
        self._checked: Describer | None = None
        self._fingerprint = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._known: RecentlyUsed[Any] = RecentlyUsed(16)
        """What was found out about a state of the index, the last sixteen things."""

    async def start(self) -> None:
        """Begin to answer; `ready` is set when the first query need not wait for the network to be loaded."""
        largest = min(self.settings.largest_batch, batch_size(self.now.regions))
        self._batcher: Batcher[Job, dict[str, Any] | Search] = Batcher(
            self._solve, gather_seconds=self.settings.gather_seconds, largest=largest, metrics=self.metrics
        )
        self._batcher.start()
        self.metrics.event_loop.info({"loop": type(asyncio.get_running_loop()).__module__.partition(".")[0]})
        self._tasks = [
            asyncio.create_task(self._warm_up()),
            asyncio.create_task(self.served.follow(self.settings.reload_seconds)),
        ]

    async def stop(self) -> None:
        """Stop answering; what is shared goes on."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._batcher.stop()

    @property
    def now(self) -> State:
        """The state of the index that new requests are answered from."""
        return self.served.now

    @property
    def name(self) -> str:
        """What the collection is called."""
        return self.served.name

    def check(self) -> None:
        """Raise `Problem` where the files of the index are not those that were opened."""
        self.served.check()

    @property
    def homes(self) -> "Sequence[Service]":
        """The services of all collections: this one alone."""
        return (self,)

    def home(self, key: str) -> "tuple[Service, str]":
        """Return the service of the collection that a key belongs to, and the key there."""
        return self, key

    def outward(self, home: "Service", key: str) -> str:  # noqa: ARG002 (there is one collection)
        """Return the key by which clients know a photo of a collection."""
        return key

    # -- searching ----------------------------------------------------------------------------------------------------

    async def search(self, request: SearchRequest) -> dict[str, Any]:
        """Answer a search, ready for JSON."""
        start = time.perf_counter()
        with self._admission.place():
            job = await self._asked(request)
            described = time.perf_counter()
            with self.metrics.stage("wait"):
                answer = await self._batcher.answer(job)
            searched = time.perf_counter()
            if isinstance(answer, Search):
                answer = await self._verified(answer, job)
        times = {"describe": described - start, "search": searched - described}
        if job.sought:
            times["verify"] = time.perf_counter() - searched
        if request.sort == "date" or request.since or request.until:
            answer = await self.dated.told(job.now, request, answer)
        return {**answer, "milliseconds": {name: round(1000 * seconds, 1) for name, seconds in times.items()}}

    async def _verified(self, search: Search, job: Job) -> dict[str, Any]:
        """Answer with what geometry says, or without it where there is no time."""

        def told(answer: VerifiedAnswer) -> dict[str, Any]:
            return answer_of(answer.cut(job.request.top).reached(), job, self._record)

        refine = VERIFIED if job.request.refine else NONE

        def looked_at(until: float) -> tuple[VerifiedAnswer, QueryRegions | None]:
            self.served.check()
            found = found_by(search, job, max(job.request.top, deepest(job.first)))
            return verified_in_time(found, job.sought, first=job.first, refine=refine, until=until)

        looked, until = await self.geometry.in_time(looked_at)
        if looked is None:
            return await self._describing.do(1, lambda: answer_of(found_by(search, job), job, self._record))
        answer, taught = looked
        if not answer.found:
            # So that there may be something to teach.
            answer = await self.geometry.closer(answer, job.sought, until)
            if answer.found and refine == VERIFIED:
                taught = await asyncio.to_thread(taught_query, answer)

        async def solved(query: QueryRegions) -> Search:
            # On the state that the first answer is of: its regions are what was taught.
            with self.metrics.stage("wait"):
                found = await self._batcher.answer(job._replace(now=search.generation, query=query))
            if not isinstance(found, Search):
                raise TypeError("a taught query was answered without being looked at.")
            return found

        def looked_again(again: Search) -> VerifiedAnswer:
            self.served.check()
            return looked_at_again(answer, again, job.sought, first=job.first, top=job.request.top, until=until)

        if taught is not None:
            query = taught
            refined = await self.geometry.again(lambda: solved(query), looked_again, until)
            answer = answer if refined is None else refined
        if answer.found:
            answer = await self.geometry.closer(answer, job.sought, until)
        return await asyncio.to_thread(told, answer)

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Explain why a photo was found."""
        self.pictures.record(self.now, request.key)  # before anything is described
        with self._admission.place():
            job = (await self._asked(request.search()))._replace(whole=True)
            search = await self._batcher.answer(job)
            if not isinstance(search, Search):
                raise TypeError("an explanation was answered as if it were a search.")

            def chain() -> dict[str, Any]:
                with self.metrics.stage("explain"):
                    self.served.check()
                    return explanation(search, request.key)

            return await self._describing.do(1, chain)

    async def points(self, request: GeometryRequest) -> dict[str, Any]:
        """Return the points that match in views of an object and in a photo."""
        now = self.now
        self.pictures.record(now, request.key)
        with self._admission.place():
            return await self.geometry.points(now, request.views, request.key)

    async def _asked(self, request: SearchRequest) -> Job:
        """Describe what was asked for, in threads; once more where a new generation has another describer."""
        for _ in range(TRIES):
            try:
                return await self._asked_of(self.now, request)
            except _Moved:
                await asyncio.sleep(0.05)
        raise busy()

    async def _asked_of(self, now: State, request: SearchRequest) -> Job:
        self.served.check()
        views: list[View] = []
        if request.vectors is not None:
            views.append(_given(now, request.vectors))
        wanted = [*request.views, *request.not_this]
        described, sought = await asyncio.gather(
            asyncio.gather(*(self._view(now, one) for one in wanted)), self._sought(now, request)
        )
        views += described[: len(request.views)]
        against = described[len(request.views) :]
        if sum(len(one.vectors) for one in (*views, *against)) > self.settings.most_regions:
            raise Problem(422, f"The query has more than {self.settings.most_regions} regions; give fewer boxes.")
        own, rejected = (
            frozenset(key for one in some if (key := self._key(now, one)) is not None)
            for some in (request.views, request.not_this)
        )
        outside = await self.dated.outside(now, request)
        return Job(now, QueryRegions.of(views, against), request, own, rejected - own, sought, outside)

    async def _sought(self, now: State, request: SearchRequest) -> tuple[Sought, ...]:
        """Return what geometry looks for; nothing where it is not asked."""
        if not first_photos(now, request.method, request.verify):
            return ()
        try:
            return await self.geometry.sought(now, request.views)
        except MissingExtra as missing:
            raise Problem(422, f"{missing}.") from None

    async def _view(self, now: State, one: ViewRequest) -> View:
        """Describe one view, unless it is known."""
        if one.key is not None and one.box is None and one.lies_in is None:
            return stored_view(now, self.pictures.record(now, one.key))
        name = self.rendering.named(now, one)
        cached = now.manifest.describer.sha256, name, None if one.box is None else tuple(one.box)
        known = self._described.get(cached)
        if known is not None:
            return known

        photo = await self.rendering.photo(now, one)

        def described() -> View:
            with self.metrics.stage("describe"):
                return view(self._describer(now), photo.pixels, one.box)

        made = await self._describing.do(1, described)
        self._described.put(cached, made, made.vectors.nbytes + made.boxes.nbytes)
        return made

    def _describer(self, now: State) -> Describer:
        """Return what describes queries for this state of the index."""
        describer = self.served.index.describer
        if self._checked is not describer:
            self._checked, self._fingerprint = describer, describer.fingerprint()["sha256"]
        if self._fingerprint != now.manifest.describer.sha256:
            raise _Moved
        return describer

    def _key(self, now: State, one: ViewRequest) -> str | None:
        """Return the key of the photo that a view is of, if it is in the collection."""
        if one.key is not None and one.lies_in is None:
            record = now.catalogue.photo_of(one.key)
        else:
            record = now.catalogue.of_content(self.pictures.content(now, one)[0])
        return None if record is None else record.key

    def _solve(self, jobs: Sequence[Job]) -> list[dict[str, Any] | Search | Exception]:
        """Answer jobs, those of one method and one state of the index together, and note the pace."""
        start = time.perf_counter()
        answers = self._solved(jobs)
        # A taught query is the second solve of a search that was counted.
        self._admission.note(time.perf_counter() - start, sum(not job.query.lessons for job in jobs))
        return answers

    def _record(self, now: State, image: int) -> ImageRecord:
        """Return what the index has of a photo; those found often are at hand."""
        known = self._records.get((now.stamp, image))
        if known is None:
            known = now.catalogue[image]
            self._records.put((now.stamp, image), known, 1)
        return known

    def _solved(self, jobs: Sequence[Job]) -> list[dict[str, Any] | Search | Exception]:
        answers: list[dict[str, Any] | Search | Exception] = [busy()] * len(jobs)
        groups: dict[tuple[str, str, bool], list[int]] = {}
        for i, job in enumerate(jobs):
            groups.setdefault((job.now.stamp, job.request.method, job.whole), []).append(i)
        for (_, method, whole), places in groups.items():
            group = [jobs[i] for i in places]
            top = None if whole else max(job.top or 0 for job in group)
            try:
                self.served.check()
                searches = rank(group[0].now, [job.query for job in group], top, method)
                found: list[dict[str, Any] | Search] = [
                    search if whole or job.sought else answer_of(found_by(search, job), job, self._record)
                    for search, job in zip(searches, group, strict=True)
                ]
            except Exception as error:  # one group's fault is not another's
                for i in places:
                    answers[i] = error
            else:
                for i, one in zip(places, found, strict=True):
                    answers[i] = one
        return answers

    # -- browsing -----------------------------------------------------------------------------------------------------

    async def photos(self, folder: str, contains: str, start: int, count: int) -> dict[str, Any]:
        """Return a stretch of the photos whose key lies below `folder` and has `contains` in it."""
        return await self._browse.photos(self.now, folder, contains, start, count)

    def photo(self, key: str) -> dict[str, Any]:
        """Return what the index knows of a photo."""
        return shown(self.pictures.record(self.now, key))

    async def folders(self) -> dict[str, Any]:
        """Return the folders of the collection."""
        return await self._browse.folders(self.now)

    async def info(self) -> dict[str, Any]:
        """Return counts, parameters and health; where things lie on this machine is not told."""
        return {**await self._browse.info(self.now, self.served.index.info), "name": self.name}

    # -- pictures -----------------------------------------------------------------------------------------------------

    async def picture(self, one: ViewRequest, side: int) -> tuple[str, bytes]:
        """Return a photo or a part of it as a JPEG, and a name of its content."""
        return await self.rendering.jpeg(self.now, one, side)

    def file(self, key: str) -> Path:
        """Return the file of a photo, which is one still."""
        return self.pictures.photo_file(self.now, key)

    # -- keeping up ---------------------------------------------------------------------------------------------------

    async def _warm_up(self) -> None:
        def warm() -> None:
            links, photos = self.pictures.links_out(self.now)
            if links:
                log.warning(
                    "%d of %d photos are links out of their folder; use --follow-links to show them", links, photos
                )
            self.served.index.describer.describe(np.zeros((64, 64, 3), np.uint8))
            chance_similarity(self.now)

        try:
            await asyncio.to_thread(warm)
        except ManifindError as error:
            log.warning("queries by photo will fail: %s", error)
        self.ready = True
        self.metrics.generation.labels(self.name).set(self.now.number)

    def once(self, now: State, what: Hashable, find: Callable[[], T]) -> T:
        """Return what was found out about a state of the index, found out now if it is not known."""
        found: T | None = self._known.get((now.stamp, what))
        if found is None:
            found = find()
            self._known.put((now.stamp, what), found, 1)
        return found


def _given(now: State, vectors: list[list[float]]) -> View:
    """Return descriptors that the client made itself as a view without places."""
    if not vectors or len({len(row) for row in vectors}) != 1:
        raise Problem(422, "vectors: the rows differ in length; give one row of the index's dimension for each region.")
    rows = np.asarray(vectors, np.float64)
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0), np.finfo(np.float64).tiny)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    checked = unit_vectors(rows, "vectors", dimension=now.dimension)
    return View(checked, np.zeros((len(checked), 4), np.float32))

"""What the service does, without a word of HTTP: views → queries → batches → answers."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeVar

import numpy as np

from manifind.checks import unit_vectors
from manifind.describe import Describer
from manifind.errors import Damaged, InvalidInput, ManifindError
from manifind.index import Answer, Generation, Index, QueryRegions, Search, View, explained, rank, stored_view, view
from manifind.index.catalogue import ImageRecord
from manifind.index.evidence import chance_similarity
from manifind.manifold import batch_size
from manifind.pages.answers import answer_data, links_data, regions_data
from manifind.serve.batcher import Batcher
from manifind.serve.memory import Kept
from manifind.serve.metrics import Metrics
from manifind.serve.pictures import Pictures, Upload
from manifind.serve.problems import Problem, busy
from manifind.serve.schemas import ExplainRequest, SearchRequest, ViewRequest
from manifind.serve.settings import Settings

log = logging.getLogger("manifind.serve")
T = TypeVar("T")

RECORDS = 20_000
"""Photos of which what the index has is kept at hand."""

FEWEST_WAITING = 4
"""Searches that are let in however slow the machine is."""

TRIES = 20
"""Times that a query is described before it is given up, while the index changes its describer."""

DESCRIBED_BYTES = 64_000_000
"""What descriptions of queries may take, kept for when the same box is asked for again."""


class _Job(NamedTuple):
    """A query for the solver."""

    now: Generation
    query: QueryRegions
    request: SearchRequest
    own: frozenset[int]
    """Photos of the collection that the query was taken from."""
    rejected: frozenset[int]
    """Photos that were marked as not meant: they are left out of the answer."""
    explain: bool = False


class _Moved(Exception):
    """The index has moved on to descriptions of another kind."""


class Service:
    """An index, answered for many at once."""

    def __init__(self, index: Index, settings: Settings) -> None:
        self.index = index
        self.settings = settings
        self.metrics = Metrics()
        self.pictures = Pictures(settings)
        self.ready = False
        self._described: Kept[View] = Kept(DESCRIBED_BYTES)
        self._describing = ThreadPoolExecutor(settings.describe_threads, thread_name_prefix="describe")
        self._rendering = ThreadPoolExecutor(settings.picture_threads, thread_name_prefix="picture")
        self._records: Kept[ImageRecord] = Kept(RECORDS)
        self._checked: Describer | None = None
        self._fingerprint = ""
        self._under_way = 0
        self._pace = 0.0
        """Seconds that a query takes of late, in the company that it has."""
        self._tasks: list[asyncio.Task[None]] = []
        self._known: Kept[Any] = Kept(16)
        """What was found out about a state of the index, the last sixteen things."""

    async def start(self) -> None:
        """Begin to answer; `ready` is set when the first query need not wait for the network to be loaded."""
        largest = min(self.settings.largest_batch, batch_size(len(self.now.boxes)))
        self._batcher: Batcher[_Job, dict[str, Any] | Search] = Batcher(
            self._solve, gather_seconds=self.settings.gather_seconds, largest=largest, metrics=self.metrics
        )
        self._batcher.start()
        self._tasks = [asyncio.create_task(self._warm_up()), asyncio.create_task(self._follow())]

    async def stop(self) -> None:
        """Stop answering."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._batcher.stop()
        for pool in (self._describing, self._rendering):
            pool.shutdown(wait=True, cancel_futures=True)

    @property
    def now(self) -> Generation:
        """The state of the index that new requests are answered from."""
        return self.index.state

    # -- searching ----------------------------------------------------------------------------------------------------

    async def search(self, request: SearchRequest) -> dict[str, Any]:
        """Answer a search, ready for JSON."""
        start = time.perf_counter()
        async with self._admitted():
            job = await self._asked(request)
            described = time.perf_counter()
            with self.metrics.stage("wait"):
                answer = await self._batcher.answer(job)
        if isinstance(answer, Search):
            raise TypeError("a search was answered as if it were to be explained.")
        times = {"describe": described - start, "search": time.perf_counter() - described}
        return {**answer, "milliseconds": {name: round(1000 * seconds, 1) for name, seconds in times.items()}}

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Explain why a photo was found."""
        self.pictures.record(self.now, request.key)  # before anything is described
        async with self._admitted():
            job = (await self._asked(request.search()))._replace(explain=True)
            record = self.pictures.record(job.now, request.key)
            search = await self._batcher.answer(job)
            if not isinstance(search, Search):
                raise TypeError("an explanation was answered as if it were a search.")

            def explained() -> dict[str, Any]:
                with self.metrics.stage("explain"):
                    return _explained(search, record.number)

            answer = await self._in(self._describing, explained)
        return {**answer, **_shown(record)}

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        """Hold one of the places for searches; 503 where none is free."""
        # No more than can be answered well within the time that a search may take, at the pace of late.
        room = min(
            self.settings.waiting, max(FEWEST_WAITING, int(0.7 * self.settings.time_limit / max(self._pace, 1e-6)))
        )
        if self._under_way >= room:
            self.metrics.refused.inc()
            raise busy()
        self._under_way += 1
        self.metrics.busy.set(self._under_way)
        try:
            yield
        finally:
            self._under_way -= 1
            self.metrics.busy.set(self._under_way)

    async def _asked(self, request: SearchRequest) -> _Job:
        """Describe what was asked for, in threads; once more where a new generation has another describer."""
        for _ in range(TRIES):
            try:
                return await self._asked_of(self.now, request)
            except _Moved:
                await asyncio.sleep(0.05)
        raise busy()

    async def _asked_of(self, now: Generation, request: SearchRequest) -> _Job:
        views: list[View] = []
        if request.vectors is not None:
            views.append(_given(now, request.vectors))
        wanted = [*request.views, *request.not_this]
        described = await asyncio.gather(*(self._view(now, one) for one in wanted))
        views += described[: len(request.views)]
        against = described[len(request.views) :]
        if sum(len(one.vectors) for one in (*views, *against)) > self.settings.most_regions:
            raise Problem(422, f"The query has more than {self.settings.most_regions} regions; give fewer boxes.")
        own, rejected = (
            frozenset(number for one in some if (number := self._number(now, one)) is not None)
            for some in (request.views, request.not_this)
        )
        return _Job(now, QueryRegions.of(views, against), request, own, rejected - own)

    async def _view(self, now: Generation, one: ViewRequest) -> View:
        """Describe one view, unless it is known."""
        if one.key is not None:
            record = self.pictures.record(now, one.key)
            if one.box is None:
                return stored_view(now, record.number)
            name = record.sha256
        else:
            name = self.pictures.upload(one.upload or "").name
        cached = now.manifest.describer.sha256, name, None if one.box is None else tuple(one.box)
        known = self._described.get(cached)
        if known is not None:
            return known

        def described() -> View:
            with self.metrics.stage("read"):
                photo = self.pictures.pixels(now, one)
            with self.metrics.stage("describe"):
                return view(self._describer(now), photo.pixels, one.box)

        made = await self._in(self._describing, described)
        self._described.put(cached, made, made.vectors.nbytes + made.boxes.nbytes)
        return made

    def _describer(self, now: Generation) -> Describer:
        """Return what describes queries for this state of the index."""
        describer = self.index.describer
        if self._checked is not describer:
            self._checked, self._fingerprint = describer, describer.fingerprint()["sha256"]
        if self._fingerprint != now.manifest.describer.sha256:
            raise _Moved
        return describer

    def _number(self, now: Generation, one: ViewRequest) -> int | None:
        """Return the number of the photo that a view is of, if it is in the collection."""
        record = None if one.key is None else now.catalogue.photo_of(one.key)
        return None if record is None else record.number

    def _solve(self, jobs: Sequence[_Job]) -> list[dict[str, Any] | Search | Exception]:
        """Answer jobs, those of one method and one state of the index together, and note the pace."""
        start = time.perf_counter()
        answers = self._solved(jobs)
        self._pace += 0.3 * ((time.perf_counter() - start) / len(jobs) - self._pace)
        return answers

    def _record(self, now: Generation, image: int) -> ImageRecord:
        """Return what the index has of a photo; those found often are at hand."""
        known = self._records.get((now.number, image))
        if known is None:
            known = now.catalogue[image]
            self._records.put((now.number, image), known, 1)
        return known

    def _solved(self, jobs: Sequence[_Job]) -> list[dict[str, Any] | Search | Exception]:
        answers: list[dict[str, Any] | Search | Exception] = [busy()] * len(jobs)
        groups: dict[tuple[int, str, bool], list[int]] = {}
        for i, job in enumerate(jobs):
            groups.setdefault((job.now.number, job.request.method, job.explain), []).append(i)
        for (_, method, explain), places in groups.items():
            group = [jobs[i] for i in places]
            top = None if explain else max(job.request.top + len(job.rejected) for job in group)
            try:
                searches = rank(group[0].now, [job.query for job in group], top, method)
                found: list[dict[str, Any] | Search] = [
                    search if explain else _answer(search, job, self._record)
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
        now = self.now

        def found() -> list[int]:
            keys = self._once(now, "keys", lambda: [one.key for one in now.catalogue.images])
            return self._once(now, (folder, contains), lambda: _matching(keys, folder, contains.casefold()))

        numbers = await self._in(self._rendering, found)
        shown = [now.catalogue[int(number)] for number in numbers[start : start + count]]
        return {
            "total": len(numbers),
            "start": start,
            "generation": now.number,
            "photos": [_shown(one) for one in shown],
        }

    def photo(self, key: str) -> dict[str, Any]:
        """Return what the index knows of a photo."""
        return _shown(self.pictures.record(self.now, key))

    async def folders(self) -> dict[str, Any]:
        """Return the folders of the collection."""
        now = self.now
        return {"folders": await self._in(self._rendering, lambda: self._once(now, "folders", lambda: _folders(now)))}

    async def info(self) -> dict[str, Any]:
        """Return counts, parameters and health; where things lie on this machine is not told."""
        now = self.now
        facts = dict(await self._in(self._rendering, lambda: self._once(now, "info", self.index.info)))
        facts.pop("photos_folder", None)
        learnt = facts["whitening"]
        name = PurePosixPath(learnt["from"]).name
        facts["whitening"] = {**learnt, "from": name, "words": learnt["words"].replace(learnt["from"], name)}
        facts["name"] = PurePosixPath(str(facts.pop("path", self.index.path))).name
        return facts

    # -- pictures -----------------------------------------------------------------------------------------------------

    async def picture(self, one: ViewRequest, side: int) -> tuple[str, bytes]:
        """Return a photo or a part of it as a JPEG, and a name of its content."""
        now = self.now

        def rendered() -> tuple[str, bytes]:
            with self.metrics.stage("picture"):
                return self.pictures.jpeg(now, one, side)

        return await self._in(self._rendering, rendered)

    async def take(self, data: bytes) -> Upload:
        """Take in an uploaded photo."""
        async with self._admitted():
            return await self._in(self._describing, lambda: self.pictures.take(data))

    # -- keeping up ---------------------------------------------------------------------------------------------------

    async def _warm_up(self) -> None:
        def warm() -> None:
            self.index.describer.describe(np.zeros((64, 64, 3), np.uint8))
            chance_similarity(self.now)

        try:
            await self._in(self._describing, warm)
        except ManifindError as error:
            log.warning("queries by photo will fail: %s", error)
        self.ready = True
        self.metrics.generation.set(self.now.number)

    async def _follow(self) -> None:
        """Move to each new generation of the index; searches under way keep theirs."""
        manifest = self.index.path / "manifest.json"
        seen = _stamp(manifest)
        while True:
            await asyncio.sleep(self.settings.reload_seconds)
            stamp = _stamp(manifest)
            if stamp is None or stamp == seen:
                continue
            seen = stamp
            try:
                await asyncio.to_thread(self.index.reload)
                await asyncio.to_thread(chance_similarity, self.now)
            except (Damaged, InvalidInput, OSError) as error:
                log.warning("the new state of the index is not taken: %s", error)
                continue
            self.metrics.generation.set(self.now.number)
            log.info("now serving generation %d", self.now.number)

    def _once(self, now: Generation, what: Hashable, find: Callable[[], T]) -> T:
        found: T | None = self._known.get((now.number, what))
        if found is None:
            found = find()
            self._known.put((now.number, what), found, 1)
        return found

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def within_limits(self, work: Awaitable[T], left: Awaitable[None]) -> T:
        """Do some work until it is done, its time is up, or the client has left."""
        task, gone = asyncio.ensure_future(work), asyncio.ensure_future(left)
        try:
            await asyncio.wait({task, gone}, timeout=self.settings.time_limit, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            why = "left" if gone.done() else "time"
            self.metrics.given_up.labels(why).inc()
            if why == "left":
                raise Problem(499, "The client has left.")
            raise Problem(
                504, f"The search took longer than {self.settings.time_limit:g} seconds and was given up; ask for less."
            )
        finally:
            for one in (task, gone):
                one.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await one


def _given(now: Generation, vectors: list[list[float]]) -> View:
    """Return descriptors that the client made itself as a view without places."""
    if not vectors or len({len(row) for row in vectors}) != 1:
        raise Problem(422, "vectors: the rows differ in length; give one row of the index's dimension for each region.")
    rows = np.asarray(vectors, np.float64)
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0), np.finfo(np.float64).tiny)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    checked = unit_vectors(rows, "vectors", dimension=now.manifold.vectors_.shape[1])
    return View(checked, np.zeros((len(checked), 4), np.float32))


def _answer(search: Search, job: _Job, record_of: Callable[[Generation, int], ImageRecord]) -> dict[str, Any]:
    """Return the answer to a search, all but the times."""
    request = job.request
    answer = Answer(search, own=job.own, left_out=job.rejected, top=request.top, reached=True)
    query = {
        "views": [one.model_dump() for one in request.views],
        "not_this": [one.model_dump() for one in request.not_this],
        "vectors": 0 if request.vectors is None else len(request.vectors),
    }
    shown = answer_data(query, answer)
    for one, hit in zip(shown["results"], answer, strict=True):
        one.update(_shown(record_of(search.generation, hit.image)), where=hit.box)
    found = answer.evidence
    return {
        **shown,
        "generation": answer.generation,
        "evidence": None if found is None else {**asdict(found), "likely": answer.likely},
    }


def _explained(search: Search, image: int) -> dict[str, Any]:
    hit = Answer(search).of_image(image)
    if hit is None:
        raise Problem(404, "The photo is not among those that a search of so large a collection looks at closely.")
    return {
        "key": hit.key,
        "rank": hit.rank,
        "score": hit.score,
        "where": hit.box,
        "links": links_data(explained(search, image), "source", "target"),
        "regions": regions_data(search.shares(image, most=None)),
    }


def _shown(record: ImageRecord) -> dict[str, Any]:
    return {"key": record.key, "width": record.width, "height": record.height, "version": record.sha256[:12]}


def _matching(keys: Sequence[str], folder: str, contains: str) -> list[int]:
    below = f"{folder.rstrip('/')}/" if folder else ""
    return [
        number
        for number, key in enumerate(keys)
        if key.startswith(below) and (not contains or contains in key.casefold())
    ]


def _folders(now: Generation) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    for one in now.catalogue.images:
        for above in PurePosixPath(one.key).parents:
            if str(above) != ".":
                counts[str(above)] += 1
    return [{"folder": folder, "photos": counts[folder]} for folder in sorted(counts)]


def _stamp(manifest: Any) -> tuple[int, int] | None:
    """Tell one manifest from the next: each is a new file, put in place by a rename."""
    try:
        status = manifest.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns

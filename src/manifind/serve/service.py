"""The service without HTTP: it drives the search pipeline for many clients at once.

::

    views ──▶ region descriptors, local features ──▶ `search_steps` ─┬─▶ Retrieve: batched over all clients
                                                                     └─▶ other steps: in worker pools
"""

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, TypeVar

import numpy as np

from manifind.cache import LRUCache
from manifind.errors import ManifindError
from manifind.iiif import Canvas, read_canvases
from manifind.index import (
    Index,
    Retrieval,
    SearchConfig,
    SearchResult,
    retrieve,
)
from manifind.index.search.confidence import null_similarity
from manifind.index.search.pipeline import Pipeline, Retrieve, resume_steps, search_steps
from manifind.index.search.query import Deadline, SearchQuery
from manifind.index.search.repeats import repeats, verify_clusters
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.remote import read_only_error
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.manifold import batch_size
from manifind.reports.results import repeats_data
from manifind.serve.builds import FolderWatch
from manifind.serve.errors import ServiceError, too_busy
from manifind.serve.live_index import LiveIndex
from manifind.serve.photos import PhotoStore, Thumbnails
from manifind.serve.queries import Extracting, Queries, discard
from manifind.serve.resources import Resources
from manifind.serve.responses import (
    BuildingResponse,
    ExplainResponse,
    FolderResponse,
    FoldersResponse,
    GeometryResponse,
    PhotoResponse,
    PhotosResponse,
    ProgressResponse,
    RepeatsResponse,
    ResultResponse,
    SearchResponse,
    SearchStep,
)
from manifind.serve.schemas import MAX_TOP, ExplainRequest, GeometryRequest, SearchRequest, ViewRequest
from manifind.serve.workers import Admission, Batcher, SingleFlight

log = logging.getLogger("manifind.serve")
T = TypeVar("T")

RECORDS_CACHED = 20_000
"""Photos of which what the index has is kept at hand."""

REPEATS_DEADLINES = 3
"""How many times as long as a search the verification of repeated objects may take: they are found once."""
MAX_VERIFIED_REPEATS = 30
"""Repeated objects that are verified, the largest scores first, where the index stores local features."""
CUT_SHORT_CACHED = 16
"""Searches that go on where a deadline had cut them short, if they are asked for again."""
OVERTIME_SECONDS = 0.1
"""How far a search may pass its deadline: the step under way ends, and says which photos are left."""


class Service:
    """An index, answered for many at once.

    Parameters
    ----------
    index : Index
    resources : Resources
        Threads, caches and measurements, which outlive the service.
    """

    def __init__(self, index: Index, resources: Resources) -> None:
        self.resources = resources
        self.settings, self.metrics = resources.settings, resources.metrics
        self.photo_store = PhotoStore(self.settings)
        self.thumbnails = Thumbnails(self.photo_store, resources)
        self.live_index = LiveIndex(index, self.metrics)
        self.folder_watch = FolderWatch(self.live_index, self.settings)
        self._queries = Queries(self.live_index, self.photo_store, self.thumbnails, resources)
        self._repeats: SingleFlight[RepeatsResponse] = SingleFlight()
        self._admission = Admission(self.settings.waiting, self.settings.time_limit, self.metrics)
        self.ready = False
        self._records: LRUCache[ImageRecord] = LRUCache(RECORDS_CACHED)
        self._cut_short = "", LRUCache[SearchResult](CUT_SHORT_CACHED)
        """A snapshot's stamp, and searches that their deadlines cut short: who asks once more gets what follows."""
        self._tasks: list[asyncio.Task[None]] = []
        self._known: LRUCache[Any] = LRUCache(16)
        """What was computed of a snapshot, the last sixteen things."""

    async def start(self) -> None:
        """Begin to answer; `ready` is set when the first query need not wait for the network to be loaded."""
        largest = min(self.settings.largest_batch, batch_size(self.snapshot.regions))
        self._batcher: Batcher[Retrieve, Retrieval] = Batcher(
            self._retrieve_together, gather_seconds=self.settings.gather_seconds, largest=largest, metrics=self.metrics
        )
        self._batcher.start()
        self.metrics.event_loop.info({"loop": type(asyncio.get_running_loop()).__module__.partition(".")[0]})
        self._tasks = [
            asyncio.create_task(self._warm_up()),
            asyncio.create_task(self.live_index.follow(self.settings.reload_seconds)),
            asyncio.create_task(self.folder_watch.run()),
        ]

    async def stop(self) -> None:
        """Stop answering; what is shared goes on."""
        await self.folder_watch.stop()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._batcher.stop()

    @property
    def snapshot(self) -> AnySnapshot:
        """The state of the index that new requests are answered from."""
        return self.live_index.snapshot

    @property
    def name(self) -> str:
        """What the collection is called."""
        return self.live_index.name

    def building(self) -> BuildingResponse:
        """Return the progress of the build or update that is under way, and what is new in the folder."""
        return self.folder_watch.status(self.resources.building())

    # -- searching ----------------------------------------------------------------------------------------------------

    async def search(self, request: SearchRequest) -> SearchResponse:
        """Return the result of a search."""
        return await self._response(request, *await self._search(request))

    async def search_steps(self, request: SearchRequest) -> AsyncGenerator[SearchStep, None]:
        """Yield the results of a search, each surer than the one before, and the progress between them."""
        steps: asyncio.Queue[SearchResult | None] = asyncio.Queue()

        async def run() -> tuple[SearchResult, dict[str, float]]:
            try:
                return await self._search(request, steps.put_nowait)
            finally:
                steps.put_nowait(None)

        search = asyncio.create_task(run())
        try:
            while (step := await steps.get()) is not None:
                if step.progress is not None:
                    checked, total, _ = step.progress
                    yield SearchStep(progress=ProgressResponse(checked=checked, total=total))
                else:
                    yield SearchStep(result=await self._response(request, step.nonzero(), {}))
            yield SearchStep(result=await self._response(request, *await search))
        finally:
            search.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await search

    async def _response(
        self, request: SearchRequest, result: SearchResult, seconds: Mapping[str, float]
    ) -> SearchResponse:
        dates: Sequence[str | None] = [None] * len(result)
        if request.sort == "date" or request.since or request.until:
            dates = await self._queries.dates.read(result.retrieval.snapshot, [hit.image for hit in result])
        return await self.resources.ranking.run(
            lambda: SearchResponse.of(request, result, self._record, dates, seconds)
        )

    async def new_matches(self, search: Mapping[str, Any], seen: Collection[str]) -> tuple[list[ResultResponse], bool]:
        """Return the matches of a stored search whose contents are not in `seen`, and whether these are all."""
        views, negatives = [
            [await self._stored_view(str(key), box) for key, box in search[name]] for name in ("views", "negatives")
        ]
        request = SearchRequest(views=views, negatives=negatives, method=search["method"], top=MAX_TOP)
        result, _ = await self._search(request)
        snapshot = result.retrieval.snapshot
        matches = [(hit, self._record(snapshot, hit.image)) for hit in result[: result.n_matches]]
        new = [ResultResponse.of_hit(hit, record) for hit, record in matches if record.sha256 not in seen]
        return new, result.complete

    async def _stored_view(self, name: str, box: Sequence[float] | None) -> ViewRequest:
        """Return a view of a stored search: a photo of the collection, or a file, which is read like an upload."""
        corners = None if box is None else list(box)
        if self.snapshot.catalogue.photo_of(name) is not None:
            return ViewRequest(key=name, box=corners)
        data = await self.resources.files.submit(1, lambda: self.photo_store.read_path(name))
        return ViewRequest(upload=(await self.thumbnails.add_upload(data)).name, box=corners)

    async def _search(
        self, request: SearchRequest, on_step: Callable[[SearchResult], None] = lambda _: None
    ) -> tuple[SearchResult, dict[str, float]]:
        """Return the last result of a search, and the seconds that its stages took; `on_step` gets those before."""
        if request.since or request.until:  # before the search takes a place that others wait for
            await self._queries.dates.read_all(self.snapshot)
        start = time.perf_counter()
        with self._admission.acquire():
            seconds_allowed = min(request.deadline or self.settings.deadline_seconds, self.settings.time_limit)
            stamp = self.snapshot.stamp
            name = hashlib.sha256(request.model_dump_json(exclude={"deadline"}).encode()).digest()
            cut_short = self._resumable().pop(name)
            if cut_short is not None:
                result = await self._resume(cut_short, Deadline.after(seconds_allowed), on_step)
                seconds = {"verify": time.perf_counter() - start}
            else:
                snapshot, query, local_features = await self._queries.extract(request)
                stamp = snapshot.stamp
                try:
                    extracted = time.perf_counter()
                    deadline = Deadline.after(seconds_allowed)
                    result, retrieved = await self._run(snapshot, query, local_features, deadline, on_step)
                finally:
                    discard(local_features)
                seconds = {"describe": extracted - start, "search": retrieved - extracted}
                if query.verify:
                    seconds["verify"] = time.perf_counter() - retrieved
            if not result.complete and result.state is not None and result.state.views and stamp == self.snapshot.stamp:
                self._resumable().put(name, result, 1)
        return result.nonzero(), seconds

    def _resumable(self) -> LRUCache[SearchResult]:
        """Return the searches cut short on the newest snapshot; older ones would hold the files of theirs."""
        stamp, results = self._cut_short
        if stamp != self.snapshot.stamp:
            results = LRUCache(CUT_SHORT_CACHED)
            self._cut_short = self.snapshot.stamp, results
        return results

    async def _run(
        self,
        snapshot: AnySnapshot,
        query: SearchQuery,
        local_features: Extracting,
        deadline: Deadline,
        on_step: Callable[[SearchResult], None],
    ) -> tuple[SearchResult, float]:
        """Return the last result of the pipeline before the deadline, and when its first retrieval was done.

        The images are ranked while `local_features` are extracted. Where verification is too busy, or the deadline
        passes, the result before stands.
        """
        pipeline = search_steps(snapshot, query, self.config, deadline, may_read_files=self.may_read_files)
        request = next(pipeline)
        assert isinstance(request, Retrieve)  # noqa: S101 (every search begins so)
        retrieval = await self._retrieve(request)
        retrieved = time.perf_counter()
        result = await self.resources.ranking.run(lambda: pipeline.send(retrieval))
        assert isinstance(result, SearchResult)  # noqa: S101 (the ranking)
        if not result.complete:
            on_step(result)
            await asyncio.wait({local_features}, timeout=max(0.0, deadline.seconds_left))
            if local_features.done():
                local_features.result()  # what cannot be extracted fails the search
                result = await self._follow(pipeline, result, deadline, on_step)
        if query.verify and result.n_verified is None:
            self.metrics.unverified.inc()
        return result, retrieved

    async def _resume(
        self, cut_short: SearchResult, deadline: Deadline, on_step: Callable[[SearchResult], None]
    ) -> SearchResult:
        """Return the last result of a search that goes on where its deadline had cut it short."""
        cut_short = replace(cut_short, progress=None)
        on_step(cut_short)
        pipeline = resume_steps(cut_short, deadline, may_read_files=self.may_read_files)
        return await self._follow(pipeline, cut_short, deadline, on_step)

    async def _follow(
        self, pipeline: Pipeline, result: SearchResult, deadline: Deadline, on_step: Callable[[SearchResult], None]
    ) -> SearchResult:
        """Return the last result of the steps of a pipeline after `result`; `on_step` gets those before."""
        retrieval: Retrieval | None = None
        with suppress(TimeoutError, ServiceError):
            async with asyncio.timeout(deadline.seconds_left + OVERTIME_SECONDS):
                while not result.complete:
                    reads_files = result.progress is not None and result.progress.reads_files
                    pool = self.resources.full_resolution if reads_files else self.resources.verification
                    step = await pool.submit(
                        1,
                        lambda: self._advance(pipeline, retrieval),  # noqa: B023
                        seconds=deadline.seconds_left + OVERTIME_SECONDS,
                    )
                    if step is None:
                        break
                    retrieval = await self._retrieve(step) if isinstance(step, Retrieve) else None
                    if isinstance(step, SearchResult):
                        result = step
                        if not result.complete:
                            on_step(result)
        return result

    def may_read_files(self) -> bool:
        """Return whether a search may verify at full resolution: the disk answers."""
        return not self.resources.files.stuck

    def _advance(self, pipeline: Pipeline, retrieval: Retrieval | None) -> Retrieve | SearchResult | None:
        """Return the next step of a pipeline; None at its end."""
        self.live_index.check()
        with self.metrics.stage("verify"):
            try:
                return next(pipeline) if retrieval is None else pipeline.send(retrieval)
            except StopIteration:
                return None

    async def _retrieve(self, request: Retrieve) -> Retrieval:
        with self.metrics.stage("wait"):
            return await self._batcher.answer(request)

    async def explain(self, request: ExplainRequest) -> ExplainResponse:
        """Return why a photo was found."""
        self.photo_store.record(self.snapshot, request.key)  # before anything is extracted
        with self._admission.acquire():
            snapshot, query, _ = await self._queries.extract(request.search())
            retrieval = await self._retrieve(Retrieve(snapshot, query.regions, None, query.method))

            def chain() -> ExplainResponse:
                with self.metrics.stage("explain"):
                    self.live_index.check()
                    record = retrieval.snapshot.catalogue.photo_of(request.key)
                    result = SearchResult.of(SearchQuery(query.regions, top=None), retrieval, config=self.config)
                    hit = None if record is None else result.hit_of(record.number)
                    if record is None or hit is None:
                        raise ServiceError(
                            404, "The photo is not in the shortlist that a search of so large a collection diffuses on."
                        )
                    return ExplainResponse.of_hit(retrieval, hit, record)

            return await self.resources.extraction.submit(1, chain)

    async def points(self, request: GeometryRequest) -> GeometryResponse:
        """Return the points that match in views of an object and in a photo."""
        snapshot = self.snapshot
        self.photo_store.record(snapshot, request.key)
        with self._admission.acquire():
            return GeometryResponse.of(await self._queries.matching_points(snapshot, request))

    async def repeats(self, top: int) -> RepeatsResponse:
        """Return the objects that occur in several photos; found once for each snapshot."""
        self.live_index.check()
        snapshot = self.snapshot
        if not isinstance(snapshot, Snapshot):
            raise read_only_error(snapshot.where, "read as a whole")

        def find() -> RepeatsResponse:
            until = time.monotonic() + REPEATS_DEADLINES * self.settings.deadline_seconds
            return self._memoize(snapshot, "repeats", lambda: _find_repeats(snapshot, until))

        response = await self._repeats.run(snapshot.stamp, lambda: self.resources.repeats.submit(1, find))
        return response.model_copy(update={"objects": response.objects[:top]})

    @property
    def config(self) -> SearchConfig:
        """Every number that decides a search."""
        return self.live_index.index.config

    def _record(self, snapshot: AnySnapshot, image: int) -> ImageRecord:
        """Return what the index has of a photo; those found often are at hand."""
        record = self._records.get((snapshot.stamp, image))
        if record is None:
            record = snapshot.catalogue[image]
            self._records.put((snapshot.stamp, image), record, 1)
        return record

    def _retrieve_together(self, requests: Sequence[Retrieve]) -> list[Retrieval | Exception]:
        """Rank images for requests, those on one snapshot by one method in one pass; record the pace."""
        start = time.perf_counter()
        answers: list[Retrieval | Exception] = [too_busy()] * len(requests)
        groups: dict[tuple[str, str, bool], list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault((request.snapshot.stamp, request.method, request.top is None), []).append(i)
        for (_, method, whole), places in groups.items():
            group = [requests[i] for i in places]
            top = None if whole else max(request.top or 0 for request in group)
            retrievals: Sequence[Retrieval | Exception]
            try:
                self.live_index.check()
                queries = [request.query for request in group]
                retrievals = retrieve(group[0].snapshot, queries, top, method, config=self.config.retrieval)
            except Exception as error:  # one group's fault is not another's
                retrievals = [error] * len(group)
            for i, one_found in zip(places, retrievals, strict=True):
                answers[i] = one_found
        # An expanded query is the second retrieval of a search that was counted.
        searches = sum(not request.query.n_expansion_regions for request in requests)
        self._admission.record(time.perf_counter() - start, searches)
        return answers

    # -- browsing -----------------------------------------------------------------------------------------------------

    async def photos(self, folder: str, contains: str, start: int, count: int) -> PhotosResponse:
        """Return a page of the photos whose key lies below `folder` and has `contains` in it."""
        snapshot = self.snapshot

        def find() -> PhotosResponse:
            keys = self._memoize(snapshot, "keys", lambda: [photo.key for photo in snapshot.catalogue.images])
            numbers = self._memoize(snapshot, (folder, contains), lambda: _matching(keys, folder, contains.casefold()))
            photos = [PhotoResponse.of(snapshot.catalogue[number]) for number in numbers[start : start + count]]
            return PhotosResponse(total=len(numbers), start=start, generation=snapshot.number, photos=photos)

        return await self.resources.browsing.submit(1, find)

    async def folders(self) -> FoldersResponse:
        """Return the folders of the collection, with how many photos each has."""
        snapshot = self.snapshot
        counts = await self.resources.browsing.submit(
            1, lambda: self._memoize(snapshot, "folders", lambda: _count_by_folder(snapshot))
        )
        return FoldersResponse(folders=[FolderResponse(folder=name, photos=counts[name]) for name in sorted(counts)])

    async def info(self) -> dict[str, Any]:
        """Return counts, parameters and health; where things lie on this machine is not told."""
        snapshot = self.snapshot
        facts = dict(
            await self.resources.browsing.submit(1, lambda: self._memoize(snapshot, "info", self.live_index.index.info))
        )
        for name in ("path", "photos_folder"):
            facts.pop(name, None)
        whitening = facts["whitening"]
        return {
            **facts,
            "whitening": {**whitening, "from": PurePosixPath(whitening["from"]).name},
            "name": self.name,
        }

    # -- keeping up ---------------------------------------------------------------------------------------------------

    async def _warm_up(self) -> None:
        snapshot = self.snapshot

        def warm() -> None:
            self.live_index.index.extractor.extract(np.zeros((64, 64, 3), np.uint8))
            null_similarity(snapshot)

        try:
            links, photos = await self.resources.downloads.run(lambda: self.photo_store.count_links_out(snapshot))
            if links:
                log.warning(
                    "%d of %d photos are links out of their folder; use --follow-links to show them", links, photos
                )
        except ServiceError as problem:
            log.warning("the files of photos cannot be checked: %s", problem.sentence)
        try:
            await self.resources.extraction.run(warm)
        except (ManifindError, ServiceError) as error:
            log.warning("queries by photo will fail: %s", error)
        self.ready = True
        self.metrics.generation.labels(self.name).set(self.snapshot.number)

    def canvases(self, snapshot: AnySnapshot) -> dict[str, Canvas]:
        """Return what photos of a IIIF collection are of; none where the folder has no list of canvases to be read."""

        def read() -> dict[str, Canvas]:
            with suppress(ManifindError, OSError):
                return read_canvases(snapshot.manifest.root)
            return {}

        return self._memoize(snapshot, "canvases", read)

    def _memoize(self, snapshot: AnySnapshot, what: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` returns for a snapshot, computed once."""
        value: T | None = self._known.get((snapshot.stamp, what))
        if value is None:
            value = find()
            self._known.put((snapshot.stamp, what), value, 1)
        return value


def _find_repeats(snapshot: Snapshot, until: float) -> RepeatsResponse:
    clusters = repeats(snapshot, top=None, verify=False)
    if snapshot.local is not None:
        first, rest = clusters.objects[:MAX_VERIFIED_REPEATS], clusters.objects[MAX_VERIFIED_REPEATS:]
        clusters = replace(clusters, objects=(*verify_clusters(snapshot, first, lambda *_: None, until=until), *rest))
    return RepeatsResponse(**repeats_data(clusters), generation=snapshot.number)


def _matching(keys: Sequence[str], folder: str, contains: str) -> list[int]:
    below = f"{folder.rstrip('/')}/" if folder else ""
    return [
        number
        for number, key in enumerate(keys)
        if key.startswith(below) and (not contains or contains in key.casefold())
    ]


def _count_by_folder(snapshot: AnySnapshot) -> Counter[str]:
    """Return how many photos lie in each folder and below."""
    counts: Counter[str] = Counter()
    for photo in snapshot.catalogue.images:
        counts.update(str(above) for above in PurePosixPath(photo.key).parents if str(above) != ".")
    return counts

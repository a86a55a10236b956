"""The service without HTTP: it drives the search pipeline for many clients at once.

::

    views ──▶ region descriptors, local features ──▶ `search_steps` ─┬─▶ Retrieve: batched over all clients
                                                                     └─▶ other steps: in worker pools
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from manifind.cache import LRUCache
from manifind.checks import unit_vectors
from manifind.errors import ManifindError
from manifind.features import RegionExtractor
from manifind.iiif import Canvas, read_canvases
from manifind.index import (
    Index,
    QueryRegions,
    QueryView,
    Retrieval,
    SearchConfig,
    SearchResult,
    extract_query_view,
    retrieve,
    stored_query_view,
)
from manifind.index.search.confidence import null_similarity
from manifind.index.search.pipeline import Pipeline, Retrieve, resume_steps, search_steps
from manifind.index.search.query import Deadline, QueryFeatures, SearchQuery, with_mirrored
from manifind.index.search.repeats import repeats, verify_clusters
from manifind.index.search.verification import default_depth
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.remote import read_only_error
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.manifold import batch_size
from manifind.reports.repeats import repeats_data
from manifind.serve.batcher import Batcher
from manifind.serve.browsing import Browsing, Dates
from manifind.serve.errors import ServiceError, too_busy
from manifind.serve.folder_watch import FolderWatch
from manifind.serve.live_index import LiveIndex
from manifind.serve.resources import Resources
from manifind.serve.responses import (
    BuildingResponse,
    ExplainResponse,
    FoldersResponse,
    GeometryResponse,
    PhotosResponse,
    ProgressResponse,
    RepeatsResponse,
    ResultResponse,
    SearchResponse,
    SearchStep,
)
from manifind.serve.schemas import MAX_TOP, ExplainRequest, GeometryRequest, SearchRequest, ViewRequest
from manifind.serve.worker_pool import Admission, SingleFlight

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
TRIES = 20
"""Times that a query is extracted before it is given up, while the index changes its extractor."""

VIEWS_BYTES = 64_000_000
"""What the region descriptors of queries may take that are kept for a search with the same box."""


Extracting = asyncio.Future[tuple[QueryFeatures, ...]]
"""The local features of a query, which are being extracted."""


class _ExtractorChangedError(Exception):
    """The index has moved on to descriptors of another kind."""


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
        self.photo_store, self.thumbnails = resources.photo_store, resources.thumbnails
        self._extraction = resources.extraction
        self.live_index = LiveIndex(index, self.metrics)
        self.folder_watch = FolderWatch(self.live_index, self.settings)
        self._dates = Dates(resources.files)
        self._browse = Browsing(resources.browsing, self._dates, self._memoize)
        self._repeats: SingleFlight[RepeatsResponse] = SingleFlight()
        self._admission = Admission(self.settings, self.metrics)
        self.ready = False
        self._views: LRUCache[QueryView] = LRUCache(VIEWS_BYTES)
        self._records: LRUCache[ImageRecord] = LRUCache(RECORDS_CACHED)
        self._cut_short = "", LRUCache[SearchResult](CUT_SHORT_CACHED)
        """A snapshot's stamp, and searches that their deadlines cut short: who asks once more gets what follows."""
        self._checked: RegionExtractor | None = None
        self._fingerprint = ""
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

    def check(self) -> None:
        """Raise `ServiceError` where the files of the index are not those that were opened."""
        self.live_index.check()

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
            dates = await self._dates.read(result.retrieval.snapshot, [hit.image for hit in result])
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
            await self._dates.read_all(self.snapshot)
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
                snapshot, query, local_features = await self._query(request)
                stamp = snapshot.stamp
                try:
                    extracted = time.perf_counter()
                    deadline = Deadline.after(seconds_allowed)
                    result, retrieved = await self._run(snapshot, query, local_features, deadline, on_step)
                finally:
                    _discard(local_features)
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
            snapshot, query, _ = await self._query(request.search())
            retrieval = await self._retrieve(Retrieve(snapshot, query.regions, None, query.method))

            def chain() -> ExplainResponse:
                with self.metrics.stage("explain"):
                    self.live_index.check()
                    record = retrieval.snapshot.catalogue.photo_of(request.key)
                    found = SearchResult.of(SearchQuery(query.regions, top=None), retrieval, config=self.config)
                    hit = None if record is None else found.hit_of(record.number)
                    if record is None or hit is None:
                        raise ServiceError(
                            404, "The photo is not in the shortlist that a search of so large a collection diffuses on."
                        )
                    return ExplainResponse.of_hit(retrieval, hit, record)

            return await self._extraction.submit(1, chain)

    async def points(self, request: GeometryRequest) -> GeometryResponse:
        """Return the points that match in views of an object and in a photo."""
        snapshot = self.snapshot
        self.photo_store.record(snapshot, request.key)
        with self._admission.acquire():
            points = await self.resources.local_features.matching_points(
                snapshot, request.views, request.key, self.config, mirrored=request.mirrored
            )
        return GeometryResponse.of(points)

    async def repeats(self, top: int) -> RepeatsResponse:
        """Return the objects that occur in several photos; found once for each snapshot."""
        self.check()
        snapshot = self.snapshot
        if not isinstance(snapshot, Snapshot):
            raise read_only_error(snapshot.where, "read as a whole")

        def find() -> RepeatsResponse:
            until = time.monotonic() + REPEATS_DEADLINES * self.settings.deadline_seconds
            return self._memoize(snapshot, "repeats", lambda: _find_repeats(snapshot, until))

        found = await self._repeats.run(snapshot.stamp, lambda: self.resources.repeats.submit(1, find))
        return found.model_copy(update={"objects": found.objects[:top]})

    @property
    def config(self) -> SearchConfig:
        """Every number that decides a search."""
        return self.live_index.index.config

    async def _query(self, request: SearchRequest) -> tuple[AnySnapshot, SearchQuery, Extracting]:
        """Extract a query in threads; once more where a new generation has another extractor.

        The local features may be under way still. The caller waits for them before they are needed, or cancels them.
        """
        for _ in range(TRIES):
            snapshot = self.snapshot
            try:
                return snapshot, *(await self._query_of(snapshot, request))
            except _ExtractorChangedError:
                await asyncio.sleep(0.05)
        raise too_busy()

    async def _query_of(self, snapshot: AnySnapshot, request: SearchRequest) -> tuple[SearchQuery, Extracting]:
        self.live_index.check()
        verify = default_depth(snapshot, request.method, request.verify, self.config.depth) if request.views else 0
        local_features = asyncio.ensure_future(self._local_features(snapshot, request, verify))
        try:
            return await self._query_with(snapshot, request, verify, local_features), local_features
        except BaseException:
            _discard(local_features)
            raise

    async def _query_with(
        self, snapshot: AnySnapshot, request: SearchRequest, verify: int, local_features: Extracting
    ) -> SearchQuery:
        given = [] if request.vectors is None else [_given_view(snapshot, request.vectors)]
        views = await asyncio.gather(*(self._view(snapshot, view) for view in (*request.views, *request.negatives)))
        mirrored = [await self._view(snapshot, view, mirrored=True) for view in request.views if request.mirrored]
        positives, negatives = [*given, *views[: len(request.views)]], views[len(request.views) :]
        if sum(len(view.vectors) for view in (*positives, *mirrored, *negatives)) > self.settings.most_regions:
            raise ServiceError(422, f"The query has more than {self.settings.most_regions} regions; give fewer boxes.")
        own, rejected = (
            {key for view in some if (key := self._key_of(snapshot, view)) is not None}
            for some in (request.views, request.negatives)
        )
        outside = await self._browse.excluded(request, snapshot)

        def number_images(part: Snapshot) -> tuple[frozenset[int], frozenset[int]]:
            own_images, rejected_images = (_images_of(part, keys) for keys in (own, rejected - own))
            return own_images, rejected_images | outside

        return SearchQuery(
            QueryRegions.of(positives, negatives, mirrored=mirrored),
            local_features.result,
            method=request.method,
            top=request.top,
            verify=verify,
            expand=request.expand,
            number_images=number_images,
            max_excluded=len(rejected) + len(outside),
        )

    async def _local_features(
        self, snapshot: AnySnapshot, request: SearchRequest, verify: int
    ) -> tuple[QueryFeatures, ...]:
        if not verify:
            return ()
        views = await self.resources.local_features.of_views(snapshot, request.views, self.config)
        return tuple(with_mirrored(views)) if request.mirrored else views

    async def _view(self, snapshot: AnySnapshot, one: ViewRequest, *, mirrored: bool = False) -> QueryView:
        """Return the region descriptors of a view, or of the mirrored one."""
        if one.key is not None and one.box is None and not mirrored:
            return stored_query_view(snapshot, self.photo_store.record(snapshot, one.key))
        name = self.photo_store.content(snapshot, one)[0]
        cached = snapshot.manifest.extractor.sha256, name, None if one.box is None else tuple(one.box), mirrored
        known = self._views.get(cached)
        if known is not None:
            return known

        photo = await self.thumbnails.photo(snapshot, one)

        def extracted() -> QueryView:
            with self.metrics.stage("describe"):
                return extract_query_view(self._extractor(snapshot), photo.pixels, one.box, mirrored=mirrored)

        made = await self._extraction.submit(1, extracted)
        self._views.put(cached, made, made.vectors.nbytes + made.boxes.nbytes)
        return made

    def _extractor(self, snapshot: AnySnapshot) -> RegionExtractor:
        """Return the extractor of queries for this state of the index."""
        extractor = self.live_index.index.extractor
        if self._checked is not extractor:
            self._checked, self._fingerprint = extractor, extractor.fingerprint()["sha256"]
        if self._fingerprint != snapshot.manifest.extractor.sha256:
            raise _ExtractorChangedError
        return extractor

    def _key_of(self, snapshot: AnySnapshot, one: ViewRequest) -> str | None:
        """Return the key of the photo that a view is of, if it is in the collection."""
        if one.key is not None:
            record = snapshot.catalogue.photo_of(one.key)
        else:
            record = snapshot.catalogue.of_content(self.photo_store.content(snapshot, one)[0])
        return None if record is None else record.key

    def _record(self, snapshot: AnySnapshot, image: int) -> ImageRecord:
        """Return what the index has of a photo; those found often are at hand."""
        known = self._records.get((snapshot.stamp, image))
        if known is None:
            known = snapshot.catalogue[image]
            self._records.put((snapshot.stamp, image), known, 1)
        return known

    def _retrieve_together(self, requests: Sequence[Retrieve]) -> list[Retrieval | Exception]:
        """Rank images for requests, those on one snapshot by one method in one pass; record the pace."""
        start = time.perf_counter()
        answers: list[Retrieval | Exception] = [too_busy()] * len(requests)
        groups: dict[tuple[str, str, bool], list[int]] = {}
        for i, one in enumerate(requests):
            groups.setdefault((one.snapshot.stamp, one.method, one.top is None), []).append(i)
        for (_, method, whole), places in groups.items():
            group = [requests[i] for i in places]
            top = None if whole else max(one.top or 0 for one in group)
            found: Sequence[Retrieval | Exception]
            try:
                self.live_index.check()
                queries = [one.query for one in group]
                found = retrieve(group[0].snapshot, queries, top, method, config=self.config.retrieval)
            except Exception as error:  # one group's fault is not another's
                found = [error] * len(group)
            for i, one_found in zip(places, found, strict=True):
                answers[i] = one_found
        # An expanded query is the second retrieval of a search that was counted.
        self._admission.record(time.perf_counter() - start, sum(not one.query.n_expansion_regions for one in requests))
        return answers

    # -- browsing -----------------------------------------------------------------------------------------------------

    async def photos(self, folder: str, contains: str, start: int, count: int) -> PhotosResponse:
        """Return a page of the photos whose key lies below `folder` and has `contains` in it."""
        return await self._browse.photos(self.snapshot, folder, contains, start, count)

    async def folders(self) -> FoldersResponse:
        """Return the folders of the collection."""
        return await self._browse.folders(self.snapshot)

    async def info(self) -> dict[str, Any]:
        """Return counts, parameters and health; where things lie on this machine is not told."""
        return {**await self._browse.info(self.snapshot, self.live_index.index.info), "name": self.name}

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
            await self._extraction.run(warm)
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
        found: T | None = self._known.get((snapshot.stamp, what))
        if found is None:
            found = find()
            self._known.put((snapshot.stamp, what), found, 1)
        return found


def _discard(task: "asyncio.Future[Any]") -> None:
    """Cancel a task whose result nobody waits for."""
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _find_repeats(snapshot: Snapshot, until: float) -> RepeatsResponse:
    found = repeats(snapshot, top=None, verify=False)
    if snapshot.local is not None:
        first, rest = found.objects[:MAX_VERIFIED_REPEATS], found.objects[MAX_VERIFIED_REPEATS:]
        found = replace(found, objects=(*verify_clusters(snapshot, first, lambda *_: None, until=until), *rest))
    return RepeatsResponse(**repeats_data(found), generation=snapshot.number)


def _given_view(snapshot: AnySnapshot, vectors: list[list[float]]) -> QueryView:
    """Return descriptors that the client made itself as a view without places."""
    if not vectors or len({len(row) for row in vectors}) != 1:
        raise ServiceError(
            422, "vectors: the rows differ in length; give one row of the index's dimension for each region."
        )
    rows = np.asarray(vectors, np.float64)
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0), np.finfo(np.float64).tiny)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    checked = unit_vectors(rows, "vectors", dimension=snapshot.dimension)
    return QueryView(checked, np.zeros((len(checked), 4), np.float32))


def _images_of(snapshot: Snapshot, keys: Collection[str]) -> frozenset[int]:
    """Return the numbers of photos in the snapshot that was searched; a shortlist may lack some."""
    records = (snapshot.catalogue.of_key(key) for key in keys)
    return frozenset(record.number for record in records if record is not None)

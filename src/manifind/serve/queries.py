"""Queries of clients: region descriptors, local features and filters, read in threads, kept for the next search."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from manifind.cache import LRUCache
from manifind.checks import unit_vectors
from manifind.errors import MissingExtraError
from manifind.features import RegionExtractor
from manifind.geometry import Features
from manifind.index import (
    MatchingPoints,
    QueryRegions,
    QueryView,
    SearchConfig,
    Snapshot,
    extract_query_view,
    stored_query_view,
)
from manifind.index.search.explain import match_views, match_views_full_resolution
from manifind.index.search.filters import date_of, excluded_images
from manifind.index.search.image_features import feature_kind
from manifind.index.search.query import QueryFeatures, SearchQuery, extract_query_features, with_mirrored
from manifind.index.search.verification import default_depth
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.local_features import COARSE_FEATURES, extract_image_features
from manifind.index.storage.snapshot import AnySnapshot
from manifind.serve.errors import ServiceError, too_busy
from manifind.serve.live_index import LiveIndex
from manifind.serve.photos import PhotoStore, Thumbnails
from manifind.serve.resources import Resources
from manifind.serve.schemas import GeometryRequest, SearchRequest, ViewRequest
from manifind.serve.workers import SingleFlight, WorkerPool

T = TypeVar("T")

TRIES = 20
"""Times that a query is extracted before it is given up, while the index changes its extractor."""
VIEWS_BYTES = 64_000_000
"""What the region descriptors of queries may take that are kept for a search with the same box."""
FEATURES_BYTES = 64_000_000
"""What their local features may take."""
FILES_AT_ONCE = 16
"""Files whose dates one piece of work reads."""

Extracting = asyncio.Future[tuple[QueryFeatures, ...]]
"""The local features of a query, which are being extracted."""


class ExtractorChangedError(Exception):
    """The index has moved on to descriptors of another kind."""


class Dates:
    """When photos were taken: read from the heads of their files, once for each snapshot."""

    def __init__(self, files: WorkerPool) -> None:
        self._files = files
        self._reading: SingleFlight[list[str]] = SingleFlight()
        self._partial: LRUCache[list[str]] = LRUCache(2)
        """What was read of a snapshot when the last who waited for its dates left."""

    async def read_all(self, snapshot: AnySnapshot) -> None:
        """Read the dates of all photos of a snapshot; they are kept with it."""
        if isinstance(snapshot, Snapshot) and snapshot.cache.dates is None:
            snapshot.cache.dates = await self._reading.run(snapshot.stamp, lambda: self._read_all(snapshot))

    async def read(self, snapshot: AnySnapshot, numbers: Sequence[int]) -> list[str]:
        """Return the dates of some photos."""
        if isinstance(snapshot, Snapshot) and snapshot.cache.dates is not None:
            return [snapshot.cache.dates[number] for number in numbers]
        return await self._read_records(snapshot, [snapshot.catalogue[number] for number in numbers], [])

    async def _read_all(self, snapshot: Snapshot) -> list[str]:
        dates = self._partial.get(snapshot.stamp) or []
        self._partial.put(snapshot.stamp, dates, 1)
        return await self._read_records(snapshot, snapshot.catalogue.images, dates)

    async def _read_records(self, snapshot: AnySnapshot, records: Sequence[ImageRecord], dates: list[str]) -> list[str]:
        root = snapshot.manifest.root
        while len(dates) < len(records):
            batch = records[len(dates) : len(dates) + FILES_AT_ONCE]
            dates += await self._files.run(lambda: [date_of(root, record) for record in batch])  # noqa: B023
        return dates


class Queries:
    """Extracts the queries of clients."""

    def __init__(
        self, live_index: LiveIndex, photo_store: PhotoStore, thumbnails: Thumbnails, resources: Resources
    ) -> None:
        self.dates = Dates(resources.files)
        self._live_index, self._photo_store, self._thumbnails = live_index, photo_store, thumbnails
        self._resources, self._metrics, self._settings = resources, resources.metrics, resources.settings
        self._views: LRUCache[QueryView] = LRUCache(VIEWS_BYTES)
        self._features: LRUCache[QueryFeatures] = LRUCache(FEATURES_BYTES)
        self._checked: RegionExtractor | None = None
        self._fingerprint = ""

    @property
    def _config(self) -> SearchConfig:
        return self._live_index.index.config

    async def extract(self, request: SearchRequest) -> tuple[AnySnapshot, SearchQuery, Extracting]:
        """Extract a query in threads; once more where a new generation has another extractor.

        The local features may be under way still. The caller waits for them before they are needed, or cancels them.
        """
        for _ in range(TRIES):
            snapshot = self._live_index.snapshot
            try:
                return snapshot, *(await self._extract(snapshot, request))
            except ExtractorChangedError:
                await asyncio.sleep(0.05)
        raise too_busy()

    async def _extract(self, snapshot: AnySnapshot, request: SearchRequest) -> tuple[SearchQuery, Extracting]:
        self._live_index.check()
        verify = default_depth(snapshot, request.method, request.verify, self._config.depth) if request.views else 0
        local_features = asyncio.ensure_future(self._local_features(snapshot, request, verify))
        try:
            return await self._search_query(snapshot, request, verify, local_features), local_features
        except BaseException:
            discard(local_features)
            raise

    async def _search_query(
        self, snapshot: AnySnapshot, request: SearchRequest, verify: int, local_features: Extracting
    ) -> SearchQuery:
        own_vectors = [] if request.vectors is None else [_given_view(snapshot, request.vectors)]
        views = await asyncio.gather(*(self._view(snapshot, view) for view in (*request.views, *request.negatives)))
        mirrored = [await self._view(snapshot, view, mirrored=True) for view in request.views if request.mirrored]
        positives, negatives = [*own_vectors, *views[: len(request.views)]], views[len(request.views) :]
        if sum(len(view.vectors) for view in (*positives, *mirrored, *negatives)) > self._settings.most_regions:
            raise ServiceError(422, f"The query has more than {self._settings.most_regions} regions; give fewer boxes.")
        query_keys, rejected_keys = (
            [self._key_of(snapshot, view) for view in views] for views in (request.views, request.negatives)
        )
        outside = await self._excluded(snapshot, request)

        def number_images(part: Snapshot) -> tuple[list[frozenset[int]], frozenset[int]]:
            rejected = _images_of(part, {*rejected_keys} - {*query_keys})
            return [_images_of(part, [key]) for key in query_keys], rejected | outside

        return SearchQuery(
            QueryRegions.of(positives, negatives, mirrored=mirrored),
            local_features.result,
            method=request.method,
            top=request.top,
            verify=verify,
            expand=request.expand,
            number_images=number_images,
            max_excluded=len(rejected_keys) + len(outside),
        )

    async def _excluded(self, snapshot: AnySnapshot, request: SearchRequest) -> frozenset[int]:
        """Return the numbers of the photos outside the folder and the dates of a request."""
        if not request.filtered:
            return frozenset()
        if request.since or request.until:
            await self.dates.read_all(snapshot)
        return await self._resources.browsing.submit(
            1, lambda: excluded_images(snapshot, request.folder or None, request.since, request.until)
        )

    def _key_of(self, snapshot: AnySnapshot, view: ViewRequest) -> str | None:
        """Return the key of the photo that a view is of, if it is in the collection."""
        if view.key is not None:
            record = snapshot.catalogue.photo_of(view.key)
        else:
            record = snapshot.catalogue.of_content(self._photo_store.content(snapshot, view)[0])
        return None if record is None else record.key

    # -- region descriptors -------------------------------------------------------------------------------------------

    async def _view(self, snapshot: AnySnapshot, view: ViewRequest, *, mirrored: bool = False) -> QueryView:
        """Return the region descriptors of a view, or of the mirrored one."""
        if view.key is not None and view.box is None and not mirrored:
            return stored_query_view(snapshot, self._photo_store.record(snapshot, view.key))
        content = self._photo_store.content(snapshot, view)[0]
        name = snapshot.manifest.extractor.sha256, content, _box_key(view), mirrored
        cached = self._views.get(name)
        if cached is not None:
            return cached
        photo = await self._thumbnails.photo(snapshot, view)

        def extract() -> QueryView:
            with self._metrics.stage("describe"):
                return extract_query_view(self._extractor(snapshot), photo.pixels, view.box, mirrored=mirrored)

        regions = await self._resources.extraction.submit(1, extract)
        self._views.put(name, regions, regions.vectors.nbytes + regions.boxes.nbytes)
        return regions

    def _extractor(self, snapshot: AnySnapshot) -> RegionExtractor:
        """Return the extractor of queries for this state of the index."""
        extractor = self._live_index.index.extractor
        if self._checked is not extractor:
            self._checked, self._fingerprint = extractor, extractor.fingerprint()["sha256"]
        if self._fingerprint != snapshot.manifest.extractor.sha256:
            raise ExtractorChangedError
        return extractor

    # -- local features -----------------------------------------------------------------------------------------------

    async def _local_features(
        self, snapshot: AnySnapshot, request: SearchRequest, verify: int
    ) -> tuple[QueryFeatures, ...]:
        """Return the features of all views of a query; nothing where there is no time to extract them."""
        if not verify:
            return ()
        try:
            async with asyncio.timeout(self._settings.deadline_seconds):
                views = [await self._view_features(snapshot, view) for view in request.views]
        except (TimeoutError, ServiceError):
            return ()
        except MissingExtraError as missing:
            raise ServiceError(422, f"{missing}.") from None
        return tuple(with_mirrored(views) if request.mirrored else views)

    async def _view_features(self, snapshot: AnySnapshot, view: ViewRequest) -> QueryFeatures:
        """Return the features of what a view shows, extracted from the photo's file as `Index.search` does.

        Stored features serve for a whole photo of the collection whose file cannot be read.
        """
        config, kind = self._config, feature_kind(snapshot)
        name = kind, config.config_hash, self._photo_store.content(snapshot, view)[0], _box_key(view)
        features = self._features.get(name)
        if features is None:
            try:
                photo = await self._thumbnails.photo(snapshot, view)
            except ServiceError:
                if view.key is None or view.box is not None or snapshot.local is None:
                    raise
                return QueryFeatures(await self._photo_features(snapshot, view.key), None)
            features = await self._measured(
                "extract", lambda: extract_query_features(photo.pixels, view.box, kind=kind, config=config)
            )
            self._features.put(
                name, features, features.features.descriptors.nbytes + features.features.keypoints.nbytes
            )
        return features

    async def _photo_features(self, snapshot: AnySnapshot, key: str) -> Features:
        """Return the stored features of a photo of the collection, or else those of its file."""
        if snapshot.local is not None:
            local, record = snapshot.local, self._photo_store.record(snapshot, key)
            # In a thread: the features may lie in a store, on another machine.
            return await self._resources.local_features.run(lambda: local.of_photo(record).features())
        pixels = (await self._thumbnails.photo(snapshot, ViewRequest(key=key))).pixels
        return await self._measured("extract", lambda: extract_image_features(pixels, COARSE_FEATURES))

    async def matching_points(self, snapshot: AnySnapshot, request: GeometryRequest) -> MatchingPoints:
        """Return the points that match in a photo and in the view of the query that matches most surely."""
        try:
            photo = await self._photo_features(snapshot, request.key)
            views = [await self._view_features(snapshot, view) for view in request.views]
        except MissingExtraError as missing:
            raise ServiceError(422, f"{missing}.") from None
        queries = with_mirrored(views) if request.mirrored else views
        points = await self._measured("points", lambda: match_views(queries, photo, self._config))
        if points.verified is False and snapshot.local is not None:
            # As in a search, which verifies at full resolution too.
            record = self._photo_store.record(snapshot, request.key)
            with suppress(ServiceError):
                closer = await self._measured(
                    "points", lambda: match_views_full_resolution(snapshot, queries, record, self._config)
                )
                points = closer or points
        return points

    async def _measured(self, stage: str, work: Callable[[], T]) -> T:
        """Do work on local features in a thread of theirs, as a stage of the metrics."""

        def run() -> T:
            with self._metrics.stage(stage):
                return work()

        return await self._resources.local_features.submit(1, run)


def discard(task: "asyncio.Future[Any]") -> None:
    """Cancel a task whose result nobody waits for."""
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _box_key(view: ViewRequest) -> tuple[float, ...] | None:
    return None if view.box is None else tuple(view.box)


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


def _images_of(snapshot: Snapshot, keys: Collection[str | None]) -> frozenset[int]:
    """Return the numbers of photos in the snapshot that was searched; a shortlist may lack some."""
    records = (snapshot.catalogue.of_key(key) for key in keys if key is not None)
    return frozenset(record.number for record in records if record is not None)

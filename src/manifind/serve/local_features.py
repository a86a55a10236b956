"""Local features for many clients at once: those of queries, kept for the next search, and the points that match."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from manifind.cache import LRUCache
from manifind.errors import MissingExtraError
from manifind.geometry import Features
from manifind.index import MatchingPoints, SearchConfig
from manifind.index.search.explain import match_views, match_views_full_resolution
from manifind.index.search.image_features import feature_kind
from manifind.index.search.query import QueryFeatures, extract_query_features, with_mirrored
from manifind.index.storage.local_features import COARSE_FEATURES, extract_image_features
from manifind.index.storage.snapshot import AnySnapshot
from manifind.serve.errors import ServiceError
from manifind.serve.metrics import Metrics
from manifind.serve.photos import PhotoStore
from manifind.serve.schemas import ViewRequest
from manifind.serve.settings import Settings
from manifind.serve.thumbnails import Thumbnails
from manifind.serve.worker_pool import WorkerPool

T = TypeVar("T")
CACHE_BYTES = 64_000_000
"""What the features of queries may take that are kept for a search with the same box."""
INITIAL_PACE = 4.0
"""Photos a second whose features are extracted, until the pace is measured."""


class LocalFeatures:
    """Extracts local features in threads of its own."""

    def __init__(self, photo_store: PhotoStore, thumbnails: Thumbnails, settings: Settings, metrics: Metrics) -> None:
        self._photo_store, self._thumbnails = photo_store, thumbnails
        self._metrics = metrics
        self._seconds = settings.deadline_seconds
        self.pool = WorkerPool(
            "extract",
            settings.extract_threads,
            seconds=self._seconds,
            pace=INITIAL_PACE,
            metrics=metrics,
            time_limit=settings.time_limit,
        )
        self._cache: LRUCache[QueryFeatures] = LRUCache(CACHE_BYTES)

    async def of_views(
        self, snapshot: AnySnapshot, views: Sequence[ViewRequest], config: SearchConfig
    ) -> tuple[QueryFeatures, ...]:
        """Return the features of all views of a query; nothing where there is no time to extract them."""
        try:
            async with asyncio.timeout(self._seconds):
                return tuple([await self._of_view(snapshot, view, config) for view in views])
        except (TimeoutError, ServiceError):
            return ()
        except MissingExtraError as missing:
            raise ServiceError(422, f"{missing}.") from None

    async def _of_view(self, snapshot: AnySnapshot, view: ViewRequest, config: SearchConfig) -> QueryFeatures:
        """Return the features of what a view shows, extracted from the photo's file as `Index.search` does.

        Stored features serve for a whole photo of the collection whose file cannot be read.
        """
        kind = feature_kind(snapshot)
        box = None if view.box is None else tuple(view.box)
        name = kind, config.config_hash, self._photo_store.content(snapshot, view)[0], box
        known = self._cache.get(name)
        if known is None:
            try:
                photo = await self._thumbnails.photo(snapshot, view)
            except ServiceError:
                if view.key is None or view.box is not None or snapshot.local is None:
                    raise
                return QueryFeatures(await self._of_photo(snapshot, view.key), None)
            known = await self._extracted(
                lambda: extract_query_features(photo.pixels, view.box, kind=kind, config=config)
            )
            self._cache.put(name, known, known.features.descriptors.nbytes + known.features.keypoints.nbytes)
        return known

    async def _of_photo(self, snapshot: AnySnapshot, key: str) -> Features:
        """Return the stored features of a photo of the collection, or else those of its file."""
        if snapshot.local is not None:
            local, record = snapshot.local, self._photo_store.record(snapshot, key)
            # In a thread: the features may lie in a store, on another machine.
            return await self.pool.run(lambda: local.of_photo(record).features())
        pixels = (await self._thumbnails.photo(snapshot, ViewRequest(key=key))).pixels
        return await self._extracted(lambda: extract_image_features(pixels, COARSE_FEATURES))

    async def _extracted(self, work: Callable[[], T]) -> T:
        def measured() -> T:
            with self._metrics.stage("extract"):
                return work()

        return await self.pool.submit(1, measured)

    async def matching_points(
        self,
        snapshot: AnySnapshot,
        views: Sequence[ViewRequest],
        key: str,
        config: SearchConfig,
        *,
        mirrored: bool = False,
    ) -> MatchingPoints:
        """Return the points that match in a photo and in the view of the query that matches most surely."""
        try:
            photo = await self._of_photo(snapshot, key)
            given = [await self._of_view(snapshot, view, config) for view in views]
            queries = with_mirrored(given) if mirrored else given
        except MissingExtraError as missing:
            raise ServiceError(422, f"{missing}.") from None

        def measured(match: Callable[[], T]) -> T:
            with self._metrics.stage("points"):
                return match()

        points = await self.pool.submit(1, lambda: measured(lambda: match_views(queries, photo, config)))
        if points.verified is False and snapshot.local is not None:
            # As in a search, which verifies at full resolution too.
            record = self._photo_store.record(snapshot, key)

            def at_full_resolution() -> MatchingPoints:
                found = measured(lambda: match_views_full_resolution(snapshot, queries, record, config))
                return found or points

            with suppress(ServiceError):
                points = await self.pool.submit(1, at_full_resolution)
        return points

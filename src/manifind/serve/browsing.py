"""The photos of a collection by folder, name and date: filters of searches, and the lists that a client browses."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from manifind.cache import LRUCache
from manifind.index.search.filters import date_of, excluded_images
from manifind.index.storage.catalogue import ImageRecord
from manifind.index.storage.snapshot import AnySnapshot, Snapshot
from manifind.serve.responses import FolderResponse, FoldersResponse, PhotoResponse, PhotosResponse
from manifind.serve.schemas import SearchRequest
from manifind.serve.worker_pool import SingleFlight, WorkerPool

FILES_AT_ONCE = 16
"""Files whose dates one piece of work reads."""


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


class Browsing:
    """Filters and lists the photos of a snapshot; `memoize` keeps what was computed of a snapshot."""

    def __init__(
        self,
        pool: WorkerPool,
        dates: Dates,
        memoize: Callable[[AnySnapshot, Any, Callable[[], Any]], Any],
    ) -> None:
        self._pool, self._dates, self._memoize = pool, dates, memoize

    async def excluded(self, request: SearchRequest, snapshot: AnySnapshot) -> frozenset[int]:
        """Return the numbers of the photos outside the folder and the dates of a request."""
        if not request.filtered:
            return frozenset()
        if request.since or request.until:
            await self._dates.read_all(snapshot)
        folder = request.folder or None
        return await self._pool.submit(1, lambda: excluded_images(snapshot, folder, request.since, request.until))

    async def photos(self, snapshot: AnySnapshot, folder: str, contains: str, start: int, count: int) -> PhotosResponse:
        """Return a page of the photos whose key lies below `folder` and has `contains` in it."""

        def find() -> PhotosResponse:
            keys = self._memoize(snapshot, "keys", lambda: [one.key for one in snapshot.catalogue.images])
            numbers: list[int] = self._memoize(
                snapshot, (folder, contains), lambda: _matching(keys, folder, contains.casefold())
            )
            photos = [PhotoResponse.of(snapshot.catalogue[number]) for number in numbers[start : start + count]]
            return PhotosResponse(total=len(numbers), start=start, generation=snapshot.number, photos=photos)

        return await self._pool.submit(1, find)

    async def folders(self, snapshot: AnySnapshot) -> FoldersResponse:
        """Return the folders of the collection, with how many photos each has."""
        counts = await self._pool.submit(1, lambda: self._memoize(snapshot, "folders", lambda: _count(snapshot)))
        return FoldersResponse(folders=[FolderResponse(folder=name, photos=counts[name]) for name in sorted(counts)])

    async def info(self, snapshot: AnySnapshot, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what `find` says of the index, without paths of this machine."""
        facts = dict(await self._pool.submit(1, lambda: self._memoize(snapshot, "info", find)))
        for name in ("path", "photos_folder"):
            facts.pop(name, None)
        whitening = facts["whitening"]
        facts["whitening"] = {**whitening, "from": PurePosixPath(whitening["from"]).name}
        return facts


def _matching(keys: Sequence[str], folder: str, contains: str) -> list[int]:
    below = f"{folder.rstrip('/')}/" if folder else ""
    return [
        number
        for number, key in enumerate(keys)
        if key.startswith(below) and (not contains or contains in key.casefold())
    ]


def _count(snapshot: AnySnapshot) -> Counter[str]:
    """Return how many photos lie in each folder and below."""
    counts: Counter[str] = Counter()
    for one in snapshot.catalogue.images:
        counts.update(str(above) for above in PurePosixPath(one.key).parents if str(above) != ".")
    return counts

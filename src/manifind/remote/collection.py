"""`StoredCollection`: a published collection, searched by any process that can reach its store.

A query asks the store for the photos whose descriptors are nearest, fetches the rows of the best, and searches these as
a small snapshot of its own: see `shortlist`. The process holds only what `generations` reads of the collection and the
rows fetched last, so that any number of processes may answer.

A search is of one generation. Rows are removed `GRACE_SECONDS` after a newer generation became visible, not before. So
a search is complete if its generation was visible less than `GRACE_SECONDS` before its rows arrived. The process asks
every `LEASE_SECONDS` which generation is visible, and again where a search took longer. A search whose generation is
gone runs again on the newest.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from manifind.errors import InvalidInputError, ManifindError
from manifind.features import RegionExtractor
from manifind.geometry.packing import Packed
from manifind.index import Index
from manifind.index.config import RetrievalConfig
from manifind.index.search.query import QueryRegions, QueryView
from manifind.index.search.retrieval import Retrieval, retrieve
from manifind.index.storage.catalogue import ImageRecord, SkippedRecord
from manifind.index.storage.manifest import Manifest
from manifind.index.storage.remote import RemoteCollection
from manifind.index.storage.snapshot import Snapshot, SnapshotCache
from manifind.kernels import kernel
from manifind.remote.generations import GRACE_SECONDS, Published, visible_generation
from manifind.remote.publish import publish, shortlist_descriptors
from manifind.remote.row_format import Numbers, photo_number, unpack, unpack_features
from manifind.remote.shortlist import RemoteCatalogue, RemoteFeatures, RowCache, record_of, shortlist_snapshot
from manifind.remote.store import Address, NearestRows, Store, StoreUnavailableError, Versions, store_at
from manifind.types import FloatArray

T = TypeVar("T")

MAX_ATTEMPTS = 5
"""Times that a search is made again because a new generation came meanwhile."""

LEASE_SECONDS = GRACE_SECONDS / 2
"""Seconds for which a generation that was visible is searched without asking again."""

MAX_LISTED_PHOTOS = 100_000
"""Photos that a store is asked to list at most."""


def open_collection(address: str, config: RetrievalConfig | None = None) -> "StoredCollection":
    """Open the visible generation of the collection at an address."""
    where, config = Address.parse(address), config or RetrievalConfig()
    config = replace(config, remote_photos=where.int_option("shortlist", config.remote_photos))
    return StoredCollection.open(where, store_at(where), config)


class StoredCollection:
    """One generation of a published collection, as `manifind.index.storage.remote` specifies."""

    def __init__(
        self,
        address: Address,
        store: Store,
        published: Published,
        config: RetrievalConfig,
        caches: tuple[RowCache, RowCache] | None = None,
    ) -> None:
        self.address, self.store, self.published = address, store, published
        self._config, self.shortlist_size = config, config.remote_photos
        self.where = address.shown
        self.number, self.stamp, self.dimension = published.number, published.stamp, published.dimension
        self.manifest, self.whitening = published.manifest, published.whitening
        self.catalogue = StoredCatalogue(self)
        self.cache = SnapshotCache()
        self._caches = caches or (RowCache(store.fetch), RowCache(store.fetch_blobs))
        self._rows, self._blobs = self._caches
        self._search_numbers = itertools.count()
        self._visible_at = time.monotonic()

    @classmethod
    def open(cls, address: Address, store: Store, config: RetrievalConfig) -> "StoredCollection":
        """Open the visible generation."""
        asked_at = time.monotonic()
        published = Published.read(store)
        if published is None:
            raise InvalidInputError(
                f"{address.shown} has no collection; manifind publish INDEX {address.shown} makes one.",
                code="no-collection",
            )
        collection = cls(address, store, published, config)
        collection._visible_at = asked_at
        return collection

    @cached_property
    def local(self) -> RemoteFeatures | None:
        """The local features of the photos, which are fetched when they are looked at."""
        keeping = self.manifest.local_features
        return RemoteFeatures.of_rows(keeping, self._features) if self.published.features and keeping else None

    def _features(self, photos: Sequence[ImageRecord]) -> list[Packed]:
        """Fetch the local features of photos by their keys."""
        rows = [self.row_number_of(photo.key) for photo in photos]
        missing = next((photo.key for photo, row in zip(photos, rows, strict=True) if row is None), None)
        if missing is not None:
            raise _unknown_key(missing)
        return self.features_of(np.array(rows, np.int64))

    def features_of(self, rows: Numbers) -> list[Packed]:
        """Fetch what lies beside rows."""
        fetched = self._blobs.fetch(rows)
        if any(blob is None for blob in fetched):
            raise StoreUnavailableError(
                f"{self.where} has been published again meanwhile; search again.", code="superseded"
            )
        return [unpack_features(blob) for blob in fetched if blob is not None]

    @property
    def regions(self) -> int:
        """How many regions a search solves for at most."""
        share = min(1.0, self.shortlist_size / max(1, self.published.photos))
        return max(1, round(share * self.published.regions))

    def newest(self) -> RemoteCollection:
        """Return the visible generation: this one, where nothing has changed."""
        if self._is_visible():
            return self
        published = Published.read(self.store)
        if published is None:
            raise StoreUnavailableError(f"{self.where} has no collection any more; publish it again.")
        return StoredCollection(self.address, self.store, published, self._config, self._caches)

    def retrieve(
        self, queries: Sequence[QueryRegions], top: int | None, method: str, config: RetrievalConfig
    ) -> list[Retrieval]:
        """Rank images for queries, each on the snapshot of its shortlist."""
        state: StoredCollection = self
        for _ in range(MAX_ATTEMPTS):
            if time.monotonic() - state._visible_at > LEASE_SECONDS:
                state = state._newest_comparable(self.manifest)
            parts = state._snapshots([query.vectors for query in queries], whole=method == "global")
            if parts is not None:
                return [
                    retrieve(part, [query], top, method, config=config)[0]
                    for part, query in zip(parts, queries, strict=True)
                ]
            state = state._newest_comparable(self.manifest)
        raise StoreUnavailableError(f"{self.where} changes too fast to be searched; try again.")

    def _newest_comparable(self, made_by: Manifest) -> "StoredCollection":
        """Return the visible generation, if queries that were extracted for this one can be compared with it."""
        newest = self.newest()
        if newest.manifest.extractor.sha256 != made_by.extractor.sha256:
            raise StoreUnavailableError(f"{self.where} was extracted again; open it again.")
        assert isinstance(newest, StoredCollection)  # noqa: S101 (it is made here)
        return newest

    def _is_visible(self) -> bool:
        """Ask whether this is the visible generation, and remember when it was."""
        asked_at = time.monotonic()
        if visible_generation(self.store) != self.number:
            return False
        self._visible_at = asked_at
        return True

    def shortlists(self, regions: Sequence[FloatArray]) -> list[tuple[Numbers, Numbers]]:
        """Return the shortlist of each query: the photos, and the numbers of their rows."""
        queries = [shortlist_descriptors(vectors, self.published.descriptors) for vectors in regions]
        # A tombstone takes the place of another row, until it is removed.
        count = self.shortlist_size + min(self.shortlist_size, len(self.published.tombstones))
        nearest = self.store.nearest(np.concatenate(queries), count, self.number)
        ends = np.cumsum([len(query) for query in queries]).tolist()
        return [self._rank_photos(nearest[end - len(query) : end]) for query, end in zip(queries, ends, strict=True)]

    def _rank_photos(self, nearest: Sequence[NearestRows]) -> tuple[Numbers, Numbers]:
        """Return the photos with the most similar descriptors; each of the query's counts a photo's best once."""
        scores: dict[int, float] = {}
        rows: dict[int, int] = {}
        for rows_found in nearest:
            current = np.flatnonzero(~np.isin(rows_found.numbers, self.published.tombstones))
            best = current[np.unique(rows_found.photos[current], return_index=True)[1]]
            terms = kernel(rows_found.similarities[best], self._config.remote_exponent)
            columns = (rows_found.photos[best], rows_found.numbers[best], terms)
            for photo, number, term in zip(*(column.tolist() for column in columns), strict=True):
                scores[photo] = scores.get(photo, 0.0) + term
                rows[photo] = number
        photos = np.array(list(scores), np.int64)
        order = np.lexsort((photos, -np.array(list(scores.values()))))[: self.shortlist_size]
        return photos[order], np.array([rows[photo] for photo in photos[order].tolist()], np.int64)

    def _snapshots(self, regions: Sequence[FloatArray], *, whole: bool) -> list[Snapshot] | None:
        """Return the generation of each query's shortlist; None where a newer one of the collection came meanwhile."""
        chosen = self.shortlists(regions)
        fetched = [self._rows.fetch(numbers) for _, numbers in chosen]
        whole_rows = all(row is not None for rows in fetched for row in rows)
        in_time = time.monotonic() - self._visible_at < GRACE_SECONDS
        if not (whole_rows and in_time) and not self._is_visible():
            return None
        parts = []
        for (photos, numbers), rows in zip(chosen, fetched, strict=True):
            present = [row for row in rows if row is not None]
            if len(present) != len(rows) or not present:
                raise StoreUnavailableError(
                    f"{self.where} has lost {len(rows) - len(present)} rows; publish it again.", code="lost-rows"
                )
            parts.append(
                shortlist_snapshot(
                    photos,
                    present,
                    number=self.number,
                    stamp=f"{self.stamp}/{next(self._search_numbers)}",
                    manifest=self.manifest,
                    whole=whole,
                    local=self._local_of(photos, numbers),
                    part_of=self.published.photos,
                )
            )
        return parts

    def _local_of(self, photos: Numbers, numbers: Numbers) -> RemoteFeatures | None:
        """Return what hands out the local features of a shortlist, whose photos are in the order of their numbers."""
        if self.local is None:
            return None
        rows = numbers[np.argsort(photos)]
        return RemoteFeatures.of_rows(
            self.local.keeping, lambda some: self.features_of(rows[[photo.number for photo in some]])
        )

    def stored_query_view(self, record: ImageRecord) -> QueryView:
        """Return a photo as it was extracted."""
        row = self.row_of(record.key)
        if row is None:
            raise _unknown_key(record.key)
        unpacked = unpack([row])
        return QueryView(unpacked.vectors.astype(np.float32), unpacked.boxes.copy())

    def row_of(self, key: str) -> bytes | None:
        """Return the packed row of a photo."""
        number = self.row_number_of(key)
        return None if number is None else self._rows.fetch(np.array([number], np.int64))[0]

    def row_number_of(self, key: str) -> int | None:
        """Return the number of the row of a photo."""
        numbers = self.store.of_photos(np.array([photo_number(key)], np.int64), self.number).numbers
        numbers = numbers[~np.isin(numbers, self.published.tombstones)]
        return int(numbers[0]) if len(numbers) else None

    def list_rows(self) -> list[bytes]:
        """Return the rows of all photos, or of as many as are listed at most."""
        parts, count = [], 0
        for part in self.store.versions():
            parts.append(part)
            count += len(part.numbers)
            if count >= MAX_LISTED_PHOTOS:
                break
        versions = Versions.concat(parts)
        current = (versions.generation <= self.number) & ~np.isin(versions.numbers, self.published.tombstones)
        return [row for row in self.store.fetch(versions.numbers[current][:MAX_LISTED_PHOTOS]) if row is not None]

    def info(self) -> dict[str, Any]:
        """Return the facts of the published index, with the collection's address."""
        published = self.published
        return {
            **published.facts,
            "path": self.where,
            "generation": published.number,
            "store": {
                "scheme": self.address.scheme,
                "descriptors_a_photo": published.descriptors or 1,
                "shortlist": self.shortlist_size,
                "bytes_a_row": published.row_bytes,
                "index": published.facts["path"],
            },
        }

    def modify_source_index(self, change: Callable[[Index], T], extractor: RegionExtractor | None) -> T:
        """Change the index that the collection was published from, and publish it."""
        path = self.published.facts["path"]
        again = "change that index where it lies, and publish it again."
        try:
            index = Index.open(path, extractor=extractor)
        except (ManifindError, OSError) as error:
            raise InvalidInputError(
                f"{self.where} was published from {path}, which is not here ({error}); {again}", code="source-missing"
            ) from error
        with index:
            theirs, mine = index.state.manifest, self.manifest
            if (theirs.root, theirs.extractor.sha256) != (mine.root, mine.extractor.sha256):
                raise InvalidInputError(
                    f"{self.where} was published from {path}, which is another index here; {again}",
                    code="source-changed",
                )
            changed = change(index)
            publish(index, self.store, descriptors=self.published.descriptors)
        return changed

    def close(self) -> None:
        """Let go of the connection."""
        self.store.close()


def _unknown_key(key: str) -> InvalidInputError:
    return InvalidInputError(f"{key!r} is not in the collection any more; search again.", code="unknown-key")


class StoredCatalogue(RemoteCatalogue):
    """The photos of a collection in a store, looked up by key when they are asked for.

    A photo's number is its place in the list of all, which is fetched when somebody asks for it; a photo that was
    looked up by its key has none.
    """

    def __init__(self, collection: StoredCollection) -> None:
        self._collection = collection

    @cached_property
    def images(self) -> list[ImageRecord]:
        """All photos by key, or as many as a store is asked to list."""
        unpacked = unpack(self._collection.list_rows())
        metadata = sorted(
            (unpacked.metadata(place) for place in range(len(unpacked.rows))),
            key=lambda facts: str(facts["key"]),
        )
        return [record_of(facts, number) for number, facts in enumerate(metadata)]

    @property
    def skipped(self) -> list[SkippedRecord]:
        """What was skipped, as far as `info` says."""
        return [SkippedRecord.of_dict(record) for record in self._collection.published.facts["skipped"]]

    def of_key(self, key: str) -> ImageRecord | None:
        """Return the photo of that key."""
        row = self._collection.row_of(key)
        return None if row is None else record_of(unpack([row]).metadata(0), -1)

    def __getitem__(self, number: int) -> ImageRecord:
        return self.images[number]

    def __len__(self) -> int:
        return self._collection.published.photos

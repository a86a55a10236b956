"""`StoredCollection`: a published collection, searched by whoever can reach its store.

A query asks the store for the photos whose descriptors are nearest, fetches the rows of the best, and searches these as
a small generation of its own: see `shortlist`. The process holds nothing of the collection but what `generations` says
of it and the rows fetched last, so that any number of processes may answer.

An answer is of one generation. Rows are removed `GRACE` seconds after a newer generation became visible and not before.
So a search sees whole what was the visible generation less than `GRACE` seconds before its rows were there; which one
is visible is asked every `LEASE` seconds, and again where a search took longer. A search whose generation is gone is
made again on the newest.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from manifind.cluster.fetched import KeptRows, StoredFeatures
from manifind.cluster.generations import GRACE, Published, visible
from manifind.cluster.packing import Numbers, number_of, unpack, unpack_features
from manifind.cluster.publishing import found_by, publish
from manifind.cluster.shortlist import record_of, shortlist_generation
from manifind.cluster.store import Address, Found, Store, Unavailable, Versions, store_at
from manifind.describe import Describer, Whitening
from manifind.errors import InvalidInput, ManifindError
from manifind.geometry.packing import Packed
from manifind.index import Index
from manifind.index.asking.query import QueryRegions, Search, View, rank
from manifind.index.state.catalogue import ImageRecord, SkippedRecord
from manifind.index.state.elsewhere import Elsewhere
from manifind.index.state.generation import Generation, MadeOnce
from manifind.index.state.manifest import Manifest
from manifind.kernels import kernel
from manifind.types import FloatArray

T = TypeVar("T")

SHORTLIST = 2000
"""Photos that a search looks at closely, unless the address says otherwise (``?shortlist=10000``)."""

TRIES = 5
"""Times that a search is made again because a new generation came meanwhile."""

LEASE = GRACE / 2
"""Seconds for which a generation that was visible is searched without asking again."""

LISTED = 100_000
"""Photos that a store is asked to list at most."""

GAMMA = 3.0
"""Exponent of the kernel that weighs the descriptors of a query when photos are chosen."""


def opened(address: str) -> "StoredCollection":
    """Open the visible generation of the collection at an address."""
    where = Address.of(address)
    return StoredCollection.of(where, store_at(where), where.whole("shortlist", SHORTLIST))


class StoredCollection:
    """One generation of a published collection, as `manifind.index.state.elsewhere` asks for it."""

    def __init__(
        self,
        address: Address,
        store: Store,
        published: Published,
        shortlist: int,
        kept: tuple[KeptRows, KeptRows] | None = None,
    ) -> None:
        self.address, self.store, self.published = address, store, published
        self.shortlist = shortlist
        self.made = MadeOnce()
        self._fetched = kept or (KeptRows(store.fetch), KeptRows(store.fetch_beside))
        self._kept, self._beside = self._fetched
        self._searches = itertools.count()
        self._visible_at = time.monotonic()

    @classmethod
    def of(cls, address: Address, store: Store, shortlist: int = SHORTLIST) -> "StoredCollection":
        """Return the visible generation."""
        asked = time.monotonic()
        published = Published.read(store)
        if published is None:
            raise InvalidInput(f"{address.shown} has no collection; manifind publish INDEX {address.shown} makes one.")
        collection = cls(address, store, published, shortlist)
        collection._visible_at = asked
        return collection

    @property
    def number(self) -> int:
        """The generation."""
        return self.published.number

    @property
    def where(self) -> str:
        """Its address, without a token."""
        return self.address.shown

    @property
    def stamp(self) -> str:
        """No other generation has the same."""
        return self.published.stamp

    @property
    def manifest(self) -> Manifest:
        """How the photos became a collection."""
        return self.published.manifest

    @property
    def whitening(self) -> Whitening | None:
        """That of the describer, where it was learnt."""
        return self.published.whitening

    @property
    def dimension(self) -> int:
        """Of its descriptors."""
        return self.published.dimension

    @cached_property
    def local(self) -> StoredFeatures | None:
        """The local features of the photos, which are fetched when they are looked at."""
        keeping = self.manifest.geometry
        return StoredFeatures.of_rows(keeping, self._features) if self.published.features and keeping else None

    def _features(self, photos: Sequence[ImageRecord]) -> list[Packed]:
        """Fetch the local features of photos by their keys."""
        rows = [self.row_number_of(photo.key) for photo in photos]
        missing = next((photo.key for photo, row in zip(photos, rows, strict=True) if row is None), None)
        if missing is not None:
            raise InvalidInput(f"{missing!r} is not in the collection any more; search again.")
        return self.features_of(np.array(rows, np.int64))

    def features_of(self, rows: Numbers) -> list[Packed]:
        """Fetch what lies beside rows."""
        fetched = self._beside.fetch(rows)
        if any(one is None for one in fetched):
            raise Unavailable(f"{self.address.shown} has been published anew meanwhile; search again.")
        return [unpack_features(one) for one in fetched if one is not None]

    @property
    def regions(self) -> int:
        """How many regions a search solves for at most."""
        share = min(1.0, self.shortlist / max(1, self.published.photos))
        return max(1, round(share * self.published.regions))

    @cached_property
    def catalogue(self) -> "StoredCatalogue":
        """The photos."""
        return StoredCatalogue(self)

    def newest(self) -> Elsewhere:
        """Return the visible generation: this one, where nothing has changed."""
        if self._is_visible():
            return self
        published = Published.read(self.store)
        if published is None:
            raise Unavailable(f"{self.address.shown} has no collection any more; publish it again.")
        return StoredCollection(self.address, self.store, published, self.shortlist, self._fetched)

    def rank(self, queries: Sequence[QueryRegions], top: int | None, method: str) -> list[Search]:
        """Answer queries, each on the generation of its shortlist."""
        state: StoredCollection = self
        for _ in range(TRIES):
            if time.monotonic() - state._visible_at > LEASE:
                state = state._moved(self.manifest)
            parts = state._parts([query.vectors for query in queries], whole=method == "global")
            if parts is not None:
                return [rank(part, [query], top, method)[0] for part, query in zip(parts, queries, strict=True)]
            state = state._moved(self.manifest)
        raise Unavailable(f"{self.address.shown} changes too fast to be searched; try again.")

    def _moved(self, made_by: Manifest) -> "StoredCollection":
        """Return the visible generation, if queries that were described for this one can be compared with it."""
        newest = self.newest()
        if newest.manifest.describer.sha256 != made_by.describer.sha256:
            raise Unavailable(f"{self.address.shown} was described anew; open it again.")
        assert isinstance(newest, StoredCollection)  # noqa: S101 (it is made here)
        return newest

    def _is_visible(self) -> bool:
        """Ask whether this is the visible generation, and remember when it was."""
        asked = time.monotonic()
        if visible(self.store) != self.number:
            return False
        self._visible_at = asked
        return True

    def chosen(self, regions: Sequence[FloatArray]) -> list[tuple[Numbers, Numbers]]:
        """Return the shortlist of each query: the photos, and the numbers of their rows."""
        asked = [found_by(one, self.published.descriptors) for one in regions]
        # A row that is superseded takes the place of another, until it is removed.
        count = self.shortlist + min(self.shortlist, len(self.published.superseded))
        found = self.store.nearest(np.concatenate(asked), count, self.number)
        ends = np.cumsum([len(one) for one in asked])
        return [self._best(found[end - len(own) : end]) for own, end in zip(asked, ends.tolist(), strict=True)]

    def _best(self, found: Sequence[Found]) -> tuple[Numbers, Numbers]:
        """Return the photos with the most similar descriptors: each of the query's counts a photo's best once."""
        scores: dict[int, float] = {}
        rows: dict[int, int] = {}
        for one in found:
            kept = ~np.isin(one.numbers, self.published.superseded)
            best = np.unique(one.photos[kept], return_index=True)[1]
            terms = kernel(one.similarities[kept][best], GAMMA)
            for photo, number, term in zip(
                one.photos[kept][best].tolist(), one.numbers[kept][best].tolist(), terms.tolist(), strict=True
            ):
                scores[photo] = scores.get(photo, 0.0) + term
                rows[photo] = number
        photos = np.array(list(scores), np.int64)
        order = np.lexsort((photos, -np.array(list(scores.values()))))[: self.shortlist]
        return photos[order], np.array([rows[photo] for photo in photos[order].tolist()], np.int64)

    def _parts(self, regions: Sequence[FloatArray], *, whole: bool) -> list[Generation] | None:
        """Return the generation of each query's shortlist; None where a newer one of the collection came meanwhile."""
        chosen = self.chosen(regions)
        fetched = [self._kept.fetch(numbers) for _, numbers in chosen]
        whole_rows = all(row is not None for rows in fetched for row in rows)
        in_time = time.monotonic() - self._visible_at < GRACE
        if not (whole_rows and in_time) and not self._is_visible():
            return None
        parts = []
        for (photos, numbers), rows in zip(chosen, fetched, strict=True):
            there = [row for row in rows if row is not None]
            if len(there) != len(rows) or not there:
                raise Unavailable(f"{self.address.shown} has lost {len(rows) - len(there)} rows; publish it again.")
            parts.append(
                shortlist_generation(
                    photos,
                    there,
                    number=self.number,
                    stamp=f"{self.stamp}/{next(self._searches)}",
                    manifest=self.manifest,
                    whole=whole,
                    local=self._local_of(photos, numbers),
                    part_of=self.published.photos,
                )
            )
        return parts

    def _local_of(self, photos: Numbers, numbers: Numbers) -> StoredFeatures | None:
        """Return what hands out the local features of a shortlist, whose photos are in the order of their numbers."""
        if self.local is None:
            return None
        rows = numbers[np.argsort(photos)]
        return StoredFeatures.of_rows(
            self.local.keeping, lambda some: self.features_of(rows[[photo.number for photo in some]])
        )

    def stored_view(self, record: ImageRecord) -> View:
        """Return a photo as it was described."""
        row = self.row_of(record.key)
        if row is None:
            raise InvalidInput(f"{record.key!r} is not in the collection any more; search again.")
        unpacked = unpack([row])
        return View(unpacked.vectors.astype(np.float32), unpacked.boxes.copy())

    def row_of(self, key: str) -> bytes | None:
        """Return the packed row of a photo."""
        number = self.row_number_of(key)
        return None if number is None else self._kept.fetch(np.array([number], np.int64))[0]

    def row_number_of(self, key: str) -> int | None:
        """Return the number of the row of a photo."""
        numbers = self.store.of_photos(np.array([number_of(key)], np.int64), self.number).numbers
        numbers = numbers[~np.isin(numbers, self.published.superseded)]
        return int(numbers[0]) if len(numbers) else None

    def listed(self) -> list[bytes]:
        """Return the rows of all photos, or of as many as are listed at most."""
        parts, count = [], 0
        for part in self.store.versions():
            parts.append(part)
            count += len(part.numbers)
            if count >= LISTED:
                break
        there = Versions.joined(parts)
        kept = (there.born <= self.number) & ~np.isin(there.numbers, self.published.superseded)
        return [row for row in self.store.fetch(there.numbers[kept][:LISTED]) if row is not None]

    def info(self) -> dict[str, Any]:
        """Return what the index said of itself when it was published, and where it is now."""
        published = self.published
        return {
            **published.facts,
            "path": self.address.shown,
            "generation": published.number,
            "store": {
                "scheme": self.address.scheme,
                "descriptors_a_photo": published.descriptors or 1,
                "shortlist": self.shortlist,
                "bytes_a_row": published.row_bytes,
                "index": published.facts["path"],
            },
        }

    def through(self, change: Callable[[Index], T], describer: Describer | None) -> T:
        """Change the index that the collection was published from, and publish it."""
        path = self.published.facts["path"]
        again = "change that index where it lies, and publish it again."
        try:
            index = Index.open(path, describer=describer)
        except (ManifindError, OSError) as error:
            raise InvalidInput(
                f"{self.where} was published from {path}, which is not here ({error}); {again}"
            ) from error
        with index:
            theirs, mine = index.state.manifest, self.manifest
            if (theirs.root, theirs.describer.sha256) != (mine.root, mine.describer.sha256):
                raise InvalidInput(f"{self.where} was published from {path}, which is another index here; {again}")
            changed = change(index)
            publish(index, self.store, descriptors=self.published.descriptors)
        return changed

    def close(self) -> None:
        """Let go of the connection."""
        self.store.close()


class StoredCatalogue:
    """The photos of a collection in a store, looked up by key when they are asked for.

    A photo's number is its place in the list of all, which is fetched when somebody asks for it; a photo that was
    looked up by its key has none.
    """

    def __init__(self, collection: StoredCollection) -> None:
        self._collection = collection

    @cached_property
    def images(self) -> list[ImageRecord]:
        """All photos by key, or as many as a store is asked to list."""
        unpacked = unpack(self._collection.listed())
        said = sorted((unpacked.said(place) for place in range(len(unpacked.rows))), key=lambda one: str(one["key"]))
        return [record_of(one, number) for number, one in enumerate(said)]

    @property
    def skipped(self) -> list[SkippedRecord]:
        """What was passed over, as far as `info` says."""
        return [SkippedRecord(one["key"], one["reason"]) for one in self._collection.published.facts["skipped"]]

    def of_key(self, key: str) -> ImageRecord | None:
        """Return the photo of that key."""
        row = self._collection.row_of(key)
        return None if row is None else record_of(unpack([row]).said(0), -1)

    def of_content(self, sha256: str) -> ImageRecord | None:  # noqa: ARG002
        """Return None: a store is not searched by content; the photos of a shortlist are."""
        return None

    def skipped_of(self, key: str) -> SkippedRecord | None:
        """Return why the file of that key was passed over, if it was."""
        return next((one for one in self.skipped if one.key == key), None)

    def photo_of(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, or the one that a file of that key is identical to."""
        found = self.of_key(key)
        copy = None if found is not None else self.skipped_of(key)
        if copy is not None and copy.same_as is not None:
            return self.of_key(copy.same_as)
        return found

    def copies_of(self, sha256: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: the photos of a shortlist know their copies."""
        return ()

    def close(self) -> None:
        """Hold nothing."""

    def __getitem__(self, number: int) -> ImageRecord:
        return self.images[number]

    def __len__(self) -> int:
        return self._collection.published.photos

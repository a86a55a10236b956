"""The rows of a shortlist → a small snapshot in memory, which is searched like that of an index on disk.

The system of the shortlist is the truncated one of Sec. 4.4: the edges among its photos, normalised again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.cache import LRUCache
from manifind.errors import DamagedError
from manifind.geometry.packing import Packed, PackedFeatures
from manifind.groups import Layout, aggregate
from manifind.index.build.journal import NO_FEATURES
from manifind.index.storage.catalogue import ImageRecord, Photos, SkippedRecord
from manifind.index.storage.local_features import LocalFeatureConfig, StoredLocalFeatures
from manifind.index.storage.manifest import Manifest
from manifind.index.storage.snapshot import Snapshot
from manifind.kernels import CPU
from manifind.manifold import Manifold
from manifind.remote.row_format import Numbers, Unpacked, content_number, photo_number, unpack

CACHE_BYTES = 2**28
"""Of packed rows, and of local features, that a process caches."""


class RowCache:
    """The rows fetched last, by their numbers; a row never changes."""

    def __init__(self, fetch: Callable[[Numbers], list[bytes | None]]) -> None:
        self._fetch = fetch
        self._rows: LRUCache[bytes] = LRUCache(CACHE_BYTES)

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Return what belongs to rows, by their numbers."""
        known = {number: self._rows.get(number) for number in numbers.tolist()}
        missing = np.array([number for number, row in known.items() if row is None], np.int64)
        if len(missing):
            for number, row in zip(missing.tolist(), self._fetch(missing), strict=True):
                known[number] = row
                if row is not None:
                    self._rows.put(number, row, len(row))
        return [known[number] for number in numbers.tolist()]


@dataclass(frozen=True, eq=False)
class RemoteFeatures(StoredLocalFeatures):
    """Local features that a store hands out when they are asked for; no array of them is here."""

    fetch: Callable[[Sequence[ImageRecord]], list[Packed]]

    @classmethod
    def of_rows(
        cls, keeping: LocalFeatureConfig, fetch: Callable[[Sequence[ImageRecord]], list[Packed]]
    ) -> "RemoteFeatures":
        """Return the features that `fetch` returns."""
        return cls(keeping, NO_FEATURES, np.zeros(1, np.int64), fetch)

    def of_photo(self, photo: ImageRecord) -> PackedFeatures:
        """Fetch the features of a photo."""
        return self.of_photos([photo])[0]

    def of_photos(self, photos: Sequence[ImageRecord]) -> list[PackedFeatures]:
        """Fetch the features of several photos at once."""
        fetched = self.fetch(photos)
        kind = self.keeping.kind
        return [
            PackedFeatures(rows, max(1, photo.width), max(1, photo.height), kind)
            for rows, photo in zip(fetched, photos, strict=True)
        ]


class RemoteCatalogue(Photos):
    """The photos of a collection in a store, of which no list is here; a store is not searched by content."""

    @property
    def skipped(self) -> list[SkippedRecord]:
        """Skipped files: a store has no list of them."""
        return []

    def skipped_of(self, key: str) -> SkippedRecord | None:
        """Return why the file of that key was skipped, if it was."""
        return next((record for record in self.skipped if record.key == key), None)

    def of_content(self, sha256: str) -> ImageRecord | None:  # noqa: ARG002 (the contract's signature)
        """Return the photo of that content, where it is known."""
        return None

    def photo_of(self, key: str) -> ImageRecord | None:
        """Return the photo of that key, or the one that a file of that key is identical to."""
        record = self.of_key(key)
        skipped = None if record is not None else self.skipped_of(key)
        if skipped is not None and skipped.duplicate_of is not None:
            return self.of_key(skipped.duplicate_of)
        return record

    def copies_of(self, sha256: str) -> tuple[str, ...]:  # noqa: ARG002 (the contract's signature)
        """Return the keys of identical files, where they are known."""
        return ()

    def close(self) -> None:
        """Do nothing: no file is open."""


@dataclass(frozen=True, eq=False)
class ShortlistCatalogue(RemoteCatalogue):
    """The photos of a shortlist, in the order of their numbers in the store; each is read when it is needed."""

    numbers: Numbers
    """Of the photos in the store, ascending."""
    unpacked: Unpacked
    _records: dict[int, ImageRecord] = field(default_factory=dict)

    @property
    def images(self) -> list[ImageRecord]:
        """All photos."""
        return [self[place] for place in range(len(self))]

    def of_key(self, key: str) -> ImageRecord | None:
        """Return the photo of that key."""
        number = photo_number(key)
        place = int(np.searchsorted(self.numbers, number))
        return self[place] if place < len(self) and self.numbers[place] == number else None

    def of_content(self, sha256: str) -> ImageRecord | None:
        """Return the photo of that content."""
        for place in np.flatnonzero(self.unpacked.contents == np.uint64(content_number(sha256))).tolist():
            if self[place].sha256 == sha256:
                return self[place]
        return None

    def copies_of(self, sha256: str) -> tuple[str, ...]:
        """Return the keys of identical files."""
        record = self.of_content(sha256)
        return () if record is None else tuple(self.unpacked.metadata(record.number).get("copies", ()))

    def __getitem__(self, place: int) -> ImageRecord:
        if place not in self._records:
            self._records[place] = record_of(self.unpacked.metadata(place), place)
        return self._records[place]

    def __len__(self) -> int:
        return len(self.numbers)


def record_of(metadata: Mapping[str, Any], number: int) -> ImageRecord:
    """Return what a row says of its photo."""
    try:
        names = ("key", "sha256", "bytes", "mtime_ns", "width", "height")
        kinds = (str, str, int, int, int, int)
        values = [metadata[name] for name in names]
    except KeyError as error:
        raise DamagedError(f"a packed row does not say its photo's {error}; publish the collection again.") from error
    if not all(map(isinstance, values, kinds)):
        raise DamagedError("a packed row says of its photo what none has; publish the collection again.")
    return ImageRecord(number, *values)


def shortlist_snapshot(
    photos: Numbers,
    rows: list[bytes],
    *,
    number: int,
    stamp: str,
    manifest: Manifest,
    whole: bool = False,
    local: StoredLocalFeatures | None = None,
    part_of: int | None = None,
) -> Snapshot:
    """Return the generation of some photos of a collection.

    `photos` are their numbers in the store, `rows` their packed rows; with `whole`, their global descriptors are made
    too.
    """
    order = np.argsort(photos)
    ordered = photos[order]
    unpacked = unpack([rows[i] for i in order])
    starts = np.concatenate([[0], np.cumsum(unpacked.regions)])
    layout = Layout(np.arange(len(ordered), dtype=np.int32), starts)
    manifold = Manifold.from_affinity(
        {**manifest.parameters, "device": CPU},  # a shortlist that is searched once is not worth sending to a GPU
        unpacked.vectors,
        layout,
        affinity(ordered, starts, unpacked),
        unpacked.weights,
        aggregate(unpacked.vectors.astype(np.float32), layout) if whole else None,
    )
    catalogue = ShortlistCatalogue(ordered, unpacked)
    return Snapshot(number, stamp, manifest, catalogue, manifold, unpacked.boxes, None, {}, local, part_of=part_of)


def affinity(photos: Numbers, starts: npt.NDArray[np.int64], unpacked: Unpacked) -> sp.csr_array:
    """Return the affinity among the regions of these photos: the edges that lead to one of them."""
    edges, n = unpacked.edges, int(starts[-1])
    if not len(photos):
        raise DamagedError("a shortlist has no photos; publish the collection again.")
    place = np.minimum(np.searchsorted(photos, edges.photos), len(photos) - 1)
    kept = photos[place] == edges.photos
    columns = starts[place[kept]] + edges.regions[kept]
    if (columns >= starts[place[kept] + 1]).any():
        raise DamagedError("a packed row has an edge to a region that is not there; publish the collection again.")
    before = np.concatenate([[0], np.cumsum(kept)])
    ends = before[np.concatenate([[0], np.cumsum(edges.counts)])]
    A = sp.csr_array((edges.affinities[kept], columns.astype(np.int32), ends.astype(np.int32)), shape=(n, n))
    A.has_canonical_format = True
    return A

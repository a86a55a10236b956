"""What a process has fetched from a store: the rows it asked for last, and local features when they are looked at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from manifind.cluster.packing import Numbers
from manifind.geometry.packing import Packed
from manifind.index.making.journal import NO_FEATURES
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.kept import Keeping, Kept, KeptFeatures
from manifind.recently_used import RecentlyUsed

KEPT_BYTES = 2**28
"""Of packed rows, and of local features, that a process keeps at hand."""


class KeptRows:
    """What was fetched last, by the numbers of the rows; rows never change."""

    def __init__(self, fetch: Callable[[Numbers], list[bytes | None]]) -> None:
        self._fetch = fetch
        self._rows: RecentlyUsed[bytes] = RecentlyUsed(KEPT_BYTES)

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
class StoredFeatures(KeptFeatures):
    """Local features that a store hands out when they are asked for; no array of them is here."""

    fetch: Callable[[Sequence[ImageRecord]], list[Packed]]

    @classmethod
    def of_rows(cls, keeping: Keeping, fetch: Callable[[Sequence[ImageRecord]], list[Packed]]) -> "StoredFeatures":
        """Return the features that `fetch` returns."""
        return cls(keeping, NO_FEATURES, np.zeros(1, np.int64), fetch)

    def of_photo(self, photo: ImageRecord) -> Kept:
        """Fetch the features of a photo."""
        return self.of_photos([photo])[0]

    def of_photos(self, photos: Sequence[ImageRecord]) -> list[Kept]:
        """Fetch the features of several photos at once."""
        fetched = self.fetch(photos)
        kind = self.keeping.kind
        return [Kept(rows, one.width, one.height, kind) for rows, one in zip(fetched, photos, strict=True)]

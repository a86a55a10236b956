"""What a process has fetched from a store: the rows it asked for last, and local features when they are looked at."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from manifind.cluster.packing import Numbers
from manifind.geometry.packing import Packed
from manifind.index.making.journal import NO_FEATURES
from manifind.index.state.catalogue import ImageRecord
from manifind.index.state.kept import Keeping, Kept, KeptFeatures

KEPT_BYTES = 2**28
"""Of packed rows, and of local features, that a process keeps at hand."""


class KeptRows:
    """What was fetched last, by the numbers of the rows; rows never change."""

    def __init__(self, fetch: Callable[[Numbers], list[bytes | None]], most: int = KEPT_BYTES) -> None:
        self._fetch, self._most = fetch, most
        self._rows: OrderedDict[int, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def fetch(self, numbers: Numbers) -> list[bytes | None]:
        """Return what belongs to rows, by their numbers."""
        with self._lock:
            known = {number: self._rows.get(number) for number in numbers.tolist()}
            for number, row in known.items():
                if row is not None:
                    self._rows.move_to_end(number)
        missing = np.array([number for number, row in known.items() if row is None], np.int64)
        if len(missing):
            fetched = dict(zip(missing.tolist(), self._fetch(missing), strict=True))
            known |= fetched
            with self._lock:
                for number, row in fetched.items():
                    if row is not None and number not in self._rows:
                        self._rows[number] = row
                        self._bytes += len(row)
                while self._bytes > self._most:
                    self._bytes -= len(self._rows.popitem(last=False)[1])
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

"""A protocol with its descriptors, ready to be searched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from manifind.baselines import NearestImages
from manifind.errors import InvalidInput
from manifind.evaluate.collection import Described, Descriptors, of_protocol, of_queries
from manifind.evaluate.protocol import Protocol, name_finder, some
from manifind.types import Box, FloatArray

FAR = 0.1
"""A query whose own photo is not among this part of the collection, nearest first, does not look like it."""


@dataclass(frozen=True)
class Data:
    """A protocol, descriptors of its images and of its queries."""

    protocol: Protocol
    images: Described
    queries: Described
    photos: tuple[Path, ...] | None = None
    """The file of each image, where all have one."""
    query_photos: tuple[Path, ...] | None = None

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the descriptors of images and queries: what rankings depend on."""
        return f"{self.images.checksum()[:32]}{self.queries.checksum()[:32]}"

    def serves(self, wants: str) -> bool:
        """Whether there is what a method wants: "global" or "regional" descriptors, or "photos"."""
        return self.for_photos() is not None if wants == "photos" else self.for_method(wants) is not None

    def for_photos(self) -> tuple[list[Path], list[tuple[Path, Box | None]]] | None:
        """Return the files of images, and of queries with their boxes; None where not all have one."""
        if self.photos is None or self.query_photos is None:
            return None
        boxes = [query.box for query in self.protocol.queries]
        return list(self.photos), list(zip(self.query_photos, boxes, strict=True))

    def for_method(self, wants: str) -> tuple[Descriptors, list[FloatArray]] | None:
        """Return descriptors of images and of each query for a method that wants "regional" or "global" ones.

        One that wants global descriptors gets regions where there is nothing else, and aggregates them itself. None if
        there are none that it can take.
        """
        if wants == "global" and self.images.whole is not None and self.queries.whole is not None:
            return self.images.whole, self.queries.whole.apart()
        if self.images.regional is not None and self.queries.regional is not None:
            return self.images.regional, self.queries.regional.apart()
        return None


def prepare(
    protocol: Protocol,
    collection: Described,
    queries: Described,
    file_of: Callable[[str], Path | None] = lambda _: None,
) -> Data:
    """Put a protocol and descriptors together, checked against each other; `file_of` finds a photo by its name."""
    images = of_protocol(collection, protocol)
    asked = of_queries(queries, protocol)
    for a, b in ((images.regional, asked.regional), (images.whole, asked.whole)):
        if a is not None and b is not None and a.vectors.shape[1] != b.vectors.shape[1]:
            raise InvalidInput(
                f"{collection.what} has {a.vectors.shape[1]} dimensions and {queries.what} {b.vectors.shape[1]}; "
                "describe both with the same network and whitening."
            )
    if images.regional is not None and asked.regional is None and asked.whole is not None:
        # A single row for each query is a query of one region.
        asked = replace(asked, regional=asked.whole)
    photos = _files(protocol.images, file_of)
    data = Data(protocol, images, asked, photos, _files([query.image for query in protocol.queries], file_of))
    if data.for_method("global") is None:
        raise InvalidInput(
            f"{collection.what} and {queries.what} have not the same kind of descriptors; give both alike."
        )
    if collection.names is None or queries.names is None:
        _check_order(data)
    return data


def _files(names: Sequence[str], file_of: Callable[[str], Path | None]) -> tuple[Path, ...] | None:
    found = [file_of(name) for name in names]
    files = tuple(path for path in found if path is not None)
    return files if len(files) == len(found) else None


def _check_order(data: Data) -> None:
    """Refuse descriptors that are in another order than the ground truth, where that can be seen.

    Without names the order is taken on trust. Where queries are parts of photos of the collection, each should be near
    its own photo; otherwise near some positive.
    """
    found = data.for_method("global")
    assert found is not None  # noqa: S101
    images, queries = found
    protocol = data.protocol
    find = name_finder(protocol.images)
    own = [find(query.image) for query in protocol.queries]
    counted = all(place is not None for place in own)
    wanted: Sequence[np.ndarray] = (
        [np.array([place]) for place in own]
        if counted
        else [np.concatenate([task.positives[i] for task in protocol.tasks]) for i in range(len(own))]
    )
    plain = NearestImages().fit(images.vectors, images.of)
    far = []
    for query, vectors, near in zip(protocol.queries, queries, wanted, strict=True):
        ranks = np.flatnonzero(np.isin(plain.search(vectors).images, near))
        if len(ranks) and ranks[0] >= max(10, FAR * images.count):
            far.append(f"{query.name} (first at {ranks[0] + 1} of {images.count})")
    if len(far) > len(queries) / 2:
        what = "its own photo" if counted else "any of its positives"
        raise InvalidInput(
            f"{data.images.what} or {data.queries.what} is in another order than {protocol.name}: {len(far)} of "
            f"{len(queries)} queries do not have {what} near: {some(far)}; give them in its order, or with names."
        )

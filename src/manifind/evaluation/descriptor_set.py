"""Descriptors of a collection's images and of queries, checked, and put in the order of a protocol."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.checks import image_numbers, unit_vectors
from manifind.errors import InvalidInputError
from manifind.evaluation.protocol import Protocol, duplicated, name_lookup, preview
from manifind.groups import Layout
from manifind.types import FloatArray, IntArray

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Descriptors:
    """Unit rows and the image or query, from 0 without gaps, that each belongs to."""

    vectors: FloatArray
    of: IntArray

    @property
    def count(self) -> int:
        """How many images or queries there are."""
        return int(self.of[-1]) + 1 if len(self.of) else 0

    def subset(self, numbers: Sequence[int] | npt.NDArray[np.integer]) -> "Descriptors":
        """Return the descriptors of some images, in the order given, numbered anew from 0."""
        places = np.asarray(numbers, np.int64)
        if len(places) == self.count and (places == np.arange(self.count)).all():
            return self
        layout = Layout.of(self.of)
        return Descriptors(
            self.vectors[layout.regions_of(places)],
            np.repeat(np.arange(len(places), dtype=np.int32), layout.counts[places]),
        )

    def apart(self) -> list[FloatArray]:
        """Return a list with the rows of each image or query."""
        ends = np.cumsum(np.bincount(self.of, minlength=self.count))[:-1]
        return np.split(self.vectors, ends)

    def concat(self, others: "Descriptors") -> "Descriptors":
        """Return these descriptors followed by the others, whose numbers come after these."""
        return Descriptors(
            np.concatenate([self.vectors, others.vectors]),
            np.concatenate([self.of, others.of + np.int32(self.count)]),
        )

    def checksum(self) -> str:
        """Return the SHA-256 of the descriptors and of their numbers."""
        digest = hashlib.sha256(repr(self.vectors.shape).encode())
        digest.update(np.ascontiguousarray(self.vectors).data)
        digest.update(np.ascontiguousarray(self.of).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class DescriptorSet:
    """A collection's images, or queries: by regions, by global descriptors, or both."""

    what: str
    """Where the descriptors came from, for errors and reports."""
    regional: Descriptors | None
    whole: Descriptors | None
    names: tuple[str, ...] | None = None

    @property
    def any(self) -> Descriptors:
        """Return the descriptors of regions, or the global descriptors where there are no others."""
        found = self.regional or self.whole
        assert found is not None  # noqa: S101 (one of them is there, see `descriptor_set`)
        return found

    @property
    def count(self) -> int:
        """How many images or queries there are."""
        return self.any.count

    def subset(self, numbers: Sequence[int]) -> "DescriptorSet":
        """Return some of them, in the order given."""
        return replace(
            self,
            regional=None if self.regional is None else self.regional.subset(numbers),
            whole=None if self.whole is None else self.whole.subset(numbers),
            names=None if self.names is None else tuple(self.names[i] for i in numbers),
        )

    def concat(self, others: "DescriptorSet") -> "DescriptorSet":
        """Return these images followed by others, which are distractors."""
        if (self.regional is None) != (others.regional is None) or (self.whole is None) != (others.whole is None):
            raise InvalidInputError(
                f"{self.what} and {others.what} do not have the same kinds of descriptors; give both alike."
            )
        if self.any.vectors.shape[1] != others.any.vectors.shape[1]:
            raise InvalidInputError(
                f"{self.what} has {self.any.vectors.shape[1]} dimensions and {others.what} "
                f"{others.any.vectors.shape[1]}; extract both with the same network and whitening."
            )
        if self.names is None or others.names is None:
            raise InvalidInputError(f"{self.what} and {others.what} must both name their images to be put together.")
        return replace(
            self,
            regional=self.regional and others.regional and self.regional.concat(others.regional),
            whole=self.whole and others.whole and self.whole.concat(others.whole),
            names=self.names + others.names,
        )

    def checksum(self) -> str:
        """Return the SHA-256 of all descriptors."""
        parts = ["" if one is None else one.checksum() for one in (self.regional, self.whole)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def descriptor_set(
    what: str,
    arrays: Arrays,
    names: Sequence[str] | None = None,
    *,
    kind: str = "image",
) -> DescriptorSet:
    """Check descriptors and return them.

    Parameters
    ----------
    what
        Where they came from, for errors.
    arrays
        ``vectors``, with ``image_of`` or ``query_of`` where there are several rows for one; ``global_vectors``.
    names
        Of the images or queries.
    kind : {"image", "query"}
    """
    if "vectors" not in arrays and "global_vectors" not in arrays:
        raise InvalidInputError(f"{what} has {preview(sorted(arrays)) or 'nothing'}; expected an array called vectors.")
    regional = whole = None
    if "global_vectors" in arrays:
        whole = _descriptors(what, arrays["global_vectors"], None, kind, names)
    if "vectors" in arrays:
        of = arrays.get("image_of", arrays.get("query_of"))
        found = _descriptors(what, arrays["vectors"], of, kind, names)
        if of is None and whole is None:
            whole = found
        else:
            regional = found
    if regional is not None and whole is not None and regional.count != whole.count:
        raise InvalidInputError(
            f"{what} has regions of {regional.count} and global descriptors of {whole.count} {_many(kind)}."
        )
    made = DescriptorSet(what, regional, whole, None if names is None else tuple(map(str, names)))
    if made.names is not None:
        repeated = duplicated(made.names)
        if repeated:
            raise InvalidInputError(f"{what} names {preview(repeated)} twice; give each {kind} a name of its own.")
    return made


def _descriptors(
    what: str, vectors: npt.NDArray[Any], of: npt.NDArray[Any] | None, kind: str, names: Sequence[str] | None
) -> Descriptors:
    rows = unit_vectors(np.asarray(vectors), f"vectors of {what}")
    numbers = image_numbers(of, len(rows), f"{kind}_of of {what}")
    count = int(numbers[-1]) + 1
    if names is not None and count != len(names):
        more = (
            f"the first without a name is number {len(names)}"
            if count > len(names)
            else (f"the first without descriptors are {preview(list(map(str, names[count:])))}")
        )
        raise InvalidInputError(f"{what} has descriptors of {count} {_many(kind)} and {len(names)} names; {more}.")
    absent = np.setdiff1d(np.arange(count), numbers)
    if len(absent):
        called = [str(names[i]) if names is not None else f"number {i}" for i in absent]
        raise InvalidInputError(
            f"{what} has no descriptor of {preview(called)}; extract every {kind}, or leave it out."
        )
    return Descriptors(rows, numbers)


def _many(kind: str) -> str:
    return {"image": "images", "query": "queries"}[kind]


def align_images(collection: DescriptorSet, protocol: Protocol) -> DescriptorSet:
    """Return the descriptors of a protocol's images, in its order."""
    if collection.names is None:
        if collection.count != len(protocol.images):
            raise InvalidInputError(
                f"{collection.what} has descriptors of {collection.count} images and {protocol.name} is about "
                f"{len(protocol.images)}; give those of its images in its order, or name them (--names)."
            )
        return replace(collection, names=protocol.images)
    find = name_lookup(collection.names)
    places = [find(name) for name in protocol.images]
    missing = [name for name, place in zip(protocol.images, places, strict=True) if place is None]
    if missing:
        raise InvalidInputError(
            f"{collection.what} has no descriptors of images of {protocol.name}: {preview(missing)}."
        )
    numbers = [place for place in places if place is not None]
    same = duplicated(collection.names[number] for number in numbers)
    if same:
        raise InvalidInputError(
            f"{protocol.name} has two images that both look like {preview(same[:1])} of {collection.what}."
        )
    return replace(collection.subset(numbers), names=protocol.images)


def align_queries(queries: DescriptorSet, protocol: Protocol) -> DescriptorSet:
    """Return the descriptors of a protocol's queries, in its order."""
    if queries.names is not None:
        find = name_lookup(queries.names)
        places = [find(query.name) for query in protocol.queries]
        missing = [query.name for query, place in zip(protocol.queries, places, strict=True) if place is None]
        if missing:
            raise InvalidInputError(
                f"{queries.what} has no descriptors of queries of {protocol.name}: {preview(missing)}."
            )
        return queries.subset([place for place in places if place is not None])
    if queries.count != len(protocol.queries):
        raise InvalidInputError(
            f"{queries.what} has descriptors of {queries.count} queries and {protocol.name} has "
            f"{len(protocol.queries)}; give those of its queries in its order."
        )
    return queries

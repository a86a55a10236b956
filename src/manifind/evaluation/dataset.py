"""A protocol with its descriptors, ready to be searched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.baselines import HammingQueryExpansion, NearestImages
from manifind.baselines.scorer import FindNeighbours, ImageScorer
from manifind.checks import integers, sequence_of_queries
from manifind.errors import InvalidInputError
from manifind.evaluation.descriptors import DescriptorSet, align_images, align_queries, descriptor_set
from manifind.evaluation.index_search import IndexSearch
from manifind.evaluation.protocol import Images, Protocol, QueryPhoto, Task, name_lookup, preview
from manifind.graph import Neighbours
from manifind.index import Index
from manifind.kernels import EXACT
from manifind.ranking import Ranking
from manifind.types import FloatArray, Progress

MAX_OWN_RANK = 0.1
"""A query should find its own photo within this share of the collection, nearest first. If many do not, the descriptors
are likely in another order than the ground truth."""


@dataclass(frozen=True)
class EvaluationSet:
    """A protocol, descriptors of its images and of its queries."""

    protocol: Protocol
    images: DescriptorSet
    queries: DescriptorSet
    photos: tuple[Path, ...] | None = None
    """The file of each image, where all have one."""
    query_photos: tuple[Path, ...] | None = None
    extraction_seconds: float | None = None
    """Extraction time of one query; None where descriptors were given."""
    skipped: tuple[str, ...] = ()
    """Files that could not be extracted, with the reason."""
    index: Index | None = None
    """The index that descriptors came from."""
    neighbours: Neighbours | None = None
    """The exact neighbours of all regions, where an index has them."""

    @classmethod
    def from_arrays(
        cls,
        vectors: npt.ArrayLike,
        image_of: npt.ArrayLike | None = None,
        *,
        queries: Sequence[npt.ArrayLike],
        positives: Sequence[npt.ArrayLike],
        junk: Sequence[npt.ArrayLike] | None = None,
        name: str = "arrays",
    ) -> Self:
        """Return a dataset of descriptors and image numbers.

        Parameters
        ----------
        vectors : (n, d) floating point
            A descriptor for each region, unit rows.
        image_of : (n,) integers, ascending, optional
            The number of the image of each region, from 0 without gaps; without it each row is an image.
        queries : sequence of (m, d) floating point
            All regions of each query.
        positives, junk : sequences of integers
            For each query the images to find, at least one, and those to ignore.
        name : str
            The name of the dataset in tables.
        """
        regions = {"vectors": np.asarray(vectors)}
        if image_of is not None:
            regions["image_of"] = np.asarray(image_of)
        unnamed = descriptor_set(name, regions)
        numbers = tuple(map(str, range(unnamed.count)))
        images = replace(unnamed, names=numbers)
        listed = sequence_of_queries(queries, "queries")
        rows = {
            "vectors": np.concatenate([np.asarray(query) for query in listed]),
            "query_of": np.repeat(np.arange(len(listed)), [len(np.asarray(query)) for query in listed]),
        }
        junk = [()] * len(listed) if junk is None else junk
        task = Task(
            name,
            _image_numbers(positives, "positives", len(listed), unnamed.count),
            _image_numbers(junk, "junk", len(listed), unnamed.count),
        )
        names = [f"query-{number}" for number in range(len(listed))]
        photos = tuple(QueryPhoto(query, query) for query in names)
        protocol = Protocol(name, numbers, photos, (task,), query_counts=True)
        return cls(protocol, images, descriptor_set("queries", rows, names, kind="query"))

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the descriptors of images and queries: what rankings depend on."""
        return f"{self.images.checksum()[:32]}{self.queries.checksum()[:32]}"

    @property
    def regional(self) -> bool:
        """Whether images and queries both have descriptors of regions."""
        return self.images.regional is not None and self.queries.regional is not None

    @property
    def whole(self) -> bool:
        """Whether images and queries both came with global descriptors."""
        return self.images.whole is not None and self.queries.whole is not None

    def provides(self, needs: str) -> bool:
        """Whether the data have what a method needs: "global" or "regional" descriptors, "photos", or an "index"."""
        if needs == "index":
            return self.index is not None and self.query_photos is not None
        if needs == "photos":
            return self.photos is not None and self.query_photos is not None
        return self.regional or (needs == "global" and self.whole)

    def fit(self, estimator: Any, find: FindNeighbours | None, progress: Progress | None) -> Any:
        """Fit an estimator on the images: their descriptors, or the photos where it takes those."""
        if isinstance(estimator, HammingQueryExpansion):
            return estimator.fit(list(self.photos or ()), progress=progress)
        if isinstance(estimator, IndexSearch) and self.index is not None:
            return estimator.fit(self.index, self.protocol.images)
        rows = self.images.regional if self.regional else self.images.whole
        assert rows is not None  # noqa: S101 (see `provides`)
        if not isinstance(estimator, ImageScorer):
            return estimator.fit(rows.vectors, rows.of)
        whole = self.images.whole.vectors if self.whole and self.images.whole is not None else None
        return estimator.fit(rows.vectors, rows.of, global_vectors=whole, find=find, progress=progress)

    def search(self, estimator: Any, numbers: Sequence[int] | None = None) -> list[Ranking]:
        """Let a fitted estimator rank the images for all queries, or for some by number, in one batch."""
        places = range(len(self.protocol.queries)) if numbers is None else numbers
        files, queries = self.query_photos or (), self.protocol.queries
        if isinstance(estimator, HammingQueryExpansion):
            return list(estimator.search_many([(files[i], queries[i].box) for i in places]))
        if isinstance(estimator, IndexSearch):
            views = [(files[i], queries[i].box, self._query_regions[i]) for i in places]
            return list(estimator.search_many(views))
        regions = [self._query_regions[i] for i in places]
        if not isinstance(estimator, ImageScorer):
            return list(estimator.search_many(regions))
        wholes = self.queries.whole.vectors if self.whole and self.queries.whole is not None else None
        return estimator.search_many(regions, global_vectors=None if wholes is None else [wholes[i] for i in places])

    @cached_property
    def _query_regions(self) -> list[FloatArray]:
        rows = self.queries.regional if self.regional else self.queries.whole
        assert rows is not None  # noqa: S101 (see `provides`)
        return rows.split()


def prepare(
    protocol: Protocol,
    collection: DescriptorSet,
    queries: DescriptorSet,
    file_of: Callable[[str], Path | None] = lambda _: None,
    **more: Any,
) -> EvaluationSet:
    """Put a protocol and descriptors together, checked against each other; `file_of` finds a photo by its name.

    `more` are further fields of `EvaluationSet`.
    """
    images = align_images(collection, protocol)
    aligned = align_queries(queries, protocol)
    for a, b in ((images.regional, aligned.regional), (images.whole, aligned.whole)):
        if a is not None and b is not None and a.vectors.shape[1] != b.vectors.shape[1]:
            raise InvalidInputError(
                f"{collection.what} has {a.vectors.shape[1]} dimensions and {queries.what} {b.vectors.shape[1]}; "
                "extract both with the same network and whitening.",
                code="dimensions",
            )
    if images.regional is not None and aligned.regional is None and aligned.whole is not None:
        # A single row for each query is a query of one region.
        aligned = replace(aligned, regional=aligned.whole)
    photos = _files(protocol.images, file_of)
    query_photos = _files([query.image for query in protocol.queries], file_of)
    neighbours = _exact_neighbours(more.get("index"), collection, images)
    data = EvaluationSet(protocol, images, aligned, photos, query_photos, neighbours=neighbours, **more)
    if not data.provides("global"):
        raise InvalidInputError(
            f"{collection.what} and {queries.what} have not the same kind of descriptors; give both alike.",
            code="descriptor-kinds",
        )
    if collection.names is None or queries.names is None:
        _check_order(data)
    return data


def _image_numbers(listed: Sequence[npt.ArrayLike], what: str, queries: int, images: int) -> tuple[Images, ...]:
    """Return the image numbers of each query, checked."""
    if len(listed) != queries:
        raise InvalidInputError(
            f"{what} has {len(listed)} entries for {queries} queries; give one each.", code="query-count"
        )
    checked = tuple(np.asarray(integers(numbers, what), np.int64) for numbers in listed)
    wrong = [int(number) for numbers in checked for number in numbers if not 0 <= number < images]
    if wrong:
        raise InvalidInputError(
            f"{what} has the image number {wrong[0]} and there are {images} images; count them from 0.",
            code="image-number",
        )
    return checked


def _exact_neighbours(index: Index | None, collection: DescriptorSet, images: DescriptorSet) -> Neighbours | None:
    """Return the neighbours that an index has of these very images, if they were found by comparing all pairs."""
    whole = index is not None and images.regional is not None and images.regional is collection.regional
    return index.manifold.neighbours_ if index is not None and whole and index.manifold.graph_.method == EXACT else None


def _files(names: Sequence[str], file_of: Callable[[str], Path | None]) -> tuple[Path, ...] | None:
    files = tuple(path for path in map(file_of, names) if path is not None)
    return files if len(files) == len(names) else None


def _check_order(data: EvaluationSet) -> None:
    """Raise for descriptors that are likely in another order than the ground truth.

    Without names only the order tells images apart. Where queries are parts of photos of the collection, each should be
    near its own photo; otherwise near some positive.
    """
    protocol = data.protocol
    find = name_lookup(protocol.images)
    own_places = [find(query.image) for query in protocol.queries]
    all_own = all(place is not None for place in own_places)
    expected: Sequence[np.ndarray] = (
        [np.array([place]) for place in own_places]
        if all_own
        else [np.concatenate([task.positives[i] for task in protocol.tasks]) for i in range(len(own_places))]
    )
    count = len(protocol.images)
    rankings = data.search(data.fit(NearestImages(), None, None))
    far = []
    for query, ranking, near in zip(protocol.queries, rankings, expected, strict=True):
        ranks = np.flatnonzero(np.isin(ranking.images, near))
        if len(ranks) and ranks[0] >= max(10, MAX_OWN_RANK * count):
            far.append(f"{query.name} (first at {ranks[0] + 1} of {count})")
    if len(far) > len(rankings) / 2:
        what = "its own photo" if all_own else "any of its positives"
        raise InvalidInputError(
            f"{data.images.what} or {data.queries.what} is in another order than {protocol.name}: {len(far)} of "
            f"{len(rankings)} queries do not have {what} near: {preview(far)}; give them in its order, or with names.",
            code="descriptor-order",
        )

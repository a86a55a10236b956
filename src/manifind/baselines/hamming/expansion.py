"""Hamming query expansion: an inverted file of visual words and signatures, searched twice."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manifind.baselines.hamming import embedding
from manifind.baselines.hamming.embedding import local_descriptors
from manifind.baselines.scorer import Baseline
from manifind.checks import check_float, check_int
from manifind.errors import InvalidInputError, ManifindWarning, NotFittedError, UnreadableImageError
from manifind.geometry.sift import DIMENSION, import_opencv
from manifind.io.image import Source
from manifind.io.scan import ListedFile, list_photos
from manifind.kernels.topk import argsort_topk
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray, IntArray, Progress

PhotoLike = Source | npt.NDArray[np.uint8]
Scores = npt.NDArray[np.float64]

DESCRIPTORS_PER_WORD = 40
"""Descriptors sampled for each word to learn the vocabulary."""

MAX_PAIRS = 2**21
"""How many pairs of a query's and the collection's features are compared at a time."""


class Query(NamedTuple):
    """Features to search with: a word, a signature, and which of the query's descriptors each stands for."""

    words: IntArray
    signatures: embedding.Signatures
    of: IntArray


class Matches(NamedTuple):
    """Features of the collection that share a word with one of the query and are near to it."""

    of: IntArray
    """The query's descriptor."""
    images: IntArray
    words: IntArray
    distances: npt.NDArray[np.uint8]


class HammingQueryExpansion(Baseline):
    """Search photos by SIFT features, expand the query by what the reliable ones have in common, and search again.

    Tolias, Jégou: Visual Query Expansion with or without Geometry: Refining Local Descriptors by Feature Aggregation
    (Pattern Recognition 2014), without geometry. A first search is Hamming embedding: features match if they share a
    word and their signatures differ in at most `threshold` bits; a match weighs exp(−h²/σ²) times the squared idf of
    its word; a query's descriptor is assigned to several words; bursts of matches of one descriptor in an image are
    damped. Images with at least `reliable` matches within `strict` bits count as reliable. The words that most of them
    share, with the query, become the expanded query, each with one signature: the majority, bit by bit, of all their
    features and the query's in that word. The ranking is that of the second search; without reliable images, of the
    first.

    Chosen here, where the publication leaves room or wants more than a laptop has: a vocabulary of 16,384 words rather
    than 65,536, learnt on the photos themselves, or as many as their descriptors suffice for; burstiness within an
    image only; scores divided by the norm of the image's histogram of words. The numbers that say which images are
    reliable and how many words to keep are ours.

    Parameters
    ----------
    words : int, default 16384
    threshold, strict : int, default 24 and 16
        Bits of 64.
    sigma : float, default 16.0
    assignments : int, default 3
        Words of each descriptor of the query in the first search.
    reliable : int, default 10
        Descriptors of the query that an image must match strictly.
    growth : float, default 1.0
        Words of the expanded query, in multiples of those of the query.
    long_side, features : int, default 1024 and 2500
        Size of the photo that features are detected in, and the most of them.
    seed : int, default 0
        Of k-means, of the directions, and of the sample that the vocabulary is learnt on.

    Attributes
    ----------
    keys_ : list of str
        The path below the folder of each image, where a folder was given; otherwise their places.
    """

    keys_: list[str]

    def __init__(
        self,
        *,
        words: int = 16384,
        threshold: int = 24,
        strict: int = 16,
        sigma: float = 16.0,
        assignments: int = 3,
        reliable: int = 10,
        growth: float = 1.0,
        long_side: int = 1024,
        features: int = 2500,
        seed: int = 0,
    ) -> None:
        self.words = words
        self.threshold = threshold
        self.strict = strict
        self.sigma = sigma
        self.assignments = assignments
        self.reliable = reliable
        self.growth = growth
        self.long_side = long_side
        self.features = features
        self.seed = seed

    # -- off line -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        photos: str | os.PathLike[str] | Sequence[PhotoLike],
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Fit on photos: a folder, or a list of files or pixels, whose places become the image numbers.

        Each photo is read twice at most, for the vocabulary and for the file; kept are 16 bytes a feature. A photo that
        cannot be read is an image without features, with a warning. `progress` is called with the photos done and the
        photos in all, those of the vocabulary among them.
        """
        self._check()
        import_opencv()
        if isinstance(photos, str | os.PathLike):
            files = [file for file in list_photos(photos) if isinstance(file, ListedFile)]
            sources: Sequence[PhotoLike] = [file.path for file in files]
            keys = [file.key for file in files]
        else:
            sources, keys = list(photos), [str(i) for i in range(len(photos))]
        if not sources:
            raise InvalidInputError(
                f"photos is empty ({photos!r}); give a folder with photos, or a list of them.", code="no-photos"
            )
        unreadable: list[str] = []

        def descriptors_of(i: int) -> FloatArray:
            try:
                return local_descriptors(sources[i], long_side=self.long_side, most=self.features)
            except UnreadableImageError:
                unreadable.append(keys[i])
                return np.empty((0, DIMENSION), np.float32)

        self._fit(descriptors_of, len(sources), progress)
        self.keys_ = keys
        if unreadable:
            warnings.warn(
                f"{len(set(unreadable))} photos cannot be read, {unreadable[0]} first; they are ranked last.",
                ManifindWarning,
                stacklevel=2,
            )
        return self

    def fit_descriptors(self, images: Sequence[FloatArray], *, progress: Progress | None = None) -> Self:
        """Fit on local descriptors of each image, (m, 128) unit rows; `images` may load them when they are asked for.

        The queries' descriptors must come from the same extraction: `search_descriptors`.
        """
        self._check()
        if not len(images):
            raise InvalidInputError("images is empty; give the local descriptors of each image.", code="no-photos")
        self._fit(images.__getitem__, len(images), progress)
        self.keys_ = [str(i) for i in range(len(images))]
        return self

    def _fit(self, descriptors_of: Callable[[int], FloatArray], count: int, progress: Progress | None) -> None:
        sample, sampled = self._sample(descriptors_of, count, progress)
        self._embedding = embedding.learn(sample, self.words, seed=self.seed)
        del sample
        words, signatures, images = [], [], []
        for i in range(count):
            descriptors = descriptors_of(i)
            nearest = self._embedding.words(descriptors)[:, 0] if len(descriptors) else np.empty(0, np.int32)
            words.append(nearest)
            signatures.append(self._embedding.signatures(descriptors, nearest))
            images.append(np.full(len(nearest), i, np.int32))
            if progress is not None:
                progress(sampled + i + 1, sampled + count)
        self._build_inverted_file(count, np.concatenate(words), np.concatenate(signatures), np.concatenate(images))

    def _sample(
        self, descriptors_of: Callable[[int], FloatArray], count: int, progress: Progress | None
    ) -> tuple[FloatArray, int]:
        """Return descriptors of photos drawn at random, as many as the vocabulary needs, and of how many photos."""
        needed = DESCRIPTORS_PER_WORD * self.words
        sampled: list[FloatArray] = []
        for i in np.random.default_rng(self.seed).permutation(count).tolist():
            sampled.append(descriptors_of(i))
            if progress is not None:
                progress(len(sampled), len(sampled) + count)
            if sum(map(len, sampled)) >= needed:
                break
        sample = np.concatenate(sampled)[:needed]
        if not len(sample):
            raise InvalidInputError(
                "photos has no photo in which SIFT finds anything; give photos with some contrast.",
                code="no-local-features",
            )
        return sample, len(sampled)

    def _build_inverted_file(
        self, count: int, words: IntArray, signatures: embedding.Signatures, images: IntArray
    ) -> None:
        """Sort the features by word, and compute the idf of words and the norms of images."""
        vocabulary = len(self._embedding.centroids)
        order = np.argsort(words, kind="stable")
        self._words, self._signatures, self._images = words[order], signatures[order], images[order]
        self._starts = np.searchsorted(self._words, np.arange(vocabulary + 1))
        pairs, times = np.unique(self._images.astype(np.int64) * vocabulary + self._words, return_counts=True)
        image, word = np.divmod(pairs, vocabulary)
        self._idf = np.log(count / np.maximum(np.bincount(word, minlength=vocabulary), 1))
        squares = np.bincount(image, (times * self._idf[word]) ** 2, minlength=count)
        self._norms = np.sqrt(np.where(squares > 0, squares, 1))

    # -- on line ------------------------------------------------------------------------------------------------------

    def search(self, photo: PhotoLike, box: Box | None = None, top: int | None = None) -> Ranking:
        """Rank the images for a photo, or for what a box (x0, y0, x1, y1) in its pixels holds."""
        self._check()
        self._check_fitted()
        return self.search_descriptors(local_descriptors(photo, box, long_side=self.long_side, most=self.features), top)

    def search_descriptors(self, descriptors: FloatArray, top: int | None = None) -> Ranking:
        """Rank the images for the local descriptors of a query, (m, 128) unit rows."""
        self._check_fitted()
        if top is not None:
            check_int(top, "top")
        scores = self._scores(descriptors)
        order = argsort_topk(scores, top)
        return Ranking(order.astype(np.int32), scores[order].astype(np.float32))

    def search_many(self, queries: Iterable[tuple[PhotoLike, Box | None]], top: int | None = None) -> list[Ranking]:
        """Rank the images for each photo with its box, or None for the whole."""
        return [self.search(photo, box, top) for photo, box in queries]

    def _scores(self, descriptors: FloatArray) -> Scores:
        if not len(descriptors):
            return np.zeros(len(self._norms))
        nearest = self._embedding.words(descriptors, self.assignments)
        of = np.repeat(np.arange(len(descriptors), dtype=np.int32), nearest.shape[1])
        signatures = self._embedding.signatures(descriptors[of], nearest.ravel())
        query = Query(nearest.ravel(), signatures, of)
        matches = self._match(query)
        strict = np.unique(self._burst(matches)[matches.distances <= self.strict])
        reliable = np.bincount(strict % len(self._norms), minlength=len(self._norms)) >= self.reliable
        if not reliable.any():
            return self._score(matches)
        first = slice(None, None, nearest.shape[1])
        return self._score(self._match(self._expand(Query(query.words[first], signatures[first], of[first]), reliable)))

    def _match(self, query: Query) -> Matches:
        """Return all features that match one of the query's."""
        none = np.empty(0, np.int32)
        parts = [Matches(none, none, none, np.empty(0, np.uint8))]
        for word in np.unique(query.words).tolist():
            listed = slice(self._starts[word], self._starts[word + 1])
            size = listed.stop - listed.start
            members = np.flatnonzero(query.words == word)
            step = max(1, MAX_PAIRS // max(1, size))
            for start in range(0, len(members) if size else 0, step):
                batch = members[start : start + step]
                near = embedding.distances(
                    np.repeat(query.signatures[batch], size), np.tile(self._signatures[listed], len(batch))
                )
                at = np.flatnonzero(near <= self.threshold)
                of, images = query.of[batch[at // size]], self._images[listed][at % size]
                parts.append(Matches(of, images, np.full(len(at), word, np.int32), near[at]))
        return Matches(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _burst(self, matches: Matches) -> npt.NDArray[np.int64]:
        """Return a number for each match, the same for those of one descriptor of the query in one image."""
        numbers: npt.NDArray[np.int64] = matches.of.astype(np.int64) * len(self._norms) + matches.images
        return numbers

    def _score(self, matches: Matches) -> Scores:
        """Add up the matches of each image; of several to one descriptor, each counts less the more they are."""
        weights = np.exp(-((matches.distances / self.sigma) ** 2))
        bursts, burst_of = np.unique(self._burst(matches), return_inverse=True)
        together = np.bincount(burst_of, weights, minlength=len(bursts))
        damped = weights * np.sqrt(weights / together[burst_of])
        return (
            np.bincount(matches.images, damped * self._idf[matches.words] ** 2, minlength=len(self._norms))
            / self._norms
        )

    def _expand(self, query: Query, reliable: npt.NDArray[np.bool_]) -> Query:
        """Return the words that reliable images and the query have in common, each with the majority of its bits."""
        at = np.flatnonzero(reliable[self._images])
        words = np.concatenate([query.words, self._words[at]])
        signatures = np.concatenate([query.signatures, self._signatures[at]])
        images = np.concatenate([np.full(len(query.words), len(reliable)), self._images[at]])
        pairs = np.unique(images * len(self._idf) + words)
        shared = np.bincount(pairs % len(self._idf), minlength=len(self._idf))
        kept = max(1, round(self.growth * len(np.unique(query.words))))
        chosen = np.argsort(-shared, kind="stable")[:kept]
        chosen = np.sort(chosen[shared[chosen] > 0])
        members = np.flatnonzero(np.isin(words, chosen))
        members = members[np.argsort(words[members], kind="stable")]
        starts = np.searchsorted(words[members], chosen)
        ones = np.add.reduceat(embedding.unpack(signatures[members]), starts, axis=0, dtype=np.int64)
        majority = 2 * ones >= np.diff(np.append(starts, len(members)))[:, None]
        return Query(np.asarray(chosen, np.int32), embedding.pack(majority), np.arange(len(chosen), dtype=np.int32))

    def _check_fitted(self) -> None:
        if not hasattr(self, "_idf"):
            raise NotFittedError("this HammingQueryExpansion has no collection yet; call fit(photos) first.")

    def _check(self) -> None:
        for name in ("words", "assignments", "reliable", "long_side", "features"):
            check_int(getattr(self, name), name)
        for name in ("threshold", "strict", "seed"):
            check_int(getattr(self, name), name, least=0)
        for name in ("sigma", "growth"):
            check_float(getattr(self, name), name, above=0)

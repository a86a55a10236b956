"""HQE, Hamming query expansion: search with local descriptors, on photos rather than on region vectors.

A photo becomes RootSIFT descriptors, by OpenCV, and these visual words with binary signatures: a vocabulary and Hamming
embedding (Jégou, Douze, Schmid: Hamming Embedding and Weak Geometric Consistency for Large Scale Image Search, ECCV
2008). A descriptor belongs to the nearest of k-means' centroids, its word. Within the word it is told from others by 64
bits: the descriptor is projected on 64 orthonormal random directions, and each bit says whether it is above the median
of the word's training descriptors there. An inverted file of words and signatures is searched twice.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manifind import kernels
from manifind.baselines.scorer import Baseline
from manifind.boxes import clip_box
from manifind.checks import check_float, check_int
from manifind.errors import InvalidInputError, ManifindWarning, NotFittedError, UnreadableImageError
from manifind.geometry.sift import DIMENSION, import_opencv, opencv_features
from manifind.io.image import Photo, Source, read_photo
from manifind.kernels.topk import argsort_topk
from manifind.ranking import Ranking
from manifind.types import Box, FloatArray, IntArray, Progress

BITS = 64
POINTS_A_WORD = 20
"""The least number of training descriptors for each word: fewer give no median."""
K_MEANS_ROUNDS = 10

Signatures = npt.NDArray[np.uint64]

_BITS_SET = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)


class Embedding(NamedTuple):
    """A vocabulary of visual words, with the directions and medians that signatures are made by."""

    centroids: FloatArray
    """(words, d)."""
    directions: FloatArray
    """(d, 64), orthonormal columns."""
    medians: FloatArray
    """(words, 64)."""

    def words(self, descriptors: FloatArray, count: int = 1) -> IntArray:
        """Return the `count` nearest words (m, count) of each descriptor, the nearest first."""
        # The nearest in distance are the largest of 2 x·c − c·c, an inner product with one more dimension.
        lifted = np.concatenate([2 * self.centroids, -np.square(self.centroids).sum(axis=1, keepdims=True)], axis=1)
        ones = np.ones((len(descriptors), 1), np.float32)
        nearest: IntArray = kernels.as_vector_set(lifted).search(
            np.concatenate([descriptors, ones], axis=1), min(count, len(self.centroids))
        )[0]
        return nearest

    def signatures(self, descriptors: FloatArray, words: IntArray) -> Signatures:
        """Return the signature (m,) of each descriptor in the word given for it."""
        return pack_bits(descriptors @ self.directions > self.medians[words])


def learn_embedding(descriptors: FloatArray, words: int, *, seed: int = 0) -> Embedding:
    """Learn a vocabulary of `words`, or as many as the descriptors (m, d) suffice for, and the medians of each."""
    count = max(1, min(words, len(descriptors) // POINTS_A_WORD))
    d = descriptors.shape[1]
    import faiss  # takes a tenth of a second

    means = faiss.Kmeans(d, count, niter=K_MEANS_ROUNDS, seed=seed, min_points_per_centroid=1)
    means.train(descriptors)
    random = np.random.default_rng(seed).standard_normal((d, BITS))
    directions = np.linalg.qr(random)[0].astype(np.float32)
    centroids = np.asarray(means.centroids, np.float32).reshape(count, d)
    embedding = Embedding(centroids, directions, np.zeros((count, BITS), np.float32))
    word_of = embedding.words(descriptors)[:, 0]
    projected = descriptors @ directions
    order = np.argsort(word_of, kind="stable")
    ends = np.cumsum(np.bincount(word_of, minlength=count))
    for word, rows in enumerate(np.split(order, ends[:-1])):
        if len(rows):
            embedding.medians[word] = _between(projected[rows])
    return embedding


def _between(values: FloatArray) -> FloatArray:
    """Return what splits each column in halves, between two values: on a value, its bit would depend on rounding."""
    count = len(values)
    middle = (count // 2 - 0.5) / (count - 1) if count > 1 else 0
    return np.asarray(np.quantile(values, middle, axis=0), np.float32)


def pack_bits(bits: npt.NDArray[np.bool_]) -> Signatures:
    """Return (m, 64) bits as one number each."""
    packed: Signatures = np.packbits(bits, axis=1).view(np.uint64)[:, 0]
    return packed


def unpack_bits(signatures: Signatures) -> npt.NDArray[np.uint8]:
    """Return signatures as (m, 64) zeros and ones."""
    return np.unpackbits(np.ascontiguousarray(signatures)[:, None].view(np.uint8), axis=1)


def hamming_distances(a: Signatures, b: Signatures) -> npt.NDArray[np.uint8]:
    """Return the number of bits in which two arrays of signatures differ, entry by entry."""
    differ = np.bitwise_xor(a, b)
    counts: npt.NDArray[np.uint8] = _BITS_SET[differ[:, None].view(np.uint8)].sum(axis=1, dtype=np.uint8)
    return counts


def local_descriptors(
    photo: Source | npt.NDArray[np.uint8], box: Box | None = None, *, long_side: int = 1024, most: int = 2500
) -> FloatArray:
    """Return the RootSIFT descriptors (m, 128) of a photo, or of the part of it within a box; m may be zero.

    SIFT (Lowe, IJCV 2004), each descriptor at unit sum and then by its root (Arandjelović, Zisserman, CVPR 2012).

    Parameters
    ----------
    photo : path, bytes, binary file, or (h, w, 3) uint8 pixels
    box : (x0, y0, x1, y1), optional
        In pixels of the photo in full; descriptors centred within it are returned.
    long_side : int
        A larger photo is reduced to this before anything is detected.
    most : int
        Descriptors at most: those of the strongest contrast, within the box if there is one.
    """
    cv2 = import_opencv()
    decoded = _pixels(photo, long_side)
    height, width = decoded.pixels.shape[:2]
    scale = min(1.0, long_side / max(height, width))
    grey = cv2.cvtColor(decoded.pixels, cv2.COLOR_RGB2GRAY)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    points, _, _, roots, strength = opencv_features(grey)
    if box is not None:
        x0, y0, x1, y1 = clip_box(box, decoded.width, decoded.height)
        across, down = decoded.width / grey.shape[1], decoded.height / grey.shape[0]
        at = points * (across, down)
        inside = (at >= (x0, y0)).all(axis=1) & (at < (x1, y1)).all(axis=1)
        roots, strength = roots[inside], strength[inside]
    return roots[np.sort(np.argsort(-strength, kind="stable")[:most])]


def _pixels(photo: Source | npt.NDArray[np.uint8], long_side: int) -> Photo:
    if not isinstance(photo, np.ndarray):
        return read_photo(photo, long_side=long_side)
    if photo.ndim != 3 or photo.shape[2] != 3 or photo.dtype != np.uint8 or 0 in photo.shape:
        raise InvalidInputError(
            f"photo has shape {photo.shape} and dtype {photo.dtype}; give (height, width, 3) uint8 pixels, or a file.",
            code="photo-array",
        )
    return Photo(np.ascontiguousarray(photo), photo.shape[1], photo.shape[0])


PhotoLike = Source | npt.NDArray[np.uint8]
Scores = npt.NDArray[np.float64]

DESCRIPTORS_PER_WORD = 40
"""Descriptors sampled for each word to learn the vocabulary."""

MAX_PAIRS = 2**21
"""How many pairs of a query's and the collection's features are compared at a time."""


class Query(NamedTuple):
    """Features to search with: a word, a signature, and which of the query's descriptors each stands for."""

    words: IntArray
    signatures: Signatures
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
    """

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
        photos: Sequence[PhotoLike],
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Fit on photos, a list of files or pixels, whose places become the image numbers.

        Each photo is read twice at most, for the vocabulary and for the file; kept are 16 bytes a feature. A photo that
        cannot be read is an image without features, with a warning. `progress` is called with the photos done and the
        photos in all, those of the vocabulary among them.
        """
        self._check()
        import_opencv()
        if not len(photos):
            raise InvalidInputError("photos is empty; give a list of files or pixels.", code="no-photos")
        unreadable: list[int] = []

        def descriptors_of(i: int) -> FloatArray:
            try:
                return local_descriptors(photos[i], long_side=self.long_side, most=self.features)
            except UnreadableImageError:
                unreadable.append(i)
                return np.empty((0, DIMENSION), np.float32)

        self._fit(descriptors_of, len(photos), progress)
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
        return self

    def _fit(self, descriptors_of: Callable[[int], FloatArray], count: int, progress: Progress | None) -> None:
        sample, sampled = self._sample(descriptors_of, count, progress)
        self._embedding = learn_embedding(sample, self.words, seed=self.seed)
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

    def _build_inverted_file(self, count: int, words: IntArray, signatures: Signatures, images: IntArray) -> None:
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
                near = hamming_distances(
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
        ones = np.add.reduceat(unpack_bits(signatures[members]), starts, axis=0, dtype=np.int64)
        majority = 2 * ones >= np.diff(np.append(starts, len(members)))[:, None]
        return Query(np.asarray(chosen, np.int32), pack_bits(majority), np.arange(len(chosen), dtype=np.int32))

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

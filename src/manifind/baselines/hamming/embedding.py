"""A photo -> RootSIFT, by OpenCV -> visual words and binary signatures: a vocabulary and Hamming embedding.

Jégou, Douze, Schmid: Hamming Embedding and Weak Geometric Consistency for Large Scale Image Search (ECCV 2008). A
descriptor belongs to the nearest of k-means' centroids, its word. Within the word it is told from others by 64 bits:
the descriptor is projected on 64 orthonormal random directions, and each bit says whether it is above the median of
the word's training descriptors there.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind import kernels
from manifind.boxes import clip_box
from manifind.errors import InvalidInputError
from manifind.geometry.sift import import_opencv, opencv_features
from manifind.io.image import Photo, Source, read_photo
from manifind.types import Box, FloatArray, IntArray

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
        return pack(descriptors @ self.directions > self.medians[words])


def learn(descriptors: FloatArray, words: int, *, seed: int = 0) -> Embedding:
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


def pack(bits: npt.NDArray[np.bool_]) -> Signatures:
    """Return (m, 64) bits as one number each."""
    packed: Signatures = np.packbits(bits, axis=1).view(np.uint64)[:, 0]
    return packed


def unpack(signatures: Signatures) -> npt.NDArray[np.uint8]:
    """Return signatures as (m, 64) zeros and ones."""
    return np.unpackbits(np.ascontiguousarray(signatures)[:, None].view(np.uint8), axis=1)


def distances(a: Signatures, b: Signatures) -> npt.NDArray[np.uint8]:
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

"""Local features by the compiled extension ``_features``: SIFT, matching, transform estimation, Hamming search."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.kernels.cpu.native import features
from manifind.kernels.threads import thread_count
from manifind.types import Box, FloatArray, IntArray

Doubles = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Codes = npt.NDArray[np.uint8]
"""(n, 32)"""

CONTRAST = 0.04
"""The contrast threshold of SIFT: Lowe's. From black to white is 1."""


class Keypoints(NamedTuple):
    """The keypoints of a photo. `describe` computes their descriptors."""

    points: FloatArray
    """(m, 2): the x and the y of each keypoint."""
    sizes: FloatArray
    strengths: FloatArray
    describe: Callable[[Indices], tuple[IntArray, FloatArray, FloatArray]]
    """A function that describes some keypoints, given by their indices. It returns three arrays with an entry for each
    feature: the index of its keypoint, its orientation, its descriptor. A keypoint may have several features."""


def detect_keypoints(
    grey: npt.NDArray[np.uint8], *, doubled: bool = False, contrast: float = CONTRAST
) -> Keypoints | None:
    """Return the keypoints of a grey photo by SIFT; None without the extension.

    `doubled` enlarges the photo to twice its size first, which finds smaller keypoints and takes four times as long.
    Keypoints with less contrast than `contrast` do not count.
    """
    if features is None:
        return None
    sift = features.Sift(np.ascontiguousarray(grey), doubled, contrast)
    rows = sift.keypoints()
    return Keypoints(
        rows[:, :2], rows[:, 2], rows[:, 3], lambda chosen: sift.describe(np.ascontiguousarray(chosen, np.int32))
    )


def ransac(
    matches: Doubles, box: Box, tolerances: tuple[float, float], config: Mapping[str, float]
) -> tuple[Doubles, Indices, int] | None:
    """Return the transform (3, 3) with the most inliers, the inliers and how many lie at distinct places; or None.

    Parameters
    ----------
    matches : (m, 6)
        Points of the query and of the image, the logarithm of the relative scale, the relative rotation.
    box : (x0, y0, x1, y1)
        Of the query: a transform that is implausible on it is rejected.
    tolerances : (float, float)
        The largest residual of an inlier, in pixels of the query and of the image.
    config : mapping of str to float
        The other fields of ``RansacConfig`` in ``core/features/ransac.h``.
    """
    result = features.estimate_transform(matches, box, tolerances, dict(config))
    if result is None:
        return None
    transform, inliers, distinct = result
    return transform, inliers.astype(np.intp), distinct


class ImageMatch(NamedTuple):
    """The transform between a query and an image."""

    transform: Doubles
    """(3, 3)"""
    matches: Indices
    """(k, 2): the inliers, indices of features of the query and of the image."""
    cosines: FloatArray
    """(k,): of their descriptors."""
    distinct: int
    """How many inliers lie at distinct places in both."""


class PackedTables(NamedTuple):
    """How the bytes of packed features are read."""

    codes: Codes
    """(256, 4): the codes of each byte of a descriptor."""
    scales: FloatArray
    """(256,): the scale of each byte, in parts of the image's long side."""


def match_images(
    codes: Codes,
    frames: FloatArray,
    images: Sequence[tuple[Codes, FloatArray | None, int, int]],
    tables: PackedTables,
    *,
    max_ratio: float,
    box: Box,
    tolerances: tuple[float, float],
    config: Mapping[str, float],
) -> list[ImageMatch | None]:
    """Match the features of a query with those of each image, on all cores, and estimate the transforms.

    Parameters
    ----------
    codes : (m, 128)
        The descriptors of the query, each code at most 127.
    frames : (m, 4)
        The x, y, scale and orientation of each feature of the query.
    images : sequence of (rows, frames, width, height)
        Packed features (n, 38) and None, or codes (n, 128) with their frames (n, 4).
    tables : PackedTables
    max_ratio : float
        Of the ratio test.
    box, config
        As for `ransac`.
    tolerances : (float, float)
        The largest residual of an inlier, in pixels of the query and in parts of the image's long side.
    """
    matches = features.match_images(
        codes, frames, list(images), *tables, max_ratio, box, tolerances, dict(config), thread_count()
    )
    return [
        None if match is None else ImageMatch(match[0], match[1].astype(np.intp), match[2], match[3])
        for match in matches
    ]


def match_codes(query: Codes, image: Codes, max_ratio: float) -> Indices:
    """Return the pairs (k, 2) of matching descriptors, codes of at most 127; see `geometry.matching`."""
    matches: Indices = features.match_descriptors(query, image, max_ratio).astype(np.intp)
    return matches


def knn_hamming(queries: Codes, rows: Codes, k: int) -> tuple[Indices, npt.NDArray[np.int32]]:
    """Return the k ≤ n rows (n, 32) nearest to each query (m, 32) by Hamming distance, and the distances.

    The extension does it where the processor has AVX-512 VPOPCNTDQ, and faiss elsewhere, a quarter as fast. Of rows
    equally near faiss may take any, the extension takes the first.
    """
    threads = thread_count()  # tells faiss too
    queries, rows = np.ascontiguousarray(queries), np.ascontiguousarray(rows)
    if features is not None and features.has_vector_popcount():
        ids, distances = features.knn_hamming(queries, rows, k, threads)
        return ids.astype(np.intp), distances
    import faiss

    distances, ids = faiss.knn_hamming(queries, rows, k)
    return ids.astype(np.intp), distances


class CodeGroups(NamedTuple):
    """Codes in groups, one group after the other: an inverted file."""

    centres: Codes
    """(groups, 32): each code is in the group of the nearest centre."""
    codes: Codes
    """(n, 32), those of a group by their numbers."""
    numbers: IntArray
    """(n,): the number of each code."""
    starts: npt.NDArray[np.int64]
    """(groups + 1,): where the codes of each group start."""


def group_codes(codes: Codes, centres: Codes) -> CodeGroups | None:
    """Group codes (n, 32) by the nearest centre, the first of equally near ones; None without the extension."""
    if features is None or not features.counts_bits():
        return None
    group_of = features.nearest_hamming(np.ascontiguousarray(codes), centres, thread_count())
    # NumPy sorts small integers by radix, several times as fast.
    order = np.argsort(group_of.astype(np.min_scalar_type(len(centres))), kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(group_of, minlength=len(centres)))]).astype(np.int64)
    return CodeGroups(centres, codes.take(order, axis=0), order.astype(np.int32), starts)


def knn_hamming_groups(queries: Codes, groups: CodeGroups, k: int, visits: int) -> Indices:
    """Return the numbers of the k codes nearest to each query, (m, k), in the groups of the `visits` nearest centres.

    -1 where these groups have fewer codes.
    """
    threads, queries = thread_count(), np.ascontiguousarray(queries)
    visited, _ = features.knn_hamming(queries, groups.centres, min(visits, len(groups.centres)), threads)
    ids, _ = features.knn_hamming_groups(queries, visited, groups.codes, groups.numbers, groups.starts, k, threads)
    nearest: Indices = ids.astype(np.intp)
    return nearest

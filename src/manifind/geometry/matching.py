"""Matching: mutual nearest descriptors that pass the ratio test (Lowe, IJCV 2004), then RANSAC, for many images.

The second nearest neighbour of the ratio test is a feature of the query, not of the image. An image may show the object
twice; each query feature then has two equals in it, and a ratio test within the image would reject both.

Descriptors are compared in whole numbers (`Features.codes`): inner products are exact, so the compiled extension
(``core/features/matching.cpp``) and NumPy find the same matches on every processor.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from manifind.geometry.features import Codes, Features
from manifind.geometry.packing import PackedFeatures, packed_tables
from manifind.geometry.ransac import Correspondences, RansacConfig, estimate_transform
from manifind.kernels import ImageMatch, features_compiled, match_images
from manifind.types import Box, FloatArray

Matches = npt.NDArray[np.intp]
"""(k, 2): indices of matching features, the query's and the image's."""
ImageFeatures = Features | PackedFeatures
"""The features of an image, as they were extracted or as an index stores them."""


def match_descriptors(similarities: FloatArray, *, max_ratio: float) -> Matches:
    """Return the pairs of features that match.

    Parameters
    ----------
    similarities : (n, m) array
        The inner products of the image's n descriptors with the query's m, all of unit norm.
    max_ratio : float
        The largest distance to the nearest, in parts of the distance to the second nearest.
    """
    if not similarities.size:
        return np.empty((0, 2), np.intp)
    rows = np.arange(len(similarities))
    nearest = similarities.argmax(axis=1)
    best = similarities[rows, nearest]
    mutual = best == similarities.max(axis=0)[nearest]
    rows, nearest, best = rows[mutual], nearest[mutual], best[mutual]
    others = similarities[rows]
    others[np.arange(len(rows)), nearest] = -1
    # The squared distance of unit rows is 2 − 2 s.
    passed = 1 - best < max_ratio**2 * (1 - others.max(axis=1))
    return np.stack([nearest[passed], rows[passed]], axis=1)


def code_similarities(query: Codes, image: Codes) -> FloatArray:
    """Return the cosines of an image's n descriptors with a query's m, (n, m)."""
    # Integer products below 2²⁴ are exact in single precision.
    products = image.astype(np.float32) @ query.astype(np.float32).T
    return np.asarray(products * _norm_factors(image)[:, None] * _norm_factors(query), np.float32)


def _norm_factors(codes: Codes) -> FloatArray:
    squares = np.einsum("ij,ij->i", codes, codes, dtype=np.int64)
    return np.where(squares > 0, 1 / np.sqrt(np.maximum(squares, 1)), 0).astype(np.float32)


def estimate_transforms(
    query: Features,
    images: Sequence[ImageFeatures],
    box: Box,
    tolerances: tuple[float, float],
    *,
    max_ratio: float,
    min_inliers: int,
    config: RansacConfig,
) -> list[ImageMatch | None]:
    """Return the transform with the most inliers between a query and each image; None where there is none.

    Parameters
    ----------
    query : Features
    images : sequence of Features or PackedFeatures
    box : (x0, y0, x1, y1)
        The object in the query.
    tolerances : (float, float)
        The largest residual of an inlier, in pixels of the query and in parts of the image's long side.
    max_ratio : float
        Of the ratio test.
    min_inliers : int
        A transform with fewer is of no use to the caller and need not be found.
    config : RansacConfig
    """
    if not features_compiled():
        return [
            _estimate_numpy(query, image, box, tolerances, max_ratio=max_ratio, min_inliers=min_inliers, config=config)
            for image in images
        ]
    return match_images(
        query.codes,
        query.frames,
        [
            (image.rows, None, image.width, image.height)
            if isinstance(image, PackedFeatures)
            else (image.codes, image.frames, image.width, image.height)
            for image in images
        ],
        packed_tables(query.kind),
        max_ratio=max_ratio,
        box=box,
        tolerances=tolerances,
        config=config.fields(min_inliers),
    )


def _estimate_numpy(
    query: Features,
    image: ImageFeatures,
    box: Box,
    tolerances: tuple[float, float],
    *,
    max_ratio: float,
    min_inliers: int,
    config: RansacConfig,
) -> ImageMatch | None:
    similarities = code_similarities(query.codes, image.codes)
    matches = match_descriptors(similarities, max_ratio=max_ratio)
    a, b = query.frames[matches[:, 0]], image.frames[matches[:, 1]]
    best = estimate_transform(
        Correspondences(a[:, :2], b[:, :2], b[:, 2] / a[:, 2], b[:, 3] - a[:, 3]),
        box,
        (tolerances[0], tolerances[1] * max(image.width, image.height)),
        min_inliers=min_inliers,
        config=config,
    )
    if best is None:
        return None
    inliers = matches[best.inliers]
    return ImageMatch(best.transform, inliers, similarities[inliers[:, 1], inliers[:, 0]], best.distinct)

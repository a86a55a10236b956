"""RootSIFT: local features that keep when the object is turned, scaled and lit otherwise.

SIFT (Lowe, IJCV 2004), each descriptor at unit sum and then by its root (Arandjelović, Zisserman, CVPR 2012), so that
inner products of descriptors compare histograms by Hellinger's kernel.

The compiled core finds all points, and describes those that were chosen. An install without it takes OpenCV's SIFT on
a photo of half the size, which OpenCV doubles before it looks: the points and descriptors are the same in kind, and may
be compared with the core's.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.errors import MissingExtra
from manifind.geometry.features import Choose, Detected
from manifind.kernels import CONTRAST, local_features
from manifind.types import FloatArray

DIMENSION = 128
FAINT = CONTRAST / 2
"""How much a faint point stands out at least."""
SMALL = 200_000
"""Pixels up to which a photo is doubled before points are looked for: it has few that are not small."""

Everything = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
"""Points (m, 2), sizes, angles in radians, descriptors (m, 128) and strengths."""


def detect(grey: npt.NDArray[np.uint8], choose: Choose, contrast: float = CONTRAST) -> Detected:
    """Return points (m, 2), sizes, angles in radians and descriptors (m, 128) of the features that were chosen.

    Points that stand out by less than `contrast` do not count.
    """
    found = local_features(grey, doubled=grey.size <= SMALL, contrast=contrast)
    if found is None:
        return _by_opencv(grey, choose, contrast)
    points, sizes, strengths, describe = found
    of, angles, descriptors = describe(choose(points, strengths))
    return points[of], sizes[of], angles, descriptors


def _by_opencv(grey: npt.NDArray[np.uint8], choose: Choose, contrast: float) -> Detected:
    height, width = grey.shape
    small = grey
    if grey.size > SMALL:
        smaller = Image.fromarray(grey).resize((max(1, width // 2), max(1, height // 2)), Image.Resampling.BOX)
        small = np.asarray(smaller)
    by = np.array([width / small.shape[1], height / small.shape[0]], np.float32)
    points, sizes, angles, descriptors, strengths = opencv_features(small, contrast)
    chosen = choose(points * by, strengths)
    return (points * by)[chosen], sizes[chosen] * np.float32(by.mean()), angles[chosen], descriptors[chosen]


def opencv_features(grey: npt.NDArray[np.uint8], contrast: float = CONTRAST) -> Everything:
    """Return all features that OpenCV finds in a grey photo, which it doubles first."""
    points, raw = opencv().SIFT_create(contrastThreshold=contrast).detectAndCompute(grey, None)
    if not points:
        none = np.empty(0, np.float32)
        return np.empty((0, 2), np.float32), none, none, np.empty((0, DIMENSION), np.float32), none
    rows = np.array([(*p.pt, p.size, p.angle, p.response) for p in points], np.float32)
    roots = np.sqrt(raw / np.maximum(raw.sum(axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return rows[:, :2], rows[:, 2], np.deg2rad(rows[:, 3]), roots, rows[:, 4]


def opencv() -> Any:
    """Return OpenCV, or say how to install it."""
    try:
        import cv2
    except ImportError as missing:
        raise MissingExtra(
            "local features need OpenCV where manifind's compiled core is not there; pip install 'manifind[sift]'"
        ) from missing
    return cv2

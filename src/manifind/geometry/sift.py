"""RootSIFT: local features that are invariant to scale and rotation, and robust to lighting.

SIFT (Lowe, IJCV 2004), each descriptor at unit sum and then square-rooted (Arandjelović, Zisserman, CVPR 2012): inner
products of descriptors compare histograms by the Hellinger kernel.

The compiled extension detects all keypoints and extracts the selected ones. Without it OpenCV's SIFT serves, on an
image of half the size, which OpenCV doubles first: keypoints and descriptors may be compared with the extension's.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.errors import MissingExtraError
from manifind.geometry.features import Detected, Select
from manifind.kernels import CONTRAST, detect_keypoints
from manifind.types import FloatArray

DIMENSION = 128
LOW_CONTRAST = CONTRAST / 2
"""The contrast threshold where low-contrast keypoints count."""
MAX_DOUBLED_PIXELS = 200_000
"""Images up to this size are doubled before detection: few of their keypoints are not small."""

CELLS, BINS = 4, 8
"""Of a descriptor: cells across and down a keypoint's surroundings, and orientations in the histogram of each."""
MIRRORED = np.arange(DIMENSION).reshape(CELLS, CELLS, BINS)[::-1, :, -np.arange(BINS) % BINS].ravel()
"""Which coordinate of a descriptor each coordinate of the mirrored one is. Cells lie along the keypoint's orientation:
the mirror exchanges rows, and an orientation of o relative to the keypoint's becomes -o."""

AllFeatures = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
"""Keypoints (m, 2), sizes, orientations in radians, descriptors (m, 128) and strengths."""


def detect(grey: npt.NDArray[np.uint8], select: Select, low_contrast: bool = False) -> Detected:
    """Return keypoints (m, 2), sizes, orientations in radians and descriptors (m, 128) of the selected features."""
    contrast = LOW_CONTRAST if low_contrast else CONTRAST
    found = detect_keypoints(grey, doubled=grey.size <= MAX_DOUBLED_PIXELS, contrast=contrast)
    if found is None:
        return _detect_opencv(grey, select, contrast)
    keypoints, sizes, strengths, describe = found
    of, orientations, descriptors = describe(select(keypoints, strengths))
    return keypoints[of], sizes[of], orientations, descriptors


def _detect_opencv(grey: npt.NDArray[np.uint8], select: Select, contrast: float) -> Detected:
    height, width = grey.shape
    small = grey
    if grey.size > MAX_DOUBLED_PIXELS:
        smaller = Image.fromarray(grey).resize((max(1, width // 2), max(1, height // 2)), Image.Resampling.BOX)
        small = np.asarray(smaller)
    by = np.array([width / small.shape[1], height / small.shape[0]], np.float32)
    keypoints, sizes, orientations, descriptors, strengths = opencv_features(small, contrast)
    chosen = select(keypoints * by, strengths)
    return (keypoints * by)[chosen], sizes[chosen] * np.float32(by.mean()), orientations[chosen], descriptors[chosen]


def opencv_features(grey: npt.NDArray[np.uint8], contrast: float = CONTRAST) -> AllFeatures:
    """Return all features that OpenCV finds in a grey image, which it doubles first."""
    points, raw = import_opencv().SIFT_create(contrastThreshold=contrast).detectAndCompute(grey, None)
    if not points:
        none = np.empty(0, np.float32)
        return np.empty((0, 2), np.float32), none, none, np.empty((0, DIMENSION), np.float32), none
    rows = np.array([(*p.pt, p.size, p.angle, p.response) for p in points], np.float32)
    roots = np.sqrt(raw / np.maximum(raw.sum(axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return rows[:, :2], rows[:, 2], np.deg2rad(rows[:, 3]), roots, rows[:, 4]


def import_opencv() -> Any:
    """Return OpenCV, or say how to install it."""
    try:
        import cv2
    except ImportError as missing:
        raise MissingExtraError(
            "local features need OpenCV where manifind's compiled core is not there; pip install 'manifind[sift]'"
        ) from missing
    return cv2

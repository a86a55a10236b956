"""RootSIFT, by OpenCV: local features that keep when the object is turned, scaled and lit otherwise.

SIFT (Lowe, IJCV 2004), each descriptor at unit sum and then by its root (Arandjelović, Zisserman, CVPR 2012), so that
inner products of descriptors compare histograms by Hellinger's kernel.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import MissingExtra
from manifind.types import FloatArray

DIMENSION = 128


def detect(grey: npt.NDArray[np.uint8]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return points (m, 2), sizes, angles in radians, descriptors (m, 128) and strengths."""
    points, raw = opencv().SIFT_create().detectAndCompute(grey, None)
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
        raise MissingExtra("local features by SIFT need OpenCV; pip install 'manifind[sift]'") from missing
    return cv2

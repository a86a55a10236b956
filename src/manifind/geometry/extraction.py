"""An image -> its local features.

`KINDS` is the table of feature types: a new type is one detector and one entry (and its levels in `packing`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.boxes import clip_box
from manifind.checks import check_choice, check_int
from manifind.geometry import sift
from manifind.geometry.features import Detected, Features, Pixels, Select, check_pixels, no_features
from manifind.types import Box, FloatArray

MARGIN = 0.1
"""Context around a box, in parts of its sides: descriptors at its edge need their surroundings."""
GRID = 8
"""Keypoints are selected in turn from this many cells across and down."""


@dataclass(frozen=True)
class Kind:
    """A type of local feature."""

    detect: Callable[[Pixels, Select, bool], Detected]
    """Takes grey values (h, w), a selection of keypoints, and whether low-contrast keypoints count."""
    dimension: int
    """Of a descriptor."""
    long_side: int
    """Larger images are reduced to this many pixels first, unless `extract` is given another long side."""


def extract(
    pixels: npt.NDArray[np.uint8],
    box: Box | None = None,
    *,
    kind: str = "sift",
    max_keypoints: int = 500,
    long_side: int | None = None,
    max_enlargement: float = 1.0,
    grid: int = GRID,
    low_contrast: bool = False,
) -> Features:
    """Return the local features of an image, or of a box in it, spread over the whole.

    Parameters
    ----------
    pixels : (h, w, 3) uint8 array
    box : (x0, y0, x1, y1), optional
        In pixels of the image. The box is cut out before the reduction: a small object in a large image keeps its
        detail.
    kind : str
        One of `KINDS`.
    max_keypoints : int
        Features at most.
    long_side : int, optional
        Larger images are reduced to this; the kind's own by default.
    max_enlargement : float
        Smaller images are enlarged to it, by this factor at most.
    grid : int
        The strongest keypoints are selected in turn from this many cells across and down.
    low_contrast : bool
        Include low-contrast keypoints: a low-texture object has hardly any others.
    """
    feature = KINDS[check_choice(kind, KINDS, "kind")]
    check_int(max_keypoints, "max_keypoints")
    check_pixels(pixels)
    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = inside = clip_box(box or (0, 0, width, height), width, height)
    across, down = MARGIN * (x1 - x0), MARGIN * (y1 - y0)
    left, top = max(0, math.floor(x0 - across)), max(0, math.floor(y0 - down))
    right, bottom = min(width, math.ceil(x1 + across)), min(height, math.ceil(y1 + down))
    crop = pixels[top:bottom, left:right]
    resized, factor = _resize(crop, max(x1 - x0, y1 - y0), long_side or feature.long_side, max_enlargement)
    corner = np.array([left, top], np.float32)

    def select(keypoints: FloatArray, strengths: FloatArray) -> npt.NDArray[np.intp]:
        at = keypoints / factor + corner
        inner = np.flatnonzero((at >= inside[:2]).all(axis=1) & (at < inside[2:]).all(axis=1))
        return inner[spread(at[inner], strengths[inner], inside, max_keypoints, grid)]

    grey = np.asarray(Image.fromarray(resized).convert("L"))
    keypoints, scales, orientations, descriptors = feature.detect(grey, select, low_contrast)
    if not len(keypoints):
        return no_features(kind, feature.dimension, width, height)
    at = (keypoints / factor + corner).astype(np.float32)
    sizes = (scales / float(factor.mean())).astype(np.float32)
    # A keypoint with two orientations makes two features.
    return Features(at, sizes, orientations, descriptors, width, height, kind, low_contrast)[:max_keypoints]


def spread(keypoints: FloatArray, strengths: FloatArray, box: Box, limit: int, grid: int) -> npt.NDArray[np.intp]:
    """Return the indices of at most `limit` keypoints: the strongest of each cell, then the second, and so on.

    So the first of many keypoints are those that a smaller limit selects.
    """
    order = np.argsort(-strengths, kind="stable")
    size = np.array([box[2] - box[0], box[3] - box[1]])
    at = np.clip((keypoints[order] - box[:2]) / size * grid, 0, grid - 1).astype(int)
    cell = at[:, 0] * grid + at[:, 1]
    by_cell = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[by_cell], np.arange(grid * grid))
    rank = np.empty(len(order), int)
    rank[by_cell] = np.arange(len(order)) - starts[cell[by_cell]]
    return order[np.argsort(rank, kind="stable")[:limit]]


def _resize(crop: Pixels, side: float, long_side: int, max_enlargement: float) -> tuple[Pixels, FloatArray]:
    """Return the crop resized until `side` pixels are `long_side`, and the factors across and down."""
    height, width = crop.shape[:2]
    size = resized_size(width, height, long_side, max_enlargement, side)
    if size == (width, height):
        return np.ascontiguousarray(crop), np.ones(2, np.float32)
    filtering = Image.Resampling.BOX if size[0] < width else Image.Resampling.BICUBIC
    resized = Image.fromarray(crop).resize(size, filtering, reducing_gap=None)
    return np.asarray(resized), np.array([size[0] / width, size[1] / height], np.float32)


def resized_size(
    width: int, height: int, long_side: int, max_enlargement: float = 1.0, side: float | None = None
) -> tuple[int, int]:
    """Return the width and height of an image whose `side` (the longer by default) becomes `long_side`.

    A smaller image is enlarged by `max_enlargement` at most.
    """
    scale = min(max_enlargement, long_side / (side or max(width, height)))
    return max(1, round(width * scale)), max(1, round(height * scale))


KINDS = {"sift": Kind(sift.detect, sift.DIMENSION, long_side=768)}
"""The types of local feature, by the names that `extract` takes."""

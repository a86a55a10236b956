"""A photo -> its local features, by one of several kinds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.checks import choice, whole_number
from manifind.geometry import sift, xfeat
from manifind.geometry.features import Choose, Detected, Features, Pixels, check_box, check_pixels, empty
from manifind.types import Box, FloatArray

MARGIN = 0.1
"""How much of a box's sides is looked at beyond it: features at its edge are described by what is around them."""
CELLS = 8
"""The strongest features are chosen in turn from so many cells across and down, unless it is said otherwise."""


@dataclass(frozen=True)
class Kind:
    """A kind of local feature."""

    detect: Callable[[Pixels, Choose], Detected]
    dimension: int
    oriented: bool
    """Whether features know their scale and angle."""
    long_side: int
    """Larger photos are reduced to this before anything is detected."""
    detect_faint: Callable[[Pixels, Choose], Detected] | None = None
    """What detects faint features too; None where the kind knows no difference."""


def extract(
    pixels: npt.NDArray[np.uint8],
    box: Box | None = None,
    *,
    kind: str = "sift",
    most: int = 500,
    long_side: int | None = None,
    cells: int = CELLS,
    faint: bool = False,
) -> Features:
    """Return the local features of a photo, or of the part of it within a box: at most `most`, spread over it.

    Parameters
    ----------
    pixels : (h, w, 3) uint8 array
    box : (x0, y0, x1, y1), optional
        In pixels of the photo. The part is cut out before anything is reduced: a small object in a large photo keeps
        its detail.
    kind : str
        One of `KINDS`.
    most : int
        Features at most.
    long_side : int, optional
        What is larger is reduced to this; the kind's own by default.
    cells : int
        The strongest features are chosen in turn from this many cells across and down.
    faint : bool
        Let faint features count too: something smooth has hardly any others.
    """
    what = KINDS[choice(kind, KINDS, "kind")]
    whole_number(most, "most")
    check_pixels(pixels)
    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = inside = check_box(box or (0, 0, width, height), width, height)
    across, down = MARGIN * (x1 - x0), MARGIN * (y1 - y0)
    left, top = max(0, math.floor(x0 - across)), max(0, math.floor(y0 - down))
    right, bottom = min(width, math.ceil(x1 + across)), min(height, math.ceil(y1 + down))
    part = pixels[top:bottom, left:right]
    reduced, by = _reduced(part, max(x1 - x0, y1 - y0), long_side or what.long_side)
    corner = np.array([left, top], np.float32)

    def choose(points: FloatArray, strengths: FloatArray) -> npt.NDArray[np.intp]:
        at = points / by + corner
        kept = np.flatnonzero((at >= inside[:2]).all(axis=1) & (at < inside[2:]).all(axis=1))
        return kept[spread(at[kept], strengths[kept], inside, most, cells)]

    detect = what.detect_faint if faint else None
    points, scales, angles, descriptors = (detect or what.detect)(reduced, choose)
    if not len(points):
        return empty(kind, what.dimension, width, height)
    at = (points / by + corner).astype(np.float32)
    sizes = (scales / float(by.mean())).astype(np.float32)
    # A point that is turned in two ways makes two features.
    return Features(at, sizes, angles, descriptors, width, height, kind, detect is not None)[:most]


def spread(points: FloatArray, strengths: FloatArray, box: Box, most: int, cells: int) -> npt.NDArray[np.intp]:
    """Return the places of at most `most` points: the strongest of each cell, then the second of each, and so on."""
    order = np.argsort(-strengths, kind="stable")
    if len(order) <= most:
        return order
    size = np.array([box[2] - box[0], box[3] - box[1]])
    at = np.clip((points[order] - box[:2]) / size * cells, 0, cells - 1).astype(int)
    cell = at[:, 0] * cells + at[:, 1]
    by_cell = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[by_cell], np.arange(cells * cells))
    turn = np.empty(len(order), int)
    turn[by_cell] = np.arange(len(order)) - starts[cell[by_cell]]
    first = np.argsort(turn, kind="stable")[:most]
    return order[np.sort(first)]


def _reduced(part: Pixels, side: float, long_side: int) -> tuple[Pixels, FloatArray]:
    """Return the part so reduced that `side` pixels become at most `long_side`, and by how much across and down."""
    height, width = part.shape[:2]
    size = reduced_size(width, height, long_side, side)
    if size == (width, height):
        return np.ascontiguousarray(part), np.ones(2, np.float32)
    smaller = Image.fromarray(part).resize(size, Image.Resampling.BOX, reducing_gap=None)
    return np.asarray(smaller), np.array([size[0] / width, size[1] / height], np.float32)


def reduced_size(width: int, height: int, long_side: int, side: float | None = None) -> tuple[int, int]:
    """Return the width and the height of a photo so reduced that `side` pixels become at most `long_side`.

    `side` is the longer one unless it is said otherwise.
    """
    scale = min(1.0, long_side / (side or max(width, height)))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _grey(detect: Callable[[Pixels, Choose], Detected]) -> Callable[[Pixels, Choose], Detected]:
    return lambda pixels, choose: detect(np.asarray(Image.fromarray(pixels).convert("L")), choose)


KINDS = {
    "sift": Kind(
        _grey(sift.detect),
        sift.DIMENSION,
        oriented=True,
        long_side=768,
        detect_faint=_grey(partial(sift.detect, contrast=sift.FAINT)),
    ),
    "xfeat": Kind(_grey(xfeat.detect), xfeat.DIMENSION, oriented=False, long_side=768),
}
"""The kinds of local feature, by the names that `extract` takes."""

"""How much boxes have in common: the one arithmetic of boxes that geometry, repeats and indexes share.

Boxes are (x0, y0, x1, y1), single or in arrays (..., 4), which are broadcast against each other.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[Any]
"""(...,): a floating number for each pair of boxes."""
THINNEST = 1e-6
"""What the side of a box counts as, at least."""


def overlaps(a: npt.ArrayLike, b: npt.ArrayLike) -> Amounts:
    """Return the intersection over union of boxes; NaN where a box has no place."""
    a, b = np.asarray(a), np.asarray(b)
    both = _shared(a, b)
    return np.asarray(both / (areas(a) + areas(b) - both))


def shared_area(a: npt.ArrayLike, b: npt.ArrayLike) -> Amounts:
    """Return which part of the smaller of two boxes the other covers."""
    a, b = np.asarray(a), np.asarray(b)
    return np.asarray(_shared(a, b) / np.minimum(areas(a), areas(b)))


def areas(boxes: Amounts) -> Amounts:
    """Return the areas of boxes; a side counts as `THINNEST` at least, so that an area may be divided by."""
    return np.asarray(np.maximum(boxes[..., 2:] - boxes[..., :2], THINNEST).prod(axis=-1))


def _shared(a: Amounts, b: Amounts) -> Amounts:
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    return np.asarray(np.maximum(sides, 0).prod(axis=-1))

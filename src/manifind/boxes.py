"""Boxes (x0, y0, x1, y1) in pixels: the one parser, the one clipping, and overlaps.

`iou`, `covered_fraction` and `areas` take single boxes or arrays (..., 4), which are broadcast against each other.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.types import Box

MIN_SIDE = 1e-6
"""Smallest side of a box in `areas`, in pixels: an area can be divided by."""
MAX_TEXT = 200
"""Characters of a box in text; a longer text is no box."""


def parse_box(value: Any, name: str = "box") -> Box:
    """Return four finite numbers as a box; `value` is ``"x0,y0,x1,y1"`` or a sequence of four."""
    parts = value.split(",") if isinstance(value, str) and len(value) <= MAX_TEXT else value
    try:
        x0, y0, x1, y1 = (float(part) for part in parts)
    except (TypeError, ValueError, OverflowError):
        x0 = y0 = x1 = y1 = math.nan
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        shown = repr(value)
        raise InvalidInputError(
            f"{name} is {shown if len(shown) < MAX_TEXT else shown[:80] + '…'}; "
            "give four numbers x0, y0, x1, y1 in pixels.",
            code="box-numbers",
        )
    return x0, y0, x1, y1


def clip_box(value: Any, width: int, height: int) -> Box:
    """Return the part of a box inside an image of this size; a box without such a part is an error."""
    x0, y0, x1, y1 = box = parse_box(value)
    inside = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
    if not (inside[0] < inside[2] and inside[1] < inside[3]):
        raise InvalidInputError(
            f"box is {format_box(box)}, empty or outside the photo of {width} × {height} pixels; "
            "give x0 < x1 and y0 < y1 inside it.",
            code="box-outside",
        )
    return inside


def format_box(box: Box) -> str:
    """Return a box as text for messages: ``(x0, y0, x1, y1)``."""
    return "(" + ", ".join(f"{side:g}" for side in box) + ")"


def iou(a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the intersection over union of boxes; NaN where a coordinate is NaN."""
    a, b = np.asarray(a), np.asarray(b)
    intersection = _intersection(a, b)
    return np.asarray(intersection / (areas(a) + areas(b) - intersection))


def covered_fraction(a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the fraction of the smaller of two boxes that the other covers."""
    a, b = np.asarray(a), np.asarray(b)
    return np.asarray(_intersection(a, b) / np.minimum(areas(a), areas(b)))


def areas(boxes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the areas of boxes; a side counts as `MIN_SIDE` at least."""
    return np.asarray(np.maximum(boxes[..., 2:] - boxes[..., :2], MIN_SIDE).prod(axis=-1))


def _intersection(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    return np.asarray(np.maximum(sides, 0).prod(axis=-1))

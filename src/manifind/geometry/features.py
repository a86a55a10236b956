"""What the room works on: the local features of one photo, as plain arrays.

A local feature is a point of a photo with a descriptor of what surrounds it. Features of a kind that is oriented also
know how large that surrounding is and which way it is turned, so that one pair of matching features is a guess of the
whole map between two photos.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInput
from manifind.types import Box, FloatArray

Pixels = npt.NDArray[np.uint8]
"""(h, w, 3), red, green, blue."""
Choose = Callable[[FloatArray, FloatArray], npt.NDArray[np.intp]]
"""Takes points (m, 2) and their strengths; returns the places of those that are to be described, the best first."""
Detected = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Points (m, 2), scales, angles and descriptors (m, d), the best first, in pixels of what was looked at."""


@dataclass(frozen=True, eq=False)
class Features:
    """The local features of a photo or of a part of it, the strongest first.

    >>> features = extract(pixels, box=(40, 60, 220, 310))
    >>> features.points[0], features.descriptors.shape
    """

    points: FloatArray
    """(m, 2): x and y in pixels of the photo."""
    scales: FloatArray
    """(m,): the size of each feature in pixels of the photo; one where the kind knows none."""
    angles: FloatArray
    """(m,): how each feature is turned, in radians; zero where the kind does not know."""
    descriptors: FloatArray
    """(m, d), unit rows."""
    width: int
    """Of the whole photo, in pixels."""
    height: int
    kind: str
    faint: bool = False
    """Whether faint features are among them."""

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"Features({len(self)} of kind {self.kind!r}, photo of {self.width} by {self.height})"

    def __getitem__(self, chosen: npt.NDArray[Any] | slice) -> Self:
        """Return some of the features, by a mask, places or a slice."""
        return replace(
            self,
            points=self.points[chosen],
            scales=self.scales[chosen],
            angles=self.angles[chosen],
            descriptors=self.descriptors[chosen],
        )

    def is_part(self, box: Box | None) -> bool:
        """Return whether a box is a part of the photo, and not all of it."""
        return box is not None and tuple(box) != (0, 0, self.width, self.height)

    def within(self, box: Box) -> Self:
        """Return the features whose point lies in a box."""
        return self[np.asarray((self.points >= box[:2]).all(axis=1) & (self.points < box[2:]).all(axis=1))]

    def resized(self, width: int, height: int) -> Self:
        """Return the same features in pixels of a copy of the photo that has another size."""
        by = np.array([width / self.width, height / self.height], np.float32)
        return replace(
            self, points=self.points * by, scales=self.scales * np.sqrt(by.prod()), width=width, height=height
        )


def empty(kind: str, dimension: int, width: int, height: int) -> Features:
    """Return the features of a photo in which there are none."""
    none = np.empty(0, np.float32)
    return Features(np.empty((0, 2), np.float32), none, none, np.empty((0, dimension), np.float32), width, height, kind)


def check_pixels(pixels: npt.NDArray[Any]) -> Pixels:
    """Return a photo's pixels if they are (h, w, 3) of uint8."""
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape:
        raise InvalidInput(
            f"pixels have shape {pixels.shape} and dtype {pixels.dtype}; give (height, width, 3) uint8 pixels."
        )
    return pixels


def check_box(box: Box, width: int, height: int) -> Box:
    """Return the part of a box that lies within a photo."""
    try:
        x0, y0, x1, y1 = (float(side) for side in box)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"box is {box!r}; give (x0, y0, x1, y1) in pixels.") from error
    inside = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
    if not (inside[0] < inside[2] and inside[1] < inside[3]):
        raise InvalidInput(
            f"box is {box!r}, empty or outside the photo of {width} by {height} pixels; "
            "give x0 < x1 and y0 < y1 inside it."
        )
    return inside

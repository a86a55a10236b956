"""The local features of one image, as plain arrays.

A local feature is a keypoint with a descriptor of its surroundings. A keypoint has a position, a scale and an
orientation, so one matching pair of features is a hypothesis for the whole transform between two images.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.types import Box, FloatArray

Pixels = npt.NDArray[np.uint8]
"""(h, w, 3), red, green, blue."""
Codes = npt.NDArray[np.uint8]
"""Descriptors in whole numbers from 0 to `MAX_CODE`."""
MAX_CODE = 127
"""Two products of such codes fit in 16 bits, in which AVX2 adds them."""
Select = Callable[[FloatArray, FloatArray], npt.NDArray[np.intp]]
"""Takes keypoints (m, 2) and their strengths; returns the indices of the selected keypoints, best first."""
Detected = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Keypoints (m, 2), scales, orientations and descriptors (m, d), best first, in pixels of the detector's input."""


@dataclass(frozen=True, eq=False)
class Features:
    """The local features of an image or of a box in it, the strongest first.

    >>> features = extract(pixels, box=(40, 60, 220, 310))
    >>> features.keypoints[0], features.descriptors.shape
    """

    keypoints: FloatArray
    """(m, 2): x and y in pixels of the image."""
    scales: FloatArray
    """(m,): the size of each feature in pixels of the image."""
    orientations: FloatArray
    """(m,): radians."""
    descriptors: FloatArray
    """(m, d), unit rows without negative coordinates."""
    width: int
    """Of the whole image, in pixels."""
    height: int
    kind: str
    low_contrast: bool = False
    """Whether low-contrast keypoints are included."""

    def __len__(self) -> int:
        return len(self.keypoints)

    def __repr__(self) -> str:
        return f"Features({len(self)} of kind {self.kind!r}, image of {self.width} by {self.height})"

    def __getitem__(self, selected: npt.NDArray[Any] | slice) -> Self:
        """Return a subset of the features, by a mask, indices or a slice."""
        return replace(
            self,
            keypoints=self.keypoints[selected],
            scales=self.scales[selected],
            orientations=self.orientations[selected],
            descriptors=self.descriptors[selected],
        )

    @cached_property
    def codes(self) -> Codes:
        """The descriptors in whole numbers, (m, 128), as they are matched: the largest coordinate of each is 127."""
        highest = np.maximum(self.descriptors.max(axis=1, initial=0), np.float32(1e-9))[:, None]
        return np.asarray(np.rint(self.descriptors * (MAX_CODE / highest)), np.uint8, order="C")

    @cached_property
    def frames(self) -> FloatArray:
        """(m, 4): x, y, scale and orientation of each feature."""
        return np.column_stack([self.keypoints, self.scales, self.orientations]).astype(np.float32, copy=False)

    def is_part(self, box: Box | None) -> bool:
        """Return whether a box is a part of the image, and not all of it."""
        return box is not None and tuple(box) != (0, 0, self.width, self.height)

    def within(self, box: Box) -> Self:
        """Return the features whose keypoint lies in a box."""
        return self[np.asarray((self.keypoints >= box[:2]).all(axis=1) & (self.keypoints < box[2:]).all(axis=1))]

    def resized(self, width: int, height: int) -> Self:
        """Return the same features in pixels of a copy of the image that has another size."""
        by = np.array([width / self.width, height / self.height], np.float32)
        return replace(
            self, keypoints=self.keypoints * by, scales=self.scales * np.sqrt(by.prod()), width=width, height=height
        )


def no_features(kind: str, dimension: int, width: int, height: int) -> Features:
    """Return the features of an image that has none."""
    none = np.empty(0, np.float32)
    return Features(np.empty((0, 2), np.float32), none, none, np.empty((0, dimension), np.float32), width, height, kind)


def check_pixels(pixels: npt.NDArray[Any]) -> Pixels:
    """Return an image's pixels if they are (h, w, 3) of uint8."""
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape:
        raise InvalidInputError(
            f"pixels have shape {pixels.shape} and dtype {pixels.dtype}; give (height, width, 3) uint8 pixels."
        )
    return pixels

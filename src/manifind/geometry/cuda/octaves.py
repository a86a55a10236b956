"""Where the pictures of a batch lie in the pyramid: octave after octave, in each its scales, in each its pictures."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Sizes = npt.NDArray[np.int64]
"""(pictures, 2): height and width."""
Table = npt.NDArray[np.int32]

LAYERS, SCALES = 3, 6
"""Levels of an octave at which points are looked for, and the scales that this takes."""
SMALLEST = 12
"""Pixels that the sides of a picture have at least: a picture with less has no further octave."""
SIGMA, CAMERA = 1.6, 0.5
"""How blurred the first scale is, in pixels of its octave, and how blurred a photo is as it comes."""
WEIGHTS = 16
"""Places for the weights of a blur."""
ALIGNED = 16
"""What the GPU reads at once begins at a multiple of this many bytes."""


@dataclass(frozen=True, eq=False)
class Octaves:
    """A pyramid of pictures that begin with these sizes."""

    first: Sizes
    doubled: npt.NDArray[np.bool_]
    """Which pictures are photos at twice their size."""

    @cached_property
    def sizes(self) -> list[Sizes]:
        """The sizes in each octave; zero from where a picture has no further octave."""
        sizes: list[Sizes] = []
        halved = self.first
        while len(halved := np.where(halved.min(axis=1, keepdims=True) >= SMALLEST, halved, 0)) and halved.any():
            sizes.append(halved)
            halved = halved // 2
        return sizes

    @cached_property
    def starts(self) -> list[npt.NDArray[np.int64]]:
        """Where each picture starts in a scale of each octave."""
        areas = [own.prod(axis=1) for own in self.sizes]
        return [np.cumsum(own) - own for own in areas]

    @cached_property
    def rows(self) -> list[int]:
        """How far one scale lies from the next in each octave."""
        return [-(-int(own.prod(axis=1).sum()) // ALIGNED) * ALIGNED for own in self.sizes]

    @cached_property
    def begins(self) -> list[int]:
        """Where each octave would begin if it had a single scale; the last entry is where all end."""
        begins: list[int] = np.cumsum([0, *self.rows]).tolist()
        return begins

    @cached_property
    def tables(self) -> Table:
        """(octaves, pictures, 4): start, height, width, and in the first octave whether the photo is doubled."""
        tables = np.zeros((len(self.sizes), len(self.first), 4), np.int32)
        for table, size, start in zip(tables, self.sizes, self.starts, strict=True):
            table[:, 0], table[:, 1:3] = start, size
        tables[:1, :, 3] = self.doubled
        return tables

    @cached_property
    def segments(self) -> Table:
        """(octaves · layers · pictures, 8): which pixels of the masks of extrema are of which picture.

        Where a segment starts in the masks; where the picture starts in the scales, and how far one scale is from the
        next; the picture's height and width; the octave, the layer, and the picture.
        """
        made = []
        for octave, (own, start, rows) in enumerate(zip(self.sizes, self.starts, self.rows, strict=True)):
            for layer in range(1, LAYERS + 1):
                masks = LAYERS * self.begins[octave] + (layer - 1) * rows + start
                pictures = np.arange(len(own))
                same = [np.full_like(pictures, one) for one in (rows, octave, layer)]
                scales = SCALES * self.begins[octave] + start
                made.append(np.column_stack([masks, scales, same[0], own, same[1], same[2], pictures]))
        return np.concatenate(made).astype(np.int32)


def blurs() -> tuple[list[int], npt.NDArray[np.float32]]:
    """Return the radius of the blur before the first scale and of those between scales, and their weights.

    Weights are (blurs, 2, 16), for photos as they are and for doubled ones, which differ in the first blur alone.
    """
    widths = [[_first(1.0), _first(0.5)]]
    for layer in range(1, SCALES):
        near, far = (SIGMA * 2 ** ((layer + step) / LAYERS) for step in (-1, 0))
        widths.append([(far**2 - near**2) ** 0.5] * 2)
    radii, weights = [], np.zeros((len(widths), 2, WEIGHTS), np.float32)
    for blur, pair in zip(weights, widths, strict=True):
        own = [max(1, int(np.ceil(3 * sigma))) for sigma in pair]
        radii.append(max(own))
        for row, sigma, radius in zip(blur, pair, own, strict=True):
            bell = np.exp(-0.5 * np.arange(radius + 1) ** 2 / sigma**2)
            row[: radius + 1] = bell / (2 * bell.sum() - bell[0])
    return radii, weights


def _first(step: float) -> float:
    """Return how much the photo is blurred to become the first scale, whose pixel is `step` of the photo's."""
    return float(max(SIGMA**2 - (CAMERA / step) ** 2, 0.01) ** 0.5)

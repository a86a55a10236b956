"""SIFT by the compiled core."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.kernels.cpu.core import core
from manifind.types import FloatArray, IntArray

CONTRAST = 0.04
"""How much a point stands out at least: Lowe's. From black to white is 1."""


class LocalFeatures(NamedTuple):
    """The points of a photo. They are described when `describe` is called."""

    points: FloatArray
    """(m, 2): the x and the y of each point."""
    sizes: FloatArray
    strengths: FloatArray
    describe: Callable[[npt.NDArray[np.intp]], tuple[IntArray, FloatArray, FloatArray]]
    """A function that describes some points, given by their places. It returns three arrays with an entry for each
    feature: the place of its point, its angle, and its descriptor. A point may have several features."""


def local_features(
    grey: npt.NDArray[np.uint8], *, doubled: bool = False, contrast: float = CONTRAST
) -> LocalFeatures | None:
    """Return the points of a grey photo by SIFT; None where there is no compiled core.

    `doubled` enlarges the photo to twice its size first, which finds smaller points and takes four times as long.
    Points that stand out by less than `contrast` do not count.
    """
    if core is None:
        return None
    found = core.LocalFeatures(np.ascontiguousarray(grey), doubled, contrast)
    rows = found.points()
    return LocalFeatures(
        rows[:, :2], rows[:, 2], rows[:, 3], lambda chosen: found.describe(np.ascontiguousarray(chosen, np.int32))
    )

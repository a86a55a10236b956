"""The map that most matching points agree with, by the compiled core."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from manifind.kernels.cpu.core import core
from manifind.types import Box

Doubles = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


def agreement(
    pairs: Doubles,
    anchors: Places,
    guesses: npt.NDArray[np.complexfloating],
    box: Box,
    tolerances: tuple[float, float],
    rules: Mapping[str, float],
) -> tuple[Doubles, Places, int] | None:
    """Return the map, the pairs that agree with it and how many of these lie at places of their own; or None.

    Parameters
    ----------
    pairs : (m, 4) or (m, 6)
        Points of the query and of the photo; the logarithm of how much larger each is in the photo, and how far turned.
    anchors : (g,)
        The pair from which each guess starts.
    guesses : (g,) complex
        By how much each guess scales and turns.
    box : (x0, y0, x1, y1)
        What of the query the map is to carry.
    tolerances : (float, float)
        How far a pair may lie from the map, in pixels of the query and of the photo.
    rules : mapping of str to float
        The other rules of ``core/agreement.h`` by their names.
    """
    apart = np.stack([guesses.real, guesses.imag], axis=1).astype(np.float64)
    found = core.agreement(pairs, anchors.astype(np.int64), apart, box, tolerances, **rules)
    if found is None:
        return None
    to, inliers, distinct = found
    return to, inliers.astype(np.intp), distinct

"""The affinity of two regions as a function of their similarity."""

from typing import cast

import numpy as np
import numpy.typing as npt

from manifind.types import FloatArray


def kernel(similarities: npt.NDArray[np.floating], gamma: float) -> FloatArray:
    """Return max(s, 0)^gamma, the affinity of regions with inner product s."""
    positive: FloatArray = np.maximum(similarities, 0, dtype=np.float32)
    if gamma == 3:  # a general power is forty times as slow
        return positive * positive * positive
    return cast(FloatArray, positive ** np.float32(gamma))

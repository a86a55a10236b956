"""The types that every room uses, each defined once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32] | npt.NDArray[np.float16]
"""Descriptors as a collection keeps them: half precision is enough to store and is widened to compute."""

Tensor = Any
"""A torch.Tensor; torch has no types where it is not installed."""

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the upright photo."""

Progress = Callable[[int, int], None]
"""Called with how much of the work is done, and how much there is."""
StageProgress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done, and how much there is."""

"""A vector set in an array of this process, from which those of all devices derive."""

import numpy as np
import numpy.typing as npt

from manifind.kernels.api import VectorSet
from manifind.types import FloatArray, Vectors


class ArrayVectorSet(VectorSet):
    """Descriptors of regions in an array, (n, d). Each device adds its own way to search them."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors: Vectors = vectors if vectors.flags.c_contiguous else vectors.copy()

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{n:,} rows of {d} dimensions, {self.vectors.dtype}, {self._describe_storage()}>"

    def _describe_storage(self) -> str:
        """Say in words what is held beside the array."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows there are, and of how many dimensions."""
        n, d = self.vectors.shape
        return n, d

    def gather(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return some rows in float32."""
        taken: FloatArray = self.vectors[rows].astype(np.float32, copy=False)
        return taken

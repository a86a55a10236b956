"""The compiled extension for local features; ``core/features/module.cpp`` checks all arguments.

Calls release the interpreter's lock, and Ctrl-C interrupts SIFT and the search within some 50 ms.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from manifind.types import FloatArray, IntArray

class Sift:
    """SIFT keypoints of a grey photo.

    A row of `keypoints` is x, y, size and strength. `describe` returns the keypoint of each feature, its orientation in
    radians, and its RootSIFT descriptor, a unit row.
    """

    def __init__(self, grey: npt.NDArray[np.uint8], upsample: bool, contrast_threshold: float) -> None: ...
    def keypoints(self) -> FloatArray: ...
    def describe(self, indices: IntArray) -> tuple[IntArray, FloatArray, FloatArray]: ...

def estimate_transform(
    matches: npt.NDArray[np.float64],
    anchors: npt.NDArray[np.int64],
    factors: npt.NDArray[np.float64],
    box: Sequence[float],
    tolerances: Sequence[float],
    hypothesis_tolerance: float,
    max_rotation_error: float,
    max_log_scale_error: float,
    max_refined: int,
    min_homography_inliers: int,
    affine_rounds: int,
    max_anisotropy: float,
    max_scale: float,
    min_inliers: int,
) -> tuple[npt.NDArray[np.float64], IntArray, int] | None:
    """Return the transform (3, 3) with the most inliers, their indices and the number at distinct places."""

def has_vector_popcount() -> bool:
    """Whether this machine has AVX-512 VPOPCNTDQ, which `knn_hamming` needs."""

def knn_hamming(
    queries: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8], k: int, threads: int
) -> tuple[IntArray, IntArray]:
    """Return the k rows of 32 bytes nearest to each query by Hamming distance, and the distances."""

def level() -> str: ...
def levels() -> list[str]: ...
def use_level(name: str) -> None: ...

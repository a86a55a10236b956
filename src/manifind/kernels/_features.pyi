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
    matches: npt.NDArray[np.float64], box: Sequence[float], tolerances: Sequence[float], config: dict[str, float]
) -> tuple[npt.NDArray[np.float64], IntArray, int] | None:
    """Return the transform (3, 3) with the most inliers, their indices and the number at distinct places."""

def match_descriptors(
    query: npt.NDArray[np.uint8], image: npt.NDArray[np.uint8], max_ratio: float
) -> npt.NDArray[np.int32]:
    """Return the pairs (k, 2) of mutual nearest neighbours that pass the ratio test."""

def match_images(
    codes: npt.NDArray[np.uint8],
    frames: FloatArray,
    images: list[tuple[npt.NDArray[np.uint8], FloatArray | None, int, int]],
    packed_codes: npt.NDArray[np.uint8],
    packed_scales: FloatArray,
    max_ratio: float,
    box: Sequence[float],
    tolerances: Sequence[float],
    config: dict[str, float],
    threads: int,
) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], FloatArray, int] | None]:
    """Return the transform of each image, its inliers (k, 2), their cosines and the number at distinct places."""

def has_vector_popcount() -> bool:
    """Whether this machine has AVX-512 VPOPCNTDQ, which counts the bits of a register at once."""

def counts_bits() -> bool:
    """Whether this machine counts the bits of a word by an instruction: slower without."""

def use_vector_popcount(use: bool) -> None:
    """Leave AVX-512 VPOPCNTDQ aside, for tests, or take it again."""

def knn_hamming(
    queries: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8], k: int, threads: int
) -> tuple[IntArray, IntArray]:
    """Return the k rows of 32 bytes nearest to each query by Hamming distance, and the distances."""

def knn_hamming_groups(
    queries: npt.NDArray[np.uint8],
    visited: IntArray,
    codes: npt.NDArray[np.uint8],
    numbers: IntArray,
    starts: npt.NDArray[np.int64],
    k: int,
    threads: int,
) -> tuple[IntArray, IntArray]:
    """Return the k codes nearest to each query among the groups that it visits, by their numbers, and the distances.

    -1 where these groups have fewer codes.
    """

def nearest_hamming(rows: npt.NDArray[np.uint8], centres: npt.NDArray[np.uint8], threads: int) -> IntArray:
    """Return which centre is nearest to each row, the first of equally near ones."""

def level() -> str: ...
def levels() -> list[str]: ...
def use_level(name: str) -> None: ...

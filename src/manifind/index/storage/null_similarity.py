"""How similar regions are by chance: what one pair in `ONE_IN` of regions of different photos exceeds.

It is measured when a generation is written and stands in the manifest, so that a search, a shortlist of a published
collection among them, need not compare thousands of regions first.
"""

import numpy as np
import numpy.typing as npt

from manifind.types import Vectors

ONE_IN = 300
SAMPLE = 400, 40_000
"""How many regions are compared, and with how many others."""
BLOCK = 4_000
"""Regions that are compared at a time."""


def measure_null_similarity(vectors: Vectors, image_of: npt.NDArray[np.integer]) -> float:
    """Return the similarity that one pair in `ONE_IN` of regions of different photos exceeds; 1 where there is no pair.

    Parameters
    ----------
    vectors : (n, d) array
        Unit rows.
    image_of : (n,) integers
        The photo of each region.
    """
    n = len(vectors)
    rows, columns = (np.unique(np.linspace(0, n - 1, min(size, n)).astype(np.intp)) for size in SAMPLE)
    sample = np.asarray(vectors[rows], np.float32)
    pairs = sum(int((image_of[columns] != image).sum()) for image in image_of[rows])
    if not pairs:
        return 1.0
    kept = pairs // ONE_IN + 2  # the quantile lies between two of the largest
    largest = np.empty(0, np.float32)
    for start in range(0, len(columns), BLOCK):
        own = columns[start : start + BLOCK]
        similarities = sample @ np.asarray(vectors[own], np.float32).T
        apart = similarities[image_of[rows][:, None] != image_of[own]]
        largest = np.concatenate([largest, apart])
        largest = np.partition(largest, max(0, len(largest) - kept))[-kept:]
    place = (pairs - 1) * (1 - 1 / ONE_IN) - (pairs - len(largest))
    return float(np.interp(place, np.arange(len(largest)), np.sort(largest)))

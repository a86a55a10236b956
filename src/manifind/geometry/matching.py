"""Matching descriptors: mutual nearest neighbours that pass the ratio test (Lowe, IJCV 2004).

The second nearest neighbour of the ratio test is a feature of the query, not of the image. An image may show the object
twice; each query feature then has two equals in it, and a ratio test within the image would reject both.
"""

import numpy as np
import numpy.typing as npt

from manifind.types import FloatArray

Matches = npt.NDArray[np.intp]
"""(k, 2): indices of matching features, the query's and the image's."""


def match_descriptors(similarities: FloatArray, *, max_ratio: float) -> Matches:
    """Return the pairs of features that match.

    Parameters
    ----------
    similarities : (n, m) array
        The inner products of the image's n descriptors with the query's m, all of unit norm.
    max_ratio : float
        The largest distance to the nearest, in parts of the distance to the second nearest.
    """
    if not similarities.size:
        return np.empty((0, 2), np.intp)
    rows = np.arange(len(similarities))
    nearest = similarities.argmax(axis=1)
    best = similarities[rows, nearest]
    mutual = best == similarities.max(axis=0)[nearest]
    rows, nearest, best = rows[mutual], nearest[mutual], best[mutual]
    others = similarities[rows]
    others[np.arange(len(rows)), nearest] = -1
    # The squared distance of unit rows is 2 − 2 s.
    passed = 1 - best < max_ratio**2 * (1 - others.max(axis=1))
    return np.stack([nearest[passed], rows[passed]], axis=1)

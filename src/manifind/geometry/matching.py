"""Which features of a query and of a photo look alike: mutual nearest neighbours that beat their runner-up.

A pair is kept where each is the other's nearest and where the query's feature is clearly nearer to the photo's than the
second nearest feature of the query is. The runner-up is looked for among the query's features and not among the
photo's, because a photo may show the object twice: then each feature of the query has two equals in the photo, and a
runner-up in the photo would refuse both.
"""

import numpy as np
import numpy.typing as npt

from manifind.types import FloatArray

Pairs = npt.NDArray[np.intp]
"""(k, 2): places of matching features, the query's and the photo's."""


def pairs_of(similar: FloatArray, *, ratio: float) -> Pairs:
    """Return the pairs of features that match.

    Parameters
    ----------
    similar : (n, m) array
        The inner products of the photo's n descriptors with the query's m, all of unit norm.
    ratio : float
        The most that the distance to the nearest may be, in parts of the distance to the second nearest.
    """
    if not similar.size:
        return np.empty((0, 2), np.intp)
    places = np.arange(len(similar))
    nearest = similar.argmax(axis=1)
    best = similar[places, nearest]
    mutual = best == similar.max(axis=0)[nearest]
    places, nearest, best = places[mutual], nearest[mutual], best[mutual]
    others = similar[places]
    others[np.arange(len(places)), nearest] = -1
    # The squared distance of unit rows is 2 − 2 s.
    clear = 1 - best < ratio**2 * (1 - others.max(axis=1))
    return np.stack([nearest[clear], places[clear]], axis=1)

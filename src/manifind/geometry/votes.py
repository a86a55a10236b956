"""Which photos of many may show an object, by their local features alone: a quick look before the close one.

Comparing two photos point by point takes a few milliseconds, so that geometry looks at the first photos of a ranking. A
small object in a photo full of other things may stand anywhere in it. Here every feature of the query votes for the
`NEAREST` features most like it among those of all photos together, by as many bits as they have in common. Two features
that match also say how much larger and how turned the photo shows the object. Votes for one photo count together where
they agree in both: a photo that shows the object unites its votes, and any other photo has its votes scattered.
"""

import numpy as np
import numpy.typing as npt

from manifind.geometry.packing import PLACE, Packed, gray
from manifind.kernels import nearest_bits

NEAREST = 10
"""How many features of all photos each feature of the query votes for: chosen on small objects in clutter."""
TURN, OCTAVE = 32, 20
"""How far votes that agree may differ in angle, in 256ths of a turn, and in scale, in twentieths of an octave."""
TURNS, OCTAVES = 256 // TURN, 32
BINS = TURNS * OCTAVES


def votes(query: Packed, photos: Packed, starts: npt.NDArray[np.int64], kind: str = "sift") -> npt.NDArray[np.int64]:
    """Return how many features of a query agree on each photo.

    Parameters
    ----------
    query : (m, 38)
        The packed features of what is looked for.
    photos : (n, 38)
        Those of all photos, one photo after the other.
    starts : (photos + 1,)
        Where the features of each photo start, and where the last ones end.
    kind : str
        Of feature.
    """
    count = len(starts) - 1
    if not len(query) or not len(photos):
        return np.zeros(count, np.int64)
    nearest, _ = nearest_bits(gray(query, kind), gray(photos, kind), min(NEAREST, len(photos)))
    chosen = nearest.ravel()
    voter = np.repeat(np.arange(len(query)), nearest.shape[1])
    scale, angle = (photos[chosen, at].astype(np.int64) - query[voter, at] for at in (PLACE - 2, PLACE - 1))
    photo = np.searchsorted(starts, chosen, side="right") - 1
    agreed = np.zeros(count, np.int64)
    # Bins overlap by half, so that no two votes that agree closely always fall into two.
    for turned in (0, TURN // 2):
        for larger in (0, OCTAVE // 2):
            turns = (angle + turned) % 256 // TURN
            octaves = (scale + larger) // OCTAVE + OCTAVES // 2
            united = np.bincount((photo * TURNS + turns) * OCTAVES + octaves, minlength=count * BINS)
            np.maximum(agreed, united.reshape(count, BINS).max(axis=1), out=agreed)
    return agreed

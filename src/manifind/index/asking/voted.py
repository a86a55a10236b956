"""Photos of an index that local features vote for, wherever in the ranking they stand.

A region of a photo holds a small object and much besides, so that such a photo may stand far down. The features of what
a box holds are compared with those of many photos at once (`manifind.geometry.votes`), and geometry looks at the photos
on which most of them agree.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from manifind.geometry import pack, votes
from manifind.geometry.verification import TEXTURE
from manifind.index.asking.features import Sought
from manifind.index.state.generation import Generation

AMONG = 2_000
"""How many photos of a ranking, from the first on, are voted for: a tenth of a millisecond of the processor each."""
FEWEST = 4
"""Votes without which a photo is not looked at."""


def voted(now: Generation, images: npt.NDArray[np.integer], views: Sequence[Sought], most: int) -> list[int]:
    """Return the photos on which most features of the query agree, the best first.

    Parameters
    ----------
    now : Generation
        Where it keeps no features at hand, there are no such photos.
    images : array of int
        A ranking. The first `AMONG` photos of it are voted for.
    views : sequence of features and boxes
        What is looked for. Whole photos and boxes that have too little texture do not vote.
    most : int
        How many photos to return at most.
    """
    local = now.local
    if local is None or len(local.starts) != len(now.catalogue) + 1:
        return []
    voters = [query for query, box in views if query.is_part(box) and len(query) >= TEXTURE]
    if not voters:
        return []
    among = images[:AMONG]
    here = local.some(np.sort(among).tolist()) if len(among) < len(now.catalogue) else local
    agreed = np.zeros(len(here.starts) - 1, np.int64)
    for query in voters:
        np.maximum(agreed, votes(pack(query), here.rows, here.starts, local.keeping.kind), out=agreed)
    numbers = np.sort(among) if here is not local else np.arange(len(agreed))
    best = np.argsort(-agreed, kind="stable")[:most]
    return [int(numbers[place]) for place in best if agreed[place] >= FEWEST]

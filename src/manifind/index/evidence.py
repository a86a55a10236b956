"""Where the evidence of a ranking ends.

Diffusion gives every photo a score, so that a ranking has no end of its own. Two measured properties say how far to
trust one (``benchmarks/evidence.py`` prints how well each does):

- **Does anything match?** Two regions of different photos resemble each other to some degree by chance. What one pair
  in three hundred of this collection exceeds says how much; the most similar of all pairs that a stranger makes with
  the collection stays below `AT_MOST` times as much: `chance`. It is not less than `LEAST_BY_CHANCE`, which strangers
  stay below in collections of several thousand photos, and not more than `MOST_BY_CHANCE`, since in a collection of one
  thing alone most pairs are no chance. Where no region of the query resembles any region of the best photos more than
  that, nothing matches, unless one photo stands out: a stranger's scores fall slowly, so that a best score of
  `STANDS_OUT` times the fifth is none of theirs.
- **Down to where?** Scores fall steeply behind the photos that show the object. The line is where they fall below half
  of the best.

Photos that the query itself was taken from are left out of both: they match themselves. Where geometry was asked and
has verified photos, the line rests on these instead (`manifind.index.verify`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

import numpy as np

from manifind.index.generation import Generation, State
from manifind.index.query import Search
from manifind.types import FloatArray, IntArray

PART_OF_THE_BEST = 0.5
LOOKED_AT = 10
"""Among how many of the best photos there must be a region that resembles one of the query's."""

ONE_IN = 300
AT_MOST = 3.0
"""How many times the similarity that one pair in so many exceeds a stranger's regions reach; chosen on Holidays."""
LEAST_BY_CHANCE, MOST_BY_CHANCE = 0.40, 0.45
"""Bounds of what chance gives; the lower was chosen with strangers to Oxford5k."""
STANDS_OUT, BEHIND = 20.0, 4
"""How many times the score of the photo so many places behind it the best must have to stand out; chosen on Holidays,
where strangers had 15 at most."""

SAMPLE = 400, 40_000
"""How many regions are compared, and with how many others, to learn how similar regions are by chance."""


@dataclass(frozen=True)
class Evidence:
    """What speaks for the photos of a ranking."""

    likely: int
    """How many photos stand above the line, in rank order; the rest probably do not show the object."""
    similarity: float
    """The largest similarity of a region of the query to one of the best photos, the query's own left out."""
    chance: float
    """The similarity that regions which have nothing in common reach."""
    score: float
    """The score at the line."""
    stands_out: bool = False
    """Whether the best photo scores so far above the next ones that no stranger's does."""


def evidence(search: Search, own: Collection[int] = ()) -> Evidence | None:
    """Say where the evidence of a ranking by regional diffusion ends; return None for other methods.

    `own` are the photos of the collection that the query was taken from.
    """
    if search.method != "regional":
        return None
    chance = chance_similarity(search.generation)
    images, scores = search.ranking.images, search.ranking.scores
    others = np.flatnonzero(~np.isin(images, list(own)) & (scores > 0))
    similarity = 0.0
    for image in images[others[:LOOKED_AT]]:
        rows = search.generation.regions_of(int(image))
        found: FloatArray = search.query.vectors @ np.asarray(search.generation.manifold.vectors_[rows], np.float32).T
        similarity = max(similarity, float(found.max()))
    apart = len(others) > 2 * BEHIND and scores[others[0]] >= STANDS_OUT * scores[others[BEHIND]]
    if similarity <= chance and not apart:
        return Evidence(_leading(images, own), similarity, chance, 0.0)
    line = PART_OF_THE_BEST * float(scores[others[0]])
    return Evidence(int((scores >= line).sum()), similarity, chance, line, bool(apart))


def chance_similarity(now: State) -> float:
    """Return the similarity that regions of different photos hardly exceed by chance; measured once for each state."""
    with now.made.lock:
        if now.made.chance is not None:
            return now.made.chance
        here = cast(Generation, now)  # a collection elsewhere was published with it
        manifold, n = here.manifold, len(here.boxes)
        rows, columns = (np.unique(np.linspace(0, n - 1, min(size, n)).astype(np.intp)) for size in SAMPLE)
        image_of = np.repeat(np.arange(len(manifold.layout_.images)), manifold.layout_.counts)
        similarities = (
            np.asarray(manifold.vectors_[rows], np.float32) @ np.asarray(manifold.vectors_[columns], np.float32).T
        )
        pairs = similarities[image_of[rows][:, None] != image_of[columns]]
        least_likely = float(np.quantile(pairs, 1 - 1 / ONE_IN)) if len(pairs) else 1.0
        now.made.chance = min(max(AT_MOST * least_likely, LEAST_BY_CHANCE), MOST_BY_CHANCE)
        return now.made.chance


def _leading(images: IntArray, own: Collection[int]) -> int:
    """Return how many photos at the head of the ranking are the query's own."""
    count = 0
    while count < len(images) and int(images[count]) in own:
        count += 1
    return count

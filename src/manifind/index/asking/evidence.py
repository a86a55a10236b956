"""Where the evidence of a ranking ends.

Diffusion gives every photo a score, so that a ranking has no end of its own. What was measured says how far to trust
one (``benchmarks/line.py`` prints how well that does):

- **Does anything match?** One region of a stranger often resembles one region of some photo: two patches of sky do. A
  photo that shows the query's object has several regions, each of which resembles another region of the query. So the
  query resembles a photo by the mean similarity of the `PAIRS` best pairs of regions that are each other's best, and
  regions that are nearly `THE_SAME` count once (`resemblance`). Strangers stay below `TOGETHER` of what a single pair
  of regions reaches by chance (`chance_similarity`), and a little higher among more photos, since the best of many is
  better than the best of few (`among`). Where the query resembles none of the best photos more than that,
  nothing matches.
- **Down to where?** Scores fall steeply behind the photos that show the object. The line is where they fall below half
  of the best.

Photos that the query itself was taken from are left out of both: they match themselves. Where geometry was asked and
has verified photos, the line rests on these instead (`asking.verified`). Others stand above it too if they
score well and resemble both the query and what verified photos show of the object (`resembles_both`): what resembles
the query alone often shows what is behind the object in the query, and what resembles a verified photo alone what is
behind the object there.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

import numpy as np

from manifind.index.asking.query import Search
from manifind.index.state.chance import measure_unlikely
from manifind.index.state.generation import Generation, State
from manifind.types import FloatArray, IntArray

PART_OF_THE_BEST = 0.5
LOOKED_AT = 10
"""Among how many of the best photos there must be one that the query resembles."""
PAIRS, TOGETHER = 3, 0.62
"""How many pairs of regions count, and which part of what one pair reaches by chance their mean must exceed; chosen on
Holidays."""
PHOTOS, A_DOUBLING = 1_153, 0.07
"""Of how many photos Holidays has, and which part more strangers reach in a collection of twice as many; measured with
strangers to parts of Holidays, of 75 photos to all."""
LEAST_AMONG, MOST_AMONG = 0.6, 1.5
"""Bounds of that, for collections far smaller and far larger than those it was measured on: 20 and 160,000 photos."""
THE_SAME = 0.85
"""How similar two regions of a query, or of a photo, are that count as one: sky is everywhere the same. Chosen on
Holidays."""

AT_MOST = 3.0
"""How many times the similarity that one pair in so many exceeds a stranger's regions reach; chosen on Holidays."""
LEAST_BY_CHANCE, MOST_BY_CHANCE = 0.40, 0.45
"""Bounds of what chance gives; the lower was chosen with strangers to Oxford5k."""


@dataclass(frozen=True)
class Evidence:
    """What speaks for the photos of a ranking."""

    likely: int
    """How many photos stand above the line, in rank order; the rest probably do not show the object."""
    similarity: float
    """How much the query resembles that of the best photos which it resembles most, its own left out: `resemblance`."""
    chance: float
    """How much queries that have nothing in common with a photo resemble it."""
    score: float
    """The score at the line."""


def evidence(search: Search, own: Collection[int] = ()) -> Evidence | None:
    """Say where the evidence of a ranking by regional diffusion ends; return None for other methods.

    `own` are the photos of the collection that the query was taken from.
    """
    if search.method != "regional":
        return None
    images, scores = search.ranking.images, search.ranking.scores
    others = np.flatnonzero(~np.isin(images, list(own)) & (scores > 0))
    vectors = search.generation.manifold.vectors_
    query = search.query.vectors
    best: list[FloatArray] = [
        np.asarray(vectors[search.generation.regions_of(int(image))], np.float32)
        for image in images[others[:LOOKED_AT]]
    ]
    # Photos and queries of one region, of one's own descriptors, have no more pairs.
    pairs = min([PAIRS, len(query), *(len(regions) for regions in best)])
    similarity = max((resemblance(query, regions, pairs) for regions in best), default=0.0)
    chance = chance_similarity(search.generation)
    if pairs == PAIRS:
        chance *= TOGETHER * among(search.generation.photos)
    if similarity <= chance:
        return Evidence(_leading(images, own), similarity, chance, 0.0)
    line = PART_OF_THE_BEST * float(scores[others[0]])
    return Evidence(int((scores >= line).sum()), similarity, chance, line)


def among(photos: int) -> float:
    """Return how much more strangers resemble the best of so many photos than the best of those of Holidays.

    The best of many photos resembles a stranger more than the best of few. What all but 3 in 100 strangers stay below
    grows by the same amount whenever a collection doubles.
    """
    more = 1 + A_DOUBLING * float(np.log2(max(1, photos) / PHOTOS))
    return min(max(more, LEAST_AMONG), MOST_AMONG)


def resemblance(query: FloatArray, photo: FloatArray, pairs: int = PAIRS) -> float:
    """Return the mean similarity of the best pairs of regions that are each other's best, (m, d) and (r, d) unit rows.

    A pair whose region is nearly `THE_SAME` as that of a better pair, in the query or in the photo, does not count.
    Pairs that are missing count as nothing: a query whose regions all resemble one region has a single pair.
    """
    similar = query @ photo.T
    of_column, of_row = similar.argmax(axis=0), similar.argmax(axis=1)
    columns = np.flatnonzero(of_row[of_column] == np.arange(len(photo)))
    rows = of_column[columns]
    values = similar[rows, columns]
    same = np.maximum(query[rows] @ query[rows].T, photo[columns] @ photo[columns].T) >= THE_SAME
    counted: list[int] = []
    for pair in np.argsort(-values, kind="stable").tolist():
        if len(counted) < pairs and not same[pair, counted].any():
            counted.append(pair)
    return float(values[counted].sum()) / pairs


def resembles_both(search: Search, image: int) -> bool:
    """Return whether a photo resembles both the query as it was given and what verified photos taught, where any did.

    One region of the photo must resemble a region of each by more than one pair of regions in `ONE_IN` does by chance.
    """
    now, taught = search.generation, search.query.view_of < 0
    regions = np.asarray(now.manifold.vectors_[now.regions_of(image)], np.float32)
    views = [search.query.vectors[some] for some in (~taught, taught) if some.any()]
    both = np.min([(view @ regions.T).max(axis=0) for view in views], axis=0)
    return bool(both.max() > unlikely_similarity(now))


def chance_similarity(now: State) -> float:
    """Return the similarity that regions of different photos hardly exceed by chance.

    It is `AT_MOST` times what one pair of regions in `ONE_IN` exceeds, not less than `LEAST_BY_CHANCE`, which most
    strangers stay below in collections of several thousand photos, and not more than `MOST_BY_CHANCE`, since in a
    collection of one thing alone most pairs are no chance.
    """
    return min(max(AT_MOST * unlikely_similarity(now), LEAST_BY_CHANCE), MOST_BY_CHANCE)


def unlikely_similarity(now: State) -> float:
    """Return the similarity that one pair in `ONE_IN` of regions of different photos exceeds.

    The manifest says it; of an index that was made before manifests did, it is measured once.
    """
    if now.manifest.unlikely is not None:
        return now.manifest.unlikely
    with now.made.lock:
        if now.made.unlikely is None:
            manifold = cast(Generation, now).manifold  # whatever is elsewhere was published with it
            now.made.unlikely = measure_unlikely(manifold.vectors_, manifold.layout_.place_of)
        return now.made.unlikely


def _leading(images: IntArray, own: Collection[int]) -> int:
    """Return how many photos at the head of the ranking are the query's own."""
    count = 0
    while count < len(images) and int(images[count]) in own:
        count += 1
    return count

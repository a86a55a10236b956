"""Descriptions taught by pairs of regions that match: supervised whitening, judged on pairs kept apart.

What differs between two regions that match is what a description should not see. Vectors are multiplied by the inverse
square root of the covariance of these differences (Mikolajczyk, Matas, ICCV 2007; as used by Radenović, Tolias, Chum,
ECCV 2016). The descriptions of an index are whitened already, and a whitening followed by a linear map is a whitening:
no photo is described again, and queries are described by the one map as photos are by the two.

Whether that helps is asked of pairs that taught nothing. Photos that pairs join, directly or by way of others, show one
thing; some of the things are kept apart. For each pair of their regions, the reciprocal rank says how near the one is
to the other among all regions of other things: 1 where it comes first, 1/2 where one of something else is nearer.

People are answered by diffusion, which follows by itself what varies from photo to photo, and may lose where regions
gain. So the photos of these pairs look for each other by diffusion too, on the graph before and on the new one: what
lets them find each other later than before is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.describe.whitening import learn_supervised, unit_rows
from manifind.errors import InvalidInput
from manifind.index.tending.pairs import PhotoPair, things
from manifind.manifold import Manifold
from manifind.types import FloatArray, IntArray

APART = 1 / 3
"""The part of the pairs that is kept apart."""
FEWEST = 10
"""Things that must be kept apart before anything can be said."""
LESSONS = 100
"""Pairs of photos that must be left to learn from: with 83, on part of Holidays, R-match gained and diffusion lost."""
SHRINKAGE = 0.7
"""How much of the covariance of differences is replaced by its mean variance in every direction: chosen on Holidays."""
SAMPLE = 2_000, 100_000
"""Pairs of regions that are looked at to judge, and regions among which the one is to find the other, at most."""
ASKED = 100
"""Photos that are looked for by diffusion to judge, at most."""
BLOCK = 256

Vectors = npt.NDArray[np.floating]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Taught:
    """What verified pairs taught, and whether it helps."""

    project: FloatArray
    """(d, d): what descriptions are multiplied by."""
    pairs: int
    """Pairs of photos that were learnt from."""
    regions: int
    """Pairs of their regions."""
    apart: int
    """Pairs of photos that were kept apart."""
    things: int
    """How many things these show."""
    before: float
    """The mean reciprocal rank of regions kept apart, each thing counting the same."""
    after: float
    """The same with the new descriptions."""
    error: float
    """The standard error of the difference."""
    exams: tuple[PhotoPair, ...] = ()
    """The pairs of photos that were kept apart."""
    diffused: tuple[float, float] | None = None
    """How well the photos of these find each other by diffusion, before and after; None where it was not asked."""

    @property
    def helps(self) -> bool:
        """Whether the gain is more than chance gives, and diffusion loses nothing."""
        gains = self.after - self.before > self.error
        return gains and (self.diffused is None or self.diffused[1] >= self.diffused[0])


def taught(
    vectors: Vectors, starts: npt.NDArray[np.integer], pairs: Sequence[PhotoPair], *, shrinkage: float = SHRINKAGE
) -> Taught:
    """Learn from some of the pairs and judge by the others.

    Parameters
    ----------
    vectors : (n, d)
        Descriptions of all regions, at unit norm; may be memory-mapped.
    starts : (photos + 1,)
        Where the regions of each photo start, and where the last ones end.
    pairs : sequence of PhotoPair
    shrinkage : float
        From 0 to below 1; the nearer to 1, the less is changed.
    """
    pairs = [pair for pair in pairs if len(pair.regions)]
    shown = things(pairs, len(starts) - 1)
    apart = kept_apart(pairs, shown)
    lessons = [pair for pair in pairs if int(shown[pair.a]) not in apart]
    exams = [pair for pair in pairs if int(shown[pair.a]) in apart]
    if len(apart) < FEWEST or len(lessons) < LESSONS:
        raise InvalidInput(
            f"the photos have {len(pairs)} pairs that show the same thing, of {len({shown[pair.a] for pair in pairs})} "
            "things in all: too few to learn from some and to judge by others. More photos of the same things would do."
        )
    learnt_from, judged_by = (
        np.concatenate([pair.regions + starts[[pair.a, pair.b]] for pair in some]) for some in (lessons, exams)
    )
    project = learn_supervised(vectors, learnt_from, dimension=vectors.shape[1], shrinkage=shrinkage).project
    thing_of = np.repeat(shown, np.diff(starts))
    asked = np.concatenate([judged_by, judged_by[:, ::-1]])
    asked = asked[:: max(1, len(asked) // SAMPLE[0])]
    before, after = (
        _by_thing(reciprocal_ranks(vectors, thing_of, asked, by), thing_of[asked[:, 0]]) for by in (None, project)
    )
    error = float((after - before).std(ddof=1) / np.sqrt(len(before)))
    return Taught(
        project,
        len(lessons),
        len(learnt_from),
        len(exams),
        len(apart),
        float(before.mean()),
        float(after.mean()),
        error,
        tuple(exams),
    )


def kept_apart(pairs: Sequence[PhotoPair], shown: IntArray) -> set[int]:
    """Return the things whose pairs are kept apart: every other one from small to large, up to `APART` of all pairs."""
    counts: dict[int, int] = {}
    for pair in pairs:
        counts[int(shown[pair.a])] = counts.get(int(shown[pair.a]), 0) + 1
    order = sorted(counts, key=lambda thing: (counts[thing], thing))
    apart: set[int] = set()
    total = 0
    for thing in order[::2]:
        if total + counts[thing] <= max(1, APART * len(pairs)):
            apart.add(thing)
            total += counts[thing]
    return apart


def reciprocal_ranks(
    vectors: Vectors, thing_of: IntArray, asked: Rows, project: FloatArray | None = None
) -> npt.NDArray[np.float64]:
    """Return how near the second region of each pair is to the first, among regions of other things: 1 / rank.

    `project` multiplies all vectors first.
    """

    def seen(rows: npt.NDArray[np.integer]) -> FloatArray:
        some = np.asarray(vectors[rows], np.float32)
        return some if project is None else unit_rows(some @ project)

    among = np.unique(np.linspace(0, len(vectors) - 1, min(SAMPLE[1], len(vectors))).astype(np.int64))
    others, ranks = seen(among), np.empty(len(asked), np.int64)
    for start in range(0, len(asked), BLOCK):
        first, second = asked[start : start + BLOCK].T
        a, b = seen(first), seen(second)
        nearer = a @ others.T > np.einsum("ij,ij->i", a, b)[:, None]
        nearer &= thing_of[among] != thing_of[first][:, None]
        ranks[start : start + BLOCK] = 1 + nearer.sum(axis=1)
    return 1 / ranks


def diffused_rank(manifold: Manifold, pairs: Sequence[PhotoPair], photos: int) -> float:
    """Return how well photos of pairs find each other by diffusion: the mean reciprocal rank, each thing the same.

    A photo's rank is among those that show something else. At most `ASKED` photos are looked for.
    """
    shown = things(pairs, photos)
    asked = np.array([(pair.a, pair.b) for pair in pairs] + [(pair.b, pair.a) for pair in pairs], np.int64)
    asked = asked[:: max(1, len(asked) // ASKED)]
    starts, vectors = manifold.layout_.starts, manifold.vectors_
    queries = [np.asarray(vectors[starts[image] : starts[image + 1]], np.float32) for image in asked[:, 0]]
    values = np.empty(len(asked))
    for place, ranking in enumerate(manifold.search_many(queries, None)):
        image, other = asked[place]
        found = int(np.flatnonzero(ranking.images == other)[0])
        before = shown[ranking.images[:found]] != shown[image]
        values[place] = 1 / (1 + before.sum())
    return float(_by_thing(values, shown[asked[:, 0]]).mean())


def _by_thing(values: npt.NDArray[np.float64], thing: IntArray) -> npt.NDArray[np.float64]:
    """Return the mean of the values of each thing."""
    names, place = np.unique(thing, return_inverse=True)
    return np.asarray(np.bincount(place, values) / np.bincount(place, minlength=len(names)), np.float64)

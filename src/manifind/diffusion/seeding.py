"""What a query puts on the graph: y.

Instead of adding the query to the graph, its neighbours are searched for, weighted by how similar they are (eq. 7). For
a query of several regions the weights are summed (eq. 8), and only the largest `query_k` of the sums are kept
(Sec. 5.1): overlapping regions of the query agree on the right neighbours, and the wrong ones fall out.
"""

from typing import NamedTuple

import numpy as np

from manifind.kernels import Neighbours, kernel
from manifind.types import FloatArray, IntArray

SEEDINGS = ("paper", "released")
"""The ways to put a query on the graph: see `seed`."""

LESSON = 2.0
"""The weight of what a query was taught, against that of the query as it was given; chosen on planted scenes."""
AGAINST = 0.25
"""The weight of what a query does not mean, against that of what it means. It was chosen by
``benchmarks/feedback.py``."""


class Seed(NamedTuple):
    """The non-zero entries of y."""

    regions: IntArray
    """The regions where y is not zero, ascending."""
    values: FloatArray

    def positive(self) -> "Seed":
        """Return the entries above zero: all of them, unless something speaks against the query."""
        above = self.values > 0
        return self if above.all() else Seed(self.regions[above], self.values[above])


def seed(neighbours: Neighbours, query_k: int, gamma: float, spelling: str = "paper") -> Seed:
    """Make y from the neighbours of each region of one query: eq. 8, then only its largest `query_k` entries.

    Parameters
    ----------
    neighbours : Neighbours
        Ids (m, k) of graph regions and similarities (m, k), a row for each region of the query.
    query_k : int
        Entries of y to keep; of equal ones, those of the lowest ids.
    gamma : float
        Exponent of the kernel max(s, 0)^gamma.
    spelling : {"paper", "released"}
        The paper sums max(s, 0)^gamma; the authors' released program sums max(s, 0), cuts, and raises the sums that
        are left to gamma, which favours regions that many query regions agree on.
    """
    paper = spelling == "paper"
    terms = kernel(neighbours.similarities, gamma if paper else 1.0)
    regions, term_of = np.unique(neighbours.ids, return_inverse=True)
    sums = np.bincount(term_of.ravel(), weights=terms.ravel())
    largest = np.argsort(-sums, kind="stable")[:query_k]
    largest = np.sort(largest[sums[largest] > 0])
    values = sums[largest].astype(np.float32)
    return Seed(regions[largest].astype(np.int32), values if paper else kernel(values, gamma))


def taught(given: Seed, lessons: Neighbours, regions: FloatArray, gamma: float, weight: float = LESSON) -> Seed:
    """Return y of a query that regions were taught to: what the query gives, and `weight` times as much by the lessons.

    A lesson gives what a region of a query gives by eq. 8, but no entry falls out: every lesson is known to show what
    is looked for, and the views that few lessons show are those that the query could not reach by itself. For the same
    reason lessons that resemble each other share one voice. The whole puts as much on the graph as the query did.

    Parameters
    ----------
    given : Seed
        y of the query as it was given.
    lessons : Neighbours
        Ids and similarities of graph regions, a row for each lesson.
    regions : (m, d) array
        The lessons themselves, unit rows.
    gamma : float
        Exponent of the kernel.
    weight : float
        How much the lessons count.
    """
    shared_by = np.maximum(kernel(regions @ regions.T, gamma).sum(axis=1), 1)
    terms = kernel(lessons.similarities, gamma) / shared_by[:, None]
    total = float(terms.sum())
    if total == 0:
        return given
    ids = np.concatenate([given.regions, lessons.ids.ravel()])
    values = np.concatenate([given.values, terms.ravel() * (weight * float(given.values.sum()) / total)])
    entries, entry_of = np.unique(ids, return_inverse=True)
    sums = np.bincount(entry_of, weights=values) / (1 + weight)
    kept = sums > 0
    return Seed(entries[kept].astype(np.int32), sums[kept].astype(np.float32))


def opposed(seed: Seed, against: Seed, weight: float = AGAINST) -> Seed:
    """Return y of a query less what speaks against it.

    Both are spread over the graph by the same linear solve, so that f is the query's score less `weight` times the
    score of what is not meant: the two-class decision of Zhou et al. (Learning with Local and Global Consistency,
    NIPS 2003), from which diffusion by eq. 4 comes. Both put equally much on the graph before they are weighed, however
    many regions each has. Values may be negative.
    """
    total = float(against.values.sum())
    if total == 0:
        return seed
    factor = weight * float(seed.values.sum()) / total
    regions = np.union1d(seed.regions, against.regions)
    values = np.zeros(len(regions), np.float32)
    values[np.searchsorted(regions, seed.regions)] = seed.values
    values[np.searchsorted(regions, against.regions)] -= np.float32(factor) * against.values
    kept = values != 0
    return Seed(regions[kept].astype(np.int32), values[kept])

"""The seed y: what a query puts on the graph.

Instead of adding the query to the graph, its neighbours are searched for, weighted by how similar they are (eq. 7). For
a query of several regions the weights are summed (eq. 8), and only the largest `query_k` of the sums are kept
(Sec. 5.1): overlapping regions of the query agree on the right neighbours, and the wrong ones fall out.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manifind.kernels import Neighbours, kernel
from manifind.types import FloatArray, IntArray

SEEDINGS = ("paper", "released")
"""The ways to put a query on the graph: see `seed`."""


@dataclass(frozen=True)
class SeedWeights:
    """What counts beside the regions of the original query, whose weight is 1."""

    expansion: float = 2.0
    """The weight of expansion regions; chosen on planted scenes."""
    negatives: float = 0.25
    """The weight of negatives, which is subtracted; chosen on Oxford5k by ``benchmarks/feedback.py``."""


WEIGHTS = SeedWeights()


class Seed(NamedTuple):
    """The non-zero entries of y."""

    regions: IntArray
    """The regions where y is not zero, ascending."""
    values: FloatArray

    def positive(self) -> "Seed":
        """Return the entries above zero: all of them, unless there are negatives."""
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


def expand_seed(
    original: Seed, neighbours: Neighbours, regions: FloatArray, gamma: float, weight: float = WEIGHTS.expansion
) -> Seed:
    """Return y of an expanded query: y of the original query plus `weight` times as much by the expansion regions.

    Expansion regions contribute by eq. 8, as query regions do, but all entries are kept: expansion regions were
    verified to show the object, and entries of few of them are the views that the original query does not reach. For
    the same reason, similar expansion regions share their weight. The sum of y stays that of the original query.

    Parameters
    ----------
    original : Seed
        y of the original query.
    neighbours : Neighbours
        Ids and similarities of graph regions, a row for each expansion region.
    regions : (m, d) array
        The expansion regions, unit rows.
    gamma : float
        Exponent of the kernel.
    weight : float
        Weight of the expansion regions.
    """
    shared_by = np.maximum(kernel(regions @ regions.T, gamma).sum(axis=1), 1)
    terms = kernel(neighbours.similarities, gamma) / shared_by[:, None]
    total = float(terms.sum())
    if total == 0:
        return original
    ids = np.concatenate([original.regions, neighbours.ids.ravel()])
    values = np.concatenate([original.values, terms.ravel() * (weight * float(original.values.sum()) / total)])
    entries, entry_of = np.unique(ids, return_inverse=True)
    sums = np.bincount(entry_of, weights=values) / (1 + weight)
    kept = sums > 0
    return Seed(entries[kept].astype(np.int32), sums[kept].astype(np.float32))


def either_seed(a: Seed, b: Seed) -> Seed:
    """Return the larger of two seeds at each region: y of a query that is one of two.

    Neither query's y is lowered anywhere, so no region's f falls below that of either query alone: all entries of
    (I − αS)⁻¹ are non-negative.
    """
    regions = np.union1d(a.regions, b.regions)
    values = np.zeros(len(regions), np.float32)
    values[np.searchsorted(regions, a.regions)] = a.values
    at = np.searchsorted(regions, b.regions)
    values[at] = np.maximum(values[at], b.values)
    return Seed(regions.astype(np.int32), values)


def subtract_negatives(seed: Seed, negatives: Seed, weight: float = WEIGHTS.negatives) -> Seed:
    """Return y of a query minus `weight` times y of its negatives.

    The solve is linear, so f is the query's score minus `weight` times the negatives' score: the two-class decision of
    Zhou et al. (Learning with Local and Global Consistency, NIPS 2003), from which diffusion by eq. 4 comes. y of the
    negatives is scaled to the sum of the query's first, however many regions each has. Values may be negative.
    """
    total = float(negatives.values.sum())
    if total == 0:
        return seed
    factor = weight * float(seed.values.sum()) / total
    regions = np.union1d(seed.regions, negatives.regions)
    values = np.zeros(len(regions), np.float32)
    values[np.searchsorted(regions, seed.regions)] = seed.values
    values[np.searchsorted(regions, negatives.regions)] -= np.float32(factor) * negatives.values
    kept = values != 0
    return Seed(regions[kept].astype(np.int32), values[kept])

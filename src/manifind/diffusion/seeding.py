"""What a query puts on the graph: y.

Instead of adding the query to the graph, its neighbours are searched for, weighted by how similar they are (eq. 7). For
a query of several regions the weights are summed (eq. 8), and only the largest `query_k` of the sums are kept
(Sec. 5.1): overlapping regions of the query agree on the right neighbours, and the wrong ones fall out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manifind.graph import Neighbours, kernel
from manifind.validation import FloatArray, IntArray

SEEDINGS = ("paper", "released", "append")
"""Spellings of y that `Manifold` knows; the last has no seed, see `manifind.diffusion.append`."""


class Seed(NamedTuple):
    """The non-zero entries of y."""

    regions: IntArray
    """Ascending."""
    values: FloatArray


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


def dense(seeds: Sequence[Seed], n: int) -> FloatArray:
    """Return seeds as the columns of an (n, b) array, as the solvers take them."""
    y = np.zeros((n, len(seeds)), np.float32)
    for column, (regions, values) in enumerate(seeds):
        y[regions, column] = values
    return y

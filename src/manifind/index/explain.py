"""Why a photo was found: the chain of regions along which most of the query's score could flow to it.

A path from a seed region over edges of the graph to one of the photo's regions carries y · Π α s_ij, so the best path
is the shortest under the lengths −log(α s_ij), from sources at −log y. Regions that the diffusion hardly reached are
left out of the search: the best path has no reason to pass them.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from manifind.diffusion import Seed
from manifind.types import FloatArray, IntArray

REACHED = 20_000
"""The best regions by score among which paths are looked for, besides the seed and the target."""


class Chained(NamedTuple):
    """A chain of regions from a seed to the target, and how much flows along it."""

    regions: IntArray
    """The first is a seed, the last one of the targets; one alone where a seed is a target."""
    flows: FloatArray
    """α s_ij of each link, one fewer than there are regions."""


def best_path(S: sp.csr_array, alpha: float, seed: Seed, scores: FloatArray, targets: IntArray) -> Chained | None:
    """Return the path that carries most from the seed to any of `targets`; None where there is none."""
    count = min(REACHED, len(scores))
    best = np.argpartition(-scores, count - 1)[:count]
    nodes = np.unique(np.concatenate([best, seed.regions, targets]))
    place = np.full(len(scores), -1, np.int64)
    place[nodes] = np.arange(len(nodes))

    part = sp.csr_array(S[nodes][:, nodes]).tocoo()
    n = len(nodes)
    # A node before all others leads to each seed region, so that one search starts from all of them.
    rows = np.concatenate([part.row, np.full(len(seed.regions), n)])
    columns = np.concatenate([part.col, place[seed.regions]])
    largest = float(seed.values.max(initial=0))
    if largest == 0:
        return None
    lengths = np.concatenate([_length(alpha * part.data), _length(seed.values / largest)])
    graph = sp.csr_array((lengths, (rows, columns)), shape=(n + 1, n + 1))
    distances, before = dijkstra(graph, indices=n, return_predecessors=True)
    goal = targets[np.argmin(distances[place[targets]])]
    if not np.isfinite(distances[place[goal]]):
        return None

    chain = [int(place[goal])]
    while before[chain[-1]] != n:
        chain.append(int(before[chain[-1]]))
    regions = nodes[chain[::-1]].astype(np.int32)
    flows = np.array([alpha * S[i, j] for i, j in pairwise(regions)], np.float32)
    return Chained(regions, flows)


def _length(flow: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return −log of a flow of at most one; never quite zero, which a sparse graph would take for no edge."""
    return np.maximum(-np.log(np.minimum(flow.astype(np.float64), 1)), 1e-12)

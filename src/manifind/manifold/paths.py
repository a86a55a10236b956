"""Why an image was found: the path along which most of a query's score could flow to it.

A path from a seed region over edges of the graph to one of the image's regions carries y · Π α s_ij. So the best path
is the shortest under the lengths −log(α s_ij), from sources at −log y. Regions that the diffusion hardly reached are
left out: the cost is that of Dijkstra's algorithm among the regions with the highest scores.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from manifind.diffusion import Seed
from manifind.types import FloatArray, IntArray


class RegionPath(NamedTuple):
    """A chain of regions from a seed to the target, and how much flows along it."""

    regions: IntArray
    """The regions of the chain. The first is a seed and the last is one of the targets; there is only one where a seed
    is a target."""
    flows: FloatArray
    """The α s_ij of each link. There is one link fewer than there are regions."""


def best_path(
    S: sp.csr_array, alpha: float, seed: Seed, scores: FloatArray, targets: IntArray, max_regions: int = 20_000
) -> RegionPath | None:
    """Return the path that carries most from the seed to any of `targets`; None where there is none.

    Paths are looked for among the seed, the targets and the `max_regions` best regions by score.
    """
    count = min(max_regions, len(scores))
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
    from scipy.sparse.csgraph import dijkstra

    distances, before = dijkstra(graph, indices=n, return_predecessors=True)
    goal = targets[np.argmin(distances[place[targets]])]
    if not np.isfinite(distances[place[goal]]):
        return None

    chain = [int(place[goal])]
    while before[chain[-1]] != n:
        chain.append(int(before[chain[-1]]))
    regions = nodes[chain[::-1]].astype(np.int32)
    flows = np.array([alpha * S[i, j] for i, j in pairwise(regions)], np.float32)
    return RegionPath(regions, flows)


def _length(flow: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return −log of a flow of at most one; never quite zero, which a sparse graph would take for no edge.

    Where nothing flows, as between regions whose affinity is no positive number, the way is endless.
    """
    flows = np.where(flow > 0, flow, np.nan).astype(np.float64)
    return np.nan_to_num(np.maximum(-np.log(np.minimum(flows, 1)), 1e-12), nan=np.inf)

"""`Manifold`: the estimator that ties graph, diffusion and ranking together, on arrays.

`estimator` has `fit`, `update` and `search`; `validation` checks arguments; `building` computes the fitted state, which
`fitted` owns; `searching` answers queries, on the whole graph or on the subgraph of a shortlist;
`paths` says why an image was found.
"""

from manifind.kernels import batch_size
from manifind.manifold.estimator import BUILT, Manifold, answer
from manifind.manifold.paths import RegionPath
from manifind.manifold.searching import Request

__all__ = ["BUILT", "Manifold", "RegionPath", "Request", "answer", "batch_size"]

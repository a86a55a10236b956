"""`Manifold`: the estimator that ties graph, diffusion and ranking together, on arrays.

`estimator` has `fit`, `update` and `search`; `parameters` and `given` check what it is given; `building` makes the
fitted state, which `fitted` owns; `searching` answers queries; `part` is what a shortlist leaves; `saved` checks what
comes from a disk.
"""

from manifind.kernels import batch_size
from manifind.manifold.estimator import BUILT, MAX_NEW_SHARE, Manifold, answer
from manifind.manifold.searching import Request

__all__ = ["BUILT", "MAX_NEW_SHARE", "Manifold", "Request", "answer", "batch_size"]

"""`Manifold`: the estimator that ties graph, diffusion and ranking together, on arrays.

`estimator` has `fit`, `update` and `search`; `parameters` and `given` check what it is given; `building` makes the
fitted state, which `fitted` owns; `searching` answers queries; `part` is what a shortlist leaves; `saved` checks what
comes from a disk.
"""

from manifind.manifold.estimator import BUILT, LARGEST_CHANGE, Manifold, answer
from manifind.manifold.searching import Request, batch_size

__all__ = ["BUILT", "LARGEST_CHANGE", "Manifold", "Request", "answer", "batch_size"]

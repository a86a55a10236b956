"""`Manifold`: the estimator that ties graph, diffusion and ranking together, on arrays."""

from manifind.manifold.estimator import BUILT, LARGEST_CHANGE, Manifold, batch_size, best_engine

__all__ = ["BUILT", "LARGEST_CHANGE", "Manifold", "batch_size", "best_engine"]

"""What diffusion is compared with, each behind the same ``fit(vectors, image_of)`` and ``search(query, top)``."""

from manifind.baselines.nearest import NearestImages

__all__ = ["NearestImages"]

"""What diffusion is compared with, each behind the same ``fit(vectors, image_of)`` and ``search(query, top)``."""

from manifind.baselines.nearest import NearestImages
from manifind.baselines.rmatch import RegionMatch
from manifind.baselines.scorer import ImageScorer

__all__ = ["ImageScorer", "NearestImages", "RegionMatch"]

"""What diffusion is compared with, each behind the same ``fit(vectors, image_of)`` and ``search(query, top)``.

On global descriptors: `NearestImages`, `AverageQueryExpansion`, `AlphaQueryExpansion`, `SpatiallyConstrainedMatching`,
`HelloNeighbor`, `DatabaseAugmentation`, `KReciprocal`, `GlobalDiffusion`. On regions: `RegionMatch`,
`RegionMatchExpansion`, `RegionalDiffusion`, `UnnormalisedDiffusion`, `CompactDiffusion`. On photos, by their local
descriptors: `HammingQueryExpansion`.
"""

from manifind.baselines.alpha_expansion import AlphaQueryExpansion
from manifind.baselines.augmentation import DatabaseAugmentation
from manifind.baselines.average_expansion import AverageQueryExpansion
from manifind.baselines.diffusion import CompactDiffusion, GlobalDiffusion, RegionalDiffusion
from manifind.baselines.hamming import HammingQueryExpansion
from manifind.baselines.hello_neighbor import HelloNeighbor
from manifind.baselines.k_reciprocal import KReciprocal
from manifind.baselines.nearest import NearestImages
from manifind.baselines.rmatch import RegionMatch
from manifind.baselines.rmatch_expansion import RegionMatchExpansion
from manifind.baselines.scorer import ImageScorer
from manifind.baselines.scsm import SpatiallyConstrainedMatching
from manifind.baselines.unnormalised import UnnormalisedDiffusion

__all__ = [
    "AlphaQueryExpansion",
    "AverageQueryExpansion",
    "CompactDiffusion",
    "DatabaseAugmentation",
    "GlobalDiffusion",
    "HammingQueryExpansion",
    "HelloNeighbor",
    "ImageScorer",
    "KReciprocal",
    "NearestImages",
    "RegionMatch",
    "RegionMatchExpansion",
    "RegionalDiffusion",
    "SpatiallyConstrainedMatching",
    "UnnormalisedDiffusion",
]

"""Methods to compare with diffusion, each behind the same ``fit(vectors, image_of)`` and ``search(query, top)``.

On global descriptors: `NearestImages`, `AverageQueryExpansion`, `AlphaQueryExpansion`, `SpatiallyConstrainedMatching`,
`HelloNeighbor`, `DatabaseAugmentation`, `KReciprocal`, `GlobalDiffusion`. On regions: `RegionMatch`,
`RegionMatchExpansion`, `RegionalDiffusion`, `AppendedDiffusion`, `UnnormalisedDiffusion`, `CompactDiffusion`. On
photos, by their local descriptors: `HammingQueryExpansion`. Off-line and spectral diffusion are solvers of
`RegionalDiffusion` and `GlobalDiffusion`.
"""

from manifind.baselines.appended import AppendedDiffusion
from manifind.baselines.diffusion import CompactDiffusion, GlobalDiffusion, RegionalDiffusion, UnnormalisedDiffusion
from manifind.baselines.hamming_expansion import HammingQueryExpansion
from manifind.baselines.query_expansion import (
    AlphaQueryExpansion,
    AverageQueryExpansion,
    DatabaseAugmentation,
    RegionMatchExpansion,
)
from manifind.baselines.reranking import HelloNeighbor, KReciprocal, SpatiallyConstrainedMatching
from manifind.baselines.scorer import Baseline, ImageScorer
from manifind.baselines.similarity import NearestImages, RegionMatch

__all__ = [
    "AlphaQueryExpansion",
    "AppendedDiffusion",
    "AverageQueryExpansion",
    "Baseline",
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

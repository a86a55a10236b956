"""Photo → regions: reading photos, a network, R-MAC's grid, pooling and whitening; nothing here knows of graphs.

>>> extractor = load_extractor()                   # or Index.open(path).extractor, that of an index
>>> regions = extractor.extract(read_photo("shot.jpg").pixels)
"""

from typing import TYPE_CHECKING, Any

from manifind.features.backbone import Backbone, BackboneSpec, OnnxBackbone, load_backbone
from manifind.features.extractor import SCALES, RegionExtractor, Regions, load_extractor, shipped_moments
from manifind.features.grid import region_grid, to_pixels
from manifind.features.moments import Moments
from manifind.features.pooling import POOLINGS, pool
from manifind.features.supervised_whitening import whitening_from_pairs
from manifind.features.whitening import Whitening, learn_pca, learn_supervised, whitening_of

if TYPE_CHECKING:
    from manifind.features.torch_backbone import RetrievalNetwork, TorchBackbone, load_retrieval_checkpoint

__all__ = [
    "POOLINGS",
    "SCALES",
    "Backbone",
    "BackboneSpec",
    "Moments",
    "OnnxBackbone",
    "RegionExtractor",
    "Regions",
    "RetrievalNetwork",
    "TorchBackbone",
    "Whitening",
    "learn_pca",
    "learn_supervised",
    "load_backbone",
    "load_extractor",
    "load_retrieval_checkpoint",
    "pool",
    "region_grid",
    "shipped_moments",
    "to_pixels",
    "whitening_from_pairs",
    "whitening_of",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for, not before."""
    if name in {"RetrievalNetwork", "TorchBackbone", "load_retrieval_checkpoint"}:
        from manifind.features import torch_backbone

        return getattr(torch_backbone, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

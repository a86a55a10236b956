"""Photo → regions: a network, R-MAC's grid, pooling and whitening; nothing here knows of graphs.

>>> describer = load_describer()
>>> regions = describer.describe(photo)
"""

from typing import TYPE_CHECKING, Any

from manifind.describe.backbone import Backbone, BackboneSpec, OnnxBackbone, default_backbone, load_backbone
from manifind.describe.describer import Describer, Regions, load_describer
from manifind.describe.pooling import POOLINGS, pool
from manifind.describe.regions import region_grid, to_pixels
from manifind.describe.whitening import Whitening, learn_pca, learn_supervised

if TYPE_CHECKING:
    from manifind.describe.torch_backbone import RetrievalNetwork, TorchBackbone, load_retrieval_checkpoint

__all__ = [
    "POOLINGS",
    "Backbone",
    "BackboneSpec",
    "Describer",
    "OnnxBackbone",
    "Regions",
    "RetrievalNetwork",
    "TorchBackbone",
    "Whitening",
    "default_backbone",
    "learn_pca",
    "learn_supervised",
    "load_backbone",
    "load_describer",
    "load_retrieval_checkpoint",
    "pool",
    "region_grid",
    "to_pixels",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for, not before."""
    if name in {"RetrievalNetwork", "TorchBackbone", "load_retrieval_checkpoint"}:
        from manifind.describe import torch_backbone

        return getattr(torch_backbone, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

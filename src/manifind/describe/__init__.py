"""Photo → regions: reading photos, a network, R-MAC's grid, pooling and whitening; nothing here knows of graphs.

>>> describer = load_describer()                   # or Index.open(path).describer, to describe as an index does
>>> regions = describer.describe(read_photo("shot.jpg").pixels)
"""

from typing import TYPE_CHECKING, Any

from manifind.describe.ahead import describe_ahead, read_ahead
from manifind.describe.backbone import Backbone, BackboneSpec, OnnxBackbone, load_backbone
from manifind.describe.describer import ZOOMS, Describer, Regions, load_describer, shipped_moments
from manifind.describe.folder import Found, Skipped, key_of, key_to_path, list_photos
from manifind.describe.learn import whitening_from_pairs
from manifind.describe.moments import Moments
from manifind.describe.photos import Photo, content_hash, read_photo
from manifind.describe.pooling import POOLINGS, pool
from manifind.describe.regions import region_grid, to_pixels
from manifind.describe.whitening import Whitening, learn_pca, learn_supervised, whitening_of
from manifind.errors import Unreadable

if TYPE_CHECKING:
    from manifind.describe.torch_backbone import RetrievalNetwork, TorchBackbone, load_retrieval_checkpoint

__all__ = [
    "POOLINGS",
    "ZOOMS",
    "Backbone",
    "BackboneSpec",
    "Describer",
    "Found",
    "Moments",
    "OnnxBackbone",
    "Photo",
    "Regions",
    "RetrievalNetwork",
    "Skipped",
    "TorchBackbone",
    "Unreadable",
    "Whitening",
    "content_hash",
    "describe_ahead",
    "key_of",
    "key_to_path",
    "learn_pca",
    "learn_supervised",
    "list_photos",
    "load_backbone",
    "load_describer",
    "load_retrieval_checkpoint",
    "pool",
    "read_ahead",
    "read_photo",
    "region_grid",
    "shipped_moments",
    "to_pixels",
    "whitening_from_pairs",
    "whitening_of",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for, not before."""
    if name in {"RetrievalNetwork", "TorchBackbone", "load_retrieval_checkpoint"}:
        from manifind.describe import torch_backbone

        return getattr(torch_backbone, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Photos that a museum or a library publishes by IIIF: a manifest or a collection of manifests, mirrored in a folder.

`mirror` downloads the images of a manifest (Presentation API 2 or 3) by the Image API, at the size that an index needs,
and writes `CANVASES` beside them: which canvas each photo is of. The ordinary index is built over that folder.
"""

from manifind.iiif.fetch import FetchConfig, is_web_address
from manifind.iiif.mirror import CANVASES, MirrorConfig, MirrorReport, default_name, mirror, read_canvases
from manifind.iiif.presentation import Canvas

__all__ = [
    "CANVASES",
    "Canvas",
    "FetchConfig",
    "MirrorConfig",
    "MirrorReport",
    "default_name",
    "is_web_address",
    "mirror",
    "read_canvases",
]

"""Features, boxes and transforms in a mirror: what a left-right reflection makes of them, without any pixels.

`estimate_transform` rejects a transform that mirrors: no view of a solid object does. A reversed slide, a print after a
painting, or a photo by a phone's front camera shows an object mirrored all the same. The features of the mirrored query
verify it, and `mirror_transform` takes what they found back to the query as it was given.

SIFT commutes with reflection: keypoints are the same, a descriptor's rows of cells change places, and its histograms
run the other way. So mirrored features are computed from features, those that an index stores included.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice
from manifind.geometry.features import Features
from manifind.geometry.sift import MIRRORED as SIFT_MIRRORED
from manifind.geometry.transforms import Transform
from manifind.types import Box

MIRRORED_COORDINATES = {"sift": SIFT_MIRRORED}
"""Which coordinate of a descriptor of each kind each coordinate of the mirrored one is."""


def mirror(features: Features) -> Features:
    """Return the features of the mirrored image, in its own pixels."""
    coordinates = MIRRORED_COORDINATES[check_choice(features.kind, MIRRORED_COORDINATES, "kind")]
    return replace(
        features,
        keypoints=mirror_points(features.keypoints, features.width),
        orientations=(np.pi - features.orientations).astype(np.float32),
        descriptors=np.ascontiguousarray(features.descriptors[:, coordinates]),
    )


def mirror_points(points: npt.NDArray[np.floating], width: int) -> npt.NDArray[np.float32]:
    """Return where points (m, 2) are in the mirrored image; of mirrored points, where they were."""
    return np.stack([width - points[:, 0], points[:, 1]], axis=1).astype(np.float32)


def mirror_box(box: Box, width: int) -> Box:
    """Return a box in the mirrored image; of a mirrored box, the box."""
    x0, y0, x1, y1 = box
    return width - x1, y0, width - x0, y1


def mirror_transform(transform: Transform, width: int) -> Transform:
    """Return a transform of the mirrored image as one of the image itself, which then mirrors."""
    return np.asarray(transform @ np.array([[-1.0, 0.0, width], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))

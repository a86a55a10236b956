"""The box round an object in an image, from the query's inliers in all verified images.

A query box also holds background, most of all where the object is rotated or round. Inliers lie on the object.
Stretched until they touch the four sides of the box, as the object does, they show its shape; a transform takes this
shape to the object in another image.
"""

import numpy as np
import numpy.typing as npt

from manifind.geometry import transforms
from manifind.geometry.transforms import Transform
from manifind.types import Box

PRIOR_INLIERS = 40
"""What the box by the transform alone weighs, in inliers; chosen on planted scenes."""


def stretch_to_box(points: npt.NDArray[np.floating], box: Box) -> npt.NDArray[np.float64]:
    """Return points of a box, moved apart across and down until they touch its four sides."""
    low, corner = points.min(axis=0), np.array(box[:2], np.float64)
    extent = np.maximum(points.max(axis=0) - low, 1e-9)
    return np.asarray(corner + (points - low) / extent * np.subtract(box[2:], box[:2]), np.float64)


def fit_object_box(
    transform: Transform,
    inliers: npt.NDArray[np.floating],
    box: Box,
    prior: Box,
    size: tuple[int, int],
    *,
    prior_inliers: int = PRIOR_INLIERS,
) -> Box:
    """Return the box round an object in an image.

    Parameters
    ----------
    transform : (3, 3) array
        From pixels of the query image to pixels of this one.
    inliers : (m, 2) array
        Keypoints of the query that were inliers in verified images, at least one.
    box : (x0, y0, x1, y1)
        The object in the query image.
    prior : (x0, y0, x1, y1)
        The object in this image, by the transform and the box alone.
    size : (int, int)
        The image's width and height.
    prior_inliers : int
        The prior weighs as much as this many inliers.
    """
    at = np.clip(transforms.apply(transform, stretch_to_box(inliers, box)), 0, size)
    share = len(inliers) / (len(inliers) + prior_inliers)
    around = np.concatenate([at.min(axis=0), at.max(axis=0)])
    x0, y0, x1, y1 = (share * around + (1 - share) * np.array(prior)).tolist()
    return x0, y0, x1, y1

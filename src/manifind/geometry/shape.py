"""How much of its box an object fills, by the points of it that photos confirmed.

A box that is drawn round an object holds what is behind the object as well: most of all where the object is turned or
round. Points of the query that match in verified photos lie on the object. Stretched until they touch the four sides of
the box, as the object does, they show its shape, and a map takes them to the object in a photo.
"""

import numpy as np
import numpy.typing as npt

from manifind.geometry import maps
from manifind.geometry.maps import Map
from manifind.types import Box

EQUAL = 40
"""How many confirmed points count as much as the shape that is taken for granted where there are none."""


def stretched(points: npt.NDArray[np.floating], box: Box) -> npt.NDArray[np.float64]:
    """Return points of a box, moved apart across and down until they touch its four sides."""
    low, corner = points.min(axis=0), np.array(box[:2], np.float64)
    across = np.maximum(points.max(axis=0) - low, 1e-9)
    return np.asarray(corner + (points - low) / across * np.subtract(box[2:], box[:2]), np.float64)


def fitted(to: Map, points: npt.NDArray[np.floating], box: Box, plain: Box, size: tuple[int, int]) -> Box:
    """Return the box round an object in a photo.

    Parameters
    ----------
    to : (3, 3) array
        From pixels of the query's photo to pixels of this one.
    points : (m, 2) array
        Points of the query that photos confirmed, at least one.
    box : (x0, y0, x1, y1)
        The object in the query's photo.
    plain : (x0, y0, x1, y1)
        The object in this photo, by the map and the box alone. `EQUAL` points count as much.
    size : (int, int)
        The photo's width and height.
    """
    at = np.clip(maps.apply(to, stretched(points, box)), 0, size)
    share = len(points) / (len(points) + EQUAL)
    round_points = np.concatenate([at.min(axis=0), at.max(axis=0)])
    x0, y0, x1, y1 = (share * round_points + (1 - share) * np.array(plain)).tolist()
    return x0, y0, x1, y1

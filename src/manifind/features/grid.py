"""Where the regions of a photo lie: R-MAC's grid (Tolias, Sicre, Jégou, ICLR 2016).

At scale l the regions are squares of side 2w / (l + 1), w being the shorter side of the feature map, spread evenly:
l of them along the shorter side, and along the longer one as many more as brings the overlap of the largest
squares nearest to 40 %. The whole map comes first. Three levels give 21 regions on a photo of 4:3 or 3:2.

A square photo has its whole map twice, since at the first scale the one square is the map: so has the original.
"""

import numpy as np
import numpy.typing as npt

from manifind.checks import check_float, check_int
from manifind.types import FloatArray, IntArray

MOST_EXTRA = 6
"""Squares more along the longer side than along the shorter one, at most, as in the original."""


def region_grid(height: int, width: int, *, levels: int = 3, overlap: float = 0.4) -> IntArray:
    """Return the regions of a (height, width) feature map as (r, 4) boxes x0, y0, x1, y1 in cells.

    Parameters
    ----------
    height, width : int
        Cells of the map.
    levels : int
        Sizes of squares, from the largest on; 0 leaves the whole map alone. A scale finer than the cells is left out.
    overlap : float
        Share of a largest square that it should have in common with the next.
    """
    height, width = check_int(height, "height"), check_int(width, "width")
    levels = check_int(levels, "levels", least=0)
    overlap = check_float(overlap, "overlap", above=-1, below=1)
    shorter = min(height, width)
    extra = 0 if height == width else _extra_squares(shorter, max(height, width), overlap)
    boxes = [(0, 0, width, height)]
    for scale in range(1, levels + 1):
        side = 2 * shorter // (scale + 1)
        if side == 0:
            break
        down = _spread(height, side, scale + (extra if height > width else 0))
        across = _spread(width, side, scale + (extra if width > height else 0))
        boxes += [(x, y, x + side, y + side) for y in down for x in across]
    return np.array(boxes, np.int32)


def to_pixels(cells: npt.NDArray[np.integer], map_size: tuple[int, int], photo_size: tuple[int, int]) -> FloatArray:
    """Return boxes of a feature map as boxes x0, y0, x1, y1 in pixels of the photo that it covers.

    Sizes are (height, width). The map covers the photo from edge to edge, also where the photo's sides are no multiple
    of the network's stride.
    """
    across, down = photo_size[1] / map_size[1], photo_size[0] / map_size[0]
    pixels: FloatArray = (cells * np.array([across, down, across, down])).astype(np.float32)
    return pixels


def rescale_boxes(cells: IntArray, map_size: tuple[int, int], other_size: tuple[int, int]) -> IntArray:
    """Return the boxes on another map of the same photo that cover the same parts of it, to the nearest cell.

    Sizes are (height, width). On a coarse map a box has at least one cell.
    """
    height, width = other_size
    across, down = width / map_size[1], height / map_size[0]
    boxes: IntArray = np.rint(cells * np.array([across, down, across, down])).astype(np.int32)
    boxes[:, :2] = np.minimum(boxes[:, :2], [width - 1, height - 1])
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    return boxes


def _extra_squares(shorter: int, longer: int, overlap: float) -> int:
    """Return how many largest squares more than one make neighbours overlap the nearest to what is asked."""
    steps = (longer - shorter) / np.arange(1, MOST_EXTRA + 1)
    return 1 + int(np.abs((shorter**2 - shorter * steps) / shorter**2 - overlap).argmin())


def _spread(length: int, side: int, count: int) -> list[int]:
    """Return where `count` squares start so that the first and the last touch the ends; a single one at 0."""
    return [at * (length - side) // max(1, count - 1) for at in range(count)]

"""A point of a photo -> boxes round what lies there: the likeliest, a larger one and a smaller one.

Boxes whose sides lie at nine distances from the point are compared on a copy of 96 pixels, by a weighted sum of what
integral images give of each:

- how much superpixels of two sizes straddle its border (Alexe, Deselaers, Ferrari, CVPR 2010),
- how much its colours differ from those in a band round it, and how much is drawn in it and in the band,
- how much of it the large superpixel at the point fills, and how much of that it holds,
- its area, its shape, how many edges of the photo it touches, and where in it the point lies.

No network is run: a photo takes about a tenth of a second of one core. ``benchmarks/proposals.py`` finds the weights
and prints how well the boxes fit.

>>> likeliest, *others = propose_boxes(pixels, x, y)
"""

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree

from manifind.checks import check_float
from manifind.types import Box, FloatArray, IntArray

SIDE = 96
"""Pixels of the longer side of the copy on which boxes are compared."""
SUPERPIXELS = ((80.0, 15), (200.0, 25))
"""Scale and least pixels of superpixels, small and large (Felzenszwalb and Huttenlocher, IJCV 2004)."""
SUPERPIXELS_AT_ONCE = 16
"""Superpixels whose shares of all boxes are in memory together, 1 MB each; no box depends on it."""
COLOURS = 24
"""Colours of a photo's own palette."""
COLOUR_WIDTH = 8.0
"""Distance in L*a*b* at which a pixel counts as much less of a colour."""
DISTANCES = np.geomspace(2, 0.72 * SIDE, 9)
"""Distances of a box's sides from the point, in pixels of the copy."""
LEAST_SIDE = 4
"""Pixels of the copy that a box has at least."""
MAX_AREA = 0.95
"""Part of the photo that a box covers at most."""
BAND = 0.2
"""Width of the band round a box, in parts of its sides."""
STEP = 1.7
"""How many times larger or smaller the other boxes are, at least."""
NESTED = 0.85
"""Part of the smaller of two boxes that lies in the larger, at least."""
WEIGHTS = {
    "straddling_small": -0.08574,
    "straddling_large": -0.16404,
    "colour_contrast": 0.36049,
    "gradient_inside": 0.00749,
    "gradient_around": -0.01143,
    "filled": 0.07609,
    "held": 0.06463,
    "edges": -0.02686,
    "log_area": -0.14534,
    "log_area_squared": -0.03174,
    "log_shape": -0.08486,
    "log_shape_squared": 0.01374,
    "off_centre": -0.54961,
}
"""What each measurement of a box counts, by ``benchmarks/proposals.py --fit``: least squares of the intersection over
union with the true box, over points on objects of 120 planted scenes of seed 0 and of seed 3."""


def propose_boxes(pixels: npt.NDArray[np.uint8], x: float, y: float) -> list[Box]:
    """Return boxes round what lies at a point: the likeliest, then a larger and a smaller one where there are any.

    Parameters
    ----------
    pixels : (h, w, 3) uint8
        An upright photo.
    x, y : float
        The point, in pixels of the photo.
    """
    height, width = pixels.shape[:2]
    x, y = (min(max(check_float(at, "a point's place"), 0.0), float(end)) for at, end in ((x, width), (y, height)))
    copy = shrink(pixels)
    rows, columns = copy.shape[:2]
    across, down = columns / width, rows / height
    point = (min(int(x * across), columns - 1), min(int(y * down), rows - 1))
    boxes = candidate_boxes((rows, columns), point)
    if not len(boxes):
        return []
    measured = measure_boxes(copy, boxes, point)
    scores = np.sum([WEIGHTS[name] * values for name, values in measured.items()], axis=0)
    to_photo = np.array([1 / across, 1 / down, 1 / across, 1 / down])
    chosen = (boxes[nested_boxes(boxes, scores)] * to_photo).tolist()
    return [(x0, y0, min(x1, float(width)), min(y1, float(height))) for x0, y0, x1, y1 in chosen]


def candidate_boxes(size: tuple[int, int], point: tuple[int, int]) -> IntArray:
    """Return (n, 4) boxes round a point of a copy of (height, width), whose sides lie at `DISTANCES` from it."""
    (height, width), (x, y) = size, point
    left, top = (np.unique(np.maximum(at - np.rint(DISTANCES), 0)).astype(np.int32) for at in point)
    right = np.unique(np.minimum(x + np.rint(DISTANCES), width)).astype(np.int32)
    bottom = np.unique(np.minimum(y + np.rint(DISTANCES), height)).astype(np.int32)
    boxes: IntArray = np.stack(np.meshgrid(left, top, right, bottom, indexing="ij"), -1).reshape(-1, 4)
    across, down = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    large_enough = np.minimum(across, down) >= LEAST_SIDE
    kept: IntArray = boxes[large_enough & (across * down <= MAX_AREA * width * height)]
    return kept


def measure_boxes(copy: npt.NDArray[np.uint8], boxes: IntArray, point: tuple[int, int]) -> dict[str, FloatArray]:
    """Return what is known of each box, by the names of `WEIGHTS`."""
    height, width = copy.shape[:2]
    sides = (boxes[:, 2:] - boxes[:, :2]).astype(np.float64)
    area = sides.prod(axis=1)
    margin = np.maximum(2, np.rint(BAND * sides)).astype(np.int32)
    limits = np.array([width, height])
    outer = np.concatenate([np.maximum(boxes[:, :2] - margin, 0), np.minimum(boxes[:, 2:] + margin, limits)], axis=1)
    band = np.maximum((outer[:, 2:] - outer[:, :2]).prod(axis=1) - area, 1)

    lab = _to_lab(copy)
    colours = _integral(_palette_shares(lab))
    inside = _sums(colours, boxes)
    around = np.maximum(_sums(colours, outer) - inside, 0) / band[:, None]
    inside /= area[:, None]
    drawn = _integral(_gradient(lab)[..., None])
    gradient = _sums(drawn, boxes)[:, 0]
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    log_area = np.log(area / (width * height))
    log_shape = np.abs(np.log(sides[:, 0] / sides[:, 1]))
    measured = {
        "colour_contrast": ((inside - around) ** 2 / (inside + around + 1e-9)).sum(axis=1) / 2,
        "gradient_inside": gradient / area,
        "gradient_around": (_sums(drawn, outer)[:, 0] - gradient) / band,
        "edges": np.count_nonzero(np.concatenate([boxes[:, :2] == 0, boxes[:, 2:] == limits], axis=1), axis=1),
        "log_area": log_area,
        "log_area_squared": log_area**2,
        "log_shape": log_shape,
        "log_shape_squared": log_shape**2,
        "off_centre": (((centre - np.array(point)) / sides) ** 2).sum(axis=1),
    }
    tree = _spanning_tree(copy)
    for name, (scale, least) in zip(("small", "large"), SUPERPIXELS, strict=True):
        labels = superpixels(tree, (height, width), scale, least)
        straddling = np.zeros(len(boxes))
        for start in range(0, int(labels.max()) + 1, SUPERPIXELS_AT_ONCE):
            within, whole = _pixels_within(labels, np.arange(start, start + SUPERPIXELS_AT_ONCE, dtype=np.int32), boxes)
            straddling += np.minimum(within, whole - within).sum(axis=1)
        measured[f"straddling_{name}"] = straddling / area
    at_point, whole = _pixels_within(labels, labels[point[1], point[0], None], boxes)
    measured["filled"] = at_point[:, 0] / area
    measured["held"] = at_point[:, 0] / whole[0]
    return measured


def _pixels_within(labels: IntArray, chosen: IntArray, boxes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return how many pixels of some superpixels lie in each box, (n, chosen), and how many they have in all."""
    members = _integral((labels[..., None] == chosen).astype(np.float64))
    return _sums(members, boxes), members[-1, -1]


def nested_boxes(boxes: IntArray, scores: FloatArray) -> list[int]:
    """Return the numbers of the box of the highest score, of the best round it and of the best in it."""
    best = int(scores.argmax())
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1).astype(np.float64)
    low, high = np.maximum(boxes[:, :2], boxes[best, :2]), np.minimum(boxes[:, 2:], boxes[best, 2:])
    shared = np.maximum(high - low, 0).prod(axis=1)
    larger = (area > STEP * area[best]) & (shared > NESTED * area[best])
    smaller = (STEP * area < area[best]) & (shared > NESTED * area)
    others = [int(np.where(kind, scores, -np.inf).argmax()) for kind in (larger, smaller) if kind.any()]
    return [best, *others]


def superpixels(
    tree: tuple[list[int], list[int], list[float]], size: tuple[int, int], scale: float, least: int
) -> IntArray:
    """Return the superpixel of each pixel, numbered from 0: Felzenszwalb and Huttenlocher's, along a spanning tree.

    Two parts join where the difference between them is at most that inside each of them plus scale / size. Then parts
    of fewer than `least` pixels join their nearest neighbour.
    """
    pixels = size[0] * size[1]
    parent, count, limit = list(range(pixels)), [1] * pixels, [scale] * pixels

    def find(pixel: int) -> int:
        while parent[pixel] != pixel:
            parent[pixel] = parent[parent[pixel]]
            pixel = parent[pixel]
        return pixel

    for pixel, neighbour, difference in zip(*tree, strict=True):
        first, second = find(pixel), find(neighbour)
        if difference <= limit[first] and difference <= limit[second]:
            parent[second] = first
            count[first] += count[second]
            limit[first] = difference + scale / count[first]
    for pixel, neighbour in zip(tree[0], tree[1], strict=True):
        first, second = find(pixel), find(neighbour)
        if first != second and min(count[first], count[second]) < least:
            parent[second] = first
            count[first] += count[second]
    labels: IntArray = np.unique([find(pixel) for pixel in range(pixels)], return_inverse=True)[1].astype(np.int32)
    return labels.reshape(size)


def shrink(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the copy of a photo on which boxes are compared."""
    height, width = pixels.shape[:2]
    ratio = SIDE / max(height, width)
    size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))


def _spanning_tree(copy: npt.NDArray[np.uint8]) -> tuple[list[int], list[int], list[float]]:
    """Return the minimum spanning tree of the pixels by their colours, the nearest pair of eight neighbours first."""
    colours = ndimage.gaussian_filter(copy.astype(np.float64), (0.5, 0.5, 0))
    numbers = np.arange(copy.shape[0] * copy.shape[1]).reshape(copy.shape[:2])
    pairs = (
        (np.s_[:, :-1], np.s_[:, 1:]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[:-1, :-1], np.s_[1:, 1:]),
        (np.s_[:-1, 1:], np.s_[1:, :-1]),
    )
    ends = tuple(np.concatenate([numbers[pair[end]].ravel() for pair in pairs]) for end in (0, 1))
    apart = np.concatenate([np.linalg.norm(colours[a] - colours[b], axis=2).ravel() for a, b in pairs])
    # A weight of 0 would be no edge.
    tree = minimum_spanning_tree(coo_array((apart + 1e-3, ends), shape=(numbers.size,) * 2).tocsr()).tocoo()
    order = np.argsort(tree.data, kind="stable")
    return tree.row[order].tolist(), tree.col[order].tolist(), tree.data[order].tolist()


def _palette_shares(lab: FloatArray) -> FloatArray:
    """Return how much each pixel has of each of `COLOURS` colours that k-means finds in the photo."""
    values = lab.reshape(-1, 3)
    palette = values[np.linspace(0, len(values) - 1, COLOURS).astype(int)]
    for _ in range(6):
        nearest = ((values[:, None] - palette) ** 2).sum(axis=2).argmin(axis=1)
        count = np.maximum(np.bincount(nearest, minlength=COLOURS), 1)
        palette = np.stack([np.bincount(nearest, values[:, i], COLOURS) for i in range(3)], axis=1) / count[:, None]
    apart = ((values[:, None] - palette) ** 2).sum(axis=2)
    shares: FloatArray = np.exp((apart.min(axis=1, keepdims=True) - apart) / (2 * COLOUR_WIDTH**2))
    shares /= shares.sum(axis=1, keepdims=True)
    spread: FloatArray = shares.reshape(*lab.shape[:2], COLOURS)
    return spread


def _gradient(lab: FloatArray) -> FloatArray:
    smooth = ndimage.gaussian_filter(lab, (0.7, 0.7, 0))
    down, across = np.gradient(smooth, axis=(0, 1))
    length: FloatArray = np.sqrt((down**2 + across**2).sum(axis=2))
    return length


def _to_lab(copy: npt.NDArray[np.uint8]) -> FloatArray:
    """Return sRGB pixels in CIE L*a*b* of white D65."""
    values = copy / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
    xyz = linear @ to_xyz.T / [0.95047, 1, 1.08883]
    x, y, z = np.moveaxis(np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116), -1, 0)
    lab: FloatArray = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)
    return lab


def _integral(values: FloatArray) -> FloatArray:
    """Return the sums of (h, w, c) values above and to the left of each corner of a pixel."""
    sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1, values.shape[2]))
    values.cumsum(axis=0).cumsum(axis=1, out=sums[1:, 1:])
    return sums


def _sums(integral: FloatArray, boxes: IntArray) -> FloatArray:
    """Return the (n, c) sums in boxes."""
    x0, y0, x1, y1 = boxes.T
    sums: FloatArray = integral[y1, x1] - integral[y0, x1] - integral[y1, x0] + integral[y0, x0]
    return sums

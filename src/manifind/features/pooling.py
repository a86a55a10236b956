"""A feature map and boxes on it -> one vector a box: MAC, GeM, SPoC, CroW or signed GeM, from one pass of the network.

The sums over boxes come from an integral image, four look-ups a box whatever its size; the maxima of MAC, signed GeM
and GeM with a steep exponent come from the cells themselves. A pooled box is what it would give if it were cut out of
the map.

==============  ====================================================================================================
``mac``         the largest response of each channel (Tolias, Sicre, Jégou, 2016)
``gem``         the generalised mean, (mean xᵖ)^(1/p): p = 1 is the mean, p → ∞ the maximum (Radenović, Tolias, Chum,
                2018)
``spoc``        the mean (Babenko, Lempitsky, 2015)
``crow``        the sum, weighted by how strongly a place responds and how rarely a channel does (Kalantidis et al.,
                2016)
``signed-gem``  the root of the mean of sign(x) abs(x)ᵖ, with its sign: for networks whose responses may be negative
==============  ====================================================================================================
"""

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice, check_float
from manifind.errors import InvalidInputError
from manifind.types import FloatArray

DoubleArray = npt.NDArray[np.float64]
Boxes = npt.NDArray[np.integer]

POOLINGS = ("mac", "gem", "spoc", "crow", "signed-gem")
GENERALISED = ("gem", "signed-gem")
"""Those that have an exponent."""

STEEPEST = 4.0
"""GeM's exponent up to which the integral image serves: a steeper power leaves weak responses no digits in it."""

RARE = 1e-6
"""Added to the share of places where a channel responds, as CroW does, so that a silent channel has a weight."""


def pool(features: FloatArray, boxes: npt.ArrayLike, method: str = "gem", *, p: float = 3.0) -> FloatArray:
    """Return the (r, C) float32 vectors of the boxes of one feature map; their norms carry no meaning.

    Parameters
    ----------
    features : (C, H, W) float32
        The map. MAC and SPoC take it as it is, GeM and CroW count responses below zero as none.
    boxes : (r, 4) whole numbers
        x0, y0, x1, y1 in cells, the far sides not included.
    method : {"gem", "mac", "spoc", "crow", "signed-gem"}
        How the responses in a box become one.
    p : float
        GeM's exponent.
    """
    check_choice(method, POOLINGS, "pooling")
    p = check_float(p, "p", above=0)
    if features.ndim != 3 or 0 in features.shape:
        raise InvalidInputError(f"features has shape {features.shape}; give one map (channels, height, width).")
    boxes = _boxes_within(boxes, features.shape[1:])
    # Channels last: a place's responses lie side by side, so that sums and look-ups run along memory.
    cells = np.ascontiguousarray(features.transpose(1, 2, 0))
    match method:
        case "mac":
            pooled = _mac(cells, boxes)
        case "gem":
            pooled = _gem(cells, boxes, p)
        case "signed-gem":
            pooled = _signed_gem(cells, boxes, p)
        case "spoc":
            pooled = box_sums(integral_image(cells), boxes) / _areas(boxes)
        case _:
            pooled = _crow(cells, boxes)
    return pooled.astype(np.float32)


def integral_image(cells: npt.NDArray[np.floating]) -> DoubleArray:
    """Return the (H + 1, W + 1, C) sums over all cells above and to the left of each corner, in double precision."""
    height, width, channels = cells.shape
    integral = np.zeros((height + 1, width + 1, channels))
    # Adding whole rows of the map is ten times as fast as NumPy's cumulative sum across channels.
    for x in range(width):
        np.add(integral[1:, x], cells[:, x], out=integral[1:, x + 1])
    for y in range(height):
        integral[y + 1] += integral[y]
    return integral


def box_sums(integral: DoubleArray, boxes: Boxes) -> DoubleArray:
    """Return the (r, C) sums over boxes from an integral image."""
    x0, y0, x1, y1 = boxes.T
    sums: DoubleArray = integral[y1, x1] - integral[y0, x1]
    sums -= integral[y1, x0]
    sums += integral[y0, x0]
    return sums


def _mac(cells: FloatArray, boxes: Boxes) -> npt.NDArray[np.floating]:
    return np.stack([cells[y0:y1, x0:x1].max(axis=(0, 1)) for x0, y0, x1, y1 in boxes.tolist()])


def _gem(cells: FloatArray, boxes: Boxes, p: float) -> DoubleArray:
    peak = float(cells.max())
    if peak <= 0:
        return np.zeros((len(boxes), cells.shape[2]))
    # In units of the peak no power overflows.
    shares = np.maximum(cells, 0) / np.float32(peak)
    if p > STEEPEST:
        shares = shares.astype(np.float64)
    powers = shares * shares * shares if p == 3 else shares**p
    if p <= STEEPEST:
        integral = integral_image(powers)
        sums = box_sums(integral, boxes)
        # The difference of large sums leaves a residue where nothing responds, and a root would make much of it.
        residue = 4 * sum(cells.shape[:2]) * np.finfo(np.float64).eps * integral[-1, -1]
        sums[sums < residue] = 0
    else:
        sums = np.stack([powers[y0:y1, x0:x1].sum(axis=(0, 1)) for x0, y0, x1, y1 in boxes.tolist()])
    sums /= _areas(boxes)
    means: DoubleArray = np.cbrt(sums) if p == 3 else sums ** (1 / p)
    return means * peak


def _signed_gem(cells: FloatArray, boxes: Boxes, p: float) -> DoubleArray:
    peak = float(np.abs(cells).max())
    if peak == 0:
        return np.zeros((len(boxes), cells.shape[2]))
    shares = cells.astype(np.float64) / peak
    powers = np.sign(shares) * np.abs(shares) ** p
    # From the cells themselves: in sums of both signs a residue cannot be told from a small mean.
    means = np.stack([powers[y0:y1, x0:x1].mean(axis=(0, 1)) for x0, y0, x1, y1 in boxes.tolist()])
    roots: DoubleArray = np.sign(means) * np.abs(means) ** (1 / p) * peak
    return roots


def _crow(cells: FloatArray, boxes: Boxes) -> DoubleArray:
    responses = np.maximum(cells, 0)
    # The root of a place's total response is CroW's spatial weight with a = b = 2; its norm only scales a whole box.
    place = np.sqrt(responses.sum(axis=2, keepdims=True))
    sums = box_sums(integral_image(responses * place), boxes)
    often = RARE + np.rint(box_sums(integral_image((responses > 0).astype(np.float32)), boxes)) / _areas(boxes)
    rarity = np.log(often.sum(axis=1, keepdims=True) / often)
    weighted: DoubleArray = np.maximum(sums, 0) * rarity
    return weighted


def _areas(boxes: Boxes) -> npt.NDArray[np.int64]:
    x0, y0, x1, y1 = boxes.T.astype(np.int64)
    areas: npt.NDArray[np.int64] = ((x1 - x0) * (y1 - y0))[:, None]
    return areas


def _boxes_within(boxes: npt.ArrayLike, map_size: tuple[int, ...]) -> Boxes:
    given = np.asarray(boxes)
    if given.ndim != 2 or given.shape[1] != 4 or given.dtype.kind not in "iu" or len(given) == 0:
        raise InvalidInputError(
            f"boxes has shape {given.shape} and dtype {given.dtype}; give (r, 4) whole numbers x0, y0, x1, y1 in cells."
        )
    height, width = map_size
    x0, y0, x1, y1 = given.T
    wrong = (x0 < 0) | (y0 < 0) | (x1 > width) | (y1 > height) | (x0 >= x1) | (y0 >= y1)
    if wrong.any():
        at = int(wrong.argmax())
        raise InvalidInputError(
            f"box {at} is {given[at].tolist()}, empty or not within the map of {width} by {height} cells; "
            "give x0 < x1 and y0 < y1 inside it."
        )
    return given

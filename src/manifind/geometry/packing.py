"""Features <-> a few bytes each: what an index keeps of a photo.

A feature takes 38 bytes: two for x and two for y, in parts of the photo's width and height, one for its scale, in
twentieths of an octave, one for its angle, in 256ths of a turn, and 32 for its descriptor, each coordinate one of a few
levels. 500 features take 19,000 bytes. Only what is kept is rounded: a query's descriptors stay as they are, and their
inner products with rounded ones are unbiased enough to rank by (``docs/geometry.md`` says what it costs).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.checks import choice
from manifind.errors import Damaged, InvalidInput
from manifind.geometry.features import Features
from manifind.types import FloatArray

PLACE = 6
"""Bytes for where a feature is, how large and how turned."""
CODES = 32
"""Bytes for a descriptor."""
ROW = PLACE + CODES
OCTAVES = 12
STEPS = 20
"""How many steps of scale make an octave, of the twelve below the photo's long side."""

Packed = npt.NDArray[np.uint8]
"""(m, 38)"""

LEVELS = {
    "sift": (0.0142, 0.0597, 0.1128, 0.1843),
    "xfeat": (
        -0.31,
        -0.238,
        -0.187,
        -0.145,
        -0.108,
        -0.073,
        -0.04,
        -0.008,
        0.024,
        0.056,
        0.089,
        0.123,
        0.161,
        0.204,
        0.256,
        0.327,
    ),
}
"""What coordinates of each kind's descriptors are rounded to: the levels that lose least (Lloyd, 1982) on photos of
Holidays."""


@dataclass(frozen=True, eq=False)
class _Code:
    """How coordinates become bits and bits become coordinates."""

    edges: FloatArray
    table: FloatArray
    """(256, coordinates in a byte): what each byte stands for."""
    weights: npt.NDArray[np.uint8]
    """What each coordinate's level is multiplied by within its byte."""

    @classmethod
    def of(cls, levels: tuple[float, ...]) -> "_Code":
        values = np.array(levels, np.float32)
        bits = (len(levels) - 1).bit_length()
        shifts = np.arange(0, 8, bits)
        places = (np.arange(256)[:, None] >> shifts) & (len(levels) - 1)
        return cls(((values[1:] + values[:-1]) / 2).astype(np.float32), values[places], (1 << shifts).astype(np.uint8))


_CODES = {kind: _Code.of(levels) for kind, levels in LEVELS.items()}


def pack(features: Features) -> Packed:
    """Return features as bytes: (m, 38) uint8. The kind and the photo's size are kept by the caller."""
    code = _CODES[choice(features.kind, LEVELS, "kind")]
    rows = np.empty((len(features), ROW), np.uint8)
    size = np.array([features.width, features.height], np.float64)
    places = np.clip(np.rint(features.points / size * 65535), 0, 65535).astype("<u2")
    rows[:, :4] = np.ascontiguousarray(places).view(np.uint8)
    with np.errstate(divide="ignore"):
        octaves = np.log2(features.scales / size.max()) + OCTAVES
    rows[:, 4] = np.clip(np.rint(octaves * STEPS), 0, 255)
    rows[:, 5] = np.rint(features.angles * (256 / (2 * np.pi))).astype(np.int64) % 256
    levels = np.searchsorted(code.edges, features.descriptors).astype(np.uint8)
    together = levels.reshape(len(features), CODES, len(code.weights)) * code.weights
    rows[:, PLACE:] = together.sum(axis=2, dtype=np.uint8)
    return rows


def gray(rows: Packed, kind: str = "sift") -> Packed:
    """Return the descriptors of packed features, (m, 32), so that levels next to each other differ in one bit."""
    choice(kind, LEVELS, "kind")
    codes = rows[:, PLACE:].copy().view(np.uint64)
    # No coordinate's lowest bit moves down into the coordinate before it.
    inside = np.uint64(0x5555555555555555 if len(LEVELS[kind]) == 4 else 0x7777777777777777)
    moved = codes >> np.uint64(1)
    moved &= inside
    codes ^= moved
    return codes.view(np.uint8)


def unpack(rows: Packed, width: int, height: int, kind: str = "sift") -> Features:
    """Return the features that were packed, of a photo of this size, each descriptor at unit norm."""
    code = _CODES[choice(kind, LEVELS, "kind")]
    if rows.ndim != 2 or rows.shape[1] != ROW or rows.dtype != np.uint8:
        raise Damaged(f"packed features have shape {rows.shape} and dtype {rows.dtype}; (m, {ROW}) uint8 is needed.")
    if width < 1 or height < 1:
        raise InvalidInput(f"the photo's size is {width} by {height}; give its width and height in pixels.")
    size = np.array([width, height], np.float32)
    places = np.ascontiguousarray(rows[:, :4]).view("<u2").astype(np.float32) / 65535
    scales = np.exp2(rows[:, 4].astype(np.float32) / STEPS - OCTAVES) * size.max()
    descriptors = code.table[rows[:, PLACE:]].reshape(len(rows), CODES * len(code.weights))
    descriptors /= np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))[:, None]
    angles = rows[:, 5].astype(np.float32) * np.float32(2 * np.pi / 256)
    return Features((places * size).astype(np.float32), scales, angles, descriptors, width, height, kind)

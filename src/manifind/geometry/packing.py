"""Features <-> 38 bytes each: what an index stores of an image.

Two bytes each for x and y, in parts of the image's width and height; one for the scale, in twentieths of an octave; one
for the orientation, in 256ths of a full rotation; 32 for the descriptor, each coordinate quantized to a few levels. 500
features take 19,000 bytes. Queries are not quantized; inner products of exact with quantized descriptors are unbiased
enough to rank by (``docs/verification.md`` says what it costs).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice
from manifind.errors import DamagedError, InvalidInputError
from manifind.geometry.features import Features
from manifind.types import FloatArray

GEOMETRY_BYTES = 6
"""For position, scale and orientation."""
DESCRIPTOR_BYTES = 32
FEATURE_BYTES = GEOMETRY_BYTES + DESCRIPTOR_BYTES
OCTAVES = 12
"""Of scale, below the image's long side."""
STEPS_PER_OCTAVE = 20

Packed = npt.NDArray[np.uint8]
"""(m, 38)"""

QUANTIZATION_LEVELS = {"sift": (0.0142, 0.0597, 0.1128, 0.1843)}
"""For coordinates of each kind's descriptors: 2 or 4 bits, by Lloyd's algorithm (1982) on photos of Holidays."""


@dataclass(frozen=True, eq=False)
class _Quantizer:
    """Coordinates <-> bits."""

    edges: FloatArray
    table: FloatArray
    """(256, coordinates in a byte): the values of each byte."""
    weights: npt.NDArray[np.uint8]
    """What each coordinate's level is multiplied by within its byte."""

    @classmethod
    def of(cls, levels: tuple[float, ...]) -> "_Quantizer":
        values = np.array(levels, np.float32)
        bits = (len(levels) - 1).bit_length()
        shifts = np.arange(0, 8, bits)
        level = (np.arange(256)[:, None] >> shifts) & (len(levels) - 1)
        return cls(((values[1:] + values[:-1]) / 2).astype(np.float32), values[level], (1 << shifts).astype(np.uint8))


_QUANTIZERS = {kind: _Quantizer.of(levels) for kind, levels in QUANTIZATION_LEVELS.items()}


def pack(features: Features) -> Packed:
    """Return features as bytes: (m, 38) uint8. The caller keeps the kind and the image's size."""
    quantizer = _QUANTIZERS[check_choice(features.kind, QUANTIZATION_LEVELS, "kind")]
    rows = np.empty((len(features), FEATURE_BYTES), np.uint8)
    size = np.array([features.width, features.height], np.float64)
    positions = np.clip(np.rint(features.keypoints / size * 65535), 0, 65535).astype("<u2")
    rows[:, :4] = np.ascontiguousarray(positions).view(np.uint8)
    with np.errstate(divide="ignore"):
        octaves = np.log2(features.scales / size.max()) + OCTAVES
    rows[:, 4] = np.clip(np.rint(octaves * STEPS_PER_OCTAVE), 0, 255)
    rows[:, 5] = np.rint(features.orientations * (256 / (2 * np.pi))).astype(np.int64) % 256
    levels = np.searchsorted(quantizer.edges, features.descriptors).astype(np.uint8)
    weighted = levels.reshape(len(features), DESCRIPTOR_BYTES, len(quantizer.weights)) * quantizer.weights
    rows[:, GEOMETRY_BYTES:] = weighted.sum(axis=2, dtype=np.uint8)
    return rows


def gray_codes(rows: Packed, kind: str = "sift") -> Packed:
    """Return the descriptors of packed features in Gray code, (m, 32): neighbouring levels differ in one bit."""
    check_choice(kind, QUANTIZATION_LEVELS, "kind")
    codes = rows[:, GEOMETRY_BYTES:].copy().view(np.uint64)
    # No coordinate's lowest bit moves down into the coordinate before it.
    inside = np.uint64(0x5555555555555555 if len(QUANTIZATION_LEVELS[kind]) == 4 else 0x7777777777777777)
    shifted = codes >> np.uint64(1)
    shifted &= inside
    codes ^= shifted
    return codes.view(np.uint8)


def unpack(rows: Packed, width: int, height: int, kind: str = "sift") -> Features:
    """Return packed features of an image of this size, each descriptor at unit norm."""
    quantizer = _QUANTIZERS[check_choice(kind, QUANTIZATION_LEVELS, "kind")]
    if rows.ndim != 2 or rows.shape[1] != FEATURE_BYTES or rows.dtype != np.uint8:
        raise DamagedError(
            f"packed features have shape {rows.shape} and dtype {rows.dtype}; (m, {FEATURE_BYTES}) uint8 is needed."
        )
    if width < 1 or height < 1:
        raise InvalidInputError(f"the photo's size is {width} by {height}; give its width and height in pixels.")
    size = np.array([width, height], np.float32)
    positions = np.ascontiguousarray(rows[:, :4]).view("<u2").astype(np.float32) / 65535
    scales = np.exp2(rows[:, 4].astype(np.float32) / STEPS_PER_OCTAVE - OCTAVES) * size.max()
    descriptors = quantizer.table[rows[:, GEOMETRY_BYTES:]].reshape(
        len(rows), DESCRIPTOR_BYTES * len(quantizer.weights)
    )
    descriptors /= np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))[:, None]
    orientations = rows[:, 5].astype(np.float32) * np.float32(2 * np.pi / 256)
    return Features((positions * size).astype(np.float32), scales, orientations, descriptors, width, height, kind)

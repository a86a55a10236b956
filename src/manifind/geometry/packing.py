"""Features <-> 38 bytes each: what an index stores of an image.

Two bytes each for x and y, in parts of the image's width and height; one for the scale, in twentieths of an octave; one
for the orientation, in 256ths of a full rotation; 32 for the descriptor, each coordinate quantized to a few levels.
1,000 features take 38,000 bytes. Queries are not quantized; inner products of exact with quantized descriptors are
unbiased enough to rank by (``docs/verification.md`` says what it costs).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice
from manifind.errors import DamagedError, InvalidInputError
from manifind.geometry.features import MAX_CODE, Codes, Features
from manifind.kernels import PackedTables
from manifind.types import FloatArray

GEOMETRY_BYTES = 6
"""For position, scale and orientation."""
DESCRIPTOR_BYTES = 32
FEATURE_BYTES = GEOMETRY_BYTES + DESCRIPTOR_BYTES
CACHED_ROWS = 4096
"""Packed features that stay in a core's cache."""
OCTAVES = 12
"""Of scale, below the image's long side."""
STEPS_PER_OCTAVE = 20

_DIMENSION = 128

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
    codes: Codes
    """The same in whole numbers (`Features.codes`)."""
    weights: npt.NDArray[np.uint8]
    """What each coordinate's level is multiplied by within its byte."""

    @classmethod
    def of(cls, levels: tuple[float, ...]) -> "_Quantizer":
        values = np.array(levels, np.float32)
        bits = (len(levels) - 1).bit_length()
        shifts = np.arange(0, 8, bits)
        level = (np.arange(256)[:, None] >> shifts) & (len(levels) - 1)
        edges = ((values[1:] + values[:-1]) / 2).astype(np.float32)
        codes = np.rint(values * (MAX_CODE / values[-1])).astype(np.uint8)
        return cls(edges, values[level], codes[level], (1 << shifts).astype(np.uint8))


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


def gray_codes(rows: Packed, kind: str = "sift", spans: Sequence[tuple[int, int]] | None = None) -> Packed:
    """Return the descriptors of packed features in Gray code, (m, 32): neighbouring levels differ in one bit.

    `spans` are the rows that are read, from the first to before the last of each span; all by default.
    """
    check_choice(kind, QUANTIZATION_LEVELS, "kind")
    # No coordinate's lowest bit moves down into the coordinate before it.
    inside = np.uint64(0x5555555555555555 if len(QUANTIZATION_LEVELS[kind]) == 4 else 0x7777777777777777)
    spans = [(start, start + CACHED_ROWS) for start in range(0, len(rows), CACHED_ROWS)] if spans is None else spans
    parts = [rows[start:stop, GEOMETRY_BYTES:] for start, stop in spans]
    codes = np.empty((sum(map(len, parts)), DESCRIPTOR_BYTES), np.uint8)
    end = 0
    for part in parts:
        block = codes[end : end + len(part)]
        end += len(part)
        block[:] = part
        words = block.view(np.uint64)
        shifted = words >> np.uint64(1)
        shifted &= inside
        words ^= shifted
    return codes


_SCALES = np.exp2(np.arange(256, dtype=np.float32) / STEPS_PER_OCTAVE - OCTAVES)
"""The scale of each byte, in parts of the image's long side."""


def packed_tables(kind: str) -> PackedTables:
    """Return how the bytes of packed features are read."""
    return PackedTables(_QUANTIZERS[kind].codes, _SCALES)


@dataclass(frozen=True, eq=False)
class PackedFeatures:
    """The packed features of one image, as an index stores them."""

    rows: Packed
    """(m, 38)"""
    width: int
    """Of the image, in pixels."""
    height: int
    kind: str = "sift"

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or self.rows.shape[1] != FEATURE_BYTES or self.rows.dtype != np.uint8:
            raise DamagedError(
                f"packed features have shape {self.rows.shape} and dtype {self.rows.dtype}; "
                f"(m, {FEATURE_BYTES}) uint8 is needed."
            )
        if self.width < 1 or self.height < 1:
            raise InvalidInputError(
                f"the photo's size is {self.width} by {self.height}; give its width and height in pixels."
            )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, selected: npt.NDArray[Any] | slice) -> Self:
        """Return a subset of the features, by a mask, indices or a slice."""
        return replace(self, rows=self.rows[selected])

    @property
    def keypoints(self) -> FloatArray:
        """(m, 2): x and y in pixels of the image."""
        positions = np.ascontiguousarray(self.rows[:, :4]).view("<u2").astype(np.float32) / 65535
        return np.asarray(positions * np.array([self.width, self.height], np.float32), np.float32)

    @property
    def scales(self) -> FloatArray:
        """(m,): the size of each feature in pixels of the image."""
        return np.asarray(_SCALES[self.rows[:, 4]] * np.float32(max(self.width, self.height)), np.float32)

    @property
    def orientations(self) -> FloatArray:
        """(m,): radians."""
        return np.asarray(self.rows[:, 5].astype(np.float32) * np.float32(2 * np.pi / 256), np.float32)

    @property
    def codes(self) -> Codes:
        """The descriptors in whole numbers, (m, 128)."""
        return _QUANTIZERS[self.kind].codes[self.rows[:, GEOMETRY_BYTES:]].reshape(len(self), _DIMENSION)

    @property
    def frames(self) -> FloatArray:
        """(m, 4): x, y, scale and orientation of each feature."""
        return np.column_stack([self.keypoints, self.scales, self.orientations])

    def features(self) -> Features:
        """Return the features, each descriptor at unit norm."""
        descriptors = _QUANTIZERS[self.kind].table[self.rows[:, GEOMETRY_BYTES:]].reshape(len(self), _DIMENSION)
        descriptors /= np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))[:, None]
        return Features(self.keypoints, self.scales, self.orientations, descriptors, self.width, self.height, self.kind)


def unpack(rows: Packed, width: int, height: int, kind: str = "sift") -> Features:
    """Return packed features of an image of this size, each descriptor at unit norm."""
    return PackedFeatures(rows, width, height, check_choice(kind, QUANTIZATION_LEVELS, "kind")).features()

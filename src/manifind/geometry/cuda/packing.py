"""Features on the device -> the bytes that an index keeps of them: the same as `geometry.packing.pack` makes."""

import numpy as np
import torch

from manifind.geometry.packing import (
    DESCRIPTOR_BYTES,
    FEATURE_BYTES,
    GEOMETRY_BYTES,
    OCTAVES,
    QUANTIZATION_LEVELS,
    STEPS_PER_OCTAVE,
)
from manifind.types import Tensor


def packed(points: Tensor, scales: Tensor, angles: Tensor, descriptors: Tensor, sizes: Tensor, kind: str) -> Tensor:
    """Return features as bytes, (m, 38) uint8; `sizes` is the width and the height of each one's photo, float64."""
    rows = torch.empty((len(points), FEATURE_BYTES), dtype=torch.uint8, device=points.device)
    places = (points.double() / sizes * 65535).round().clamp(0, 65535).int()
    rows[:, 0:4:2], rows[:, 1:4:2] = places % 256, places // 256
    octaves = (scales / sizes.amax(dim=1)).log2() + OCTAVES
    rows[:, 4] = (octaves * STEPS_PER_OCTAVE).round().clamp(0, 255)
    rows[:, 5] = (angles * (256 / (2 * np.pi))).round().long() % 256
    levels = torch.tensor(QUANTIZATION_LEVELS[kind], device=points.device)
    edges = (levels[1:] + levels[:-1]) / 2
    of_level = torch.bucketize(descriptors, edges).view(len(points), DESCRIPTOR_BYTES, -1)
    bits = (len(levels) - 1).bit_length()
    weights = 1 << torch.arange(0, 8, bits, device=points.device)
    rows[:, GEOMETRY_BYTES:] = (of_level * weights).sum(dim=2)
    return rows

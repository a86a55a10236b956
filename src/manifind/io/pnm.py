"""PNM files whose values run to another number than a byte or two hold: brought to 255 or 65535 by NumPy.

Pillow does the same value by value in Python, a minute for the 16-bit PPM of a camera.
"""

import io
from typing import Any

import numpy as np
from PIL.PpmImagePlugin import PpmImageFile

CODEC = "ppm"
"""Pillow's name for the decoder of such files."""
BLOCK = 2**20
"""Values that are brought to their scale at once."""


def has_odd_scale(image: PpmImageFile) -> bool:
    """Whether the values of a file run to another number than 255 or 65535."""
    return any(tile[0] == CODEC for tile in image.tile)


def rescale(image: PpmImageFile, data: bytes) -> PpmImageFile:
    """Return the image of a file whose values run to 255, or to 65535 where they are greys of two bytes."""
    (tile,) = image.tile
    arguments: Any = tile.args
    begin, white = tile.offset, int(arguments[1])
    is_wide = image.mode == "I"
    target, kind = (65535, ">u2") if is_wide else (255, "u1")
    given = np.dtype("u1" if white < 256 else ">u2")
    count = min(image.width * image.height * len(image.getbands()), (len(data) - begin) // given.itemsize)
    values = np.frombuffer(data, given, count, begin)
    scale = np.minimum(np.rint(np.arange(2 ** (8 * given.itemsize)) / white * target), target).astype(kind)
    header = b"P%d %d %d %d\n" % (5 if len(image.getbands()) == 1 else 6, *image.size, target)
    scaled = bytearray(len(header) + count * scale.itemsize)
    scaled[: len(header)] = header
    out = np.frombuffer(scaled, kind, offset=len(header))
    for start in range(0, count, BLOCK):
        out[start : start + BLOCK] = scale[values[start : start + BLOCK]]
    return PpmImageFile(io.BytesIO(scaled))

"""Tokens of a transformer -> a feature map.

A vision transformer cuts a photo into square patches and gives one vector, a token, for each, row by row. Before them
come tokens that stand for no place: a class token, registers. The tokens of the patches are a map whose cells are the
patches.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.types import FloatArray

SHORT, LONG, LONGER = 224, 448, 672
"""Sides of the photos of a trial: whole numbers of patches of 7, 8, 14, 16, 28 and 32 pixels."""


class Patches(NamedTuple):
    """How a network cuts photos, and what it says of them."""

    side: int
    """Pixels of a patch's side."""
    leading: int
    """Tokens before those of the patches."""
    channels: int


def measure_patches(run: Callable[[FloatArray], npt.NDArray[Any]], where: str) -> Patches:
    """Find out how a network that gives tokens, (1, tokens, channels), cuts photos: by two runs on even photos."""
    outputs = [run(np.zeros((1, 3, SHORT, width), np.float32)) for width in (LONG, LONGER)]
    shapes = [each.shape for each in outputs]
    more = shapes[1][1] - shapes[0][1]  # patches of a square of SHORT by SHORT
    across = math.isqrt(more) if more > 0 else 0
    leading = shapes[0][1] - 2 * more
    if across == 0 or across**2 != more or SHORT % across or leading < 0 or shapes[0][2] != shapes[1][2]:
        raise InvalidInputError(
            f"{where} gives outputs of shape {shapes[0]} and {shapes[1]} for photos of {LONG} and {LONGER} by {SHORT} "
            "pixels; tokens (1, patches, channels), one for each square patch after those of the whole photo, are "
            "needed."
        )
    return Patches(SHORT // across, leading, shapes[0][2])


def tokens_to_map(tokens: npt.NDArray[Any], height: int, width: int, side: int) -> npt.NDArray[Any]:
    """Return the tokens (1, tokens, channels) of a photo's patches as a map (1, channels, rows, columns)."""
    rows, columns = height // side, width // side
    leading = tokens.shape[1] - rows * columns
    if leading < 0:
        raise InvalidInputError(
            f"{tokens.shape[1]} tokens are too few for a photo of {width} by {height} pixels in patches of {side}; "
            "one for each patch is needed."
        )
    return tokens[:, leading:].reshape(1, rows, columns, -1).transpose(0, 3, 1, 2)

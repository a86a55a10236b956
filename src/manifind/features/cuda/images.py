"""Pictures of any sizes, one after the other: where each starts, and how large it is."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from manifind.types import Tensor

Sizes = npt.NDArray[np.int64]
"""(pictures, 2): height and width."""
Starts = npt.NDArray[np.int64]

BLOCK = 1024
"""Rows that are numbered together."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Where pictures lie on the device, row after row."""

    sizes: Sizes
    starts: Starts
    """Where each starts."""
    table: Tensor
    """(pictures, 4) int32 on the device: start, height, width, and nothing."""

    @cached_property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.sizes.prod(axis=1).sum())

    @cached_property
    def of(self) -> Tensor:
        """The picture of each row from the first picture's start on, where they follow each other; int32."""
        from manifind.features.cuda import cells

        of = torch.empty(self.rows, dtype=torch.int32, device=self.table.device)
        most = int(self.sizes.prod(axis=1).max())
        cells.number[(len(self.sizes), -(-most // BLOCK))](self.table, of, BLOCK=BLOCK, num_warps=4)
        return of


def stack_layouts(sizes: list[Sizes], firsts: list[Starts | int], device: Any) -> list[Pictures]:
    """Return several layouts at once, which go to the device in one copy.

    Parameters
    ----------
    sizes
        Of the pictures of each layout.
    firsts
        Where the first picture of each starts, the others following; or where every picture starts.
    device
    """
    starts = []
    for size, first in zip(sizes, firsts, strict=True):
        areas = size.prod(axis=1)
        starts.append(np.cumsum(areas) - areas + first if isinstance(first, int) else first)
    tables = [np.column_stack([start, size, 0 * start]) for start, size in zip(starts, sizes, strict=True)]
    held = to_device(torch.from_numpy(np.concatenate(tables).astype(np.int32)), device)
    ends = np.cumsum([len(size) for size in sizes]).tolist()
    return [
        Pictures(size, start, held[end - len(size) : end]) for size, start, end in zip(sizes, starts, ends, strict=True)
    ]


def half_sizes(sizes: Sizes, stride: int) -> Sizes:
    """Return the sizes that a convolution of three by three leaves."""
    return (sizes + stride - 1) // stride


def to_device(tensor: Tensor, device: Any) -> Tensor:
    """Return a tensor on the device, through memory that the copy engine reaches by itself."""
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def few_lengths(rows: int) -> int:
    """Return a length of at least so many rows, of which there are 16 between a power of two and the next.

    What multiplies matrices looks for the fastest way at every new length, which takes longer than the product.
    """
    step = max(64, 1 << max(0, rows.bit_length() - 5))
    return -(-rows // step) * step

"""How the kernels of `tiles` are started: the shapes that were fastest on an H200, and what older GPUs lack."""

from typing import TYPE_CHECKING, Any

import torch

from manifind.kernels.cuda import tiles
from manifind.kernels.cuda.packing import GROUP, Packed
from manifind.types import Tensor

if TYPE_CHECKING:
    from manifind.kernels.cuda.neighbours import Side
    from manifind.kernels.cuda.rows import Block

BLOCK, TILE, STEP = 128, 128, 64
"""Rows, columns and dimensions of a tile."""
BAND = 32
"""How many blocks of rows are compared with a tile of columns while it is in the cache."""
STAGES = {True: 4, False: 3}
"""How many steps of a tile are loaded ahead: of integers, and of numbers in half precision."""
ENTRIES_PER_STEP = 8
"""Entries of a list that are scored together."""


def survivors(side: "Side", thresholds: Tensor, packed: Packed, counts: Tensor, lists: Tensor) -> None:
    """Append the places of columns that may reach the threshold of a row to its list."""
    blocks, width = len(side.codes) // BLOCK, side.codes.shape[1]
    columns = len(packed.codes) // TILE
    by_engine = _has_copy_engine(side.codes)
    tiles.survivors[(blocks * columns,)](
        _source(side.codes, BLOCK, by_engine), thresholds, side.offsets, side.scales, side.size,
        _source(packed.codes, TILE, by_engine), packed.group_offsets, packed.group_scales, columns,
        counts, lists, lists.shape[1], blocks,
        BAND=BAND, D=width, BM=BLOCK, BN=TILE, BK=STEP, GROUP=GROUP,
        WHOLE=packed.whole, PTX=side.codes.is_cuda, TMA=by_engine, num_warps=4, num_stages=STAGES[packed.whole],
    )  # fmt: skip


def maxima(side: "Side", sample: Packed) -> Tensor:
    """Return the largest similarity of each row with each `TILE` of sampled columns."""
    blocks, width, chunks = len(side.codes) // BLOCK, side.codes.shape[1], len(sample.codes) // TILE
    largest = torch.empty((side.size, chunks), device=side.codes.device)
    by_engine = _has_copy_engine(side.codes)
    tiles.maxima[(blocks, chunks)](
        _source(side.codes, BLOCK, by_engine), side.scales, side.size,
        _source(sample.codes, TILE, by_engine), sample.group_scales, largest, chunks,
        D=width, BM=BLOCK, BN=TILE, BK=STEP, WHOLE=sample.whole, TMA=by_engine,
        num_warps=4, num_stages=STAGES[sample.whole],
    )  # fmt: skip
    return largest


def rescore(
    side: "Side", block: "Block", packed: Packed, begins: Tensor, counts: Tensor, lists: Tensor, scores: Tensor
) -> None:
    """Score what lists gained since `begins`, and put ids in place of places."""
    n, d = block.vectors.shape
    tiles.rescore[(side.size,)](
        side.vectors, side.places, side.ids, block.vectors, packed.order, block.first, n,
        begins, counts, lists, scores, lists.shape[1], d,
        D=max(16, 1 << (d - 1).bit_length()), BC=ENTRIES_PER_STEP, num_warps=4,
    )  # fmt: skip


def _has_copy_engine(codes: Tensor) -> bool:
    return bool(codes.is_cuda and torch.cuda.get_device_capability(codes.device) >= (9, 0))


def _source(codes: Tensor, high: int, by_engine: bool) -> Any:
    """Return codes as the copy engine reads them, or as they are."""
    if not by_engine:
        return codes
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(codes, [high, STEP])

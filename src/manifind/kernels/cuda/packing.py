"""Rows in eight bits, and how far they are from what they stand for.

Rows are put in the order of their largest entry, and each group of them shares a scale. So one integer tells for a row
and a whole group which products are large enough. The bound on the rounding is that of ``core/self_join.h``:
x·z − x̂·ẑ = (x − x̂)·z + x̂·(z − ẑ), each at most the product of the lengths.
"""

from typing import NamedTuple

import torch

from manifind.types import Tensor

GROUP = 256
"""Rows that share a scale: the widest tile of columns."""
PACK_BYTES = 2**28
"""Bytes of rows, in float32, that are packed at a time."""
ROUNDED_UP = 1.0001
"""What a length that was added up in float32 is multiplied by, so that it is never too short."""


class Packed(NamedTuple):
    """Rows as tiles compare them, in groups; the last is filled up with rows of zeros."""

    order: Tensor
    """(n,) int32: which row stands at each place."""
    codes: Tensor
    """(places, D) int8 or float16, D a multiple of 64 or more."""
    scales: Tensor
    """(places,) float32."""
    offsets: Tensor
    """(places,) float32. The product of two rows is off by the sum of their two offsets at most."""
    group_scales: Tensor
    group_offsets: Tensor

    @property
    def whole(self) -> bool:
        """Whether the codes are integers."""
        return bool(self.codes.dtype == torch.int8)


def padded_dimension(d: int) -> int:
    """Return the dimensions, zeros added, that tiles work on: a power of two from 64 to 512, or a multiple of 128."""
    return max(64, 1 << (d - 1).bit_length()) if d <= 512 else -(-d // 128) * 128


def pack(vectors: Tensor, *, whole: bool = True, group: int = GROUP) -> Packed:
    """Pack (n, d) float32 or float16 rows where they are; in eight bits if `whole`, else in half precision."""
    n, d = vectors.shape
    places = -(-n // group) * group
    device = vectors.device
    step = max(group, PACK_BYTES // (4 * d) // group * group)
    largest = torch.zeros(places, device=device)
    for start in range(0, n, step):
        largest[start : min(n, start + step)] = vectors[start : start + step].abs().amax(dim=1).float()
    order = torch.argsort(largest[:n])
    by_group = largest[torch.cat([order, order[-1:].expand(places - n)])].view(-1, group).amax(dim=1)
    group_scales = (by_group / 127).clamp_min(1e-30) if whole else torch.ones_like(by_group)
    scales = group_scales.repeat_interleave(group)
    codes = torch.zeros((places, padded_dimension(d)), dtype=torch.int8 if whole else torch.float16, device=device)
    errors, lengths = torch.zeros(places, device=device), torch.zeros(places, device=device)
    for start in range(0, n, step):
        end = min(n, start + step)
        x = vectors[order[start:end]].float()
        scale = scales[start:end, None]
        rounded = (x / scale).round_().clamp_(-127, 127) if whole else x.half()
        codes[start:end, :d] = rounded.to(codes.dtype)
        errors[start:end] = torch.linalg.vector_norm(x - rounded.float() * scale, dim=1) * ROUNDED_UP
        lengths[start:end] = torch.linalg.vector_norm(x, dim=1) * ROUNDED_UP
    longest, worst = lengths.max().clamp_min(1.01), errors.max()  # also of other packed rows, which are unit rows
    # Adding up d products in float32, here and when they are scored anew, is off by d units in the last place each.
    offsets = errors * (longest + worst) + (d + 16) * 2.0**-23 * longest**2
    return Packed(order.int(), codes, scales, offsets, group_scales, offsets.view(-1, group).amax(dim=1))

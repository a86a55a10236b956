"""The list of regions of runs (`manifind.groups.Runs`) on a torch device, which makes it of where the runs begin."""

from typing import Any, NamedTuple

import numpy as np
import torch

from manifind.groups import RowRanges
from manifind.kernels.cuda.transfer import to_device
from manifind.types import Tensor

RUNS, REGIONS = 4, 32
"""Runs of a program, and how many regions of a run it writes at a time."""
ALIGNED = 16
"""The second array of a transfer begins at a multiple of so many entries, as the first one does."""


class Listed(NamedTuple):
    """Runs on the device."""

    regions: Tensor
    """The list of regions, int32."""
    starts: Tensor
    """Where each run starts in the list, int32. The last entry is how many regions there are."""


def listed(runs: RowRanges, device: Any) -> Listed:
    """Return runs on the device. `runs` holds what was made, and the second call makes nothing."""
    name = _with_number(device)
    made: Listed | None = runs.copies.get(name)
    if made is None:
        starts, begins = _send_starts(runs, device)
        if starts.is_cuda:
            made = Listed(written(runs, starts, begins), starts)
        else:
            shift = torch.repeat_interleave(begins - starts[:-1], starts.diff(), output_size=len(runs))
            made = Listed(torch.arange(len(runs), dtype=torch.int32, device=device) + shift, starts)
        runs.copies[name] = made
    return made


def written(runs: RowRanges, starts: Tensor, begins: Tensor) -> Tensor:
    """Return the list of regions by a kernel."""
    from manifind.kernels.cuda import sparse

    regions = torch.empty(len(runs), dtype=torch.int32, device=starts.device)
    sparse.list_runs[(-(-len(begins) // RUNS),)](
        begins, starts, regions, len(begins), RUNS=RUNS, REGIONS=REGIONS, num_warps=1
    )
    return regions


def _with_number(device: Any) -> Any:
    """Return a device with its number, as tensors there have it."""
    named = torch.device(device)
    return torch.device("cuda", torch.cuda.current_device()) if named.type == "cuda" and named.index is None else named


def _send_starts(runs: RowRanges, device: Any) -> tuple[Tensor, Tensor]:
    """Return starts and begins on the device, sent together."""
    count = len(runs.begins)
    second = -(-(count + 1) // ALIGNED) * ALIGNED
    both = np.empty(second + count, np.int32)
    both[: count + 1], both[second:] = runs.starts, runs.begins
    sent = to_device(both, device)
    return sent[: count + 1], sent[second:]

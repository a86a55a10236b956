"""Arrays to the device and back, through memory that the copy engine reaches by itself.

Of ranges of regions (`manifind.groups.RowRanges`) only where they begin is sent; the device lists the regions.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from manifind.groups import RowRanges
from manifind.types import Tensor

STAGED, SMALL, TINY = 2**26, 2**21, 2**14
"""How many bytes are copied at a time; up to how many are copied at once; up to how many the driver sends with its
commands."""


def to_device(array: npt.NDArray[Any], device: Any, *, dtype: Any = None) -> Tensor:
    """Return a copy of an array, which may be a read-only map of a file, on the device."""
    wanted = np.dtype(dtype or array.dtype)
    if 0 < array.size * wanted.itemsize <= TINY:
        # torch does not take arrays that must not be written to, so it gets a copy.
        return torch.from_numpy(np.array(array, wanted, order="C")).to(device, non_blocking=True)
    made = torch.empty(array.shape, dtype=_kind(wanted), device=device)
    if not array.size:
        return made
    if made.device.type == "cpu":
        made.numpy()[...] = array
        return made
    if array.size * wanted.itemsize <= SMALL:
        # A copy in page-locked memory reaches the device without anybody waiting for it.
        staged = torch.empty(array.shape, dtype=made.dtype, pin_memory=True)
        staged.numpy()[...] = array
        return made.copy_(staged, non_blocking=True)
    step = max(1, STAGED // max(1, made[0].numel() * wanted.itemsize))
    stages = [torch.empty((min(step, len(array)), *array.shape[1:]), dtype=made.dtype, pin_memory=True) for _ in "ab"]
    free = [torch.cuda.Event() for _ in stages]
    for number, start in enumerate(range(0, len(array), step)):
        stage, event = stages[number % 2], free[number % 2]
        block = array[start : start + step]
        event.synchronize()
        # torch copies with all cores. It warns of arrays that must not be written to; here it only reads them.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stage[: len(block)].copy_(torch.from_numpy(block))
        made[start : start + step].copy_(stage[: len(block)], non_blocking=True)
        event.record()
    for event in free:
        event.synchronize()
    return made


def to_host(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a tensor as an array."""
    made: npt.NDArray[Any] = tensor.cpu().numpy()
    return made


def in_pinned_memory(*tensors: Tensor) -> list[npt.NDArray[Any]]:
    """Return tensors as arrays in page-locked memory, which torch gives out again when the arrays are gone.

    The device is waited for once.
    """
    return on_the_way(*tensors)()


def on_the_way(*tensors: Tensor) -> Callable[[], list[npt.NDArray[Any]]]:
    """Begin what `in_pinned_memory` does, and return a function that waits for it, and for nothing begun later."""
    if tensors[0].device.type == "cpu":
        return lambda: [tensor.numpy() for tensor in tensors]
    hosts = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for host, tensor in zip(hosts, tensors, strict=True):
        host.copy_(tensor, non_blocking=True)
    done = torch.cuda.Event()
    done.record()

    def arrived() -> list[npt.NDArray[Any]]:
        done.synchronize()
        return [host.numpy() for host in hosts]

    return arrived


def _kind(dtype: "np.dtype[Any]") -> Any:
    return torch.from_numpy(np.empty(0, dtype)).dtype


RUNS, REGIONS = 4, 32
"""Runs of a program, and how many regions of a run it writes at a time."""
ALIGNED = 16
"""The second array of a transfer begins at a multiple of so many entries, as the first one does."""


class RegionList(NamedTuple):
    """Runs on the device."""

    regions: Tensor
    """The list of regions, int32."""
    starts: Tensor
    """Where each run starts in the list, int32. The last entry is how many regions there are."""


def list_regions(runs: RowRanges, device: Any) -> RegionList:
    """Return runs on the device. `runs` holds what was made, and the second call makes nothing."""
    name = _with_number(device)
    made: RegionList | None = runs.copies.get(name)
    if made is None:
        starts, begins = _send_starts(runs, device)
        if starts.is_cuda:
            made = RegionList(write_regions(runs, starts, begins), starts)
        else:
            shift = torch.repeat_interleave(begins - starts[:-1], starts.diff(), output_size=len(runs))
            made = RegionList(torch.arange(len(runs), dtype=torch.int32, device=device) + shift, starts)
        runs.copies[name] = made
    return made


def write_regions(runs: RowRanges, starts: Tensor, begins: Tensor) -> Tensor:
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

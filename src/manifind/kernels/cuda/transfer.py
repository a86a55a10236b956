"""Arrays to the device and back, through memory that the copy engine reaches by itself."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

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

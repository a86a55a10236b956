"""Descriptors on a torch device.

They are copied there when they are first searched, if they fit. If not, they pass through the device in blocks.
"""

import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from manifind.kernels.array_rows import ArrayRows
from manifind.kernels.backend import SCRATCH
from manifind.kernels.cuda import neighbours
from manifind.kernels.cuda.matrix import width_of
from manifind.kernels.cuda.transfer import Tensor, to_device, to_host
from manifind.types import FloatArray, IntArray, Progress, Vectors

SHARE = 0.4
"""The share of the device's free memory that rows may take. Packed rows take half as much again."""


FEW = 64
"""Queries whose products with some of the rows are taken without copying these rows."""
BLOCK, STEP = 64, 32
"""How many rows and dimensions are then multiplied together."""


class Block(NamedTuple):
    """Successive rows on the device."""

    first: int
    """The id of the first."""
    vectors: Tensor


class TorchRows(ArrayRows):
    """Descriptors of regions where they lie, and their copy on the device after the first search.

    Parameters
    ----------
    vectors : (n, d) float32 or float16
    device : torch.device
    most : int, optional
        Bytes of rows that are held on the device at a time; by default a share of what is free there.
    """

    def __init__(self, vectors: Vectors, device: object, most: int | None = None) -> None:
        super().__init__(vectors)
        self.device = device
        self._most = most
        self._resident: Tensor | None = None
        self._copying = threading.Lock()

    def _held(self) -> str:
        return f"copied to {self.device}" if self._resident is not None else f"for {self.device}"

    def blocks(self) -> Iterator[Block]:
        """Yield all rows on the device: at once if they fit, else in blocks that do."""
        n, d = self.shape
        with self._copying:
            if self._resident is None and self.vectors.nbytes <= self._room():
                self._resident = to_device(self.vectors, self.device)
            resident = self._resident
        if resident is not None:
            yield Block(0, resident)
            return
        step = max(1, self._room() // (d * self.vectors.itemsize))
        for start in range(0, n, step):
            yield Block(start, to_device(self.vectors[start : start + step], self.device))

    def on_device(self, rows: npt.NDArray[np.integer]) -> Tensor:
        """Return some rows on the device, as they are kept."""
        if self._resident is not None:
            return self._resident[torch.as_tensor(np.asarray(rows, np.int64), device=self._resident.device)]
        return to_device(self.vectors[rows], self.device)

    def nearest(
        self, queries: FloatArray, k: int, *, among: IntArray | None = None, memory: int = SCRATCH
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query."""
        m, d = queries.shape
        ids, scores = np.empty((m, k), np.int32), np.empty((m, k), np.float32)
        if not m or not k:
            return ids, scores
        held = to_device(np.ascontiguousarray(queries, np.float32), self.device)
        wanted = None if among is None else to_device(among, self.device)
        step = max(1, min(m, memory // (16 * k)))
        width = max(2 * k, memory // (4 * (step + d)))
        few, broad = m <= FEW and _has_kernels(held), max(2 * k, memory // (4 * m))
        for start in range(0, m, step):
            some = held[start : start + step]
            best = neighbours.Best(some, k)
            for block in self.blocks():
                if wanted is None or among is None:
                    for begin in range(0, len(block.vectors), width):
                        best.meet(block.vectors[begin : begin + width], block.first + begin)
                    continue
                ends = np.array([block.first, block.first + len(block.vectors)], among.dtype)
                low, high = np.searchsorted(among, ends).tolist()
                rows = wanted[low:high] - block.first if block.first else wanted[low:high]
                if few:
                    for begin in range(0, len(rows), broad):
                        best.take(products_with(some, block.vectors, rows[begin : begin + broad]), low + begin)
                    continue
                for begin in range(0, len(rows), width):
                    best.meet(block.vectors[rows[begin : begin + width]], low + begin)
            ids[start : start + step], scores[start : start + step] = to_host(best.ids), to_host(best.scores)
        return ids, scores

    def nearest_others(
        self, k: int, *, memory: int = SCRATCH, progress: Progress | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar other rows of each row by all products (`neighbours`).

        `memory` bounds the lists of candidates on the device, some 16k bytes a row. Where it is too little, rows take
        turns.
        """
        n = self.shape[0]
        ids, scores = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
        if n:
            neighbours.of_all(self, k, memory, ids, scores, progress)
        return ids, scores

    def _room(self) -> int:
        if self._most is not None:
            return self._most
        if torch.device(self.device).type == "cpu":
            return 2**62
        return int(SHARE * torch.cuda.mem_get_info(self.device)[0])


def _has_kernels(tensor: Tensor) -> bool:
    """Return whether kernels run where a tensor is."""
    return bool(tensor.is_cuda)


def products_with(queries: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
    """Return the products of few queries with some rows of `vectors`, (m, rows), by a kernel."""
    from manifind.kernels.cuda import dots

    (m, d), count = queries.shape, len(rows)
    made = torch.empty((m, count), device=queries.device)
    dots.products_with[(-(-count // BLOCK),)](
        queries, vectors, rows, made, m, count, d, M=max(16, width_of(m)), BLOCK=BLOCK, STEP=STEP, num_warps=4
    )
    return made

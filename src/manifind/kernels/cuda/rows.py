"""Descriptors on a torch device.

They are copied there when they are first searched, if they fit. If not, they pass through the device in blocks.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from manifind.groups import RowRanges
from manifind.kernels.api import SCRATCH_BYTES, ArrayVectorSet
from manifind.kernels.cuda import neighbours
from manifind.kernels.cuda.matrix import width_of
from manifind.kernels.cuda.transfer import list_regions, on_the_way, to_device, to_host
from manifind.types import FloatArray, IntArray, Progress, Tensor, Vectors

SHARE = 0.4
"""The share of the device's free memory that rows may take. Packed rows take half as much again."""


MAX_GATHERED_QUERIES = 64
"""Queries whose products with some of the rows are taken without copying these rows."""
BLOCK, STEP = 64, 32
"""How many rows and dimensions are then multiplied together."""
SPARSE = 64
"""If at least one row of so many is chosen, marking the chosen rows takes less time than sorting them."""

Coming = tuple[slice, Callable[[], list[npt.NDArray[Any]]]]
"""Some queries, and a function that waits for their lists of ids and similarities."""


class Block(NamedTuple):
    """Successive rows on the device."""

    first: int
    """The id of the first."""
    vectors: Tensor


class Some(NamedTuple):
    """Some of the rows, ascending."""

    held: Tensor
    """Their numbers on the device."""
    numbers: Callable[[], IntArray]
    """Returns the same numbers on the host."""

    def inside(self, block: Block, n: int) -> tuple[int, Tensor]:
        """Return the place of the first of them that is in a block of n rows, and where in the block they are."""
        if len(block.vectors) == n:
            return 0, self.held
        numbers = self.numbers()
        ends = np.array([block.first, block.first + len(block.vectors)], numbers.dtype)
        low, high = np.searchsorted(numbers, ends).tolist()
        return low, self.held[low:high] - block.first


class TorchVectorSet(ArrayVectorSet):
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

    def _describe_storage(self) -> str:
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

    def search(
        self, queries: FloatArray, k: int, *, subset: IntArray | None = None, memory: int = SCRATCH_BYTES
    ) -> tuple[IntArray, FloatArray]:
        """Find the `k` most similar rows of each query."""
        some = None if subset is None else Some(to_device(subset, self.device), lambda: subset)
        return _wait_for_lists(self._lists(queries, k, some, memory), len(queries), k)

    def search_ranges(
        self, ranges: RowRanges, queries: FloatArray, k: int, *, memory: int = SCRATCH_BYTES
    ) -> Callable[[], tuple[IntArray, FloatArray]]:
        """Begin to find the `k` most similar rows of each query in ascending runs."""
        held = list_regions(ranges, self.device).regions
        coming = list(self._lists(queries, k, Some(held, lambda: ranges.regions), memory))
        return lambda: _wait_for_lists(coming, len(queries), k)

    def choose_shortlist(self, queries: FloatArray, k: int) -> list[npt.NDArray[np.intp]]:
        """Return the `k` most similar rows of each query, ascending."""
        found = (to_host(best.ids) for _, best in self._search(queries, k, None, SCRATCH_BYTES, ordered=False))
        return [_sort_distinct(row, self.shape[0]) for some in found for row in some]

    def _lists(self, queries: FloatArray, k: int, some: "Some | None", memory: int) -> Iterator[Coming]:
        """Yield which queries were searched for, and a function that waits for their lists."""
        if len(queries) and k:
            for own, best in self._search(queries, k, some, memory):
                yield own, on_the_way(best.ids, best.scores)

    def _search(
        self, queries: FloatArray, k: int, some: "Some | None", memory: int, *, ordered: bool = True
    ) -> Iterator[tuple[slice, neighbours.Best]]:
        """Compare as many queries at a time as `memory` allows with all rows, or with some."""
        m, d = queries.shape
        held = to_device(np.ascontiguousarray(queries, np.float32), self.device)
        step = max(1, min(m, memory // (16 * k)))
        width = max(2 * k, memory // (4 * (step + d)))
        few, broad = m <= MAX_GATHERED_QUERIES and _has_kernels(held), max(2 * k, memory // (4 * m))
        for start in range(0, m, step):
            own = slice(start, start + step)
            best = neighbours.Best(held[own], k, ordered=ordered)
            for block in self.blocks():
                if some is None:
                    for begin in range(0, len(block.vectors), width):
                        best.compare_rows(block.vectors[begin : begin + width], block.first + begin)
                    continue
                low, rows = some.inside(block, self.shape[0])
                if few:
                    for begin in range(0, len(rows), broad):
                        of = rows[begin : begin + broad]
                        best.take(products_with(held[own], block.vectors, of), low + begin)
                    continue
                for begin in range(0, len(rows), width):
                    best.compare_rows(block.vectors[rows[begin : begin + width]], low + begin)
            yield own, best

    def self_join(
        self, k: int, *, memory: int = SCRATCH_BYTES, progress: Progress | None = None
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
    from manifind.kernels.cuda import tiles

    (m, d), count = queries.shape, len(rows)
    made = torch.empty((m, count), device=queries.device)
    tiles.products_with[(-(-count // BLOCK),)](
        queries, vectors, rows, made, m, count, d, M=max(16, width_of(m)), BLOCK=BLOCK, STEP=STEP, num_warps=4
    )
    return made


def _wait_for_lists(coming: Iterable[Coming], m: int, k: int) -> tuple[IntArray, FloatArray]:
    """Wait for the lists of m queries."""
    ids, scores = np.empty((m, k), np.int32), np.empty((m, k), np.float32)
    for own, lists in coming:
        ids[own], scores[own] = lists()
    return ids, scores


def _sort_distinct(ids: IntArray, n: int) -> npt.NDArray[np.intp]:
    """Return different numbers below n in ascending order."""
    if n > SPARSE * len(ids):
        return np.sort(ids).astype(np.intp)
    there = np.zeros(n, np.bool_)
    there[ids] = True
    return np.flatnonzero(there)

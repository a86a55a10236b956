"""The matrix S on a torch device.

The first solution puts the matrix in an order in which neighbours are near each other: then most of what a product
gathers is in a cache. A part of another matrix keeps its order, because one solution is all it serves for.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from manifind.groups import RowRanges
from manifind.kernels.api import FLOAT64_MAX_REGIONS, MAX_BATCH, Operator, Pool, Seeds, Solution
from manifind.kernels.cuda import gradient
from manifind.kernels.cuda import matrix as matrices
from manifind.kernels.cuda.matrix import Matrix
from manifind.kernels.cuda.transfer import in_pinned_memory, list_regions, to_device
from manifind.types import FloatArray, IntArray, Tensor

WIDEST = 64
SHARE = 0.5
"""Share of the device's free memory that the vectors of a solution may take."""


class PartOf(NamedTuple):
    """The whole that a system is a part of."""

    whole: "TorchOperator"
    ranges: RowRanges | None
    """The rows of the part, if they came as ranges."""


class TorchOperator(Operator):
    """A symmetric matrix on a torch device, and its ordered copy after the first solution."""

    def __init__(
        self,
        matrix: Matrix,
        degrees: Tensor | None,
        *,
        reorder: bool = True,
        part: "PartOf | None" = None,
        longest: int | None = None,
    ) -> None:
        self.matrix, self.degrees, self._part, self._longest = matrix, degrees, part, longest
        self.reorder = reorder
        self.ordered: tuple[Matrix, Tensor] | None = None
        """The matrix in order, and the order of its regions; a copy."""
        self._ordering = threading.Lock()
        self._pool: tuple[Pool, Tensor, Tensor, Tensor | None] | None = None
        self._roots: Tensor | None = None
        self._weights: tuple[FloatArray, Tensor] | None = None

    @classmethod
    def of(cls, S: sp.csr_array, degrees: FloatArray | None, device: Any, *, reorder: bool = True) -> "TorchOperator":
        """Copy a matrix to a device."""
        matrix = Matrix.of(
            to_device(S.indptr, device, dtype=np.int32 if S.nnz <= np.iinfo(np.int32).max else np.int64),
            to_device(S.indices, device, dtype=np.int32),
            to_device(S.data, device, dtype=np.float32),
        )
        held = None if degrees is None else to_device(degrees, device, dtype=np.float32)
        return cls(matrix, held, reorder=reorder)

    def __repr__(self) -> str:
        has = ", in order" if self.ordered is not None else ""
        entries = int(self.matrix.starts[-1])
        return f"<system of {self.size:,} regions, {entries:,} entries, on {self.device}{has}>"

    @property
    def device(self) -> Any:
        """The device that holds the matrix."""
        return self.matrix.entries.device

    @property
    def size(self) -> int:
        """How many regions there are."""
        return len(self.matrix.starts) - 1

    @property
    def batch_size(self) -> int:
        """How many queries to solve for at once; the device splits them further where it must."""
        return MAX_BATCH

    @property
    def longest(self) -> int:
        """How many entries a row has at most."""
        if self._longest is None:
            self._longest = int(self.matrix.starts.diff().max()) if self.size else 0
        return self._longest

    def matmul(self, x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return Sx."""
        kind = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        product = np.empty(x.shape, kind)
        for start in range(0, x.shape[1], WIDEST):
            some = slice(start, start + WIDEST)
            p = to_device(np.ascontiguousarray(x[:, some]), self.device, dtype=kind)
            product[:, some] = gradient.multiplied(self.matrix, p).cpu().numpy()
        return product

    def solve(self, y: FloatArray, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve by conjugate gradient; the first solution puts the matrix in order."""

        def right(some: slice) -> Tensor:
            return to_device(np.ascontiguousarray(y[:, some]), self.device, dtype=np.float32)

        return self._solve(right, y.shape[1], alpha, max_iter, tol)

    def solve_seeds(self, seeds: Seeds, alpha: float, max_iter: int, tol: float) -> Solution:
        """Solve for columns that are given by their entries. Only the entries go to the device."""
        return self._solve(partial(self._columns, seeds), len(seeds), alpha, max_iter, tol)

    def solve_and_pool(
        self, seeds: Seeds, pool: Pool, alpha: float, max_iter: int, tol: float, *, keep_regions: bool = False
    ) -> Solution:
        """Solve, and pool the scores of regions. The arrays of the last `pool` stay on the device."""
        to_images = self._make_pooling(pool)
        kept: list[Tensor] = []

        def then(scores: Tensor) -> Tensor:
            if keep_regions:
                kept.append(scores)
            return to_images(scores)

        solution = self._solve(partial(self._columns, seeds), len(seeds), alpha, max_iter, tol, then)
        return (
            solution._replace(column=lambda i: torch.cat(kept, dim=1)[:, i].cpu().numpy()) if keep_regions else solution
        )

    def _columns(self, seeds: Seeds, some: slice) -> Tensor:
        """Return seeds as columns on the device."""
        columns = seeds[some]
        y = torch.zeros((self.size, len(columns)), device=self.device)
        regions = np.concatenate([rows for rows, _ in columns]).astype(np.int64)
        regions *= len(columns)
        regions += np.repeat(np.arange(len(columns)), [len(rows) for rows, _ in columns])
        values = np.concatenate([values for _, values in columns])
        y.view(-1).scatter_(0, to_device(regions, self.device), to_device(values, self.device, dtype=np.float32))
        return y

    def _make_pooling(self, pool: Pool) -> Callable[[Tensor], Tensor]:
        """Return a function that pools the scores of this system's regions."""
        if self._pool is None or self._pool[0] is not pool:
            part = self._part
            if part is not None and part.ranges is not None and pool.ranges is part.ranges:
                regions, starts = list_regions(part.ranges, self.device)
                self._pool = pool, starts, part.whole.weights_there(pool.weights), regions
            else:
                self._pool = (
                    pool,
                    to_device(pool.starts, self.device),
                    to_device(pool.region_weights, self.device),
                    None,
                )
        return partial(matrices.pool_scores, *self._pool[1:])

    def weights_there(self, weights: FloatArray) -> Tensor:
        """Return the weights of regions on the device. The last array that was asked for stays there."""
        if self._weights is None or self._weights[0] is not weights:
            self._weights = weights, to_device(weights, self.device, dtype=np.float32)
        return self._weights[1]

    def _solve(
        self,
        right: Callable[[slice], Tensor],
        columns: int,
        alpha: float,
        max_iter: int,
        tol: float,
        then: Callable[[Tensor], Tensor] | None = None,
    ) -> Solution:
        """Solve for as many columns at a time as the device has room for.

        `right` makes the right-hand sides, and `then` makes the result from the scores.
        """
        precise = self.size <= FLOAT64_MAX_REGIONS
        matrix, order = (self.matrix, None) if precise or not self.reorder else self.in_order()
        width = self._width(columns, 8 if precise else 4)
        parts = [
            Solution(np.empty((self.size, 0), np.float32), np.empty(0, np.int32), np.empty(0, np.float32))
            for _ in range(columns == 0)
        ]
        for start in range(0, columns, width):
            y = right(slice(start, start + width))
            if precise:
                y = y.double()
            solved = gradient.conjugate_gradient(matrix, y if order is None else y[order], alpha, max_iter, tol)
            scores = solved.scores.float()
            if order is not None:
                scores = torch.empty_like(scores).index_copy_(0, order, scores)
            scores, iterations, residuals = in_pinned_memory(
                scores if then is None else then(scores), solved.iterations, solved.residuals
            )
            parts.append(Solution(scores, iterations, residuals.astype(np.float32)))
        if len(parts) == 1:
            return parts[0]
        scores, iterations, residuals = (np.concatenate(some, axis=-1) for some in list(zip(*parts, strict=True))[:3])
        return Solution(scores, iterations, residuals)

    def in_order(self) -> tuple[Matrix, Tensor]:
        """Put the matrix in order now. The ordered copy takes 8 bytes an entry."""
        with self._ordering:
            if self.ordered is None:
                order = matrices.near_each_other(self.matrix)
                self.ordered = matrices.sort_by_column(matrices.part(self.matrix, order)), order
            return self.ordered

    def restrict(self, rows: IntArray) -> "TorchOperator":
        """Return the system of some regions, whose affinity is normalised anew."""
        return self._restrict(to_device(rows, self.device))

    def restrict_ranges(self, ranges: RowRanges) -> "TorchOperator":
        """Return the system of the regions of ascending ranges, whose affinity is normalised anew."""
        return self._restrict(list_regions(ranges, self.device).regions, ranges)

    def _restrict(self, rows: Tensor, ranges: RowRanges | None = None) -> "TorchOperator":
        made, degrees = matrices.restrict_matrix(self.matrix, rows, self.roots, self.longest)
        return TorchOperator(made, degrees, reorder=False, part=PartOf(self, ranges), longest=self.longest)

    @property
    def roots(self) -> Tensor:
        """The roots of the degrees, in float64. They stay on the device."""
        if self.degrees is None:
            raise ValueError("the system was made without the degrees of its affinity, which restricting takes")
        if self._roots is None:
            self._roots = self.degrees.double().sqrt()
        return self._roots

    def _width(self, columns: int, itemsize: int) -> int:
        """Return how many columns are solved for at once."""
        if self.device.type == "cpu" or columns * self.size < 2**26:  # asking takes half a millisecond
            return WIDEST
        free = torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return max(1, min(WIDEST, int(SHARE * free / (7 * itemsize * self.size))))

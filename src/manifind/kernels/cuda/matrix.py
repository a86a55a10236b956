"""A sparse matrix on a torch device: its product, a part of it, and an order in which neighbours are near.

The product and the step of conjugate gradient are Triton kernels (`sparse`) on a GPU, and a few lines of torch
elsewhere.
"""

from typing import NamedTuple

import torch

from manifind.kernels.cuda.transfer import Tensor

ROWS, ROWS_OF_ONE = 4, 4
"""Rows of a program that multiplies many columns, and one."""
AT_ONCE = 2**24
"""Entries times columns that are multiplied at a time without a kernel for it."""
HOPS = 3
"""How far the regions that lie together reach."""


class Matrix(NamedTuple):
    """A matrix in rows of entries (CSR)."""

    starts: Tensor
    """(n + 1,) int64."""
    columns: Tensor
    """int32."""
    values: Tensor
    """float32."""


def along(matrix: Matrix, p: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Return q = (I − αS)p, (n, b), and pᵀq by column in float64."""
    n, b = p.shape
    if not p.is_cuda:
        q = p - alpha * _product(matrix, p)
        return q, (p * q).sum(dim=0, dtype=torch.float64)
    import triton.language as tl

    from manifind.kernels.cuda import sparse

    q = torch.empty_like(p)
    kind = tl.float64 if p.dtype == torch.float64 else tl.float32
    rows = ROWS_OF_ONE if b == 1 else ROWS
    sums = torch.empty((-(-n // rows), b), dtype=p.dtype, device=p.device)
    if b == 1:
        sparse.product_of_one[(len(sums),)](
            *matrix, p, q, sums, alpha, n, ROWS=rows, ENTRIES=8, TIMES=8, KIND=kind, num_warps=1
        )
    else:
        wide = _wide(b)
        sparse.product_of_many[(len(sums),)](
            *matrix, p, q, sums, alpha, n, b, ROWS=ROWS, ENTRIES=max(8, 512 // wide), B=wide, KIND=kind, num_warps=1
        )
    return q, sums.sum(dim=0, dtype=torch.float64)


class Columns:
    """How far each column of a solution has come: its own step sizes, and whether it goes on."""

    def __init__(self, r: Tensor, enough: float) -> None:
        device, self._kind, self._enough = r.device, r.dtype, enough
        self._rr = (r.double() if r.shape[1] == 1 else r).square().sum(dim=0, dtype=torch.float64)
        self._norms = self._rr.sqrt()
        self.live = (self._norms > 0).int()
        self.residuals = self.live.double()
        self.iterations = torch.zeros(r.shape[1], dtype=torch.int32, device=device)
        self._factors = torch.empty(r.shape[1], dtype=r.dtype, device=device)

    def steps(self, curvature: Tensor) -> Tensor:
        """Return how far each column goes along p; one that has stopped stays."""
        if not curvature.is_cuda:
            return torch.where((self.live > 0) & (curvature > 0), self._rr / curvature, 0.0).to(self._kind)
        from manifind.kernels.cuda import sparse

        b = len(curvature)
        sparse.steps_along[(1,)](self.live, self._rr, curvature, self._factors, b, B=_wide(b), num_warps=1)
        return self._factors

    def turns(self, after: Tensor) -> Tensor:
        """Note rᵀr, and return how much of p each column keeps; one that has stopped keeps nothing."""
        if not after.is_cuda:
            lives = self.live > 0
            self.iterations += self.live
            self.residuals = torch.where(lives, after.sqrt() / self._norms, self.residuals)
            self.live = (lives & (self.residuals > self._enough)).int()
            before, self._rr = self._rr, after
            return torch.where(self.live > 0, after / before, 0.0).to(self._kind)
        from manifind.kernels.cuda import sparse

        b = len(after)
        sparse.turns[(1,)](
            self.live, self._rr, after, self._norms, self.iterations, self.residuals, self._factors, self._enough, b,
            B=_wide(b), num_warps=1,
        )  # fmt: skip
        return self._factors


def descend(x: Tensor, r: Tensor, p: Tensor, q: Tensor, steps: Tensor) -> Tensor:
    """Step along p, in place: x += step·p, r −= step·q. Return rᵀr by column in float64."""
    if not x.is_cuda:
        x += p * steps
        r -= q * steps
        return (r * r).sum(dim=0, dtype=torch.float64)
    from manifind.kernels.cuda import sparse

    n, b = x.shape
    wide = _wide(b)
    rows = max(1, 2048 // wide)
    sums = torch.empty((-(-n // rows), b), dtype=x.dtype, device=x.device)
    sparse.descend[(len(sums),)](x, r, p, q, steps, sums, n, b, ROWS=rows, B=wide, num_warps=4)
    return sums.sum(dim=0, dtype=torch.float64)


def _wide(b: int) -> int:
    """Return the power of two that b columns are taken for."""
    return 1 << (b - 1).bit_length()


def part(matrix: Matrix, rows: Tensor) -> Matrix:
    """Return some rows and the same columns, in the order given."""
    place = torch.full((len(matrix.starts) - 1,), -1, dtype=torch.int32, device=rows.device)
    place[rows] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
    begin = matrix.starts[rows]
    lengths = matrix.starts[rows + 1] - begin
    ends = torch.cumsum(lengths, dim=0)
    total = int(ends[-1]) if len(ends) else 0
    entries = torch.arange(total, device=rows.device)
    entries += torch.repeat_interleave(begin - (ends - lengths), lengths, output_size=total)
    columns = place[matrix.columns[entries].long()]
    keep = columns >= 0
    before = torch.zeros(total + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(keep, dim=0, out=before[1:])
    starts = torch.cat([before[:1], before[ends]])
    return Matrix(starts, columns[keep], matrix.values[entries[keep]])


def normalised_anew(matrix: Matrix, degrees: Tensor) -> tuple[Matrix, Tensor]:
    """Return the affinity behind a part of S, of the degrees it had in the whole, normalised anew; and its degrees."""
    rows, root = _row_of(matrix), degrees.double().sqrt()
    columns = matrix.columns.long()
    affinity = matrix.values * (root[rows] * root[columns])
    sums = torch.zeros(len(degrees), dtype=torch.float64, device=degrees.device).index_add_(0, rows, affinity)
    scale = torch.where(sums > 0, sums.rsqrt(), 0.0)
    values = (affinity * (scale[rows] * scale[columns])).float()
    return matrix._replace(values=values), sums.float()


def near_each_other(matrix: Matrix) -> Tensor:
    """Return an order of the rows in which neighbours are near.

    Each row takes the largest of random numbers that it and its neighbours drew: rows around the same one share it.
    What they took is taken again, twice, and rows are sorted by what they took last, then by what they took before.
    """
    n = len(matrix.starts) - 1
    rows, columns = _row_of(matrix), matrix.columns.long()
    generator = torch.Generator(device=rows.device).manual_seed(0)
    taken = torch.randperm(n, generator=generator, device=rows.device)
    order = torch.arange(n, device=rows.device)
    for _ in range(HOPS):
        taken = taken.scatter_reduce(0, rows, taken[columns], "amax")
        order = order[torch.argsort(taken[order], stable=True)]
    return order


def _row_of(matrix: Matrix) -> Tensor:
    """Return the row of each entry."""
    n = len(matrix.starts) - 1
    rows = torch.arange(n, device=matrix.starts.device)
    return torch.repeat_interleave(rows, matrix.starts.diff(), output_size=len(matrix.columns))


def _product(matrix: Matrix, p: Tensor) -> Tensor:
    rows, columns = _row_of(matrix), matrix.columns.long()
    product = torch.zeros_like(p)
    step = max(1, AT_ONCE // max(1, len(columns)))
    for start in range(0, p.shape[1], step):
        some = slice(start, start + step)
        terms = matrix.values[:, None].to(p.dtype) * p[:, some][columns]
        product[:, some] = torch.zeros_like(p[:, some]).index_add_(0, rows, terms)
    return product

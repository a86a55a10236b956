"""A sparse matrix on a torch device: its product, a part of it, and an order in which neighbours are near.

A part that is normalised anew is made by two Triton kernels (`sparse`) on a GPU, and by a few lines of torch elsewhere.
"""

from itertools import pairwise
from typing import NamedTuple

import torch

from manifind.types import Tensor

ROWS, ENTRIES = 4, 8
"""VectorSet and entries of a program that takes a part of a matrix."""
SORTED = 2**26
"""How many entries are sorted at a time."""
MAX_PRODUCTS = 2**24
"""How many entries times columns torch multiplies at a time."""
PLACED = 1024
"""Rows that a program puts in their places."""
SPARE = 2**25
"""Up to so many entries, there is room for all, and the device need not be asked how many are left."""
HOPS = 3
"""How many steps along the graph a number travels; regions that share a number are put together."""


class Matrix(NamedTuple):
    """A matrix in rows of entries (CSR)."""

    starts: Tensor
    """(n + 1,) int32 where that is enough, else int64."""
    entries: Tensor
    """int64: the column in the low half, and the bits of the value, float32, in the high half. One
    look-up finds both."""

    @classmethod
    def of(cls, starts: Tensor, columns: Tensor, values: Tensor) -> "Matrix":
        """Put columns, int32, and values, float32, together."""
        return cls(starts, torch.stack([columns, values.view(torch.int32)], dim=1).view(torch.int64)[:, 0])

    @property
    def columns(self) -> Tensor:
        """The column of each entry: a view."""
        return self.entries.view(torch.int32)[::2]

    @property
    def values(self) -> Tensor:
        """The value of each entry: a view."""
        return self.entries.view(torch.float32)[1::2]


def part(matrix: Matrix, rows: Tensor) -> Matrix:
    """Return some rows and the same columns, in the order given."""
    place = torch.full((len(matrix.starts) - 1,), -1, dtype=torch.int32, device=rows.device)
    place[rows] = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
    begin = matrix.starts[rows].long()
    lengths = matrix.starts[rows + 1] - begin
    ends = torch.cumsum(lengths, dim=0)
    total = int(ends[-1]) if len(ends) else 0
    entries = torch.arange(total, device=rows.device)
    entries += torch.repeat_interleave(begin - (ends - lengths), lengths, output_size=total)
    columns = place[matrix.columns[entries].long()]
    keep = columns >= 0
    before = torch.zeros(total + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(keep, dim=0, out=before[1:])
    starts = torch.cat([before[:1], before[ends]]).to(matrix.starts.dtype)
    return Matrix.of(starts, columns[keep], matrix.values[entries[keep]])


def restrict_matrix(matrix: Matrix, rows: Tensor, roots: Tensor, longest: int) -> tuple[Matrix, Tensor]:
    """Return some rows and columns of the affinity behind S, normalised anew, and their degrees (Sec. 4.4).

    `roots` are those of the degrees, in float64, and `longest` is how many entries a row has at most.
    """
    if rows.is_cuda:
        return restrict_by_kernels(matrix, rows, roots, longest)
    return renormalise(part(matrix, rows.long()), roots[rows])


def restrict_by_kernels(matrix: Matrix, rows: Tensor, roots: Tensor, longest: int) -> tuple[Matrix, Tensor]:
    """Do what `restrict_matrix` says in two passes over the entries of these rows.

    Only the device knows how many entries are left, and asking would mean waiting for it. So where there are few, there
    is room for all, and what lies beyond the end of the last row means nothing.
    """
    from manifind.kernels.cuda import sparse

    size, device = len(rows), rows.device
    place = torch.full((len(matrix.starts) - 1,), -1, dtype=torch.int32, device=device)
    sparse.place_of[(-(-size // PLACED),)](rows, place, size, BLOCK=PLACED, num_warps=4)
    counts = torch.empty(size + 1, dtype=matrix.starts.dtype, device=device)
    sums = torch.empty(size, dtype=torch.float64, device=device)
    grid = (-(-size // ROWS),)
    sparse.count_kept[grid](*matrix, roots, rows, place, counts, sums, size, ROWS=ROWS, ENTRIES=ENTRIES, num_warps=1)
    starts = torch.cumsum(counts, dim=0, dtype=counts.dtype)
    entries = torch.empty(_room(starts, size * longest), dtype=torch.int64, device=device)
    sparse.write_kept[grid](
        *matrix, roots, rows, place, starts, sums, entries, size,
        ROWS=ROWS, ENTRIES=ENTRIES, num_warps=1,
    )  # fmt: skip
    return Matrix(starts, entries), sums


def _room(starts: Tensor, most: int) -> int:
    """Return how many entries need room where there are at most `most`."""
    return most if most <= SPARE else int(starts[-1])


def sort_by_column(matrix: Matrix) -> Matrix:
    """Return the matrix with the entries of each row in the order of their columns.

    Entries that are multiplied together then read what lies together in memory.
    """
    n, entries, device = len(matrix.starts) - 1, torch.empty_like(matrix.entries), matrix.entries.device
    edges = matrix.starts[torch.arange(0, n, max(1, n * SORTED // max(1, len(entries))), device=device)]
    for start, end in pairwise([*edges.tolist(), len(entries)]):
        at = torch.arange(start, end, dtype=matrix.starts.dtype, device=device)
        rows = torch.searchsorted(matrix.starts, at, right=True) - 1
        order = (rows * n + matrix.columns[start:end]).argsort()
        entries[start:end] = matrix.entries[start:end][order]
    return matrix._replace(entries=entries)


def renormalise(matrix: Matrix, root: Tensor) -> tuple[Matrix, Tensor]:
    """Return a part of S normalised anew, and its degrees.

    `root` is that of the degrees that its regions had in the whole, in float64.
    """
    rows = _row_of(matrix)
    columns = matrix.columns.long()
    affinity = matrix.values * (root[rows] * root[columns])
    sums = torch.zeros(len(root), dtype=torch.float64, device=root.device).index_add_(0, rows, affinity)
    scale = torch.where(sums > 0, sums.rsqrt(), 0.0)
    values = (affinity * (scale[rows] * scale[columns])).float()
    return Matrix.of(matrix.starts, matrix.columns, values), sums


def near_each_other(matrix: Matrix) -> Tensor:
    """Return an order of the rows in which neighbours are near.

    Every row draws a random number. Then it takes the largest number among its own and its neighbours', so that the
    rows around one row share a number. This is repeated twice with the numbers that were taken. Rows are sorted by the
    number that they took last, then by those before.
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


def pool_scores(starts: Tensor, weights: Tensor, regions: Tensor | None, scores: Tensor) -> Tensor:
    """Return the weighted sums of scores, (n, b), between `starts`: the scores of images (eq. 13).

    The weights are those of the scores, or of more regions, of which `regions` names those that have scores.
    """
    if scores.is_cuda:
        return pool_by_kernels(starts, weights, regions, scores)
    images = len(starts) - 1
    image_of = torch.repeat_interleave(torch.arange(images), starts.diff())
    own = weights if regions is None else weights[regions]
    return torch.zeros((images, scores.shape[1])).index_add_(0, image_of, own[:, None] * scores)


def pool_by_kernels(starts: Tensor, weights: Tensor, regions: Tensor | None, scores: Tensor) -> Tensor:
    """Do what `pool_scores` says in one pass, which adds up in the same order each time."""
    from manifind.kernels.cuda import sparse

    images, b = len(starts) - 1, scores.shape[1]
    out = torch.empty((images, b), device=scores.device)
    wide = width_of(b)
    entries = max(1, 32 // wide)
    sparse.pool[(-(-images // ROWS),)](
        scores, starts, weights, starts if regions is None else regions, out, images, b,
        ROWS=ROWS, ENTRIES=entries, B=wide, LISTED=regions is not None, num_warps=1,
    )  # fmt: skip
    return out


def width_of(b: int) -> int:
    """Return the least power of two that holds b columns."""
    return 1 << (b - 1).bit_length()


def _row_of(matrix: Matrix) -> Tensor:
    """Return the row of each entry."""
    n = len(matrix.starts) - 1
    rows = torch.arange(n, device=matrix.starts.device)
    return torch.repeat_interleave(rows, matrix.starts.diff(), output_size=len(matrix.columns))


def product(matrix: Matrix, p: Tensor) -> Tensor:
    """Return Sp, (n, b), by torch alone."""
    rows, columns = _row_of(matrix), matrix.columns.long()
    product = torch.zeros_like(p)
    step = max(1, MAX_PRODUCTS // max(1, len(columns)))
    for start in range(0, p.shape[1], step):
        some = slice(start, start + step)
        terms = matrix.values[:, None].to(p.dtype) * p[:, some][columns]
        product[:, some] = torch.zeros_like(p[:, some]).index_add_(0, rows, terms)
    return product

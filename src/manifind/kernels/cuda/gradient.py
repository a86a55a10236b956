"""Conjugate gradient on a torch device.

Every column keeps its own step sizes and stops on its own. All columns share the product with S, which is the cost.
On a GPU an iteration is three Triton kernels (`sparse`); elsewhere it is a few lines of torch, the kernels' plain twin.

A product with many columns spends most of its time gathering entries of p. These are therefore rounded to half
precision, in units of the residual's length. Scores are then off by some 2e-4 of the best. All else is in float32 or
better.
"""

from typing import Any, NamedTuple

import torch

from manifind.kernels.api import MIN_RESIDUAL
from manifind.kernels.cuda.matrix import Matrix, product, width_of
from manifind.types import Tensor

LOOK = 8
"""Iterations between looks at whether any column goes on: a look waits for the device."""
ROWS_OF_ONE, ENTRIES_OF_ONE, TIMES = 4, 8, 8
"""How many rows and entries a program multiplies together where there is one column, and how often it does so before it
looks whether a row goes on."""
PROGRAMS = 32
"""Programs of such a product on each of the device's multiprocessors."""
ROWS, ENTRIES = 16, 256
"""Rows of a program that multiplies many columns, and entries times columns that it multiplies together."""
UPDATED = 2048
"""Entries of vectors that a program updates."""
HALVES = 16
"""From so many columns on, p is gathered in half precision. With fewer, finding the entries takes most of the time."""
SOON = 2**19
"""Up to so many regions a product takes less time than starting kernels, and one kernel does it all (`column_cg`)."""


class ColumnLaunch(NamedTuple):
    """How the kernel of `column_cg` is started. All its programs must be on the device at the same time."""

    programs: int = 4
    """On each multiprocessor."""
    warps: int = 8
    rows: int = 32
    """Rows that a program multiplies together."""
    entries: int = 8
    times: int = 2
    registers: int = 64
    """Registers of each thread. A multiprocessor has 65,536."""


COLUMN_LAUNCH = ColumnLaunch()
RUN = 2048
"""How many rows of vectors a program of that kernel updates together at most."""


class Solved(NamedTuple):
    """A solution on the device."""

    scores: Tensor
    iterations: Tensor
    residuals: Tensor


def conjugate_gradient(matrix: Matrix, y: Tensor, alpha: float, max_iter: int, tol: float) -> Solved:
    """Solve for the columns of y, (n, b), from f = 0 until `max_iter` or a relative residual of `tol` (Sec. 4.3)."""
    if y.is_cuda and y.shape[1] == 1 and 0 < len(y) <= SOON:
        return solve_column(matrix, y, alpha, max_iter, max(tol, MIN_RESIDUAL))
    state = (_OnGpu if y.is_cuda else _InTorch)(matrix, y, alpha, max(tol, MIN_RESIDUAL))
    for iteration in range(max_iter):
        if iteration % LOOK == LOOK - 1 and not bool(state.live.any()):
            break
        state.iterate()
    return Solved(state.x, state.iterations, state.residuals)


def solve_column(matrix: Matrix, y: Tensor, alpha: float, max_iter: int, enough: float) -> Solved:
    """Solve for one column in one kernel."""
    import triton.language as tl

    from manifind.kernels.cuda import column_cg

    n, device = len(y), y.device
    own = -(-n // (COLUMN_LAUNCH.programs * multiprocessors(device)))
    own = -(-own // COLUMN_LAUNCH.rows) * COLUMN_LAUNCH.rows
    programs = -(-n // own)
    x, r, p, q = torch.empty((4, n, 1), dtype=y.dtype, device=device)
    sums = torch.empty((4, programs), dtype=torch.float64, device=device)
    arrived, iterations = torch.zeros((2, 1), dtype=torch.int32, device=device)
    residuals = torch.empty(1, dtype=torch.float64, device=device)
    all_there = {"launch_cooperative_grid": True, "maxnreg": COLUMN_LAUNCH.registers} if y.is_cuda else {}
    column_cg.descend[(programs,)](
        *matrix, y, x, r, p, q, sums, arrived, iterations, residuals, alpha, n, own, max_iter, enough,
        ROWS=COLUMN_LAUNCH.rows, ENTRIES=COLUMN_LAUNCH.entries, TIMES=COLUMN_LAUNCH.times,
        BLOCK=min(RUN, width_of(own)), CHUNK=width_of(programs),
        KIND=tl.float64 if y.dtype == torch.float64 else tl.float32, num_warps=COLUMN_LAUNCH.warps, **all_there,
    )  # fmt: skip
    return Solved(x, iterations, residuals)


class _Columns:
    """The state of each column of a solution."""

    def __init__(self, matrix: Matrix, y: Tensor, alpha: float, enough: float) -> None:
        self.matrix, self.alpha, self.enough = matrix, alpha, enough
        self.r = y * (1 - alpha)
        self.p, self.x = self.r.clone(), torch.zeros_like(self.r)
        self.rr = self.r.square().sum(dim=0, dtype=torch.float64)
        self.norms = self.rr.sqrt()
        self.live = (self.norms > 0).int()
        self.residuals = self.live.double()
        self.iterations = torch.zeros_like(self.live)


class _InTorch(_Columns):
    """Iterates in torch."""

    def iterate(self) -> None:
        q = self.p - self.alpha * product(self.matrix, self.p)
        curvature = (self.p * q).sum(dim=0, dtype=torch.float64)
        step = torch.where((self.live > 0) & (curvature > 0), self.rr / curvature, 0.0).to(q.dtype)
        self.x += self.p * step
        self.r -= q * step
        rr_after = self.r.square().sum(dim=0, dtype=torch.float64)
        lives = self.live > 0
        self.iterations += self.live
        self.residuals = torch.where(lives, rr_after.sqrt() / self.norms, self.residuals)
        self.live = (lives & (self.residuals > self.enough)).int()
        beta = torch.where(self.live > 0, rr_after / self.rr, 0.0).to(q.dtype)
        self.p, self.rr = self.r + self.p * beta, rr_after


class _OnGpu(_Columns):
    """Iterates by Triton kernels."""

    def __init__(self, matrix: Matrix, y: Tensor, alpha: float, enough: float) -> None:
        super().__init__(matrix, y, alpha, enough)
        from manifind.kernels.cuda import sparse

        (n, b), like = y.shape, self.p
        self.halves = b >= HALVES and y.dtype == torch.float32
        self.q = torch.empty_like(like)
        self.back = torch.ones(b, device=y.device)
        self.half = like
        if self.halves:
            headroom = sparse.HEADROOM.value
            self.back = (self.norms / headroom).float()
            self.half = (self.r / torch.where(self.back > 0, self.back, 1.0)).half()
        self.steps = torch.empty(b, dtype=like.dtype, device=y.device)
        self.rr_next, self.live_next = torch.empty_like(self.rr), torch.empty_like(self.live)
        self.wide = width_of(b)
        self.rows = max(1, UPDATED // self.wide)
        self.squares = torch.empty((-(-n // self.rows), b), dtype=torch.float64, device=y.device)
        self.curvatures = room_for_sums(like)

    def iterate(self) -> None:
        from manifind.kernels.cuda import sparse

        n, b = self.x.shape
        curvatures = self._product()
        sparse.step[(len(self.squares),)](
            self.r, self.q, curvatures, len(curvatures), self.rr, self.live, self.steps, self.squares, n, b,
            ROWS=self.rows, B=self.wide, CHUNK=512 // self.wide, num_warps=4,
        )  # fmt: skip
        squares = _few(self.squares)
        sparse.finish_iteration[(len(self.squares),)](
            self.x, self.r, self.p, self.half, self.back, self.steps, squares, len(squares),
            self.rr, self.live, self.rr_next, self.live_next, self.norms, self.iterations, self.residuals, self.enough,
            n, b, ROWS=self.rows, B=self.wide, CHUNK=512 // self.wide, HALVES=self.halves, num_warps=4,
        )  # fmt: skip
        self.rr, self.rr_next = self.rr_next, self.rr
        self.live, self.live_next = self.live_next, self.live

    def _product(self) -> Tensor:
        """Write q = (I − αS)p, and return sums that add up to pᵀq by column."""
        apply_system(self.matrix, self.p, self.half, self.back, self.q, self.curvatures, self.alpha)
        return _few(self.curvatures)


def apply_system(
    matrix: Matrix, p: Tensor, gathered: Tensor, back: Tensor, q: Tensor, sums: Tensor, alpha: float
) -> None:
    """Write q = (I − αS)p, and sums that add up to pᵀq. S is multiplied with `gathered` times `back` in place of p."""
    import triton.language as tl

    from manifind.kernels.cuda import sparse

    n, b = p.shape
    given = (*matrix, p, gathered, back, q, sums, alpha, n)
    kind = tl.float64 if p.dtype == torch.float64 else tl.float32
    if b == 1:
        sparse.product_of_one[(len(sums),)](
            *given, -(-n // ROWS_OF_ONE),
            ROWS=ROWS_OF_ONE, ENTRIES=ENTRIES_OF_ONE, TIMES=TIMES, KIND=kind, num_warps=1,
        )  # fmt: skip
    else:
        wide = width_of(b)
        sparse.product_of_many[(len(sums),)](
            *given, b, ROWS=ROWS, ENTRIES=max(4, ENTRIES // wide), B=wide, FULL=b == wide, KIND=kind, num_warps=1
        )


def room_for_sums(p: Tensor) -> Tensor:
    """Return a row for the sums of each program of `apply_system`."""
    n, b = p.shape
    if b > 1:
        return torch.empty((-(-n // ROWS), b), dtype=p.dtype, device=p.device)
    most = PROGRAMS * multiprocessors(p.device)
    return torch.empty((min(-(-n // ROWS_OF_ONE), most), 1), dtype=torch.float64, device=p.device)


def multiprocessors(device: Any) -> int:
    """Return how many multiprocessors a GPU has. The interpreter counts as one."""
    if torch.device(device).type == "cpu":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def multiplied(matrix: Matrix, p: Tensor) -> Tensor:
    """Return Sp, (n, b)."""
    if not p.is_cuda:
        return product(matrix, p)
    q = torch.empty_like(p)
    apply_system(matrix, p, p, torch.ones(p.shape[1], device=p.device), q, room_for_sums(p), -1.0)
    return q - p  # (I − αS)p with α = −1 is p + Sp


def _few(sums: Tensor) -> Any:
    """Return sums as they are. Where they are many, add them up once, so that not every program must do it."""
    return sums if sums.numel() <= 2**13 else sums.sum(dim=0, keepdim=True, dtype=torch.float64)

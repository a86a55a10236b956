"""All of conjugate gradient in one Triton kernel, for one column of a system that is soon multiplied.

Starting a kernel takes longer than an iteration on a few hundred thousand regions. So the programs of this kernel are
started once, all at the same time. Each has its own run of rows, and all wait for each other twice an iteration. What
one program writes and others read bypasses the first cache, which programs do not share.

The length of the residual after a step is known before the step: |r − tq|² = |r|² − 2t rᵀq + t²|q|². So one wait is
enough for the length of the step and for the next direction. What is known so is rounded otherwise than r is, and near
the solution the two part. Each iteration therefore adds up the length of r anew.
"""

import triton
import triton.language as tl

from manifind.kernels.cuda.sparse import entry_at


@triton.jit
def _wait_for_all(arrived, goal):
    """Wait until every program has come here; `goal` is how many arrivals that makes since the start."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release", scope="gpu")
    # One thread of each program asks: a plain load would be made by all, and they would be in each other's way.
    while tl.atomic_add(arrived, 0, sem="acquire", scope="gpu") < goal:
        pass
    tl.debug_barrier()


@triton.jit
def _sum_rows(sums, count, CHUNK: tl.constexpr):
    """Return the sum of what the programs left, the same in each of them."""
    total = tl.zeros((CHUNK,), tl.float64)
    for start in range(0, count, CHUNK):
        at = start + tl.arange(0, CHUNK)
        total += tl.load(sums + at, mask=at < count, other=0.0, cache_modifier=".cg")
    return tl.sum(total, axis=0)


@triton.jit
def descend(
    starts, entries, y, x, r, p, q, sums, arrived, iterations, residuals,
    alpha, n, own, max_iter, enough,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    KIND: tl.constexpr,
):  # fmt: skip
    """Solve (I − αS)x = (1 − α)y from x = 0; each program has `own` rows, and room for four sums."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    begin = program * own
    end = tl.minimum(begin + own, n)
    along_p, along_r, squares, lengths = sums, sums + programs, sums + 2 * programs, sums + 3 * programs
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(begin, end, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        there = rows < end
        right = (tl.load(y + rows, mask=there, other=0.0).to(KIND) * (1 - alpha)).to(KIND)
        tl.store(r + rows, right, mask=there)
        tl.store(p + rows, right, mask=there)
        tl.store(x + rows, tl.zeros((BLOCK,), KIND), mask=there)
        total += right.to(tl.float64) * right.to(tl.float64)
    tl.store(squares + program, tl.sum(total, axis=0))
    goal = programs
    _wait_for_all(arrived, goal)
    rr = _sum_rows(squares, programs, CHUNK)
    norm = tl.sqrt(rr)
    relative = tl.where(norm > 0, 1.0, 0.0).to(tl.float64)
    # Nobody writes new sums before all have read these.
    goal += programs
    _wait_for_all(arrived, goal)
    iteration = program * 0
    while (iteration < max_iter) & (relative > enough):
        pq = tl.zeros((ROWS,), tl.float64)
        rq = tl.zeros((ROWS,), tl.float64)
        qq = tl.zeros((ROWS,), tl.float64)
        length = tl.zeros((ROWS,), tl.float64)
        for start in range(begin, end, ROWS):
            rows = start + tl.arange(0, ROWS)
            there = rows < end
            at = tl.load(starts + rows, mask=there, other=0)
            last = tl.load(starts + rows + 1, mask=there, other=0)
            longest = tl.max(last - at, axis=0)
            product = tl.zeros((ROWS, ENTRIES), KIND)
            place = at[:, None] + tl.arange(0, ENTRIES)[None, :]
            done = longest * 0
            while done < longest:
                for _ in tl.static_range(TIMES):
                    inside = place < last[:, None]
                    column, value = entry_at(entries, place, inside)
                    met = tl.load(p + column, mask=inside, other=0.0, cache_modifier=".cg")
                    product += value.to(KIND) * met
                    place += ENTRIES
                done += ENTRIES * TIMES
            here = tl.load(p + rows, mask=there, other=0.0, cache_modifier=".cg")
            residual = tl.load(r + rows, mask=there, other=0.0).to(tl.float64)
            Ap = here - (alpha * tl.sum(product, axis=1)).to(KIND)
            tl.store(q + rows, Ap, mask=there)
            Ap = Ap.to(tl.float64)
            pq += here.to(tl.float64) * Ap
            rq += residual * Ap
            qq += Ap * Ap
            length += residual * residual
        tl.store(along_p + program, tl.sum(pq, axis=0))
        tl.store(along_r + program, tl.sum(rq, axis=0))
        tl.store(squares + program, tl.sum(qq, axis=0))
        tl.store(lengths + program, tl.sum(length, axis=0))
        goal += programs
        _wait_for_all(arrived, goal)
        curvature = _sum_rows(along_p, programs, CHUNK)
        rr = _sum_rows(lengths, programs, CHUNK)
        step = tl.where(curvature > 0, rr / tl.where(curvature > 0, curvature, 1.0), 0.0).to(KIND)
        far = step.to(tl.float64)
        rr_after = rr - 2 * far * _sum_rows(along_r, programs, CHUNK) + far * far * _sum_rows(squares, programs, CHUNK)
        rr_after = tl.maximum(rr_after, 0.0)
        relative = tl.sqrt(rr_after) / norm
        beta = tl.where(rr > 0, rr_after / tl.where(rr > 0, rr, 1.0), 0.0).to(KIND)
        for start in range(begin, end, BLOCK):
            rows = start + tl.arange(0, BLOCK)
            there = rows < end
            here = tl.load(p + rows, mask=there, other=0.0, cache_modifier=".cg")
            left = tl.load(r + rows, mask=there, other=0.0) - step * tl.load(q + rows, mask=there, other=0.0)
            tl.store(r + rows, left, mask=there)
            tl.store(x + rows, tl.load(x + rows, mask=there, other=0.0) + step * here, mask=there)
            tl.store(p + rows, left + beta * here, mask=there)
        goal += programs
        _wait_for_all(arrived, goal)
        iteration += 1
    if program == 0:
        tl.store(iterations, iteration)
        tl.store(residuals, relative)

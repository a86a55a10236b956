"""Triton kernels for conjugate gradient with many columns: the product with S and the step, each in one pass.

Both return sums by column for each block of rows, which are added up in float64 afterwards: the same sums, in the same
order, whatever runs beside them.
"""

import triton
import triton.language as tl


@triton.jit
def product_of_one(
    starts, columns, values, p, q, sums, alpha, n,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, TIMES: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Write (I − αS)p for one column; also its inner product with p."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = rows < n
    begin = tl.load(starts + rows, mask=there, other=0)
    end = tl.load(starts + rows + 1, mask=there, other=0)
    longest = tl.max(end - begin, axis=0)
    total = tl.zeros((ROWS, ENTRIES), KIND)
    at = begin[:, None] + tl.arange(0, ENTRIES)[None, :]
    done = longest * 0
    while done < longest:
        for _ in tl.static_range(TIMES):
            inside = at < end[:, None]
            column = tl.load(columns + at, mask=inside, other=0)
            value = tl.load(values + at, mask=inside, other=0.0).to(KIND)
            total += value * tl.load(p + column, mask=inside, other=0.0)
            at += ENTRIES
        done += ENTRIES * TIMES
    own = tl.load(p + rows, mask=there, other=0.0)
    along = own - alpha * tl.sum(total, axis=1)
    tl.store(q + rows, along, mask=there)
    tl.store(sums + tl.program_id(0), tl.sum(own * along, axis=0))


@triton.jit
def product_of_many(
    starts, columns, values, p, q, sums, alpha, n, b,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, B: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Write (I − αS)p for b columns; also the inner product of each with that of p."""
    first = tl.program_id(0) * ROWS
    of = tl.arange(0, B)
    held = of < b
    dot = tl.zeros((B,), KIND)
    for i in range(ROWS):
        row = first + i
        there = row < n
        at = tl.load(starts + row, mask=there, other=0)
        end = tl.load(starts + row + 1, mask=there, other=0)
        total = tl.zeros((ENTRIES, B), KIND)
        while at < end:
            entries = at + tl.arange(0, ENTRIES)
            inside = entries < end
            column = tl.load(columns + entries, mask=inside, other=0)
            value = tl.load(values + entries, mask=inside, other=0.0).to(KIND)
            x = tl.load(
                p + column[:, None].to(tl.int64) * b + of[None, :], mask=inside[:, None] & held[None, :], other=0.0
            )
            total += value[:, None] * x
            at += ENTRIES
        place = row.to(tl.int64) * b + of
        own = tl.load(p + place, mask=held & there, other=0.0)
        along = own - alpha * tl.sum(total, axis=0)
        tl.store(q + place, along, mask=held & there)
        dot += own * along
    tl.store(sums + tl.program_id(0).to(tl.int64) * b + of, dot, mask=held)


@triton.jit
def descend(x, r, p, q, steps, sums, n, b, ROWS: tl.constexpr, B: tl.constexpr):
    """Step along p: x += step·p, r −= step·q; also rᵀr by column."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    of = tl.arange(0, B)
    held = of < b
    inside = (rows < n)[:, None] & held[None, :]
    place = rows[:, None] * b + of[None, :]
    step = tl.load(steps + of, mask=held, other=0.0)[None, :]
    further = tl.load(x + place, mask=inside, other=0.0) + step * tl.load(p + place, mask=inside, other=0.0)
    residual = tl.load(r + place, mask=inside, other=0.0) - step * tl.load(q + place, mask=inside, other=0.0)
    tl.store(x + place, further, mask=inside)
    tl.store(r + place, residual, mask=inside)
    tl.store(sums + tl.program_id(0).to(tl.int64) * b + of, tl.sum(residual * residual, axis=0), mask=held)


@triton.jit
def steps_along(live, rr, curvature, steps, b, B: tl.constexpr):
    """Write how far each column goes along p; one that has stopped stays."""
    of = tl.arange(0, B)
    held = of < b
    along = tl.load(curvature + of, mask=held, other=0.0)
    goes = (tl.load(live + of, mask=held, other=0) != 0) & (along > 0)
    step = tl.where(goes, tl.load(rr + of, mask=held, other=0.0) / tl.where(goes, along, 1.0), 0.0)
    tl.store(steps + of, step.to(steps.dtype.element_ty), mask=held)


@triton.jit
def turns(live, rr, after, norms, iterations, residuals, turn, enough, b, B: tl.constexpr):
    """Note where each column has come to, and write how much of p it keeps; one that has stopped keeps nothing."""
    of = tl.arange(0, B)
    held = of < b
    lives = tl.load(live + of, mask=held, other=0) != 0
    before = tl.load(rr + of, mask=held, other=1.0)
    now = tl.load(after + of, mask=held, other=0.0)
    norm = tl.load(norms + of, mask=held, other=1.0)
    residual = tl.where(lives, tl.sqrt(now) / tl.where(lives, norm, 1.0), tl.load(residuals + of, mask=held, other=0.0))
    goes_on = lives & (residual > enough)
    tl.store(iterations + of, tl.load(iterations + of, mask=held, other=0) + lives.to(tl.int32), mask=held)
    tl.store(residuals + of, residual, mask=held)
    tl.store(rr + of, now, mask=held)
    tl.store(live + of, goes_on.to(tl.int32), mask=held)
    kept = tl.where(goes_on, now / tl.where(goes_on, before, 1.0), 0.0)
    tl.store(turn + of, kept.to(turn.dtype.element_ty), mask=held)

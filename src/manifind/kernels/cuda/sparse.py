"""Triton kernels on sparse matrices: conjugate gradient with many columns in three passes, and a part of a matrix.

Each program adds up its own rows, and the programs of the next kernel add up these sums, always in the same order. So
the result is the same whatever else the GPU does.
"""

import triton
import triton.language as tl

HEADROOM = tl.constexpr(256.0)
"""What p is multiplied by, in units of the residual's length, before it is rounded to half precision. A typical
entry of a large system is then well above the smallest number of half precision, and the largest entry is far below the
largest."""
LARGEST_HALF = tl.constexpr(65504.0)


@triton.jit
def entry_at(entries, at, inside):
    """Return the columns and the values of entries (`matrix.Matrix`)."""
    entry = tl.load(entries + at, mask=inside, other=0)
    return entry.to(tl.int32), (entry >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _as_entry(column, value):
    """Return entries with these columns and values. No column is negative."""
    return (value.to(tl.int32, bitcast=True).to(tl.int64) << 32) | column.to(tl.int64)


@triton.jit
def product_of_one(
    starts, entries, p, source, back, q, sums, alpha, n, blocks,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, TIMES: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Write (I − αS)p for one column, and its inner product with p.

    S is multiplied with `source` times `back`, which is p, perhaps in half precision.
    """
    scale = tl.load(back).to(KIND)
    dots = tl.zeros((ROWS,), tl.float64)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        rows = block * ROWS + tl.arange(0, ROWS)
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
                column, value = entry_at(entries, at, inside)
                total += value.to(KIND) * tl.load(source + column, mask=inside, other=0.0).to(KIND)
                at += ENTRIES
            done += ENTRIES * TIMES
        own = tl.load(p + rows, mask=there, other=0.0)
        Ap = own - alpha * (tl.sum(total, axis=1) * scale)
        tl.store(q + rows, Ap, mask=there)
        dots += own.to(tl.float64) * Ap.to(tl.float64)
    tl.store(sums + tl.program_id(0), tl.sum(dots, axis=0))


@triton.jit
def product_of_many(
    starts, entries, p, source, back, q, sums, alpha, n, b,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, B: tl.constexpr, FULL: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Write (I − αS)p for b columns, and the inner product of each column with that of p."""
    first = tl.program_id(0) * ROWS
    of = tl.arange(0, B)
    held = of < b
    scale = tl.load(back + of, mask=held, other=0.0).to(KIND)
    dots = tl.zeros((B,), KIND)
    for i in range(ROWS):
        row = first + i
        there = row < n
        at = tl.load(starts + row, mask=there, other=0)
        end = tl.load(starts + row + 1, mask=there, other=0)
        total = tl.zeros((ENTRIES, B), KIND)
        while at < end:
            some = at + tl.arange(0, ENTRIES)
            inside = some < end
            column, value = entry_at(entries, some, inside)
            taken = inside[:, None] if FULL else inside[:, None] & held[None, :]
            x = tl.load(source + column[:, None].to(tl.int64) * b + of[None, :], mask=taken, other=0.0)
            total += value.to(KIND)[:, None] * x.to(KIND)
            at += ENTRIES
        place = row.to(tl.int64) * b + of
        written = held & (row + tl.zeros_like(of) < n)
        own = tl.load(p + place, mask=written, other=0.0)
        Ap = own - alpha * (tl.sum(total, axis=0) * scale)
        tl.store(q + place, Ap, mask=written)
        dots += own * Ap
    tl.store(sums + tl.program_id(0).to(tl.int64) * b + of, dots, mask=held)


@triton.jit
def _sum_rows(sums, count, b, of, held, B: tl.constexpr, CHUNK: tl.constexpr):
    """Return the sum of `count` rows of sums by column, in float64."""
    total = tl.zeros((B,), tl.float64)
    for start in range(0, count, CHUNK):
        at = start + tl.arange(0, CHUNK)
        some = tl.load(sums + at[:, None] * b + of[None, :], mask=(at < count)[:, None] & held[None, :], other=0.0)
        total += tl.sum(some.to(tl.float64), axis=0)
    return total


@triton.jit
def step(
    r, q, curvatures, count, rr, live, steps, sums, n, b, ROWS: tl.constexpr, B: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Take a step: r −= step·q, and write rᵀr by column. A column that has stopped stays as it is."""
    of = tl.arange(0, B)
    held = of < b
    curvature = _sum_rows(curvatures, count, b, of, held, B, CHUNK)
    goes = (tl.load(live + of, mask=held, other=0) != 0) & (curvature > 0)
    far = tl.where(goes, tl.load(rr + of, mask=held, other=0.0) / tl.where(goes, curvature, 1.0), 0.0)
    far = far.to(r.dtype.element_ty)
    if tl.program_id(0) == 0:
        tl.store(steps + of, far, mask=held)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = (rows < n)[:, None] & held[None, :]
    place = rows[:, None] * b + of[None, :]
    residual = tl.load(r + place, mask=inside, other=0.0) - far[None, :] * tl.load(q + place, mask=inside, other=0.0)
    tl.store(r + place, residual, mask=inside)
    longer = residual.to(tl.float64)
    tl.store(sums + tl.program_id(0).to(tl.int64) * b + of, tl.sum(longer * longer, axis=0), mask=held)


@triton.jit
def finish_iteration(
    x, r, p, half, back, steps, squares, count, rr, live, rr_next, live_next,
    norms, iterations, residuals, enough, n, b,
    ROWS: tl.constexpr, B: tl.constexpr, CHUNK: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Finish an iteration: x += step·p, then p = r + beta·p, also in half precision; note how far each column is.

    The state of columns is read from `rr` and `live` and written to two other arrays, which the next iteration reads:
    programs run in any order, and none may read what another has changed.
    """
    of = tl.arange(0, B)
    held = of < b
    rr_after = _sum_rows(squares, count, b, of, held, B, CHUNK)
    before = tl.load(rr + of, mask=held, other=1.0)
    lives = tl.load(live + of, mask=held, other=0) != 0
    residual = tl.sqrt(rr_after) / tl.where(lives, tl.load(norms + of, mask=held, other=1.0), 1.0)
    goes_on = lives & (residual > enough)
    kept = tl.where(goes_on, rr_after / tl.where(goes_on, before, 1.0), 0.0).to(p.dtype.element_ty)
    if tl.program_id(0) == 0:
        tl.store(rr_next + of, rr_after, mask=held)
        tl.store(live_next + of, goes_on.to(tl.int32), mask=held)
        tl.store(residuals + of, residual, mask=held & lives)
        tl.store(iterations + of, tl.load(iterations + of, mask=held, other=0) + lives.to(tl.int32), mask=held)
        if HALVES:
            tl.store(back + of, (tl.sqrt(rr_after) / HEADROOM).to(tl.float32), mask=held)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = (rows < n)[:, None] & held[None, :]
    place = rows[:, None] * b + of[None, :]
    far = tl.load(steps + of, mask=held, other=0.0)[None, :]
    old = tl.load(p + place, mask=inside, other=0.0)
    tl.store(x + place, tl.load(x + place, mask=inside, other=0.0) + far * old, mask=inside)
    new = tl.load(r + place, mask=inside, other=0.0) + kept[None, :] * old
    tl.store(p + place, new, mask=inside)
    if HALVES:
        scale = tl.where(rr_after > 0, HEADROOM / tl.sqrt(tl.where(rr_after > 0, rr_after, 1.0)), 0.0).to(tl.float32)
        rounded = tl.minimum(tl.maximum(new * scale[None, :], -LARGEST_HALF), LARGEST_HALF)
        tl.store(half + place, rounded.to(tl.float16), mask=inside)


@triton.jit
def place_of(rows, place, size, BLOCK: tl.constexpr):
    """Write the place of each row among the rows that are kept."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    tl.store(place + tl.load(rows + at, mask=there, other=0), at, mask=there)


@triton.jit(do_not_specialize=["count"])
def list_runs(begins, starts, regions, count, RUNS: tl.constexpr, REGIONS: tl.constexpr):
    """Write the regions of runs, one run after the other."""
    for i in range(RUNS):
        run = tl.program_id(0) * RUNS + i
        there = run < count
        at = tl.load(starts + run, mask=there, other=0)
        end = tl.load(starts + run + 1, mask=there, other=0)
        shift = tl.load(begins + run, mask=there, other=0) - at
        while at < end:
            some = at + tl.arange(0, REGIONS)
            tl.store(regions + some, some + shift, mask=some < end)
            at += REGIONS


@triton.jit
def count_kept(starts, entries, roots, rows, place, counts, sums, size, ROWS: tl.constexpr, ENTRIES: tl.constexpr):
    """Count the entries of each kept row in kept columns, and add up their affinity.

    The count of the first row is the second entry of `counts`, whose first entry is zero: added up they are starts.
    """
    if tl.program_id(0) == 0:
        tl.store(counts, 0)
    kept = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = kept < size
    row = tl.load(rows + kept, mask=there, other=0)
    at = tl.load(starts + row, mask=there, other=0)
    end = tl.load(starts + row + 1, mask=there, other=0)
    longest = tl.max(end - at, axis=0)
    count = tl.zeros((ROWS, ENTRIES), tl.int32)
    total = tl.zeros((ROWS, ENTRIES), tl.float64)
    at = at[:, None] + tl.arange(0, ENTRIES)[None, :]
    done = longest * 0
    while done < longest:
        inside = at < end[:, None]
        column, value = entry_at(entries, at, inside)
        keeps = inside & (tl.load(place + column, mask=inside, other=-1) >= 0)
        total += tl.where(keeps, value, 0.0).to(tl.float64) * tl.load(roots + column, mask=keeps, other=0.0)
        count += keeps.to(tl.int32)
        at += ENTRIES
        done += ENTRIES
    tl.store(counts + 1 + kept, tl.sum(count, axis=1), mask=there)
    root = tl.load(roots + row, mask=there, other=0.0)
    tl.store(sums + kept, tl.sum(total, axis=1) * root, mask=there)


@triton.jit
def _scale(sums):
    """Return one over the root of a row's affinity, and zero where it has none."""
    return tl.where(sums > 0, 1.0 / tl.sqrt(tl.where(sums > 0, sums, 1.0)), 0.0)


@triton.jit
def write_kept(
    starts, entries, roots, rows, place, kept_starts, sums, kept_entries, size,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write the entries of each kept row in kept columns, normalised anew; `kept_starts` says where."""
    kept = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = kept < size
    row = tl.load(rows + kept, mask=there, other=0)
    at = tl.load(starts + row, mask=there, other=0)
    end = tl.load(starts + row + 1, mask=there, other=0)
    longest = tl.max(end - at, axis=0)
    out = tl.load(kept_starts + kept, mask=there, other=0)
    own = tl.load(roots + row, mask=there, other=0.0) * _scale(tl.load(sums + kept, mask=there, other=0.0))
    at = at[:, None] + tl.arange(0, ENTRIES)[None, :]
    done = longest * 0
    while done < longest:
        inside = at < end[:, None]
        column, value = entry_at(entries, at, inside)
        becomes = tl.load(place + column, mask=inside, other=-1)
        keeps = becomes >= 0
        value = value.to(tl.float64) * own[:, None]
        value *= tl.load(roots + column, mask=keeps, other=0.0) * _scale(tl.load(sums + becomes, mask=keeps, other=0.0))
        nth = tl.cumsum(keeps.to(tl.int32), axis=1)
        to = out[:, None] + nth - 1
        tl.store(kept_entries + to, _as_entry(becomes, value.to(tl.float32)), mask=keeps)
        out += tl.sum(keeps.to(tl.int32), axis=1)
        at += ENTRIES
        done += ENTRIES


@triton.jit
def pool(
    scores, starts, weights, regions, pooled, images, b,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, B: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Write the weighted sum of the scores of each image's regions, which lie side by side.

    With `LISTED` the weights are those of all regions, and `regions` says which region each score is of.
    """
    of = tl.arange(0, B)
    held = of < b
    for i in range(ROWS):
        image = tl.program_id(0) * ROWS + i
        there = image < images
        at = tl.load(starts + image, mask=there, other=0)
        end = tl.load(starts + image + 1, mask=there, other=0)
        total = tl.zeros((ENTRIES, B), tl.float32)
        while at < end:
            rows = at + tl.arange(0, ENTRIES)
            inside = rows < end
            of_weight = tl.load(regions + rows, mask=inside, other=0) if LISTED else rows
            weight = tl.load(weights + of_weight, mask=inside, other=0.0)
            place = rows[:, None].to(tl.int64) * b + of[None, :]
            some = tl.load(scores + place, mask=inside[:, None] & held[None, :], other=0.0)
            total += weight[:, None] * some.to(tl.float32)
            at += ENTRIES
        tl.store(
            pooled + image.to(tl.int64) * b + of,
            tl.sum(total, axis=0),
            mask=held & (image + tl.zeros_like(of) < images),
        )

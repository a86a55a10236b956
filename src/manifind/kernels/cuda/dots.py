"""A Triton kernel: products of few queries with some of many rows, which are read where they lie."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count"])
def products_with(
    queries, vectors, rows, out, m, count, d, M: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr
):  # fmt: skip
    """Write the products of m queries with the rows that `rows` names, (m, count), as good as in float32.

    Each number is split into three that tensor cores can multiply, so that no digit of float32 is lost.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    row = tl.load(rows + at, mask=there, other=0).to(tl.int64)
    of = tl.arange(0, M)
    held = of < m
    total = tl.zeros((M, BLOCK), tl.float32)
    for start in range(0, d, STEP):
        place = start + tl.arange(0, STEP)
        inside = place < d
        some = tl.load(queries + of[:, None] * d + place[None, :], mask=held[:, None] & inside[None, :], other=0.0)
        met = tl.load(vectors + row[None, :] * d + place[:, None], mask=there[None, :] & inside[:, None], other=0.0)
        total = tl.dot(some, met.to(tl.float32), total, input_precision="tf32x3")
    to = out + of.to(tl.int64)[:, None] * count + at[None, :]
    tl.store(to, total, mask=held[:, None] & there[None, :])

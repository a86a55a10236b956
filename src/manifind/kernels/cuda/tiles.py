"""Triton kernels that compare rows with columns tile by tile: no tile of similarities goes to memory.

Rows are packed (`packing`) in eight bits or in half precision. `maxima` keeps the largest product of each row with
each tile of a sample; thresholds are guessed from these. `survivors` appends the columns that may reach a row's
threshold to the row's list. `rescore` scores the lists anew in float32.

`survivors` compares four products at a time in PTX of its own, which costs about an instruction a product where nothing
passes. With Triton's masks alone, comparing takes longer than multiplying (218 TFLOP/s in place of 496, in half
precision on an H200). Triton's interpreter knows no PTX, and takes masks.
"""

import triton
import triton.language as tl

LOWEST, HIGHEST = tl.constexpr(-(2.0**30)), tl.constexpr(2.0**30)
"""More than any product of rows of numbers up to 127 in up to 2^16 dimensions."""

_APPEND_ONE = """
    @{hit} mad.wide.u32 at, ${row}, 4, ${counts};
    @{hit} atom.global.add.u32 slot, [at], 1;
    setp.lt.and.u32 fits, slot, ${room}, {hit};
    @fits mad.lo.u32 slot, ${row}, ${room}, slot;
    @fits mad.wide.u32 at, slot, 4, ${lists};
    @fits st.global.u32 [at], ${column};
"""
_APPEND = """
{{
    .reg .pred a, b, c, d, any, fits;
    .reg .u32 slot;
    .reg .u64 at;
    setp.ge.{kind} a, $4, $8;
    setp.ge.{kind} b, $5, $9;
    setp.ge.{kind} c, $6, $10;
    setp.ge.{kind} d, $7, $11;
    or.pred any, a, b;
    or.pred any, any, c;
    or.pred any, any, d;
    @!any bra DONE;
    mov.u32 slot, 0;
{each}
DONE:
    mov.u32 $0, 0;
    mov.u32 $1, 0;
    mov.u32 $2, 0;
    mov.u32 $3, 0;
}}
"""


def _written(kind: str) -> tl.constexpr:
    """Return the PTX that compares four products. Its operands are four registers of each argument in turn."""
    each = "".join(
        _APPEND_ONE.format(hit=hit, column=12 + i, row=16 + i, counts=20 + i, lists=24 + i, room=28 + i)
        for i, hit in enumerate("abcd")
    )
    return tl.constexpr(_APPEND.format(kind=kind, each=each))


APPEND_INTEGERS, APPEND_FLOATS = _written("s32"), _written("f32")
REGISTERS = tl.constexpr(",".join(["=r"] * 4 + ["r"] * 16 + ["l"] * 8 + ["r"] * 4))


@triton.jit
def _append(products, least, rows, columns, counts, lists, room, PTX: tl.constexpr):
    """Append the column of each product that is at least its row's `least` to the row's list, while there is room."""
    if PTX:
        nothing = tl.zeros_like(products).to(tl.int32)
        tl.inline_asm_elementwise(
            APPEND_INTEGERS if products.dtype == tl.int32 else APPEND_FLOATS,
            REGISTERS,
            [
                products.to(tl.int32, bitcast=True),
                least.to(tl.int32, bitcast=True)[:, None] + nothing,
                columns[None, :] + nothing,
                rows[:, None] + nothing,
                counts.to(tl.int64),
                lists.to(tl.int64),
                room,
            ],
            dtype=tl.int32,
            is_pure=False,
            pack=4,
        )
    else:
        passes = products >= least[:, None]
        nothing = tl.zeros_like(products).to(tl.int32)
        slots = tl.atomic_add(counts + (rows[:, None] + nothing), 1, mask=passes)
        places = rows[:, None].to(tl.int64) * room + slots
        tl.store(lists + places, columns[None, :] + nothing, mask=passes & (slots < room))


@triton.jit
def _least(thresholds, offsets, scales, rows, count, group_offset, group_scale, WHOLE: tl.constexpr):
    """Return the least product of these rows with one group that may reach the threshold."""
    there = rows < count
    threshold = tl.load(thresholds + rows, mask=there, other=float("inf"))
    offset = tl.load(offsets + rows, mask=there, other=0.0)
    scale = tl.load(scales + rows, mask=there, other=1.0)
    least = (threshold - offset - group_offset) / (scale * group_scale)
    # A division and two products in float32 are off by a few units in the last place.
    least = tl.minimum(tl.maximum(least, LOWEST), HIGHEST)
    least = least - 1e-6 * tl.abs(least)
    if WHOLE:
        least = tl.floor(least).to(tl.int32)
    return least


@triton.jit
def _products(
    packed_rows, packed, block, tile,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WHOLE: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Return the products of a block of rows with a tile of columns, BK dimensions at a time."""
    kind: tl.constexpr = tl.int32 if WHOLE else tl.float32
    rows = block * BM + tl.arange(0, BM)
    columns = tile * BN + tl.arange(0, BN)
    step = tl.arange(0, BK)
    products = tl.zeros((BM, BN), kind)
    for k in range(0, D, BK):
        if TMA:
            left = packed_rows.load([block * BM, k])
            right = packed.load([tile * BN, k])
        else:
            left = tl.load(packed_rows + rows[:, None].to(tl.int64) * D + (k + step)[None, :])
            right = tl.load(packed + columns[:, None].to(tl.int64) * D + (k + step)[None, :])
        products = tl.dot(left, tl.trans(right), products, out_dtype=kind)
    return products


@triton.jit
def survivors(
    packed_rows, thresholds, row_offsets, row_scales, row_count,
    packed, group_offsets, group_scales, tiles,
    counts, lists, room, blocks,
    BAND: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    WHOLE: tl.constexpr, PTX: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Compare BM rows with BN columns; programs near each other share rows and columns."""
    program = tl.program_id(0)
    of_band = BAND * tiles
    first = program // of_band * BAND
    high = tl.minimum(blocks - first, BAND)
    block = first + program % of_band % high
    tile = program % of_band // high
    rows = block * BM + tl.arange(0, BM)
    columns = tile * BN + tl.arange(0, BN)
    products = _products(packed_rows, packed, block, tile, D, BM, BN, BK, WHOLE, TMA)
    group = tile * BN // GROUP
    least = _least(
        thresholds, row_offsets, row_scales, rows, row_count,
        tl.load(group_offsets + group), tl.load(group_scales + group), products.dtype == tl.int32,
    )  # fmt: skip
    _append(products, least, rows, columns, counts, lists, room, PTX)


@triton.jit
def maxima(
    packed_rows, row_scales, row_count, packed, chunk_scales, out, chunks,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WHOLE: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Write the largest product of each of BM rows with a chunk of BN sampled columns, as a similarity."""
    block, chunk = tl.program_id(0), tl.program_id(1)
    rows = block * BM + tl.arange(0, BM)
    products = _products(packed_rows, packed, block, chunk, D, BM, BN, BK, WHOLE, TMA)
    there = rows < row_count
    scale = tl.load(row_scales + rows, mask=there, other=0.0) * tl.load(chunk_scales + chunk)
    largest = tl.max(products, axis=1).to(tl.float32) * scale
    tl.store(out + rows.to(tl.int64) * chunks + chunk, largest, mask=there)


@triton.jit
def rescore(
    own_vectors, own_places, own_ids, vectors, order, first, size, begins, counts, lists, scores, room, d,
    D: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Score in float32 what lists gained since `begins`. A row itself, and an empty place, score −∞.

    A list holds places of columns in the packed order of `size` vectors, and afterwards their ids among all rows. The
    first of the vectors is row `first` of all.
    """
    row = tl.program_id(0)
    begin = tl.load(begins + row)
    end = tl.minimum(tl.load(counts + row), room)
    itself = tl.load(own_ids + row) - first
    dimensions = tl.arange(0, D)
    inside = dimensions < d
    place = tl.load(own_places + row).to(tl.int64)
    x = tl.load(own_vectors + place * d + dimensions, mask=inside, other=0.0).to(tl.float32)
    base = row.to(tl.int64) * room
    at = begin
    while at < end:
        slots = at + tl.arange(0, BC)
        there = slots < end
        places = tl.load(lists + base + slots, mask=there, other=0)
        there = there & (places < size)
        ids = tl.load(order + places, mask=there, other=0)
        z = tl.load(
            vectors + ids[:, None].to(tl.int64) * d + dimensions[None, :],
            mask=there[:, None] & inside[None, :],
            other=0.0,
        ).to(tl.float32)
        score = tl.sum(x[None, :] * z, axis=1)
        score = tl.where(there & (ids != itself), score, float("-inf"))
        tl.store(lists + base + slots, ids + first, mask=slots < end)
        tl.store(scores + base + slots, score, mask=slots < end)
        at += BC


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

"""Triton kernels on pictures that lie one after the other as rows: pixels of three bytes, or cells of many channels.

A table (pictures, 4) says where each picture starts, its height and width, and nothing, so that each of its rows starts
where the GPU reads at once; `of` is the picture of each row that is made.
"""

import triton
import triton.language as tl

BITS, ONE, HALF = tl.constexpr(22), tl.constexpr(2**22), tl.constexpr(2**21)
"""Weights are whole numbers of this many bits after the point, as in Pillow; one, and a half, in these."""


@triton.jit
def number(table, of, BLOCK: tl.constexpr):
    """Write the number of a picture to each of its rows, from the start of the first picture on."""
    picture = tl.program_id(0)
    rows = tl.load(table + 4 * picture + 1) * tl.load(table + 4 * picture + 2)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(table + 4 * picture) - tl.load(table)
    tl.store(of + begin + at, tl.zeros((BLOCK,), tl.int32) + picture, mask=at < rows)


@triton.jit
def _picture(table, picture, there):
    """Return where pictures start, and their heights and widths."""
    begin = tl.load(table + 4 * picture, mask=there, other=0)
    height = tl.load(table + 4 * picture + 1, mask=there, other=1)
    width = tl.load(table + 4 * picture + 2, mask=there, other=1)
    return begin, height, width


@triton.jit
def _where(of, table, row, there):
    """Return the picture of rows, and their line and place in it."""
    picture = tl.load(of + row, mask=there, other=0)
    begin, _, width = _picture(table, picture, there)
    return picture, (row - begin) // width, (row - begin) % width


@triton.jit
def _tap(picture, line, place, dy, dx, there):
    """Return the row of a picture's pixels in a line and place nearby, and whether they lie in the picture."""
    begin, height, width = picture
    y, x = line + dy - 1, place + dx - 1
    inside = there & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return (begin + y * width + x).to(tl.int64), inside


@triton.jit
def _cubic(x):
    """Return the weight of a pixel at a distance, by cubic interpolation with a = −1/2."""
    x = tl.abs(x)
    near = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return tl.where(x < 1.0, near, tl.where(x < 2.0, far, 0.0))


@triton.jit(do_not_specialize=["rows", "first"])
def resample(source, target, of, sources, targets, rows, first, DOWN: tl.constexpr, BLOCK: tl.constexpr):
    """Resize pictures across, or down where `DOWN`, smoothed: what Pillow's bicubic resizing does, to the bit.

    Pillow 13 goes down before across where that is less work, and a value may then differ by one. `first` is the row of
    `target` that belongs to the first of `of`.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    picture = tl.load(of + row, mask=there, other=0)
    row += first
    target_begin, height, width = _picture(targets, picture, there)
    line, place = (row - target_begin) // width, (row - target_begin) % width
    begin, lines, across = _picture(sources, picture, there)
    if DOWN:
        size, wanted = lines, height
        out, base, stride = line, begin + place, across
    else:
        size, wanted, out = across, width, place
        base, stride = begin + line * across, tl.full((BLOCK,), 1, tl.int32)
    scale = size.to(tl.float64) / wanted.to(tl.float64)
    spread = tl.maximum(scale, 1.0)
    centre = (out.to(tl.float64) + 0.5) * scale
    low = tl.maximum((centre - 2.0 * spread + 0.5).to(tl.int32), 0)
    high = tl.minimum((centre + 2.0 * spread + 0.5).to(tl.int32), size)
    taps = tl.max(tl.where(there, high - low, 0), axis=0)
    narrow = 1.0 / spread
    total = tl.zeros((BLOCK,), tl.float64)
    for tap in range(taps):
        weight = _cubic((tap + low - centre + 0.5) * narrow)
        total += tl.where(low + tap < high, weight, 0.0)
    colour = tl.arange(0, 4)
    held = there[:, None] & (colour < 3)[None, :]
    value = tl.full((BLOCK, 4), HALF, tl.int32)
    for tap in range(taps):
        weight = _cubic((tap + low - centre + 0.5) * narrow) / total * ONE
        whole = tl.where(weight < 0, weight - 0.5, weight + 0.5).to(tl.int32)
        inside = low + tap < high
        pixel = (base + (low + tap) * stride).to(tl.int64) * 3
        some = tl.load(source + pixel[:, None] + colour[None, :], mask=held & inside[:, None], other=0)
        value += some.to(tl.int32) * whole[:, None]
    value = tl.minimum(tl.maximum(value >> BITS, 0), 255)
    tl.store(target + row.to(tl.int64)[:, None] * 3 + colour[None, :], value.to(tl.uint8), mask=held)


@triton.jit(do_not_specialize=["rows"])
def first(
    pixels, out, of, outs, ins, weight, bias, scaling, low, high, rows,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Scale pixels as the network wants them, and take the first convolution, 3 × 3 over three colours."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    picture, line, place = _where(of, outs, row, there)
    source = _picture(ins, picture, there)
    channel = tl.arange(0, WIDE)
    held = channel < CHANNELS
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            pixel, inside = _tap(source, line * STRIDE, place * STRIDE, dy, dx, there)
            for colour in tl.static_range(3):
                value = tl.load(pixels + pixel * 3 + colour, mask=inside, other=0).to(tl.float32)
                value = (value - tl.load(scaling + colour)) * tl.load(scaling + 3 + colour)
                value = tl.where(inside, value, 0.0)
                by = tl.load(weight + ((dy * 3 + dx) * 3 + colour) * CHANNELS + channel, mask=held, other=0.0)
                total += value[:, None] * by[None, :]
    total += tl.load(bias + channel, mask=held, other=0.0)[None, :]
    total = tl.minimum(tl.maximum(total, low), high)
    to = out + row.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=there[:, None] & held[None, :])


@triton.jit(do_not_specialize=["rows"])
def depthwise(
    cells, out, of, outs, ins, weight, bias, low_in, high_in, low, high, rows, channels,
    STRIDE: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Clip cells, then filter each channel on its own, 3 × 3, in float32, and clip again."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    picture, line, place = _where(of, outs, row, there)
    source = _picture(ins, picture, there)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    held = channel < channels
    total = tl.zeros((BLOCK, WIDE), tl.float32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            cell, inside = _tap(source, line * STRIDE, place * STRIDE, dy, dx, there)
            taken = inside[:, None] & held[None, :]
            value = tl.load(cells + cell[:, None] * channels + channel[None, :], mask=taken, other=0.0).to(tl.float32)
            value = tl.minimum(tl.maximum(value, low_in), high_in)
            total += value * tl.load(weight + (dy * 3 + dx) * channels + channel, mask=held, other=0.0)[None, :]
    total += tl.load(bias + channel, mask=held, other=0.0)[None, :]
    total = tl.minimum(tl.maximum(total, low), high)
    to = out + row.to(tl.int64)[:, None] * channels + channel[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=there[:, None] & held[None, :])


@triton.jit
def pool(
    cells, out, boxes, low, high, power, channels,
    MOST: tl.constexpr, POSITIVE: tl.constexpr, CUBE: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Pool the clipped cells of a box: the largest where `MOST`, else the mean of powers, whose root is still to take.

    A box is eight numbers: where its picture starts, the picture's width, x0, y0, x1, y1, and nothing.
    """
    box = boxes + 8 * tl.program_id(0)
    begin, width = tl.load(box), tl.load(box + 1)
    x0, y0, x1, y1 = tl.load(box + 2), tl.load(box + 3), tl.load(box + 4), tl.load(box + 5)
    across = x1 - x0
    count = across * (y1 - y0)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    held = channel < channels
    total = tl.full((BLOCK, WIDE), float("-inf") if MOST else 0.0, tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < count
        cell = (begin + (y0 + at // across) * width + x0 + at % across).to(tl.int64) * channels
        taken = inside[:, None] & held[None, :]
        value = tl.load(cells + cell[:, None] + channel[None, :], mask=taken, other=0.0).to(tl.float32)
        value = tl.minimum(tl.maximum(value, low), high)
        if POSITIVE:
            value = tl.maximum(value, 0.0)
        if MOST:
            total = tl.maximum(total, tl.where(taken, value, float("-inf")))
        else:
            if CUBE:
                value = value * value * value
            elif POSITIVE:
                value = tl.where(value > 0, tl.exp2(power * tl.log2(tl.where(value > 0, value, 1.0))), 0.0)
            total += tl.where(taken, value, 0.0)
    made = tl.max(total, axis=0) if MOST else tl.sum(total, axis=0) / count
    tl.store(out + tl.program_id(0).to(tl.int64) * channels + channel, made, mask=held)

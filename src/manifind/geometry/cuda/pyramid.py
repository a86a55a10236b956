"""Triton kernels that blur photos more and more: the pyramid in which local features are looked for.

Pictures lie one after the other, row by row. A table (pictures, 4) says where each picture starts, its height, its
width, and whether it was doubled. A program works on some pixels of one picture; the picture is the second number of
the program.
"""

import triton
import triton.language as tl

from manifind.geometry.cuda import octaves

BITS, ONE, HALF = tl.constexpr(22), tl.constexpr(2**22), tl.constexpr(2**21)
"""Weights are whole numbers of this many bits after the point, as in Pillow; one, and a half, in these."""
WEIGHTS = tl.constexpr(octaves.WEIGHTS)


@triton.jit
def pixels_of(table, BLOCK: tl.constexpr):
    """Return where the picture of this program starts, its size, and the pixels that the program works on."""
    row = table + 4 * tl.program_id(1)
    begin, height, width = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return begin, height, width, at, at < height * width


@triton.jit
def _covered(at, size, wanted):
    """Return the pixels that a pixel of a smaller picture covers: the first, how many, and the weight of each."""
    scale = size.to(tl.float64) / wanted.to(tl.float64)
    centre = (at.to(tl.float64) + 0.5) * scale
    low = tl.maximum((centre - 0.5 * scale + 0.5).to(tl.int32), 0)
    high = tl.minimum((centre + 0.5 * scale + 0.5).to(tl.int32), size)
    # Rounding may have let in a pixel whose centre is not covered.
    narrow = 1.0 / scale
    low += ((low - centre + 0.5) * narrow <= -0.5).to(tl.int32)
    high -= ((high - 1 - centre + 0.5) * narrow > 0.5).to(tl.int32)
    count = tl.maximum(high - low, 1)
    return low, count, (1.0 / count.to(tl.float64) * ONE + 0.5).to(tl.int32)


@triton.jit
def shrink_to_grey(pixels, grey, sources, targets, BLOCK: tl.constexpr):
    """Reduce photos by Pillow's box filter, across and then down, and write their grey values, as Pillow has them.

    Pillow 13 reduces a photo that is much higher than wide down before across, and a value may then differ by one.
    """
    begin, height, width, at, there = pixels_of(targets, BLOCK)
    row = sources + 4 * tl.program_id(1)
    first, high, wide = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    if tl.program_id(0) * BLOCK < height * width:
        left, across, by_across = _covered(at % width, wide, width)
        top, down, by_down = _covered(at // width, high, height)
        widest, highest = tl.max(tl.where(there, across, 0), axis=0), tl.max(tl.where(there, down, 0), axis=0)
        none = tl.zeros((BLOCK,), tl.int32)
        red, green, blue = none, none, none
        for dy in range(highest):
            line_red, line_green, line_blue = none, none, none
            for dx in range(widest):
                held = there & (dx < across) & (dy < down)
                pixel = pixels + (first + (top + dy) * wide + left + dx).to(tl.int64) * 3
                line_red += tl.load(pixel, mask=held, other=0).to(tl.int32)
                line_green += tl.load(pixel + 1, mask=held, other=0).to(tl.int32)
                line_blue += tl.load(pixel + 2, mask=held, other=0).to(tl.int32)
            red += (line_red * by_across + HALF) >> BITS
            green += (line_green * by_across + HALF) >> BITS
            blue += (line_blue * by_across + HALF) >> BITS
        red, green = (red * by_down + HALF) >> BITS, (green * by_down + HALF) >> BITS
        blue = (blue * by_down + HALF) >> BITS
        light = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
        tl.store(grey + begin + at, light.to(tl.uint8), mask=there)


@triton.jit
def write_base(grey, first, greys, table, BLOCK: tl.constexpr):
    """Write the pictures to begin with: grey values from 0 to 1, with values between them where a photo is doubled."""
    begin, height, width, at, there = pixels_of(table, BLOCK)
    doubled = tl.load(table + 4 * tl.program_id(1) + 3)
    row = greys + 4 * tl.program_id(1)
    source, wide = grey + tl.load(row), tl.load(row + 2)
    if tl.program_id(0) * BLOCK < height * width:
        y, x = at // width, at % width
        up, left, down, right = y >> doubled, x >> doubled, (y + doubled) >> doubled, (x + doubled) >> doubled
        total = tl.load(source + up * wide + left, mask=there, other=0).to(tl.int32)
        total += tl.load(source + up * wide + right, mask=there, other=0).to(tl.int32)
        total += tl.load(source + down * wide + left, mask=there, other=0).to(tl.int32)
        total += tl.load(source + down * wide + right, mask=there, other=0).to(tl.int32)
        tl.store(first + begin + at, tl.div_rn(total.to(tl.float32), tl.full((BLOCK,), 1020.0, tl.float32)), mask=there)


@triton.jit
def blur(source, target, table, weights, RADIUS: tl.constexpr, DOWN: tl.constexpr, BLOCK: tl.constexpr):
    """Blur pictures across, or down where `DOWN`; what lies beyond their sides is mirrored.

    The weights of a doubled picture follow those of the others.
    """
    begin, height, width, at, there = pixels_of(table, BLOCK)
    weights += WEIGHTS * tl.load(table + 4 * tl.program_id(1) + 3)
    if tl.program_id(0) * BLOCK < height * width:
        place = at // width if DOWN else at % width
        size = height if DOWN else width
        step = width if DOWN else 1
        base = source + begin + at - place * step
        total = tl.load(weights) * tl.load(base + place * step, mask=there, other=0.0)
        for k in tl.static_range(1, RADIUS + 1):
            before, after = tl.abs(place - k), tl.minimum(place + k, 2 * size - 2 - place - k)
            pair = tl.load(base + before * step, mask=there, other=0.0)
            pair += tl.load(base + after * step, mask=there, other=0.0)
            total += tl.load(weights + k) * pair
        tl.store(target + begin + at, total, mask=there)


@triton.jit
def halved(source, target, before, after, BLOCK: tl.constexpr):
    """Write every second pixel of every second line."""
    begin, height, width, at, there = pixels_of(after, BLOCK)
    row = before + 4 * tl.program_id(1)
    first, wide = tl.load(row), tl.load(row + 2)
    if tl.program_id(0) * BLOCK < height * width:
        value = tl.load(source + first + 2 * (at // width) * wide + 2 * (at % width), mask=there, other=0.0)
        tl.store(target + begin + at, value, mask=there)

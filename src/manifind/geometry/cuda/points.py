"""Triton kernels that find points: extrema of the differences between scales, and where they are between samples.

An octave holds six scales, each the pictures of a batch one after the other. The difference of a level is the scale
above it less the scale itself, and is never stored.
"""

import triton
import triton.language as tl

from manifind.geometry.cuda import octaves
from manifind.geometry.cuda.pyramid import pixels_of

LAYERS, SIGMA = tl.constexpr(octaves.LAYERS), tl.constexpr(octaves.SIGMA)
EDGE = tl.constexpr(10.0)
"""How much longer than wide what a point lies on may be."""
NEAR = tl.constexpr(0.6)
"""Half a sample and a little: an extremum between two samples is found from either."""
BORDER, STEPS = tl.constexpr(5), tl.constexpr(5)
SEGMENT = tl.constexpr(8)
"""Numbers that a segment has (`octaves`)."""
PLACE, POINT = tl.constexpr(4), tl.constexpr(8)
"""Numbers that say where a point lies in the pyramid, and numbers that say where in the photo."""


@triton.jit
def _difference(source, rows, there):
    """Return the difference between pixels of a scale and of the scale above it."""
    return tl.load(source + rows, mask=there, other=0.0) - tl.load(source, mask=there, other=0.0)


@triton.jit(do_not_specialize=["rows"])
def extrema(scales, mask, table, rows, limit, BLOCK: tl.constexpr):
    """Write for each level whether a pixel has the largest or the least difference of those around it.

    Around a pixel are the eight beside it and the nine on the levels above and below. `rows` is how far one scale lies
    from the next.
    """
    begin, height, width, at, there = pixels_of(table, BLOCK)
    if tl.program_id(0) * BLOCK < height * width:
        y, x = at // width, at % width
        inside = there & (y >= BORDER) & (y < height - BORDER) & (x >= BORDER) & (x < width - BORDER)
        source = scales + begin + at
        _, most_under, least_under = _around(source, width, rows, inside)
        value, most_here, least_here = _around(source + rows, width, rows, inside)
        for layer in tl.static_range(1, LAYERS + 1):
            over, most_over, least_over = _around(source + (layer + 1) * rows, width, rows, inside)
            most = tl.maximum(tl.maximum(most_under, most_here), most_over)
            least = tl.minimum(tl.minimum(least_under, least_here), least_over)
            stands_out = ((value > limit) & (value >= most)) | ((value < -limit) & (value <= least))
            tl.store(mask + (layer - 1) * rows + begin + at, (inside & stands_out).to(tl.uint8), mask=there)
            most_under, least_under = most_here, least_here
            value, most_here, least_here = over, most_over, least_over


@triton.jit
def _around(source, width, rows, inside):
    """Return the difference at pixels, and the largest and the least of the nine around each."""
    here = _difference(source, rows, inside)
    most, least = here, here
    for dy in tl.static_range(-1, 2):
        for dx in tl.static_range(-1, 2):
            if dy != 0 or dx != 0:
                value = _difference(source + dy * width + dx, rows, inside)
                most, least = tl.maximum(most, value), tl.minimum(least, value)
    return here, most, least


@triton.jit
def _nearest(x):
    """Return the nearest whole number; a half goes away from zero."""
    whole = tl.floor(tl.abs(x) + 0.5)
    return tl.where(x < 0, -whole, whole).to(tl.int32)


@triton.jit(do_not_specialize=["count"])
def refine(scales, positions, segment_of, segments, steps, points, places, count, contrast, BLOCK: tl.constexpr):
    """Find where between the samples extrema are; refuse what has low contrast, lies on an edge, or leads away.

    A point is x, y, its size, its strength, which is −1 where it is refused, and its scale in pixels of its octave.
    `steps` says how many pixels of its photo a pixel of a picture is.
    """
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = number < count
    segment = segments + SEGMENT * tl.load(segment_of + number, mask=there, other=0)
    at = (tl.load(positions + number, mask=there, other=0) - tl.load(segment, mask=there, other=0)).to(tl.int32)
    begin = tl.load(segment + 1, mask=there, other=0)
    rows = tl.load(segment + 2, mask=there, other=0)
    height = tl.load(segment + 3, mask=there, other=1)
    width = tl.load(segment + 4, mask=there, other=1)
    octave = tl.load(segment + 5, mask=there, other=0)
    layer = tl.load(segment + 6, mask=there, other=1)
    picture = tl.load(segment + 7, mask=there, other=0)
    y, x = at // width, at % width
    zero = tl.zeros((BLOCK,), tl.float32)
    dx, dy, ds, strength, xx, yy, xy = zero, zero, zero, zero, zero, zero, zero
    goes, found = there, there & False
    for _ in range(STEPS):
        source = scales + begin + layer * rows + y * width + x
        goes, to_x, to_y, to_s, value, now_xx, now_yy, now_xy = _extremum(source, width, rows, goes)
        furthest = tl.maximum(tl.maximum(tl.abs(to_x), tl.abs(to_y)), tl.abs(to_s))
        ends = goes & (furthest < NEAR)
        dx, dy, ds = tl.where(ends, to_x, dx), tl.where(ends, to_y, dy), tl.where(ends, to_s, ds)
        strength = tl.where(ends, tl.abs(value), strength)
        xx, yy, xy = tl.where(ends, now_xx, xx), tl.where(ends, now_yy, yy), tl.where(ends, now_xy, xy)
        found = found | ends
        goes = goes & (furthest >= NEAR) & (furthest < 1e6)
        x += tl.where(goes, _nearest(tl.where(goes, to_x, 0.0)), 0)
        y += tl.where(goes, _nearest(tl.where(goes, to_y, 0.0)), 0)
        layer += tl.where(goes, _nearest(tl.where(goes, to_s, 0.0)), 0)
        goes = goes & (layer >= 1) & (layer <= LAYERS)
        goes = goes & (x >= BORDER) & (x < width - BORDER) & (y >= BORDER) & (y < height - BORDER)
    trace, curved = xx + yy, xx * yy - xy * xy
    found = found & (strength >= contrast) & (curved > 0)
    found = found & (trace * trace * EDGE < (EDGE + 1) * (EDGE + 1) * curved)
    scale = SIGMA * tl.exp2((layer.to(tl.float32) + ds) / LAYERS)
    step = tl.load(steps + picture, mask=there, other=1.0) * (1 << octave).to(tl.float32)
    point = points + POINT * number
    tl.store(point, (x.to(tl.float32) + dx) * step, mask=there)
    tl.store(point + 1, (y.to(tl.float32) + dy) * step, mask=there)
    tl.store(point + 2, 2 * scale * step, mask=there)
    tl.store(point + 3, tl.where(found, strength, -1.0), mask=there)
    tl.store(point + 4, scale, mask=there)
    place = places + PLACE * number
    tl.store(place, begin + layer * rows, mask=there)
    tl.store(place + 1, y * 65536 + x, mask=there)
    tl.store(place + 2, height, mask=there)
    tl.store(place + 3, width, mask=there)


@triton.jit
def _extremum(source, width, rows, goes):
    """Find the extremum of the parabola through the differences around samples.

    Returned are which of the samples have one, its way from the sample in x, y and scale, the difference there, and
    the second derivatives by x, by y, and by both.
    """
    here = _difference(source, rows, goes)
    right, left = _difference(source + 1, rows, goes), _difference(source - 1, rows, goes)
    down, up = _difference(source + width, rows, goes), _difference(source - width, rows, goes)
    over, under = _difference(source + rows, rows, goes), _difference(source - rows, rows, goes)
    by_x, by_y, by_s = (right - left) / 2, (down - up) / 2, (over - under) / 2
    xx, yy, ss = right + left - 2 * here, down + up - 2 * here, over + under - 2 * here
    xy = _mixed_derivative(source, 1, width, rows, goes)
    xs, ys = _mixed_derivative(source, 1, rows, rows, goes), _mixed_derivative(source, width, rows, rows, goes)
    # Cramer's rule for H · shift = −slope.
    a, b, c = yy * ss - ys * ys, xs * ys - xy * ss, xy * ys - xs * yy
    d, e, f = xx * ss - xs * xs, xs * xy - xx * ys, xx * yy - xy * xy
    determinant = xx * a + xy * b + xs * c
    solved = goes & (tl.abs(determinant) >= 1e-20)
    by = tl.where(solved, determinant, 1.0)
    to_x = -(a * by_x + b * by_y + c * by_s) / by
    to_y = -(b * by_x + d * by_y + e * by_s) / by
    to_s = -(c * by_x + e * by_y + f * by_s) / by
    value = here + 0.5 * (by_x * to_x + by_y * to_y + by_s * to_s)
    return solved, to_x, to_y, to_s, value, xx, yy, xy


@triton.jit
def _mixed_derivative(source, one, other, rows, goes):
    """Return the mixed second derivative of differences in two directions."""
    ahead = _difference(source + other + one, rows, goes) - _difference(source + other - one, rows, goes)
    behind = _difference(source - other + one, rows, goes) - _difference(source - other - one, rows, goes)
    return (ahead - behind) / 4

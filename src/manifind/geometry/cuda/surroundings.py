"""Triton kernels of keypoint descriptors: histograms of the directions in which grey values rise around them.

A program works for one point. What a point's place is, `points.refine` says.
"""

import triton
import triton.language as tl

from manifind.geometry.cuda.points import PLACE, POINT

BINS = tl.constexpr(36)
"""Of the histogram that says how a point is turned."""
CELLS, TURNS = tl.constexpr(4), tl.constexpr(8)
"""Of the descriptor: cells across and down, and directions."""
CELL = tl.constexpr(3.0)
"""How wide a cell is, in units of the point's scale."""
PI = tl.constexpr(3.14159265358979)


@triton.jit
def _direction(y, x):
    """Return the angle of a vector, from 0 to 2π, within 1e-4."""
    ax, ay = tl.abs(x), tl.abs(y)
    t = tl.minimum(ax, ay) / (tl.maximum(ax, ay) + 1e-20)
    s = t * t
    angle = t * (0.9998660 + s * (-0.3302995 + s * (0.1801410 + s * (-0.0851330 + s * 0.0208351))))
    angle = tl.where(ay > ax, PI / 2 - angle, angle)
    angle = tl.where(x < 0, PI - angle, angle)
    return tl.where(y < 0, 2 * PI - angle, angle)


@triton.jit
def _pixel(start, radius, place, BLOCK: tl.constexpr):
    """Return some pixels of the square around a point: how far each is across and down, and whether it can be read."""
    where, height, width = tl.load(place + 1), tl.load(place + 2), tl.load(place + 3)
    side = 2 * radius + 1
    at = start + tl.arange(0, BLOCK)
    i, j = at % side - radius, at // side - radius
    x, y = where % 65536 + i, where // 65536 + j
    there = (at < side * side) & (x >= 1) & (x < width - 1) & (y >= 1) & (y < height - 1)
    return i, j, y * width + x, width, there


@triton.jit
def _rise(source, at, width, there):
    """Return how fast grey values rise at pixels, and in which direction."""
    across = tl.load(source + at + 1, mask=there, other=0.0) - tl.load(source + at - 1, mask=there, other=0.0)
    down = tl.load(source + at + width, mask=there, other=0.0) - tl.load(source + at - width, mask=there, other=0.0)
    return tl.where(there, tl.sqrt(across * across + down * down), 0.0), _direction(down, across)


@triton.jit
def directions(scales, chosen, points, places, out, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Write the histogram of directions around a point, of BINS bins; nobody's is of zeros."""
    number = tl.load(chosen + tl.program_id(0))
    bins = tl.arange(0, WIDE)
    total = tl.zeros((WIDE,), tl.float32)
    if number >= 0:
        place = places + PLACE * number
        source = scales + tl.load(place)
        sigma = 1.5 * tl.load(points + POINT * number + 4)
        radius = tl.floor(3 * sigma + 0.5).to(tl.int32)
        for start in range(0, (2 * radius + 1) * (2 * radius + 1), BLOCK):
            i, j, at, width, there = _pixel(start, radius, place, BLOCK)
            steep, direction = _rise(source, at, width, there)
            weight = tl.exp(-(i * i + j * j).to(tl.float32) / (2 * sigma * sigma)) * steep
            into = (direction * (BINS / (2 * PI)) + 0.5).to(tl.int32) % BINS
            total += tl.sum(tl.where(into[:, None] == bins[None, :], weight[:, None], 0.0), axis=0)
    tl.store(out + tl.program_id(0) * BINS + bins, total, mask=bins < BINS)


@triton.jit
def _share(far):
    """Return how much of a pixel a bin takes that is so far from it."""
    return tl.maximum(1.0 - tl.abs(far), 0.0)


@triton.jit
def histograms(scales, of, angles, points, places, out, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Write the histograms of directions, relative to the point's own, in 4 × 4 cells around the point.

    A pixel is shared among the cells and the directions nearest to it. Its part of a bin is its part of the cell by its
    part of the direction, so that all histograms together are a product of two matrices, whose numbers are rounded to
    eleven bits.
    """
    number = tl.load(of + tl.program_id(0))
    angle = tl.load(angles + tl.program_id(0))
    place = places + PLACE * number
    source = scales + tl.load(place)
    cell = CELL * tl.load(points + POINT * number + 4)
    cosine, sine = tl.cos(angle) / cell, tl.sin(angle) / cell
    radius = tl.floor(cell * 1.4142136 * (CELLS + 1) * 0.5 + 0.5).to(tl.int32)
    cells, turns = tl.arange(0, CELLS * CELLS), tl.arange(0, WIDE)
    total = tl.zeros((CELLS * CELLS, WIDE), tl.float32)
    for start in range(0, (2 * radius + 1) * (2 * radius + 1), BLOCK):
        i, j, at, width, there = _pixel(start, radius, place, BLOCK)
        i, j = i.to(tl.float32), j.to(tl.float32)
        u, v = i * cosine + j * sine, j * cosine - i * sine
        column, row = u + (CELLS / 2 - 0.5), v + (CELLS / 2 - 0.5)
        there = there & (column > -1) & (column < CELLS) & (row > -1) & (row < CELLS)
        steep, direction = _rise(source, at, width, there)
        turned = angle - direction
        turned = tl.where(turned < 0, turned + 2 * PI, turned)
        turn = tl.minimum(turned * (TURNS / (2 * PI)), TURNS - 1e-4)
        weight = tl.exp(-(u * u + v * v) / (0.5 * CELLS * CELLS)) * steep
        by_cell = _share(row[None, :] - (cells // CELLS)[:, None]) * _share(column[None, :] - (cells % CELLS)[:, None])
        by_turn = _share(turn[:, None] - turns[None, :])
        # The last direction is beside the first.
        by_turn += tl.where(turns[None, :] == 0, _share(turn[:, None] - TURNS), 0.0)
        total = tl.dot(by_cell * weight[None, :], by_turn, total, input_precision="tf32")
    to = out + tl.program_id(0).to(tl.int64) * (CELLS * CELLS * TURNS) + cells[:, None] * TURNS + turns[None, :]
    tl.store(to, total, mask=(turns < TURNS)[None, :] & (cells >= 0)[:, None])

"""Which tiles of the similarity matrix are computed together, so that no worker holds more than some blocks of rows.

Comparing all pairs of n rows on many machines means that each pair of rows must meet in one task. The points of a
finite projective plane of order q (q a prime) are q² + q + 1 blocks of rows, and its lines are as many tasks: every
line has q + 1 points, and any two points have exactly one line in common. So each pair of blocks meets in exactly one
task, each task holds (q + 1) / (q² + q + 1) of the rows, about a q-th, and each block is read by q + 1 tasks. Within a
block, pairs are compared q + 1 times, which makes (q + 1)² / (q² + q + 1) of the work of one machine: 1.29 for q = 2,
1.19 for 5, 1.12 for 7, 1.03 for 31.
"""

from itertools import product

import numpy as np

from manifind.cluster.packing import Numbers
from manifind.errors import InvalidInput

ORDERS = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)


def lines(q: int) -> list[tuple[int, ...]]:
    """Return the lines of the projective plane of prime order `q`, each as the numbers of its points, ascending.

    Points and lines are the directions of three-dimensional space over the integers modulo q; a point lies on a line
    where their inner product is zero.
    """
    directions = [(1, a, b) for a, b in product(range(q), repeat=2)] + [(0, 1, a) for a in range(q)] + [(0, 0, 1)]
    table = np.array(directions, np.int64)
    on_line = (table @ table.T) % q == 0
    return [tuple(np.flatnonzero(row).tolist()) for row in on_line]


def blocks(n: int, q: int) -> Numbers:
    """Return where each block of n rows begins, and at the end n: blocks are of equal size, up to one."""
    return np.linspace(0, n, q * q + q + 2).astype(np.int64)


def order_for(n: int, row_bytes: int, memory: int) -> int:
    """Return the least order at which the rows of a task take no more than `memory` bytes."""
    for q in ORDERS:
        if (q + 1) / (q * q + q + 1) * n * row_bytes <= memory:
            return q
    raise InvalidInput(
        f"a worker may take {memory} bytes, too few for {n} rows of {row_bytes} bytes; give workers more memory."
    )

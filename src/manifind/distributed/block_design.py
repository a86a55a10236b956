"""Which tiles of the similarity matrix are computed together, so that no worker holds more than some blocks of rows.

Comparing all pairs of n rows on many machines means that each pair of rows must meet in one task. The points of a
finite projective plane of order q (q a prime) are q² + q + 1 blocks of rows, and its lines are as many tasks: every
line has q + 1 points, and any two points have exactly one line in common. So each pair of blocks meets in exactly one
task, each task holds (q + 1) / (q² + q + 1) of the rows, about a q-th, and each block is read by q + 1 tasks. Within a
block, pairs are compared q + 1 times, which makes (q + 1)² / (q² + q + 1) of the work of one machine: 1.29 for q = 2,
1.19 for 5, 1.12 for 7, 1.03 for 31. And each task keeps a list of each of its rows, so that a row has q + 1 to merge.

Two more fit the same numbers: of order 0, one task holds all rows, and of order 1, three tasks hold two of three blocks
each. Which order is the fastest depends on the rows and on the machines (`choose_order`).
"""

import math
from itertools import combinations, product

import numpy as np

from manifind.errors import InvalidInputError
from manifind.kernels.costs import COSTS
from manifind.remote.row_format import Numbers

ORDERS: tuple[int, ...] = (0, 1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)


def plane_lines(q: int) -> list[tuple[int, ...]]:
    """Return the lines of the projective plane of order `q`, each as the numbers of its points, ascending.

    Points and lines are the directions of three-dimensional space over the integers modulo q; a point lies on a line
    where their inner product is zero.
    """
    if q < 2:
        return list(combinations(range(q * q + q + 1), q + 1))
    directions = [(1, a, b) for a, b in product(range(q), repeat=2)] + [(0, 1, a) for a in range(q)] + [(0, 0, 1)]
    table = np.array(directions, np.int64)
    on_line = (table @ table.T) % q == 0
    return [tuple(np.flatnonzero(row).tolist()) for row in on_line]


def block_starts(n: int, q: int) -> Numbers:
    """Return where each block of n rows begins, and at the end n: blocks are of equal size, up to one."""
    return np.linspace(0, n, q * q + q + 2).astype(np.int64)


def choose_order(n: int, row_bytes: int, memory: int, machines: int) -> int:
    """Return the order by which machines compare n rows soonest, of those whose tasks fit into `memory` bytes."""
    fitting = [q for q in ORDERS if task_rows(n, q) * row_bytes <= memory]
    if not fitting:
        raise InvalidInputError(
            f"a worker may take {memory} bytes, too few for {n} rows of {row_bytes} bytes; give workers more memory."
        )
    divided = [q for q in fitting if q > 1 or n * n / 2 <= COSTS.max_unsplit_pairs]
    return min(divided or fitting, key=lambda q: estimate_cost(n, q, machines))


def task_rows(n: int, q: int) -> float:
    """Return how many of n rows a task holds."""
    return (q + 1) / (q * q + q + 1) * n


def estimate_cost(n: int, q: int, machines: int) -> float:
    """Return how long machines take to compare n rows, in pairs that one machine compares in that time."""
    rounds, m = math.ceil((q * q + q + 1) / machines), task_rows(n, q)
    return rounds * (m * m / 2 + COSTS.topk_pairs * m)

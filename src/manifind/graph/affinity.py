"""Neighbour lists → the mutual-neighbour affinity A → its symmetric normalisation S.

A keeps an edge only between regions that are in each other's lists (eq. 6), which the paper takes from Donoser and
Bischof for its robustness to noise; S = D^−1/2 A D^−1/2 (eq. 2) has its eigenvalues in [−1, 1], so that I − αS is
positive definite for α < 1. Nothing here is denser than the lists.
"""

import scipy.sparse as sp

from manifind.checks import UNIT_TOLERANCE, real_number
from manifind.errors import InvalidInput
from manifind.graph.neighbours import NOBODY, Neighbours
from manifind.kernels import Joining, backend
from manifind.types import FloatArray

SLACK = 2 * UNIT_TOLERANCE
"""How far the similarity of a pair in one list may be from that in the other."""


def mutual_affinity(neighbours: Neighbours, gamma: float = 3.0) -> sp.csr_array:
    """Build A from neighbour lists: eq. 1, 5, 6.

    Each pair that is in both lists gets the lesser of its two affinities (they differ by rounding at most), so A is
    symmetric to the bit; its diagonal is zero. Pairs of no positive affinity have no entry.

    Parameters
    ----------
    neighbours : Neighbours
        Ids (n, k) and similarities (n, k), the inner products of the pairs up to a thousandth. The lists may come from
        anywhere, and be longer ones cut short; `NOBODY` stands for no neighbour.
    gamma : float
        Exponent of the kernel.
    """
    return _affinity(neighbours, gamma, backend(), normalised=False)[0]


def normalised_affinity(
    neighbours: Neighbours, gamma: float = 3.0, *, by: Joining | None = None
) -> tuple[sp.csr_array, FloatArray]:
    """Return what `normalise` makes of `mutual_affinity`, S and the degrees, without A in between.

    `by` is the backend or the rows that do it, the default backend unless given.
    """
    return _affinity(neighbours, gamma, by or backend(), normalised=True)


def _affinity(
    neighbours: Neighbours, gamma: float, by: Joining, *, normalised: bool
) -> tuple[sp.csr_array, FloatArray]:
    ids, similarities = neighbours
    if ids.ndim != 2 or ids.shape != similarities.shape:
        raise InvalidInput(f"neighbours has shapes {ids.shape} and {similarities.shape}; give both (n, k).")
    exponent = real_number(gamma, "gamma", above=0)
    try:
        return by.affinity(ids, similarities, exponent, slack=SLACK, normalised=normalised)
    except ValueError:
        n = len(ids)
        if ids.size and (ids.min() < NOBODY or ids.max() >= n):
            raise InvalidInput(
                f"neighbours has ids from {ids.min()} to {ids.max()}; give rows from 0 to {n - 1}, or {NOBODY} for "
                "nobody."
            ) from None
        raise

"""Neighbour lists → the mutual-neighbour affinity A → its symmetric normalisation S.

A keeps an edge only between regions that are in each other's lists (eq. 6), which the paper takes from Donoser and
Bischof for its robustness to noise; S = D^−1/2 A D^−1/2 (eq. 2) has its eigenvalues in [−1, 1], so that I − αS is
positive definite for α < 1. Nothing here is denser than the lists.
"""

import scipy.sparse as sp

from manifind.checks import UNIT_TOLERANCE, check_float
from manifind.errors import InvalidInputError
from manifind.kernels import NO_NEIGHBOUR, KnnGraphBuilder, Neighbours, backend
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
        anywhere, and be longer ones cut short; `NO_NEIGHBOUR` stands for no neighbour.
    gamma : float
        Exponent of the kernel.
    """
    return _mutual_graph(neighbours, gamma, None, normalised=False)[0]


def normalised_affinity(
    neighbours: Neighbours, gamma: float = 3.0, *, builder: KnnGraphBuilder | None = None
) -> tuple[sp.csr_array, FloatArray]:
    """Return what `normalise` makes of `mutual_affinity`, S and the degrees, without A in between.

    `builder` joins the lists; by default the default backend does.
    """
    return _mutual_graph(neighbours, gamma, builder, normalised=True)


def _mutual_graph(
    neighbours: Neighbours, gamma: float, builder: KnnGraphBuilder | None, *, normalised: bool
) -> tuple[sp.csr_array, FloatArray]:
    ids, similarities = neighbours
    if ids.ndim != 2 or ids.shape != similarities.shape:
        raise InvalidInputError(f"neighbours has shapes {ids.shape} and {similarities.shape}; give both (n, k).")
    exponent = check_float(gamma, "gamma", above=0)
    try:
        if builder is not None:
            return builder.mutual_graph(neighbours, exponent, slack=SLACK, normalised=normalised)
        return backend().mutual_graph(ids, similarities, exponent, slack=SLACK, normalised=normalised)
    except ValueError:
        n = len(ids)
        if ids.size and (ids.min() < NO_NEIGHBOUR or ids.max() >= n):
            raise InvalidInputError(
                f"neighbours has ids from {ids.min()} to {ids.max()}; give rows from 0 to {n - 1}, or {NO_NEIGHBOUR} "
                "for none."
            ) from None
        raise

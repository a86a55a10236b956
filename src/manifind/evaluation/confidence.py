"""How sure a mean over some queries is: an interval for it, and a test between two methods on the same queries."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLED = 2000
"""How often queries are drawn again for an interval."""
FLIPPED = 10_000
"""How often values are swapped for a test."""
LEVEL = 0.95

Values = npt.NDArray[np.float64]


def bootstrap_ci(values: npt.ArrayLike) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean: queries drawn again, with replacement; NaN are left out."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return float("nan"), float("nan")
    drawn = np.random.default_rng(0).integers(len(known), size=(RESAMPLED, len(known)))
    low, high = np.quantile(known[drawn].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def sign_flip_test(a: Values, others: Sequence[Values]) -> Values:
    """Return the p of a paired randomisation test of one method against each of several others.

    It says how often chance alone gives so large a difference of means. If two methods were alike, it would not matter
    which of them a query's value came from. The test therefore swaps the two values of each query at random. Queries
    without a value in either method are left out.
    """
    differences = np.nan_to_num(a - np.array(others).reshape(-1, len(a)))
    signs = np.random.default_rng(0).integers(2, size=(FLIPPED, len(a))) * 2.0 - 1
    chance = np.abs(signs @ differences.T)
    # The tolerance counts equals as such, whatever order they were added up in.
    as_large = chance >= np.abs(differences.sum(axis=1)) * (1 - 1e-9) - 1e-12
    found: Values = (1 + as_large.sum(axis=0)) / (1 + FLIPPED)
    return found

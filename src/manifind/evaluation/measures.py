"""Average precision, in the definitions that the field mixes up.

``"trapezoid"`` is the area under the precision–recall curve as Oxford's own program adds it up, with precision 1 before
the first image; ``"mean"`` is the mean of the precisions at the positives; ``"mean@100"`` and ``"mean@1000"`` are that
of the first images alone. They differ by a point or more of mAP, so a figure without its definition says little.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.checks import check_choice, check_int, integers
from manifind.errors import InvalidInputError
from manifind.ranking import Ranking

DEFINITIONS = {
    "trapezoid": "average precision by the trapezoid under the precision-recall curve, as Oxford's own program has it",
    "mean": "average precision as the mean of the precisions at the positives",
    "mean@100": "average precision of the first 100 images, as Google Landmarks has it",
    "mean@1000": "average precision of the first 1,000 images, as ILIAS has it",
}


def average_precision(
    ranked: npt.ArrayLike,
    positives: npt.ArrayLike,
    junk: npt.ArrayLike = (),
    *,
    definition: str = "trapezoid",
) -> float:
    """Return the average precision of one ranking, between 0 and 1.

    Parameters
    ----------
    ranked : (r,) integers
        Images, best first. A positive that is not among them counts as never found.
    positives : integers
        The relevant images, at least one.
    junk : integers
        Images that count neither for nor against: they are ignored, as if they were not in the collection.
    definition : {"trapezoid", "mean", "mean@100", "mean@1000"}
    """
    name, _, cut = check_choice(definition, DEFINITIONS, "definition").partition("@")
    if cut:
        return average_precision_at(ranked, positives, int(cut), junk)
    ranks, _, count = _ranks(ranked, positives, junk)
    positives_before = np.arange(len(ranks))
    precision = (positives_before + 1) / (ranks + 1)
    if name == "mean":
        return float(precision.sum() / count)
    before = np.divide(positives_before, ranks, out=np.ones(len(ranks)), where=ranks > 0)
    return float(((before + precision) / 2).sum() / count)


def average_precision_at(ranked: npt.ArrayLike, positives: npt.ArrayLike, k: int, junk: npt.ArrayLike = ()) -> float:
    """Return the average precision of the first k images: the precisions at the positives among them, added up.

    The sum is divided by the number of positives, or by k where there are more: mAP@100 of Google Landmarks (Weyand et
    al., CVPR 2020) and mAP@1k of ILIAS (Kordopatis-Zilos et al., CVPR 2025). junk is ignored.
    """
    ranks, _, count = _ranks(ranked, positives, junk)
    first = ranks[ranks < check_int(k, "k")]
    return float(((np.arange(len(first)) + 1) / (first + 1)).sum() / min(count, k))


def precision_and_recall(
    ranked: npt.ArrayLike, positives: npt.ArrayLike, first: int, junk: npt.ArrayLike = ()
) -> tuple[float, float]:
    """Return the precision and the recall of the `first` images of a ranking, junk among them ignored.

    Where `first` is 0 or all of them are junk, precision is 1 and recall 0.
    """
    taken = integers(ranked, "ranked")[: check_int(first, "first", least=0)]
    ranks, _, count = _ranks(taken, positives, junk)
    kept = int((~np.isin(taken, integers(junk, "junk"))).sum())
    return (len(ranks) / kept if kept else 1.0), len(ranks) / count


def precision_at(
    ranked: npt.ArrayLike, positives: npt.ArrayLike, k: int, junk: npt.ArrayLike = (), *, last: bool = True
) -> float:
    """Return the part of the first k images that are positives, junk ignored.

    With `last`, k is no more than the rank of the last positive that was found, as in the Revisited protocol: a query
    with three positives, all found first, has precision 1 at 10.
    """
    ranks, _, _ = _ranks(ranked, positives, junk)
    if not len(ranks):
        return 0.0
    first = min(check_int(k, "k"), int(ranks[-1]) + 1) if last else check_int(k, "k")
    return float(np.count_nonzero(ranks < first) / first)


def precision_of_positives(
    ranked: npt.ArrayLike, positives: npt.ArrayLike, junk: npt.ArrayLike = ()
) -> npt.NDArray[np.float64]:
    """Return, for each of `positives`, the precision at the rank where it was found; 0 for one that was not.

    What the paper's Figures 6 and 7 compare: junk is ignored, and the positive itself counts.
    """
    ranks, images, _ = _ranks(ranked, positives, junk)
    at = dict(zip(images.tolist(), ((np.arange(len(ranks)) + 1) / (ranks + 1)).tolist(), strict=True))
    return np.array([at.get(int(image), 0.0) for image in integers(positives, "positives")], np.float64)


def _ranks(
    ranked: npt.ArrayLike, positives: npt.ArrayLike, junk: npt.ArrayLike
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.signedinteger[Any]], int]:
    """Return the ranks from 0 of the positives found, junk ignored, which they are, and how many there are."""
    distinct = np.unique(integers(positives, "positives"))
    if not len(distinct):
        raise InvalidInputError(
            "positives is empty; average precision needs at least one image that should be found.", code="no-positives"
        )
    ignored = integers(junk, "junk")
    places = integers(ranked, "ranked")
    if len(np.unique(places)) < len(places):
        raise InvalidInputError("ranked has an image twice; give each image once.", code="duplicate-image")
    both = np.intersect1d(distinct, ignored)
    if len(both):
        raise InvalidInputError(
            f"image {both[0]} is both positive and junk; it can be one of them only.", code="positive-and-junk"
        )
    kept = places[~np.isin(places, ignored)]
    ranks = np.flatnonzero(np.isin(kept, distinct))
    return ranks, kept[ranks], len(distinct)


def mean_average_precision(
    rankings: Sequence[Ranking],
    positives: Sequence[npt.ArrayLike],
    junk: Sequence[npt.ArrayLike] | None = None,
    *,
    definition: str = "trapezoid",
) -> float:
    """Return the mean of `average_precision` over queries; those without any positive are left out."""
    if junk is None:
        junk = [()] * len(rankings)
    each = [
        average_precision(ranking.images, relevant, ignored, definition=definition)
        for ranking, relevant, ignored in zip(rankings, positives, junk, strict=True)
        if np.size(relevant)
    ]
    if not each:
        raise InvalidInputError("positives is empty for every query; there is nothing to average.", code="no-positives")
    return float(np.mean(each))


N_RESAMPLES = 2000
"""Bootstrap samples of an interval."""
N_FLIPS = 10_000
"""Random sign flips of a test."""
LEVEL = 0.95

Values = npt.NDArray[np.float64]


def bootstrap_ci(values: npt.ArrayLike) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean: queries drawn again, with replacement; NaN are left out."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return float("nan"), float("nan")
    drawn = np.random.default_rng(0).integers(len(known), size=(N_RESAMPLES, len(known)))
    low, high = np.quantile(known[drawn].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def sign_flip_test(a: Values, others: Sequence[Values]) -> Values:
    """Return the p of a paired randomisation test of one method against each of several others.

    It says how often chance alone gives so large a difference of means. If two methods were alike, it would not matter
    which of them a query's value came from. The test therefore swaps the two values of each query at random. Queries
    without a value in either method are left out.
    """
    differences = np.nan_to_num(a - np.array(others).reshape(-1, len(a)))
    signs = np.random.default_rng(0).integers(2, size=(N_FLIPS, len(a))) * 2.0 - 1
    chance = np.abs(signs @ differences.T)
    # The tolerance counts equals as such, whatever order they were added up in.
    as_large = chance >= np.abs(differences.sum(axis=1)) * (1 - 1e-9) - 1e-12
    p: Values = (1 + as_large.sum(axis=0)) / (1 + N_FLIPS)
    return p

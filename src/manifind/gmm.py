"""An image's regions -> fewer: the means of its Gaussian mixture (Sec. 4.4).

Regions of an image overlap and repeat each other. A mixture of a few Gaussians is learnt on the descriptors of
each image, and its unit-normalised means stand for the image. Every component has a single variance (spherical): the
twenty-odd regions of an image cannot support the d variances of a diagonal covariance, let alone a full one.

The updates are those of ``sklearn.mixture.GaussianMixture(covariance_type="spherical")``, run on many images of equal
region count at once. A spherical mixture needs nothing but inner products, and its means are weighted sums of the m
regions: an update touches only each image's (m, m) Gram matrix, O(c m²) for c components whatever d is. What an
image becomes depends on its own regions alone, so images can be added one by one.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.checks import check_float, check_int, image_numbers, unit_vectors
from manifind.errors import ManifindWarning
from manifind.groups import Layout
from manifind.types import FloatArray, IntArray

DoubleArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

MIN_VARIANCE = 1e-6
"""Added to each variance, as scikit-learn's `reg_covar`: a component of a single region has no variance of its own."""

DUPLICATE_DISTANCE = 1e-12
"""Regions at a squared distance below this are one region twice: rounding keeps equal rows nearer than that."""

MIN_MEAN_NORM = 1e-6
"""A mean shorter than this is made of regions that cancel: its direction is rounding."""


class Compacted(NamedTuple):
    """The regions that stand for each image."""

    vectors: FloatArray
    """(n', d) unit rows."""
    image_of: IntArray
    """(n',) the number of the image that each row stands for, ascending."""
    row_of: IntArray
    """(n,) the row that each given region most likely belongs to; no row is without regions."""


def compact(
    vectors: npt.ArrayLike,
    image_of: npt.ArrayLike,
    *,
    regions_per_image: int = 5,
    max_iter: int = 100,
    tol: float = 1e-3,
    memory: int = 2**25,
) -> Compacted:
    """Represent each image by the unit-normalised means of a Gaussian mixture of its regions.

    Parameters
    ----------
    vectors : (n, d) float32
        Unit descriptors of the regions.
    image_of : (n,) int32
        The number of the image of each region, ascending; gaps are allowed.
    regions_per_image : int
        Components of each mixture. An image of no more regions than that keeps them as they are, in order. A component
        that ends without regions is dropped, as happens where an image repeats fewer different regions than that.
    max_iter : int
        Updates of an image at most; a warning says how many images would have needed more.
    tol : float
        An image has converged when an update changes its mean log-likelihood by less than this.
    memory : int
        About how many bytes of scratch beyond `vectors` and what is returned; never less than one image needs.
    """
    rows = unit_vectors(vectors, "vectors")
    image_of = image_numbers(image_of, len(rows))
    c = check_int(regions_per_image, "regions_per_image")
    max_iter = check_int(max_iter, "max_iter")
    tol = check_float(tol, "tol", above=0)
    memory = check_int(memory, "memory")

    d = rows.shape[1]
    layout = Layout.of(image_of)
    kept = np.minimum(layout.counts, c)
    first_kept = np.cumsum(kept) - kept
    means = np.empty((int(kept.sum()), d), np.float32)
    row_of = np.empty(len(rows), np.int32)
    unfinished = 0
    for images, regions in layout.equal_counts(lambda m: 12 * m * d + 24 * m * m + 64 * c * m + 24 * c * d, memory):
        m = regions.shape[1]
        places = first_kept[images, None] + np.arange(min(m, c))
        if m <= c:
            means[places] = rows[regions]
            row_of[regions] = places
            continue
        points = rows[regions].astype(np.float64)
        gram = points @ points.transpose(0, 2, 1)
        shares = one_hot(starting_regions(gram, c), m)
        shares, converged = fit_mixtures(gram, shares, d, max_iter=max_iter, tol=tol)
        means[places] = _directions(shares, points)
        posterior, _ = _update(gram, shares, d)
        row_of[regions] = np.take_along_axis(places, posterior.argmax(axis=1), axis=1)
        unfinished += int((~converged).sum())
    if unfinished:
        warnings.warn(
            f"{unfinished} of {len(layout.images)} images did not converge in max_iter={max_iter} updates; "
            "their last means are used. Raise max_iter or tol.",
            ManifindWarning,
            stacklevel=2,
        )
    image_of = np.repeat(layout.images, kept)
    used = np.zeros(len(means), np.bool_)
    used[row_of] = True
    if not used.all():
        means, image_of, row_of = means[used], image_of[used], (np.cumsum(used, dtype=np.int32) - 1)[row_of]
    return Compacted(means, image_of, row_of)


def starting_regions(gram: DoubleArray, c: int) -> Places:
    """Choose c regions of each image, each the farthest from those before it: (g, m, m) -> (g, c).

    The first is the region nearest to all others. Where an image has fewer than c different regions, the rest is −1.
    """
    g = len(gram)
    squares = np.diagonal(gram, axis1=1, axis2=2)
    distances = squares[:, :, None] + squares[:, None, :] - 2 * gram
    distances[distances < DUPLICATE_DISTANCE] = 0
    each = np.arange(g)
    chosen = np.full((g, c), -1)
    chosen[:, 0] = distances.sum(axis=2).argmin(axis=1)
    nearest = distances[each, chosen[:, 0]]
    for j in range(1, c):
        farthest = nearest.argmax(axis=1)
        chosen[:, j] = np.where(nearest[each, farthest] > 0, farthest, -1)
        np.minimum(nearest, distances[each, farthest], out=nearest)
    return chosen


def one_hot(chosen: Places, m: int) -> DoubleArray:
    """Give each component the one region chosen for it: (g, c) -> (g, c, m); −1 gives it none."""
    return np.asarray(chosen[:, :, None] == np.arange(m), np.float64)


def fit_mixtures(
    gram: DoubleArray, shares: DoubleArray, d: int, *, max_iter: int, tol: float
) -> tuple[DoubleArray, npt.NDArray[np.bool_]]:
    """Learn a mixture for each image from its Gram matrix and the regions' first shares in the components.

    Returns the (g, c, m) shares of which the learnt means are the weighted averages, and which images converged. An
    image that has converged is left alone from then on.
    """
    shares = shares.copy()
    converged = np.zeros(len(gram), np.bool_)
    active = np.arange(len(gram))
    current, likelihood = shares, np.full(len(gram), -np.inf)
    for _ in range(max_iter):
        current, risen = _update(gram, current, d)
        shares[active] = current
        going = np.abs(risen - likelihood) >= tol
        likelihood = risen
        if not going.all():
            converged[active[~going]] = True
            active, gram, current, likelihood = active[going], gram[going], current[going], likelihood[going]
        if not len(active):
            break
    return shares, converged


def _update(gram: DoubleArray, shares: DoubleArray, d: int) -> tuple[DoubleArray, DoubleArray]:
    """Estimate the mixtures from the shares, then the shares and the mean log-likelihoods from the mixtures."""
    sizes = shares.sum(axis=2) + 10 * np.finfo(np.float64).eps  # an empty component has a weight, as in scikit-learn
    averages = shares / sizes[:, :, None]
    products = averages @ gram
    mean_squares = (averages * products).sum(axis=2)
    squares = np.diagonal(gram, axis1=1, axis2=2)[:, None, :]
    variances = ((averages * squares).sum(axis=2) - mean_squares) / d + MIN_VARIANCE
    log_weights = np.log(sizes / sizes.sum(axis=1, keepdims=True))

    distances = mean_squares[:, :, None] - 2 * products + squares
    log_scales = log_weights - 0.5 * d * np.log(2 * math.pi * variances)
    log_joint = log_scales[:, :, None] - 0.5 * distances / variances[:, :, None]
    largest = log_joint.max(axis=1, keepdims=True)
    joint = np.exp(log_joint - largest)
    total = joint.sum(axis=1, keepdims=True)
    return joint / total, (largest + np.log(total))[:, 0].mean(axis=1)


def _directions(shares: DoubleArray, points: DoubleArray) -> DoubleArray:
    """Return the unit-normalised means, (g, c, d); one that cancels out gives way to the region most its own."""
    sizes = shares.sum(axis=2, keepdims=True)
    means: DoubleArray = (shares / np.where(sizes > 0, sizes, 1)) @ points
    norms = np.linalg.norm(means, axis=2, keepdims=True)
    image, component = np.nonzero(norms[:, :, 0] < MIN_MEAN_NORM)
    means[image, component] = points[image, shares[image, component].argmax(axis=1)]
    norms[image, component] = np.linalg.norm(means[image, component], axis=1, keepdims=True)
    means /= norms
    return means

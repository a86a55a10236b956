"""RANSAC without chance: the transform with the most inliers, by exhaustive and deterministic search.

Keypoints have a scale and an orientation, so each correspondence is a hypothesis for the whole transform (Philbin et
al., CVPR 2007). All hypotheses are scored; nothing is drawn at random. The best are refined: a similarity, then affine
transforms, then a homography where enough inliers carry one.

The compiled extension does this (``core/features/ransac.cpp``); without it NumPy does, ten times as slowly.
"""

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInputError
from manifind.geometry import transforms
from manifind.geometry.transforms import Transform
from manifind.kernels import features_compiled, ransac
from manifind.types import Box, FloatArray

Complex = npt.NDArray[np.complex64]
"""Points of the plane as numbers."""
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class RansacConfig:
    """How hypotheses are scored and refined; chosen on Oxford5k (``benchmarks/geometry.py``)."""

    hypothesis_tolerance: float = 3.0
    """Tolerance of a hypothesis, in times the final one: scale and orientation of one keypoint are rough."""
    max_rotation_error: float = float(np.deg2rad(35))
    """Between a correspondence and the transform, in radians."""
    max_log_scale_error: float = float(np.log(1.8))
    """Between a correspondence and the transform, as a natural logarithm."""
    max_refined: int = 8
    """Hypotheses that are refined."""
    min_homography_inliers: int = 16
    """Inliers that carry a homography."""
    affine_rounds: int = 4
    """Affine fits before the homography, each to the inliers of the one before."""
    max_anisotropy: float = 4.0
    """How much longer than across a transform may make things along one direction."""
    max_scale: float = 20.0
    """How much a transform may enlarge or reduce."""

    def fields(self, min_inliers: int) -> dict[str, float]:
        """Return the fields that the compiled extension needs."""
        return {**asdict(self), "min_inliers": min_inliers}


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Matching keypoints of a query and an image."""

    query: FloatArray
    """(m, 2)"""
    image: FloatArray
    """(m, 2)"""
    scales: FloatArray
    """(m,): how much larger each is in the image."""
    rotations: FloatArray
    """(m,): how far each is rotated in the image, in radians."""

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True, eq=False)
class RansacResult:
    """A transform and its inliers."""

    transform: Transform
    inliers: Indices
    """Indices of correspondences."""
    distinct: int
    """How many inliers lie at distinct places in both images: several at one spot count once."""


def estimate_transform(
    matches: Correspondences,
    box: Box,
    tolerances: tuple[float, float],
    *,
    min_inliers: int = 3,
    config: RansacConfig | None = None,
) -> RansacResult | None:
    """Return the transform with the most inliers, or None where no plausible one has three.

    Parameters
    ----------
    matches : Correspondences
    box : (x0, y0, x1, y1)
        The object in the query: a transform that is implausible on it is rejected.
    tolerances : (float, float)
        The largest residual of an inlier, in pixels of the query and of the image; both must hold.
    min_inliers : int
        A transform with fewer is of no use to the caller and need not be found.
    config : RansacConfig, optional
    """
    if not (np.isfinite(matches.query).all() and np.isfinite(matches.image).all()):
        raise InvalidInputError("matching points have NaN or infinite coordinates; remove these pairs.")
    if len(matches) < max(3, min_inliers):
        return None
    estimate = _estimate_native if features_compiled() else _estimate_numpy
    return estimate(matches, box, tolerances, min_inliers, config or RansacConfig())


def _estimate_native(
    matches: Correspondences, box: Box, tolerances: tuple[float, float], min_inliers: int, config: RansacConfig
) -> RansacResult | None:
    columns = [*matches.query.T, *matches.image.T, np.log(matches.scales), matches.rotations]
    rows = np.stack(columns, axis=1).astype(np.float64)
    best = ransac(rows, box, tolerances, config.fields(min_inliers))
    return None if best is None else RansacResult(*best)


def _estimate_numpy(
    matches: Correspondences, box: Box, tolerances: tuple[float, float], min_inliers: int, config: RansacConfig
) -> RansacResult | None:
    best: RansacResult | None = None
    # A rough hypothesis may miss some inliers of the transform that it leads to.
    for inliers in _best_hypotheses(matches, tolerances, max(3, min_inliers // 2), config):
        if best is not None and len(inliers) < best.distinct:
            break
        refined = _refine(matches, inliers, box, tolerances, config)
        if refined is not None and (best is None or refined.distinct > best.distinct):
            best = refined
    return best


def _hypotheses(matches: Correspondences) -> Complex:
    """Return the scale and rotation of each correspondence as one complex factor."""
    return np.asarray(matches.scales * np.exp(1j * matches.rotations), np.complex64)


def _complex(points: FloatArray) -> Complex:
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex64)


def _best_hypotheses(
    matches: Correspondences, tolerances: tuple[float, float], min_inliers: int, config: RansacConfig
) -> list[Indices]:
    """Return the rough inliers of each of the best hypotheses."""
    a, b, factors = _complex(matches.query), _complex(matches.image), _hypotheses(matches)
    size = np.abs(factors)
    plausible = (size > 1 / config.max_scale) & (size < config.max_scale)
    anchors, factors, size = np.flatnonzero(plausible), factors[plausible], size[plausible]
    if not len(anchors):
        return []
    residuals = np.abs(factors[:, None] * (a - a[anchors, None]) - (b - b[anchors, None]))
    # A residual in the image is this much smaller in the query.
    allowed = config.hypothesis_tolerance * np.minimum(tolerances[1], tolerances[0] * size)
    consistent = residuals < allowed[:, None]
    consistent &= _consistent_frames(matches, size, np.angle(factors), config)
    counts = consistent.sum(axis=1)
    chosen: list[npt.NDArray[np.bool_]] = []
    for place in np.argsort(-counts, kind="stable"):
        if counts[place] < min_inliers or len(chosen) == config.max_refined:
            break
        # Hypotheses that share most of their inliers are refined to the same transform.
        if not any((consistent[place] & other).sum() > 0.7 * counts[place] for other in chosen):
            chosen.append(consistent[place])
    return [np.flatnonzero(inliers) for inliers in chosen]


def _consistent_frames(
    matches: Correspondences, scales: FloatArray, rotations: FloatArray, config: RansacConfig
) -> npt.NDArray[np.bool_]:
    """Return which correspondences have about the scale and rotation of each hypothesis: (hypotheses, m)."""
    scaled = np.abs(np.log(matches.scales) - np.log(scales)[:, None]) < config.max_log_scale_error
    apart = matches.rotations - rotations[:, None]
    rotated = np.abs(apart - 2 * np.pi * np.rint(apart / (2 * np.pi))) < config.max_rotation_error
    return np.asarray(scaled & rotated)


def _refine(
    matches: Correspondences, inliers: Indices, box: Box, tolerances: tuple[float, float], config: RansacConfig
) -> RansacResult | None:
    """Fit transforms to inliers and find the inliers of each fit, round after round."""
    best: RansacResult | None = None
    fit = transforms.fit_similarity
    for step in range(config.affine_rounds + 2):
        if step == 1:
            fit = transforms.fit_affine
        elif step > config.affine_rounds:
            if len(inliers) < config.min_homography_inliers:
                break
            fit = transforms.fit_homography
        if len(inliers) < 3:
            break
        transform = fit(matches.query[inliers], matches.image[inliers])
        if transform is None or transforms.is_implausible(
            transform, box, max_anisotropy=config.max_anisotropy, max_scale=config.max_scale
        ):
            break
        loose = config.hypothesis_tolerance if step == 0 else 1.5 if step == 1 else 1.0
        inliers = _inliers_of(matches, transform, (tolerances[0] * loose, tolerances[1] * loose), config)
        if loose > 1:
            continue
        result = RansacResult(transform, inliers, count_distinct(matches, inliers, tolerances))
        if len(inliers) >= 3 and (best is None or result.distinct >= best.distinct):
            best = result
    return best


def _inliers_of(
    matches: Correspondences, transform: Transform, tolerances: tuple[float, float], config: RansacConfig
) -> Indices:
    back = transforms.invert(transform)
    if back is None:
        return np.empty(0, np.intp)
    with np.errstate(invalid="ignore"):
        near = np.linalg.norm(transforms.apply(transform, matches.query) - matches.image, axis=1) <= tolerances[1]
        near &= np.linalg.norm(transforms.apply(back, matches.image) - matches.query, axis=1) <= tolerances[0]
    if near.any():
        # The transform's Jacobian at the middle of the inliers stands for all of them.
        middle = matches.query[near].mean(axis=0)
        step = 1e-2 * max(1.0, float(np.ptp(matches.query, axis=0).max()))
        three = transforms.apply(transform, middle + np.array([[0, 0], [step, 0], [0, step]]))
        slope = np.stack([three[1] - three[0], three[2] - three[0]], axis=1) / step
        scale = np.sqrt(max(1e-12, float(np.linalg.det(slope))))
        rotation = np.arctan2(slope[1, 0] - slope[0, 1], slope[0, 0] + slope[1, 1])
        scales, rotations = np.array([scale], np.float32), np.array([rotation], np.float32)
        near &= _consistent_frames(matches, scales, rotations, config)[0]
    return np.flatnonzero(near)


def count_distinct(matches: Correspondences, inliers: Indices, tolerances: tuple[float, float]) -> int:
    """Return how many inliers lie at distinct places in both images."""
    if not len(inliers):
        return 0
    counts = [
        len(np.unique((points[inliers] // max(tolerance, 1e-6)) @ np.array([1, 1j])))
        for points, tolerance in zip((matches.query, matches.image), tolerances, strict=True)
    ]
    return min(counts)

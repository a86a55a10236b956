"""Transforms of the plane as (3, 3) matrices: fitted to correspondences, applied to points, rejected if implausible."""

import numpy as np
import numpy.typing as npt

from manifind.types import Box

Transform = npt.NDArray[np.float64]
"""(3, 3): takes (x, y, 1) of the query to (x, y, 1) of the image, up to a factor."""
Points = npt.NDArray[np.floating]
"""(m, 2)"""


def apply(transform: Transform, points: Points) -> npt.NDArray[np.float64]:
    """Return where a transform takes points; NaN behind the image plane."""
    at = points @ transform[:2, :2].T + transform[:2, 2]
    depth = points @ transform[2, :2] + transform[2, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(depth[:, None] > 1e-9, at / depth[:, None], np.nan)


def fit_similarity(a: Points, b: Points) -> Transform | None:
    """Return the least-squares rotation, scale and translation from points a to points b; None if degenerate."""
    z, w = _complex(a), _complex(b)
    centred, target = z - z.mean(), w - w.mean()
    size = float((np.abs(centred) ** 2).sum())
    if size < 1e-9:
        return None
    factor = (centred.conj() @ target) / size
    shift = w.mean() - factor * z.mean()
    return np.array([[factor.real, -factor.imag, shift.real], [factor.imag, factor.real, shift.imag], [0, 0, 1]])


def fit_affine(a: Points, b: Points) -> Transform | None:
    """Return the least-squares affine transform from points a to points b; None if they are collinear."""
    middle, target = a.mean(axis=0), b.mean(axis=0)
    centred = np.asarray(a - middle, np.float64)
    scatter = centred.T @ centred
    if len(a) < 3 or np.linalg.det(scatter) < 1e-6 * np.trace(scatter) ** 2 + 1e-12:
        return None
    linear = np.linalg.solve(scatter, centred.T @ (b - target)).T
    transform = np.eye(3)
    transform[:2, :2] = linear
    transform[:2, 2] = target - linear @ middle
    return transform


def fit_homography(a: Points, b: Points) -> Transform | None:
    """Return the homography from points a to points b by the normalized DLT (Hartley, PAMI 1997)."""
    if len(a) < 4:
        return None
    from_a, from_b = _normalization(a), _normalization(b)
    if from_a is None or from_b is None:
        return None
    p, q = apply(from_a, a), apply(from_b, b)
    ones, zeros = np.ones((len(p), 1)), np.zeros((len(p), 3))
    rows = np.concatenate(
        [
            np.hstack([p, ones, zeros, -q[:, :1] * p, -q[:, :1]]),
            np.hstack([zeros, p, ones, -q[:, 1:] * p, -q[:, 1:]]),
        ]
    )
    transform = np.linalg.inv(from_b) @ np.linalg.eigh(rows.T @ rows)[1][:, 0].reshape(3, 3) @ from_a
    # The sign puts the points before the image plane.
    depth = float(a.mean(axis=0) @ transform[2, :2] + transform[2, 2])
    return None if abs(depth) < 1e-12 else transform / depth


def invert(transform: Transform) -> Transform | None:
    """Return the inverse transform; None if it is singular."""
    if not np.isfinite(transform).all():
        return None
    if abs(np.linalg.det(transform)) < 1e-12 * max(1e-12, np.abs(transform).max() ** 3):
        return None
    return np.asarray(np.linalg.inv(transform), np.float64)


def box_corners(box: Box) -> npt.NDArray[np.float64]:
    """Return the four corners of a box, clockwise from the upper left: (4, 2)."""
    x0, y0, x1, y1 = box
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float64)


def rounded_outline(box: Box) -> npt.NDArray[np.float64]:
    """Return points of a superellipse of degree four in a box, (32, 2).

    An object touches the sides of its box and seldom the corners. Corners of a rotated box would reach far beyond the
    object.
    """
    angles = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    x, y = (np.sign(part) * np.sqrt(np.abs(part)) for part in (np.cos(angles).round(12), np.sin(angles).round(12)))
    middle, half = np.add(box[:2], box[2:]) / 2, np.subtract(box[2:], box[:2]) / 2
    return np.asarray(middle + np.stack([x, y], axis=1) * half, np.float64)


def is_implausible(transform: Transform, box: Box, *, max_anisotropy: float, max_scale: float) -> bool:
    """Return whether a transform does to a box what no view of an object does.

    It mirrors, folds, takes a corner behind the image plane, stretches one direction by more than `max_anisotropy`
    times the other, or enlarges or reduces by more than `max_scale`, anywhere in the box.
    """
    corners = box_corners(box)
    outline = apply(transform, corners)
    if not np.isfinite(outline).all():
        return True
    larger, smaller = _singular_values(transform, corners, outline)
    if (smaller * max_anisotropy < larger).any():
        return True
    scale = np.sqrt(larger * smaller)
    if not ((scale > 1 / max_scale) & (scale < max_scale)).all():
        return True
    # A convex outline turns the same way at each corner.
    sides = np.roll(outline, -1, axis=0) - outline
    following = np.roll(sides, -1, axis=0)
    return bool((sides[:, 0] * following[:, 1] - sides[:, 1] * following[:, 0] <= 0).any())


def _singular_values(
    transform: Transform, points: npt.NDArray[np.float64], images: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the singular values of a transform's Jacobian at points; the second is negative where it mirrors."""
    depth = points @ transform[2, :2] + transform[2, 2]
    slopes = (transform[:2, :2] - images[:, :, None] * transform[2, :2]) / depth[:, None, None]
    (a, b), (c, d) = slopes.transpose(1, 2, 0)
    # They are the sum and the difference of those of the two conformal parts.
    direct, mirrored = np.hypot(a + d, c - b) / 2, np.hypot(a - d, c + b) / 2
    return direct + mirrored, direct - mirrored


def _complex(points: Points) -> npt.NDArray[np.complex128]:
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex128)


def _normalization(points: Points) -> Transform | None:
    """Return the transform that takes points to mean zero and mean distance √2."""
    middle = points.mean(axis=0)
    spread = float(np.linalg.norm(points - middle, axis=1).mean())
    if spread < 1e-9:
        return None
    by = np.sqrt(2) / spread
    return np.array([[by, 0, -by * middle[0]], [0, by, -by * middle[1]], [0, 0, 1]])


def inside_outline(outline: Points, points: Points) -> npt.NDArray[np.bool_]:
    """Return which points lie within a convex outline, whose corners go clockwise."""
    sides = np.roll(outline, -1, axis=0) - outline
    beyond = points[:, None] - outline
    return np.asarray((sides[:, 0] * beyond[..., 1] - sides[:, 1] * beyond[..., 0] >= 0).all(axis=1))

"""Maps of the plane, as (3, 3) matrices: fitted to pairs of points, applied to points, and refused where absurd."""

import numpy as np
import numpy.typing as npt

from manifind.types import Box

Map = npt.NDArray[np.float64]
"""(3, 3): takes (x, y, 1) of the query to (x, y, 1) of the photo, up to a factor."""
Points = npt.NDArray[np.floating]
"""(m, 2)"""

STRETCH = 4.0
"""How much longer than across a map may make things along one direction."""
ENLARGED = 20.0
"""How much larger or smaller a map may make things."""


def apply(to: Map, points: Points) -> npt.NDArray[np.float64]:
    """Return where a map takes points; NaN for those that it takes behind the photo."""
    at = points @ to[:2, :2].T + to[:2, 2]
    depth = points @ to[2, :2] + to[2, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(depth[:, None] > 1e-9, at / depth[:, None], np.nan)


def similarity(a: Points, b: Points) -> Map | None:
    """Return the turn, scale and shift that takes points a nearest to points b; None where the points do not say."""
    z, w = _complex(a), _complex(b)
    centred, target = z - z.mean(), w - w.mean()
    size = float((np.abs(centred) ** 2).sum())
    if size < 1e-9:
        return None
    factor = (centred.conj() @ target) / size
    shift = w.mean() - factor * z.mean()
    return np.array([[factor.real, -factor.imag, shift.real], [factor.imag, factor.real, shift.imag], [0, 0, 1]])


def affine(a: Points, b: Points) -> Map | None:
    """Return the affine map that takes points a nearest to points b; None where they lie on a line."""
    middle, target = a.mean(axis=0), b.mean(axis=0)
    centred = np.asarray(a - middle, np.float64)
    scatter = centred.T @ centred
    if len(a) < 3 or np.linalg.det(scatter) < 1e-6 * np.trace(scatter) ** 2 + 1e-12:
        return None
    linear = np.linalg.solve(scatter, centred.T @ (b - target)).T
    found = np.eye(3)
    found[:2, :2] = linear
    found[:2, 2] = target - linear @ middle
    return found


def homography(a: Points, b: Points) -> Map | None:
    """Return the homography that takes points a nearest to points b, in the algebraic sense (Hartley, PAMI 1997)."""
    if len(a) < 4:
        return None
    from_a, from_b = _normalising(a), _normalising(b)
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
    found = np.linalg.inv(from_b) @ np.linalg.eigh(rows.T @ rows)[1][:, 0].reshape(3, 3) @ from_a
    # The sign is such that the points lie before the photo.
    depth = float(a.mean(axis=0) @ found[2, :2] + found[2, 2])
    return None if abs(depth) < 1e-12 else found / depth


def inverse(of: Map) -> Map | None:
    """Return the map back; None where there is none."""
    if not np.isfinite(of).all() or abs(np.linalg.det(of)) < 1e-12 * max(1e-12, np.abs(of).max() ** 3):
        return None
    return np.asarray(np.linalg.inv(of), np.float64)


def corners(box: Box) -> npt.NDArray[np.float64]:
    """Return the four corners of a box, clockwise from the upper left: (4, 2)."""
    x0, y0, x1, y1 = box
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float64)


def rounded(box: Box) -> npt.NDArray[np.float64]:
    """Return points round a box whose corners are rounded off: a superellipse of the fourth degree, (32, 2).

    An object touches the sides of the box that is drawn round it, and seldom its corners. Of a box that is turned, the
    corners alone would reach far beyond the object.
    """
    turn = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    x, y = (np.sign(part) * np.sqrt(np.abs(part)) for part in (np.cos(turn).round(12), np.sin(turn).round(12)))
    middle, half = np.add(box[:2], box[2:]) / 2, np.subtract(box[2:], box[:2]) / 2
    return np.asarray(middle + np.stack([x, y], axis=1) * half, np.float64)


def absurd(to: Map, box: Box) -> bool:
    """Return whether a map does to a box what no view of an object does.

    It is absurd to mirror, to fold, to take a corner behind the photo, to stretch by more than `STRETCH`, and to
    enlarge or to reduce by more than `ENLARGED`, anywhere in the box.
    """
    at = corners(box)
    outline = apply(to, at)
    if not np.isfinite(outline).all():
        return True
    larger, smaller = _stretches(to, at, outline)
    if (smaller * STRETCH < larger).any():
        return True
    enlarged = np.sqrt(larger * smaller)
    if not ((enlarged > 1 / ENLARGED) & (enlarged < ENLARGED)).all():
        return True
    # A convex outline turns the same way at each corner.
    sides = np.roll(outline, -1, axis=0) - outline
    turned = np.roll(sides, -1, axis=0)
    return bool((sides[:, 0] * turned[:, 1] - sides[:, 1] * turned[:, 0] <= 0).any())


def _stretches(
    to: Map, points: npt.NDArray[np.float64], images: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return how much a map stretches at each point along its two directions; the second is negative if it mirrors."""
    depth = points @ to[2, :2] + to[2, 2]
    slopes = (to[:2, :2] - images[:, :, None] * to[2, :2]) / depth[:, None, None]
    (a, b), (c, d) = slopes.transpose(1, 2, 0)
    # The singular values of a 2 × 2 matrix are the sum and the difference of those of its two conformal parts.
    keeping, mirroring = np.hypot(a + d, c - b) / 2, np.hypot(a - d, c + b) / 2
    return keeping + mirroring, keeping - mirroring


def _complex(points: Points) -> npt.NDArray[np.complex128]:
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex128)


def _normalising(points: Points) -> Map | None:
    """Return the map that takes points to mean zero and mean distance √2."""
    middle = points.mean(axis=0)
    spread = float(np.linalg.norm(points - middle, axis=1).mean())
    if spread < 1e-9:
        return None
    by = np.sqrt(2) / spread
    return np.array([[by, 0, -by * middle[0]], [0, by, -by * middle[1]], [0, 0, 1]])

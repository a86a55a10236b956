"""The one map that most matching pairs agree on, found without chance.

Where features know their scale and angle, every pair of matching features is a guess of the whole map (Philbin et al.,
CVPR 2007): all guesses are tried, and the result depends on nothing random. Where they do not, two pairs make a guess,
and a fixed sequence of such twos is tried. The guesses that most pairs agree with are refined: a similarity, then an
affine map, then a homography where there are enough pairs to carry one.

The compiled core does this (``kernels/core/agreement.cpp``); where there is none, NumPy does, ten times as slowly.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInput
from manifind.geometry import maps
from manifind.geometry.maps import Map
from manifind.kernels import agreement, compiled
from manifind.types import Box, FloatArray

Complex = npt.NDArray[np.complex64]
"""Points of the plane as numbers."""

LOOSE = 3.0
"""How many tolerances a pair may miss a guess by: one feature's angle and scale are rough."""
TURNED = np.deg2rad(35)
"""How far the turn of a pair may be from the map's."""
SCALED = np.log(1.8)
"""How far the scale of a pair may be from the map's, as a logarithm."""
REFINED = 8
"""How many guesses are refined."""
GUESSES = 600
"""How many twos of pairs are tried where features know no scale and angle."""
HOMOGRAPHY = 16
"""How many pairs must agree before a homography is fitted."""
ROUNDS = 4
"""How many affine maps are fitted, each to those who agree with the one before, ahead of a homography."""


@dataclass(frozen=True, eq=False)
class Matches:
    """Matching points of a query and a photo."""

    a: FloatArray
    """(m, 2): the query's."""
    b: FloatArray
    """(m, 2): the photo's."""
    scales: FloatArray | None = None
    """(m,): how much larger each is in the photo; None where the kind of feature does not know."""
    turns: FloatArray | None = None
    """(m,): how far each is turned in the photo, in radians; likewise."""

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, eq=False)
class Agreement:
    """A map, and the pairs that agree with it."""

    map: Map
    inliers: npt.NDArray[np.intp]
    """Places in the matches."""
    distinct: int
    """How many of them lie at places of their own in both photos."""


def find_map(found: Matches, box: Box, tolerances: tuple[float, float], *, least: int = 3) -> Agreement | None:
    """Return the map that most pairs agree with, or None where no map is sane and carried by three pairs.

    Parameters
    ----------
    found : Matches
    box : (x0, y0, x1, y1)
        What of the query the map is to carry: a map that does something absurd to it is refused.
    tolerances : (float, float)
        How far a pair may lie from the map, in pixels of the query and of the photo; both must hold.
    least : int
        A map that fewer pairs agree with is of no use to the caller and need not be found.
    """
    if not (np.isfinite(found.a).all() and np.isfinite(found.b).all()):
        raise InvalidInput("matching points have NaN or infinite coordinates; remove these pairs.")
    if len(found) < max(3, least):
        return None
    return _by_core(found, box, tolerances, least) if compiled() else _by_numpy(found, box, tolerances, least)


def _by_core(found: Matches, box: Box, tolerances: tuple[float, float], least: int) -> Agreement | None:
    columns: list[FloatArray] = [*found.a.T, *found.b.T]
    if found.scales is not None and found.turns is not None:
        columns += [np.log(found.scales), found.turns]
    rules = {
        "loose": LOOSE,
        "turned": TURNED,
        "scaled": SCALED,
        "refined": REFINED,
        "homography": HOMOGRAPHY,
        "rounds": ROUNDS,
        "stretch": maps.STRETCH,
        "enlarged": maps.ENLARGED,
        "least": least,
    }
    best = agreement(np.stack(columns, axis=1).astype(np.float64), *_guessed(found), box, tolerances, rules)
    return None if best is None else Agreement(*best)


def _by_numpy(found: Matches, box: Box, tolerances: tuple[float, float], least: int) -> Agreement | None:
    best: Agreement | None = None
    # A rough guess may miss some of those who agree with the map that it leads to.
    for inliers in _guesses(found, tolerances, max(3, least // 2)):
        if best is not None and len(inliers) < best.distinct:
            break
        refined = _refine(found, inliers, box, tolerances)
        if refined is not None and (best is None or refined.distinct > best.distinct):
            best = refined
    return best


def _guessed(found: Matches) -> tuple[npt.NDArray[np.intp], Complex]:
    """Return guesses of the map: the pair that each starts from, and by how much it scales and turns."""
    if found.scales is not None and found.turns is not None:
        return np.arange(len(found)), (found.scales * np.exp(1j * found.turns)).astype(np.complex64)
    return _twos(_complex(found.a), _complex(found.b))


def _complex(points: FloatArray) -> Complex:
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex64)


def _guesses(found: Matches, tolerances: tuple[float, float], least: int) -> list[npt.NDArray[np.intp]]:
    """Return the pairs that agree with each of the best guesses, roughly."""
    a, b = _complex(found.a), _complex(found.b)
    anchors, factors = _guessed(found)
    size = np.abs(factors)
    sane = (size > 1 / maps.ENLARGED) & (size < maps.ENLARGED)
    anchors, factors, size = anchors[sane], factors[sane], size[sane]
    if not len(anchors):
        return []
    missed = np.abs(factors[:, None] * (a - a[anchors, None]) - (b - b[anchors, None]))
    # A miss in the photo is so much smaller in the query.
    allowed = LOOSE * np.minimum(tolerances[1], tolerances[0] * size)
    agree = missed < allowed[:, None]
    if found.scales is not None and found.turns is not None:
        agree &= _alike(found.scales, found.turns, size, np.angle(factors))
    votes = agree.sum(axis=1)
    chosen: list[npt.NDArray[np.bool_]] = []
    for place in np.argsort(-votes, kind="stable"):
        if votes[place] < least or len(chosen) == REFINED:
            break
        # Guesses that mostly the same pairs agree with are refined to the same map.
        if not any((agree[place] & other).sum() > 0.7 * votes[place] for other in chosen):
            chosen.append(agree[place])
    return [np.flatnonzero(one) for one in chosen]


def _twos(a: Complex, b: Complex) -> tuple[npt.NDArray[np.intp], Complex]:
    """Return a fixed sequence of guesses, each by two pairs."""
    m = len(a)
    if m * (m - 1) // 2 <= GUESSES:
        first, second = np.triu_indices(m, 1)
    else:
        numbers = np.random.default_rng(m)
        first = numbers.integers(0, m, GUESSES)
        second = (first + numbers.integers(1, m, GUESSES)) % m
    apart = (np.abs(a[second] - a[first]) > 1e-3) & (np.abs(b[second] - b[first]) > 1e-3)
    first, second = first[apart], second[apart]
    return first, (b[second] - b[first]) / (a[second] - a[first])


def _alike(
    pair_scales: FloatArray, pair_turns: FloatArray, scales: FloatArray, turns: FloatArray
) -> npt.NDArray[np.bool_]:
    """Return which pairs are scaled and turned about as much as each guess: (guesses, m)."""
    scaled = np.abs(np.log(pair_scales) - np.log(scales)[:, None]) < SCALED
    apart = pair_turns - turns[:, None]
    turned = np.abs(apart - 2 * np.pi * np.rint(apart / (2 * np.pi))) < TURNED
    return np.asarray(scaled & turned)


def _refine(
    found: Matches, inliers: npt.NDArray[np.intp], box: Box, tolerances: tuple[float, float]
) -> Agreement | None:
    """Fit maps to those who agree and see who agrees with them, until no more do."""
    best: Agreement | None = None
    fit = maps.similarity
    for turn in range(ROUNDS + 2):
        if turn == 1:
            fit = maps.affine
        elif turn > ROUNDS:
            if len(inliers) < HOMOGRAPHY:
                break
            fit = maps.homography
        if len(inliers) < 3:
            break
        to = fit(found.a[inliers], found.b[inliers])
        if to is None or maps.absurd(to, box):
            break
        loose = LOOSE if turn == 0 else 1.5 if turn == 1 else 1.0
        inliers = _agreeing(found, to, (tolerances[0] * loose, tolerances[1] * loose))
        if loose > 1:
            continue
        now = Agreement(to, inliers, distinct(found, inliers, tolerances))
        if len(inliers) >= 3 and (best is None or now.distinct >= best.distinct):
            best = now
    return best


def _agreeing(found: Matches, to: Map, tolerances: tuple[float, float]) -> npt.NDArray[np.intp]:
    back = maps.inverse(to)
    if back is None:
        return np.empty(0, np.intp)
    with np.errstate(invalid="ignore"):
        near = np.linalg.norm(maps.apply(to, found.a) - found.b, axis=1) <= tolerances[1]
        near &= np.linalg.norm(maps.apply(back, found.b) - found.a, axis=1) <= tolerances[0]
    if found.scales is not None and found.turns is not None and near.any():
        # What the map does around the middle of those who agree stands for what it does everywhere.
        middle = found.a[near].mean(axis=0)
        step = 1e-2 * max(1.0, float(np.ptp(found.a, axis=0).max()))
        three = maps.apply(to, middle + np.array([[0, 0], [step, 0], [0, step]]))
        slope = np.stack([three[1] - three[0], three[2] - three[0]], axis=1) / step
        scale = np.sqrt(max(1e-12, float(np.linalg.det(slope))))
        turn = np.arctan2(slope[1, 0] - slope[0, 1], slope[0, 0] + slope[1, 1])
        near &= _alike(found.scales, found.turns, np.array([scale], np.float32), np.array([turn], np.float32))[0]
    return np.flatnonzero(near)


def distinct(found: Matches, inliers: npt.NDArray[np.intp], tolerances: tuple[float, float]) -> int:
    """Return how many pairs lie at places of their own: several features at one spot are one witness."""
    if not len(inliers):
        return 0
    counts = [
        len(np.unique((points[inliers] // max(tolerance, 1e-6)) @ np.array([1, 1j])))
        for points, tolerance in zip((found.a, found.b), tolerances, strict=True)
    ]
    return min(counts)

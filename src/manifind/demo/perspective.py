"""Where points of a flat thing come to lie when it is turned and seen from the side."""

import math

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]


def view(rng: np.random.Generator, sides: Points, turn: float, tilt: float) -> Points:
    """Return where the corners of a box come to lie when it is turned and seen from the side."""
    angle = math.radians(rng.uniform(-turn, turn))
    turned = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return np.asarray((box_corners(sides) + tilt * sides * rng.uniform(-1, 1, (4, 2))) @ turned)


def box_corners(sides: Points) -> Points:
    """Return the corners of a box of these sides, clockwise from the upper left one."""
    return np.asarray(sides * np.array([(0, 0), (1, 0), (1, 1), (0, 1)]))


def homography(source: Points, target: Points) -> Points:
    """Return the (3, 3) projective map that takes four points to four others; its last entry is 1."""
    rows, values = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.append(np.linalg.solve(np.array(rows), np.array(values)), 1).reshape(3, 3)


def through(onto: Points, points: Points) -> Points:
    """Return where a projective map takes points."""
    mapped = np.column_stack([points, np.ones(len(points))]) @ onto.T
    return np.asarray(mapped[:, :2] / mapped[:, 2:])


def area(outline: Points) -> float:
    """Return the area within an outline."""
    x, y = outline.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)

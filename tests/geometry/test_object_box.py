"""The shape of an object in its box, by points that photos confirmed."""

import numpy as np
import pytest

from manifind.boxes import iou
from manifind.geometry import transforms
from manifind.geometry.object_box import PRIOR_INLIERS, fit_object_box, stretch_to_box
from manifind.types import Box

BOX = (20.0, 40.0, 120.0, 140.0)
SIZE = (400, 300)


def turned(degrees: float, to: tuple[float, float]) -> transforms.Transform:
    """The map that turns the middle of the box and takes it elsewhere."""
    angle = np.deg2rad(degrees)
    slope = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = np.eye(3)
    matrix[:2, :2], matrix[:2, 2] = slope, np.array(to) - slope @ np.array([70.0, 90.0])
    return matrix


def plain_box(to: transforms.Transform) -> Box:
    around = transforms.apply(to, transforms.rounded_outline(BOX))
    (x0, y0), (x1, y1) = around.min(axis=0).tolist(), around.max(axis=0).tolist()
    return x0, y0, x1, y1


@pytest.mark.parametrize("degrees", [0.0, 20.0, 45.0])
@pytest.mark.parametrize("shape", ["diamond", "square"])
def test_the_box_fits_the_object_however_it_fills_the_querys_box(shape: str, degrees: float) -> None:
    """Points lie within nine tenths of the object: features seldom lie on its edge."""
    rng = np.random.default_rng(3)
    square = rng.uniform(-0.9, 0.9, (300, 2))
    corners = np.array([(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
    if shape == "diamond":
        square, corners = (some @ np.array([[0.5, 0.5], [-0.5, 0.5]]) for some in (square, corners))
    to = turned(degrees, (200.0, 150.0))
    outline = transforms.apply(to, 50 * corners + (70, 90))
    truth = (*outline.min(axis=0), *outline.max(axis=0))
    found = fit_object_box(to, 50 * square + (70, 90), BOX, plain_box(to), SIZE)
    assert iou(found, truth) > 0.75
    if shape == "diamond" and degrees == 45:
        assert iou(plain_box(to), truth) < 0.4


def test_a_few_points_say_little_of_a_shape() -> None:
    to = turned(45, (200.0, 150.0))
    plain = plain_box(to)
    few = np.array([(60.0, 80.0), (80.0, 100.0)])
    at = transforms.apply(to, stretch_to_box(few, BOX))
    expected = (2 * np.array([*at.min(axis=0), *at.max(axis=0)]) + PRIOR_INLIERS * np.array(plain)) / (
        2 + PRIOR_INLIERS
    )
    np.testing.assert_allclose(fit_object_box(to, few, BOX, plain, SIZE), expected)


def test_points_are_moved_apart_until_they_touch_the_four_sides() -> None:
    at = stretch_to_box(np.array([(50.0, 60.0), (60.0, 90.0), (70.0, 70.0)]), BOX)
    np.testing.assert_allclose(at, [(20, 40), (70, 140), (120, 40 + 100 / 3)])


def test_the_box_stays_within_the_photo() -> None:
    to = turned(0, (0.0, 300.0))
    x0, y0, x1, y1 = fit_object_box(to, np.array([(20.0, 40.0), (120.0, 140.0)]), BOX, (0.0, 250.0, 50.0, 300.0), SIZE)
    assert (x0, y1) == (0, 300)
    assert x0 < x1 <= 400
    assert 0 <= y0 < y1

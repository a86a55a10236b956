from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.geometry import RansacConfig, transforms
from manifind.geometry.transforms import Transform
from tests.geometry.photographs import mapped, turned

BOX = (0.0, 0.0, 300.0, 200.0)
POINTS = np.random.default_rng(0).uniform((0, 0), (300, 200), (30, 2))

implausible = partial(
    transforms.is_implausible, max_anisotropy=RansacConfig().max_anisotropy, max_scale=RansacConfig().max_scale
)

sane = st.builds(
    turned,
    st.floats(-180, 180),
    st.floats(0.2, 5),
    st.just((150.0, 100.0)),
    st.tuples(st.floats(-500, 500), st.floats(-500, 500)),
    st.floats(-0.6, 0.6),
)


@given(sane)
def test_an_affine_transform_is_recovered_from_points_that_it_moved(to: Transform) -> None:
    found = transforms.fit_affine(POINTS, mapped(to, POINTS))
    assert found is not None
    np.testing.assert_allclose(mapped(found, POINTS), mapped(to, POINTS), atol=1e-6)
    assert not implausible(found, BOX)


@given(sane, st.floats(-5e-4, 5e-4), st.floats(-5e-4, 5e-4))
def test_a_homography_is_recovered_from_points_that_it_moved(to: Transform, across: float, down: float) -> None:
    to = to @ np.array([[1, 0, 0], [0, 1, 0], [across, down, 1]])
    found = transforms.fit_homography(POINTS, mapped(to, POINTS))
    assert found is not None
    np.testing.assert_allclose(mapped(found, POINTS), mapped(to, POINTS), atol=1e-3)


@given(st.floats(-180, 180), st.floats(0.2, 5))
def test_a_similarity_is_recovered_from_points_that_it_moved(degrees: float, scale: float) -> None:
    to = turned(degrees, scale, (0, 0), (7, -3))
    found = transforms.fit_similarity(POINTS, mapped(to, POINTS))
    assert found is not None
    np.testing.assert_allclose(found, to, atol=1e-8 * 300)


def test_collinear_points_fit_no_affine_transform() -> None:
    line = np.stack([np.arange(10.0), 2 * np.arange(10.0)], axis=1)
    assert transforms.fit_affine(line, line) is None


def test_points_at_one_place_fit_no_transform() -> None:
    place = np.full((8, 2), 5.0)
    assert transforms.fit_similarity(place, place) is None
    assert transforms.fit_affine(place, place) is None
    assert transforms.fit_homography(place, place) is None


@pytest.mark.parametrize(
    ("what", "linear"),
    [
        ("mirrors", [[-1, 0], [0, 1]]),
        ("flattens", [[1, 0], [0, 0]]),
        ("stretches", [[5, 0], [0, 1]]),
        ("blows up", [[30, 0], [0, 30]]),
        ("shrinks to a dot", [[0.01, 0], [0, 0.01]]),
        ("is no number", [[np.nan, 0], [0, 1]]),
    ],
)
def test_a_transform_is_implausible_that(what: str, linear: list[list[float]]) -> None:
    to = np.eye(3)
    to[:2, :2] = linear
    assert implausible(to, BOX), what


def test_a_homography_that_takes_a_corner_behind_the_image_is_implausible() -> None:
    assert implausible(np.array([[1, 0, 0], [0, 1, 0], [-1 / 250, 0, 1.0]]), BOX)


@given(sane, st.floats(-1e-3, 1e-3), st.floats(-1e-3, 1e-3))
def test_what_a_map_singular_values_at_a_corner_is_what_small_steps_there_show(
    to: Transform, across: float, down: float
) -> None:
    to = to @ np.array([[1, 0, 0], [0, 1, 0], [across, down, 1]])
    at = transforms.box_corners(BOX)
    larger, smaller = transforms._singular_values(to, at, transforms.apply(to, at))
    for corner, most, least in zip(at, larger, smaller, strict=True):
        here = mapped(to, [corner])[0]
        steps = (mapped(to, corner + 1e-4 * np.eye(2)) - here) / 1e-4
        np.testing.assert_allclose(np.linalg.svd(steps, compute_uv=False), [most, least], rtol=1e-2)


def test_a_rounded_outline_touches_the_sides_of_the_box_and_not_its_corners() -> None:
    box = (10.0, 20.0, 110.0, 60.0)
    points = transforms.rounded_outline(box)
    np.testing.assert_allclose([*points.min(axis=0), *points.max(axis=0)], box, atol=1e-9)
    # |x / a|⁴ + |y / b|⁴ = 1
    np.testing.assert_allclose((((points - [60, 40]) / [50, 20]) ** 4).sum(axis=1), 1, atol=1e-9)
    turned = points @ np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    corners = transforms.box_corners(box) @ np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    assert (np.ptp(turned, axis=0) < np.ptp(corners, axis=0)).all()

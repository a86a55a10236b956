import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind.geometry import maps
from tests.geometry.photographs import mapped, turned

BOX = (0.0, 0.0, 300.0, 200.0)
POINTS = np.random.default_rng(0).uniform((0, 0), (300, 200), (30, 2))

sane = st.builds(
    turned,
    st.floats(-180, 180),
    st.floats(0.2, 5),
    st.just((150.0, 100.0)),
    st.tuples(st.floats(-500, 500), st.floats(-500, 500)),
    st.floats(-0.6, 0.6),
)


@given(sane)
def test_an_affine_map_is_recovered_from_points_that_it_moved(to: maps.Map) -> None:
    found = maps.affine(POINTS, mapped(to, POINTS))
    assert found is not None
    np.testing.assert_allclose(mapped(found, POINTS), mapped(to, POINTS), atol=1e-6)
    assert not maps.absurd(found, BOX)


@given(sane, st.floats(-5e-4, 5e-4), st.floats(-5e-4, 5e-4))
def test_a_homography_is_recovered_from_points_that_it_moved(to: maps.Map, across: float, down: float) -> None:
    to = to @ np.array([[1, 0, 0], [0, 1, 0], [across, down, 1]])
    found = maps.homography(POINTS, mapped(to, POINTS))
    assert found is not None
    np.testing.assert_allclose(mapped(found, POINTS), mapped(to, POINTS), atol=1e-3)


@given(st.floats(-180, 180), st.floats(0.2, 5))
def test_a_similarity_is_recovered_from_points_that_it_moved(degrees: float, scale: float) -> None:
    to = turned(degrees, scale, (0, 0), (7, -3))
    found = maps.similarity(POINTS, mapped(to, POINTS))
    assert found is not None
    np.testing.assert_allclose(found, to, atol=1e-8 * 300)


def test_points_on_a_line_say_nothing_about_an_affine_map() -> None:
    line = np.stack([np.arange(10.0), 2 * np.arange(10.0)], axis=1)
    assert maps.affine(line, line) is None


def test_points_at_one_place_say_nothing_at_all() -> None:
    place = np.full((8, 2), 5.0)
    assert maps.similarity(place, place) is None
    assert maps.affine(place, place) is None
    assert maps.homography(place, place) is None


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
def test_a_map_is_refused_that(what: str, linear: list[list[float]]) -> None:
    to = np.eye(3)
    to[:2, :2] = linear
    assert maps.absurd(to, BOX), what


def test_a_homography_that_takes_a_corner_behind_the_photo_is_refused() -> None:
    assert maps.absurd(np.array([[1, 0, 0], [0, 1, 0], [-1 / 250, 0, 1.0]]), BOX)


@given(sane, st.floats(-1e-3, 1e-3), st.floats(-1e-3, 1e-3))
def test_what_a_map_stretches_at_a_corner_is_what_small_steps_there_show(
    to: maps.Map, across: float, down: float
) -> None:
    to = to @ np.array([[1, 0, 0], [0, 1, 0], [across, down, 1]])
    at = maps.corners(BOX)
    larger, smaller = maps._stretches(to, at, maps.apply(to, at))
    for corner, most, least in zip(at, larger, smaller, strict=True):
        here = mapped(to, [corner])[0]
        steps = (mapped(to, corner + 1e-4 * np.eye(2)) - here) / 1e-4
        np.testing.assert_allclose(np.linalg.svd(steps, compute_uv=False), [most, least], rtol=1e-2)


def test_a_rounded_box_touches_its_sides_and_not_its_corners() -> None:
    box = (10.0, 20.0, 110.0, 60.0)
    points = maps.rounded(box)
    np.testing.assert_allclose([*points.min(axis=0), *points.max(axis=0)], box, atol=1e-9)
    # |x / a|⁴ + |y / b|⁴ = 1
    np.testing.assert_allclose((((points - [60, 40]) / [50, 20]) ** 4).sum(axis=1), 1, atol=1e-9)
    turned = points @ np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    corners = maps.corners(box) @ np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    assert (np.ptp(turned, axis=0) < np.ptp(corners, axis=0)).all()

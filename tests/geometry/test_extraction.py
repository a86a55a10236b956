import numpy as np
import numpy.typing as npt
import pytest

from manifind.errors import InvalidInputError
from manifind.geometry import KINDS, extract
from tests.geometry.photographs import photograph


@pytest.mark.parametrize("kind", KINDS)
def test_features_lie_in_the_box_and_have_unit_descriptors(kind: str) -> None:
    box = (100.0, 50.0, 300.0, 260.0)
    features = extract(photograph("astronaut.png"), box, kind=kind, max_keypoints=200)
    assert 50 < len(features) <= 200
    assert (features.keypoints >= box[:2]).all()
    assert (features.keypoints < box[2:]).all()
    assert features.descriptors.shape == (len(features), KINDS[kind].dimension)
    np.testing.assert_allclose(np.linalg.norm(features.descriptors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pixels", [(1, 1), (3, 200), (9, 9), (64, 64)])
def test_an_even_or_tiny_photo_has_no_features_and_no_error(kind: str, pixels: tuple[int, int]) -> None:
    assert len(extract(np.full((*pixels, 3), 90, np.uint8), kind=kind)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_pixels_give_the_same_features_to_the_bit(kind: str) -> None:
    first, second = (extract(photograph("coffee.png"), kind=kind) for _ in range(2))
    for name in ("keypoints", "scales", "orientations", "descriptors"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


def test_points_are_in_pixels_of_the_photo_however_it_is_reduced() -> None:
    down, across = np.mgrid[:900, :1200]
    spot = 128 + 120 * np.exp(-((across - 919.5) ** 2 + (down - 619.5) ** 2) / (2 * 14.0**2))
    pixels = np.repeat(spot.astype(np.uint8)[:, :, None], 3, axis=2)
    for long_side in (1200, 600, 300):
        found = extract(pixels, long_side=long_side).keypoints
        assert np.linalg.norm(found - (919.5, 619.5), axis=1).min() < 4


def test_features_are_spread_over_the_photo() -> None:
    pixels = photograph("motorcycle_left.png")
    places = []
    for grid in (8, 1):
        few = extract(pixels, max_keypoints=100, grid=grid)
        places.append(len(np.unique(np.floor(few.keypoints / (few.width / 8, few.height / 8)), axis=0)))
    assert places[0] > 1.3 * places[1]


def test_fewer_keypoints_are_the_first_of_more() -> None:
    pixels = photograph("motorcycle_left.png")
    few, many = (extract(pixels, max_keypoints=count) for count in (100, 400))
    np.testing.assert_array_equal(few.keypoints[:80], many.keypoints[:80])


def test_a_small_photo_is_enlarged_and_keeps_its_coordinates() -> None:
    pixels = photograph("motorcycle_left.png")[:400, :600]
    plain, enlarged = (
        extract(pixels, max_keypoints=9_000, long_side=1_200, max_enlargement=factor) for factor in (1.0, 2.0)
    )
    assert (enlarged.width, enlarged.height) == (600, 400)
    assert len(enlarged) > 2 * len(plain)
    apart = np.linalg.norm(plain.keypoints[:, None] - enlarged.keypoints[None], axis=2).min(axis=1)
    assert np.median(apart) < 0.5


def spots(contrast: float) -> npt.NDArray[np.uint8]:
    """A photo of nine soft spots that stand out by so much, where black to white is 1."""
    down, across = np.mgrid[:300, :300]
    grey = np.full((300, 300), 0.4)
    for x in (60, 150, 240):
        for y in (60, 150, 240):
            grey += contrast * np.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * 5.0**2))
    return np.repeat(np.round(255 * grey).astype(np.uint8)[:, :, None], 3, axis=2)


def test_low_contrast_keypoints_count_where_asked_for() -> None:
    plain, low = (extract(spots(0.06), low_contrast=low) for low in (False, True))
    assert len(plain) == 0
    assert len(low) >= 9
    assert (plain.low_contrast, low.low_contrast) == (False, True)
    assert np.linalg.norm(low.keypoints - (150, 150), axis=1).min() < 2
    clear = extract(spots(0.3))
    assert len(clear) >= 9


def test_what_is_no_photo_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="uint8"):
        extract(np.zeros((5, 5, 3)))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="box"):
        extract(photograph("coffee.png"), (10, 10, 10, 50))
    with pytest.raises(InvalidInputError, match="kind"):
        extract(photograph("coffee.png"), kind="surf")

from dataclasses import replace

import numpy as np
import pytest

from manifind.errors import DamagedError, InvalidInputError
from manifind.geometry import FEATURE_BYTES, KINDS, Features, extract, pack, unpack
from manifind.geometry.packing import QUANTIZATION_LEVELS
from tests.geometry.photographs import photograph


def made(kind: str) -> Features:
    return extract(photograph("motorcycle_left.png"), kind=kind, max_keypoints=500)


@pytest.mark.parametrize("kind", KINDS)
def test_a_photo_takes_at_most_20_kb(kind: str) -> None:
    features = made(kind)
    rows = pack(features)
    assert len(features) == 500
    assert rows.shape == (500, FEATURE_BYTES)
    assert rows.nbytes <= 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unpacked_is_near_to_what_was_packed(kind: str) -> None:
    features = made(kind)
    back = unpack(pack(features), features.width, features.height, kind)
    assert np.abs(back.keypoints - features.keypoints).max() < 0.01
    assert np.abs(np.log2(back.scales / features.scales)).max() <= 0.5 / 20 + 1e-3
    apart = back.orientations - features.orientations
    assert np.abs(np.angle(np.exp(1j * apart))).max() <= np.pi / 256 + 1e-3
    np.testing.assert_allclose(np.linalg.norm(back.descriptors, axis=1), 1, atol=1e-5)
    assert np.einsum("ij,ij->i", back.descriptors, features.descriptors).mean() > 0.95


def test_a_packed_photo_may_be_unpacked_at_another_size() -> None:
    features = made("sift")
    back = unpack(pack(features), 2 * features.width, 2 * features.height, "sift")
    assert np.abs(back.keypoints / 2 - features.keypoints).max() < 0.01
    assert np.abs(np.log2(back.scales / 2 / features.scales)).max() <= 0.5 / 20 + 1e-3


def test_a_photo_without_features_is_packed_to_nothing() -> None:
    features = extract(np.zeros((60, 80, 3), np.uint8))
    assert len(features) == 0
    assert len(unpack(pack(features), 80, 60)) == 0


def test_rows_of_another_form_are_refused() -> None:
    with pytest.raises(DamagedError, match="uint8"):
        unpack(np.zeros((4, 7), np.uint8), 80, 60)
    with pytest.raises(InvalidInputError, match="size"):
        unpack(np.zeros((4, FEATURE_BYTES), np.uint8), 0, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_a_level_is_about_the_mean_of_the_coordinates_that_are_rounded_to_it(kind: str) -> None:
    """Lloyd's condition, on photographs that the levels were not chosen on."""
    levels = np.array(QUANTIZATION_LEVELS[kind])
    assert (np.diff(levels) > 0).all()
    coordinates = made(kind).descriptors.ravel()
    nearest = np.abs(coordinates[:, None] - levels).argmin(axis=1)
    means = [coordinates[nearest == number].mean() for number in range(len(levels))]
    np.testing.assert_allclose(means, levels, atol=0.012)


@pytest.mark.parametrize("kind", KINDS)
def test_a_coordinate_comes_back_as_its_nearest_level(kind: str) -> None:
    features = made(kind)
    levels = np.array(QUANTIZATION_LEVELS[kind])
    rounded = levels[np.abs(features.descriptors[:, :, None] - levels).argmin(axis=2)]
    rounded /= np.linalg.norm(rounded, axis=1, keepdims=True)
    back = unpack(pack(features), features.width, features.height, kind)
    assert (np.abs(back.descriptors - rounded) < 1e-6).mean() > 0.9999  # but for those in the middle of two


def test_a_turn_is_the_same_however_often_it_goes_round() -> None:
    angles = np.linspace(-7, 13, 500).astype(np.float32)
    features = replace(made("sift"), orientations=angles)
    back = unpack(pack(features), features.width, features.height)
    assert np.abs(np.angle(np.exp(1j * (back.orientations - angles)))).max() <= np.pi / 256 + 1e-3

"""Mirrored features, against those of the mirrored pixels; what verifies by them, against where it was laid."""

import numpy as np
import pytest

from manifind.geometry import extract, mirror, mirror_box, mirror_points, mirror_transform, verify
from manifind.geometry.transforms import apply, box_corners
from tests.geometry.photographs import photograph

FACE = (100.0, 10.0, 356.0, 266.0)


def mirrored(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pixels[:, ::-1])


@pytest.mark.parametrize("name", ["astronaut.png", "coffee.png"])
def test_mirrored_features_are_those_of_the_mirrored_photo(name: str) -> None:
    pixels = photograph(name)
    ours, truth = mirror(extract(pixels)), extract(mirrored(pixels))
    apart = np.linalg.norm(ours.keypoints[:, None] - truth.keypoints[None], axis=2)
    turned = np.abs(np.angle(np.exp(1j * (ours.orientations[:, None] - truth.orientations[None]))))
    nearest = (apart + 20 * turned).argmin(axis=1)
    rows = np.arange(len(ours))
    same = (apart[rows, nearest] < 3) & (turned[rows, nearest] < 0.1)
    assert same.mean() > 0.8  # the selection of the strongest differs at the edges of its cells
    assert (ours.descriptors[same] * truth.descriptors[nearest[same]]).sum(axis=1).mean() > 0.98
    assert np.median(np.abs(np.log(ours.scales[same] / truth.scales[nearest[same]]))) < 0.02


def test_the_mirror_of_a_mirror_is_the_photo() -> None:
    features = extract(photograph("astronaut.png"))
    twice = mirror(mirror(features))
    np.testing.assert_allclose(twice.keypoints, features.keypoints, atol=1e-4)
    np.testing.assert_array_equal(twice.descriptors, features.descriptors)
    np.testing.assert_allclose(np.exp(1j * twice.orientations), np.exp(1j * features.orientations), atol=1e-5)
    assert mirror_box(mirror_box(FACE, 512), 512) == FACE


def test_a_mirrored_object_is_verified_by_mirrored_features_alone() -> None:
    query, box = extract(photograph("astronaut.png"), FACE), FACE
    scene = photograph("motorcycle_left.png").copy()
    scene[70:326, 90:346] = photograph("astronaut.png")[10:266, 100:356]
    photo = extract(mirrored(scene))
    assert verify(query, photo, box).verified is False
    verdict = verify(mirror(query), photo, mirror_box(box, query.width))
    assert verdict.verified
    transform = mirror_transform(verdict.instances[0].transform, query.width)
    # The box was pasted at (90, 70), and the whole photo was mirrored.
    truth = [[scene.shape[1] - x, y] for x, y in box_corners((90, 70, 346, 326)).tolist()]
    np.testing.assert_allclose(apply(transform, box_corners(box)), truth, atol=4)


def test_a_transform_of_the_mirrored_photo_is_one_of_the_photo() -> None:
    rng = np.random.default_rng(0)
    transform = np.eye(3) + 0.1 * rng.standard_normal((3, 3)) * [[1, 1, 50], [1, 1, 50], [1e-3, 1e-3, 1]]
    points = rng.uniform(0, 300, (20, 2))
    there = apply(transform, mirror_points(points, 320))
    np.testing.assert_allclose(apply(mirror_transform(transform, 320), points), there, rtol=1e-4)

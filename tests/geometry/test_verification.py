from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from manifind.errors import InvalidInputError
from manifind.geometry import Features, Verdict, VerificationConfig, extract, pack, unpack, verify
from tests.geometry.photographs import UNRELATED, Map, mapped, photograph, turned, warped

BOX = (100.0, 20.0, 330.0, 270.0)
OBJECT = np.array([[100, 20], [330, 20], [330, 270], [100, 270]], float)


def query() -> Features:
    return extract(photograph("astronaut.png"), BOX)


def cut() -> np.ndarray:
    return photograph("astronaut.png")[20:270, 100:330]


def scene(to: Map, size: tuple[int, int] = (800, 700)) -> np.ndarray:
    """Lay the object where the map takes its box, in clutter of other photographs."""
    clutter = Image.fromarray(photograph("motorcycle_left.png")).resize(size)
    clutter.paste(Image.fromarray(photograph("coffee.png")).resize((size[0] // 3, size[1] // 3)), (0, 0))
    return warped(cut(), to @ turned(0, 1, (0, 0), (100, 20)), size, np.asarray(clutter))


def farthest(verdict: Verdict, to: Map) -> float:
    """Return how far the worst corner of the outline is from where the map takes it."""
    return float(np.linalg.norm(verdict.instances[0].outline - mapped(to, OBJECT), axis=1).max())


@pytest.mark.parametrize("degrees", [0, 45, 90, 135, 180, 270])
def test_an_object_is_found_however_it_is_turned(degrees: float) -> None:
    to = turned(degrees, 0.9, (215, 145), (500, 400))
    verdict = verify(query(), extract(scene(to)), BOX)
    assert verdict.verified
    assert farthest(verdict, to) < 6
    assert len(verdict.instances) == 1


@settings(max_examples=10, deadline=None)
@given(st.floats(-180, 180), st.floats(0.7, 1.6), st.floats(-0.25, 0.25), st.floats(350, 450), st.floats(320, 400))
def test_the_outline_is_where_the_object_was_laid(
    degrees: float, scale: float, shear: float, x: float, y: float
) -> None:
    to = turned(degrees, scale, (215, 145), (x, y), shear)
    verdict = verify(query(), extract(scene(to), max_keypoints=1500), BOX)
    assert verdict.verified
    assert farthest(verdict, to) < 10 * max(1, scale)


def test_a_half_hidden_object_keeps_its_whole_outline() -> None:
    to = turned(15, 1.1, (215, 145), (450, 380))
    pixels = scene(to).copy()
    pixels[:, 470:] = np.asarray(Image.fromarray(photograph("grass.png")).resize((330, 700)))
    verdict = verify(query(), extract(pixels), BOX)
    assert verdict.verified
    assert farthest(verdict, to) < 15


def test_each_instance_gets_its_own_outline() -> None:
    first, second = turned(10, 0.8, (215, 145), (200, 200)), turned(-100, 0.9, (215, 145), (580, 480))
    pixels = warped(cut(), second @ turned(0, 1, (0, 0), (100, 20)), (800, 700), scene(first))
    found = verify(query(), extract(pixels, max_keypoints=1000), BOX).instances
    assert len(found) == 2
    for to in (first, second):
        assert min(np.linalg.norm(one.outline - mapped(to, OBJECT), axis=1).max() for one in found) < 8


def test_the_box_is_round_the_outline_and_within_the_photo() -> None:
    to = turned(0, 1, (215, 145), (60, 300))
    verdict = verify(query(), extract(scene(to)), BOX)
    instance = verdict.instances[0]
    assert instance.outline[:, 0].min() < 0
    np.testing.assert_allclose(instance.box, (0, 175, 175, 425), atol=6)


def test_inliers_lie_where_the_transform_takes_them() -> None:
    photo, asked = extract(scene(turned(30, 1, (215, 145), (450, 350)))), query()
    instance = verify(asked, photo, BOX).instances[0]
    expected = mapped(instance.transform, asked.keypoints[instance.matches[:, 0]])
    assert np.linalg.norm(expected - photo.keypoints[instance.matches[:, 1]], axis=1).max() < 0.0101 * 800
    assert instance.inliers <= len(instance.matches)


def test_packed_features_verify_what_exact_ones_do() -> None:
    to = turned(70, 0.8, (215, 145), (450, 350))
    photo = extract(scene(to))
    kept = unpack(pack(photo), photo.width, photo.height)
    whole, rounded = verify(query(), photo, BOX), verify(query(), kept, BOX)
    assert rounded.verified
    assert farthest(rounded, to) < 6
    assert rounded.inliers > 0.7 * whole.inliers


def test_no_two_unrelated_photographs_verify_each_other() -> None:
    features = {name: extract(photograph(name)) for name in UNRELATED}
    for name, asked in features.items():
        others = [other for other in UNRELATED if other != name]
        assert not any(verify(asked, features[other]).verified for other in others), name


def test_noise_and_even_photos_are_never_verified() -> None:
    numbers = np.random.default_rng(0)
    photo = extract(photograph("astronaut.png"))
    for _ in range(5):
        noise = extract(numbers.integers(0, 256, (300, 300, 3), dtype=np.uint8))
        assert verify(noise, photo).verified is False
    assert verify(extract(np.full((300, 300, 3), 80, np.uint8)), photo).verified is None
    assert verify(photo, extract(np.full((300, 300, 3), 80, np.uint8))).verified is False


def test_a_query_of_one_feature_says_nothing() -> None:
    photo = extract(photograph("astronaut.png"))
    assert verify(photo[:1], photo).verified is None


def test_kinds_are_not_mixed() -> None:
    pixels = photograph("coffee.png")
    with pytest.raises(InvalidInputError, match="one kind"):
        verify(extract(pixels), replace(extract(pixels), kind="surf"))


def test_what_is_behind_the_object_at_the_edge_of_the_box_does_not_count() -> None:
    """The query's box has a strip of grass beside the object; the photo shows the grass and not the object."""
    grass, coffee = photograph("grass.png"), photograph("coffee.png")
    pixels = np.concatenate([grass[:300, :22], photograph("astronaut.png")[:300, 100:330]], axis=1)
    photo = coffee.copy()
    photo[50:350, 200:400] = grass[:300, :200]
    # Both twice as large, so that a strip of grass has points enough.
    pixels, photo = (one.repeat(2, axis=0).repeat(2, axis=1) for one in (pixels, photo))
    box = (2.0, 2.0, 502.0, 598.0)
    whole, boxed = (
        verify(extract(pixels, some), extract(photo, max_keypoints=1500, long_side=1200), some) for some in (None, box)
    )
    assert whole.verified
    assert not boxed.verified


def test_without_a_box_all_of_a_photo_is_looked_for() -> None:
    pixels = photograph("coffee.png")
    height, width = pixels.shape[:2]
    features, same = extract(pixels), extract(pixels, (0, 0, width, height))
    assert features.keypoints.tobytes() == same.keypoints.tobytes()
    (instance,) = verify(features, features).instances
    np.testing.assert_allclose(instance.outline, [(0, 0), (width, 0), (width, height), (0, height)], atol=0.01)
    np.testing.assert_allclose(instance.box, (0, 0, width, height), atol=0.01)
    assert instance.inliers > 0.5 * len(features)


@pytest.mark.parametrize("box", [(1, 2, 3), "abcd", (1, 2, 3, None), 7])
def test_what_is_no_box_is_refused(box: Any) -> None:
    with pytest.raises(InvalidInputError, match="box"):
        extract(photograph("coffee.png"), box)


@pytest.mark.parametrize(
    ("points", "similarity", "verified"),
    [(6, 0.91, False), (6, 0.92, True), (12, 0.89, False), (12, 0.90, True), (29, 0.882, False), (30, 0.882, True)],
)
def test_few_points_must_look_more_alike_than_many(points: int, similarity: float, verified: bool) -> None:
    numbers = np.random.default_rng(1)
    both = np.eye(2 * points, 128, dtype=np.float32)
    alike = similarity * both[:points] + np.float32(np.sqrt(1 - similarity**2)) * both[points:]
    at = numbers.permutation(np.stack(np.meshgrid(np.arange(20, 300, 50), np.arange(20, 300, 50)), -1).reshape(-1, 2))
    places, size, turn = at[:points].astype(np.float32), np.full(points, 10, np.float32), np.zeros(points, np.float32)
    query, photo = (Features(places, size, turn, some, 300, 300, "sift") for some in (both[:points], alike))
    found = verify(query, photo)
    assert (found.verified is True, found.inliers) == (verified, points)
    assert [one.weak for one in found.instances] == [not verified]
    assert verify(query, photo, config=VerificationConfig(appearance_gate=None)).verified


@pytest.mark.parametrize(("similarity", "verified"), [(0.92, False), (0.94, True)])
def test_four_points_that_look_alike_verify_a_part_of_a_photo_and_no_whole_one(
    similarity: float, verified: bool
) -> None:
    both = np.eye(8, 128, dtype=np.float32)
    alike = similarity * both[:4] + np.float32(np.sqrt(1 - similarity**2)) * both[4:]
    places = np.array([[100, 100], [200, 110], [110, 190], [180, 210]], np.float32)
    size, turn = np.full(4, 10, np.float32), np.zeros(4, np.float32)
    query, photo = (Features(places, size, turn, some, 300, 300, "sift") for some in (both[:4], alike))
    box = (60.0, 60.0, 240.0, 240.0)
    found = verify(query, photo, box)
    assert (found.verified is True, [one.inliers for one in found.instances]) == (verified, [4] * verified)
    assert verify(query, photo).instances == ()
    reported = verify(query, photo, box, config=VerificationConfig(min_weak_inliers=4))
    assert [one.weak for one in reported.instances] == [not verified]


@pytest.mark.parametrize(("points", "weak", "instances"), [(5, True, 1), (9, True, 2), (5, False, 2)])
def test_no_further_instance_is_looked_for_after_a_weak_one_with_few_inliers(
    points: int, weak: bool, instances: int
) -> None:
    """A photo shows the same points twice, side by side; six inliers are never weak, and four are reported."""
    numbers = np.random.default_rng(0)
    descriptors = numbers.choice([0, 0.125], size=(points, 128)).astype(np.float32)
    at = numbers.permutation(np.stack(np.meshgrid([50, 150, 250], [50, 150, 250]), axis=-1).reshape(-1, 2))[:points]
    places = np.concatenate([at, at + np.array([300, 0])]).astype(np.float32)
    size, turn = np.full(2 * points, 10, np.float32), np.zeros(2 * points, np.float32)
    query = Features(places[:points], size[:points], turn[:points], descriptors, 300, 300, "sift")
    photo = Features(places, size, turn, np.concatenate([descriptors, descriptors]), 600, 300, "sift")
    config = VerificationConfig(min_weak_inliers=4, appearance_gate=(1.0, 0.2) if weak else None)
    found = verify(query, photo, (0, 0, 300, 299), config=config)
    assert [(one.inliers, one.weak) for one in found.instances] == [(points, weak)] * instances


def grid_of_features() -> Features:
    """A query of 12 by 12 features, nine in each of 4 by 4 cells of the box from (0, 0) to (240, 240)."""
    numbers = np.random.default_rng(1)
    descriptors = np.abs(numbers.normal(size=(144, 128))).astype(np.float32)
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)
    at = np.stack(np.meshgrid(np.arange(12), np.arange(12)), axis=-1).reshape(-1, 2) * 20 + 10
    size, turn = np.full(144, 10, np.float32), np.zeros(144, np.float32)
    return Features(at.astype(np.float32), size, turn, descriptors, 400, 400, "sift")


def test_inliers_in_a_part_of_the_box_alone_are_a_weak_instance() -> None:
    asked, box = grid_of_features(), (0.0, 0.0, 240.0, 240.0)
    part = asked.within((60.0, 60.0, 120.0, 180.0))
    crowd, spread = verify(asked, part, box), verify(asked, asked[np.arange(0, 144, 7)], box)
    assert (crowd.verified, crowd.inliers, crowd.instances[0].weak) == (False, 18, True)
    assert (spread.verified, spread.instances[0].weak) == (True, False)
    # Without a box, it is a photo that is looked for: a part of it is something that both show.
    assert verify(asked, part).verified
    # A photo that ends where the part ends could not show more.
    cut = replace(part, keypoints=part.keypoints - np.array([60, 60], np.float32), width=60, height=120)
    assert verify(asked, cut, box).verified


@pytest.mark.parametrize(("more", "verified"), [(0, False), (1, True)])
def test_many_inliers_verify_an_image_though_the_box_is_loose(more: int, verified: bool) -> None:
    asked, box = grid_of_features(), (0.0, 0.0, 240.0, 240.0)
    config = VerificationConfig(sufficient_inliers=19 - more)
    found = verify(asked, asked.within((60.0, 60.0, 120.0, 180.0)), box, config=config)
    assert (found.verified, found.inliers) == (verified, 18)

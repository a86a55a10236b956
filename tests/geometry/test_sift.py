"""Our SIFT against OpenCV's: two programs by different hands find the same points and describe them alike."""

import sys

import numpy as np
import pytest

from manifind.errors import MissingExtraError
from manifind.geometry import PackedFeatures, extract, pack, sift, verify, verify_many
from manifind.geometry.features import Detected
from manifind.kernels import detect_keypoints, features_compiled
from tests.geometry.photographs import Pixels, photograph, turned, warped

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed; pip install 'manifind[sift]'")
pytestmark = pytest.mark.skipif(not features_compiled(), reason="there is no compiled core to compare with OpenCV")

PHOTOGRAPHS = ("astronaut.png", "coffee.png", "rocket.jpg")


def ours(grey: Pixels) -> Detected:
    found = detect_keypoints(grey, doubled=True)
    assert found is not None
    of, angles, descriptors = found.describe(np.arange(len(found.points)))
    return found.points[of], found.sizes[of], angles, descriptors


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_the_same_points_are_found_and_described_alike(name: str) -> None:
    grey = cv2.cvtColor(photograph(name), cv2.COLOR_RGB2GRAY)
    points, sizes, angles, descriptors = ours(grey)
    theirs = sift.opencv_features(grey)
    apart = np.linalg.norm(points[:, None] - theirs[0], axis=2)
    rotated = np.abs(np.angle(np.exp(1j * (angles[:, None] - theirs[2]))))
    alike = (apart < 1) & (np.abs(np.log2(sizes[:, None] / theirs[1])) < 0.2) & (rotated < 0.2)
    nearest = np.where(alike, apart, np.inf).argmin(axis=1)
    both = alike.any(axis=1)
    assert 0.8 < len(points) / len(theirs[0]) < 1.25
    assert both.mean() > 0.6
    same = np.einsum("ij,ij->i", descriptors[both], theirs[3][nearest[both]])
    assert np.quantile(same, 0.05) > 0.95


def test_features_of_the_core_and_of_opencv_may_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = photograph("coffee.png")
    by_core = extract(pixels)
    monkeypatch.setattr(sift, "detect_keypoints", lambda *_, **__: None)
    by_opencv = extract(pixels)
    verdict = verify(by_core, by_opencv)
    assert verdict.inliers > 60
    height, width = pixels.shape[:2]
    np.testing.assert_allclose(verdict.instances[0].outline, [(0, 0), (width, 0), (width, height), (0, height)], atol=5)


@pytest.mark.parametrize("name", ["astronaut.png", "coffee.png", "motorcycle_left.png"])
def test_photos_of_one_maker_are_verified_by_queries_of_the_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts decide a search, so the makers are compared by verdicts; their keypoints differ."""
    pixels = photograph(name)
    height, width = pixels.shape[:2]
    seen = warped(pixels, turned(25, 0.8, (width / 2, height / 2), (320, 240)), (640, 480), photograph("gravel.png"))
    box, photos = (width / 4, height / 4, 3 * width / 4, 3 * height / 4), (seen, photograph("page.png"))
    makers = []
    for find in (detect_keypoints, lambda *_, **__: None):
        monkeypatch.setattr(sift, "detect_keypoints", find)
        packed = [
            PackedFeatures(pack(extract(photo, long_side=1152)), photo.shape[1], photo.shape[0]) for photo in photos
        ]
        makers.append((extract(pixels, box, max_keypoints=700), packed))
    for query, _ in makers:
        for _, images in makers:
            shown, other = verify_many(query, images, box)
            assert (shown.verified, other.verified) == (True, False)


def test_a_point_turns_with_the_photo() -> None:
    grey = np.ascontiguousarray(cv2.cvtColor(photograph("coffee.png"), cv2.COLOR_RGB2GRAY)[:300, :300])
    points, _, angles, descriptors = ours(grey)
    rotated = ours(np.ascontiguousarray(np.rot90(grey)))
    back = np.stack([299 - rotated[0][:, 1], rotated[0][:, 0]], axis=1)
    apart = np.linalg.norm(points[:, None] - back, axis=2)
    similar = descriptors @ rotated[3].T
    nearest = np.where(apart < 0.6, similar, -1).argmax(axis=1)
    same = similar[np.arange(len(points)), nearest]
    assert (same > 0.97).mean() > 0.85
    by = np.rad2deg(np.angle(np.exp(1j * (rotated[2][nearest] - angles))))[same > 0.97]
    np.testing.assert_allclose(np.median(by), -90, atol=1)


def test_without_the_core_and_without_opencv_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sift, "detect_keypoints", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manifind\[sift\]'"):
        extract(photograph("coffee.png"))

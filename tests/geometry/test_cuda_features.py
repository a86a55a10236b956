"""Local features on a GPU: by torch on the processor and in Triton's interpreter where there is none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from manifind.errors import InvalidInputError
from manifind.geometry import Features, extract, pack, verify
from manifind.geometry.cuda import on_gpu
from manifind.geometry.extraction import spread
from manifind.kernels.cuda import unavailable_reason
from tests.geometry.agreement import agree, features_of
from tests.geometry.photographs import UNRELATED, Pixels, photograph, turned, warped
from tests.interpreted import run_interpreted

torch = pytest.importorskip("torch", reason="torch is not installed")

from manifind.geometry.cuda import octaves, sift  # noqa: E402 (need torch)

REASON = unavailable_reason()
on_a_gpu = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    most=st.integers(1, 40),
    levels=st.sampled_from([3, 10**6]),
    seed=st.integers(0, 2**16),
)
def test_the_points_of_each_photo_are_chosen_as_on_the_processor(
    counts: list[int], most: int, levels: int, seed: int
) -> None:
    """Among strengths that are often equal, and among those of points that were refused."""
    rng = np.random.default_rng(seed)
    of = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    points = rng.random((len(of), 2)).astype(np.float32)
    strengths = (rng.integers(1, levels + 1, len(of)) / levels).astype(np.float32)
    strengths[rng.random(len(of)) < 0.2] = -1
    cell = (points * 4).astype(int)
    of_point, in_cell, strong = map(torch.from_numpy, (of, cell[:, 0] * 4 + cell[:, 1], strengths))
    chosen = sift.spread(of_point, in_cell, strong, len(counts), most, 16).numpy()
    for picture, row in enumerate(chosen):
        own = np.flatnonzero((of == picture) & (strengths > 0))
        truth = own[spread(points[own], strengths[own], (0, 0, 1, 1), most, 4)]
        assert row[row >= 0].tolist() == truth.tolist()
        assert (row[len(truth) :] == -1).all()


def test_features_are_packed_as_on_the_processor(rng: np.random.Generator) -> None:
    width, height, m = 640, 481, 300
    features = Features(
        (rng.random((m, 2)) * (width, height)).astype(np.float32),
        rng.uniform(1, 90, m).astype(np.float32),
        rng.uniform(0, 2 * np.pi, m).astype(np.float32),
        rng.dirichlet(np.full(128, 0.3), m).astype(np.float32) ** 0.5,
        width,
        height,
        "sift",
    )
    arrays = features.keypoints, features.scales, features.orientations, features.descriptors
    points, scales, angles, descriptors = map(torch.from_numpy, arrays)
    size = torch.tensor([[width, height]], dtype=torch.float64)
    rows = sift.pack_features(points, scales, angles, descriptors, size, "sift")
    np.testing.assert_array_equal(rows.numpy(), pack(features))


def test_a_histogram_of_directions_has_its_peaks_where_it_is_largest() -> None:
    """A wave of one period has one peak, one of two periods has two; nothing has none."""
    around = torch.arange(36) * (2 * np.pi / 36)
    bins = torch.stack([1 + torch.cos(around - 1.23), 1 + torch.cos(2 * (around - 0.7)), torch.zeros(36)])
    angles = sift.peaks(bins)
    assert angles[0][angles[0] >= 0].tolist() == pytest.approx([1.23], abs=1e-2)
    assert angles[1][angles[1] >= 0].tolist() == pytest.approx([0.7, 0.7 + np.pi], abs=1e-2)
    assert (angles[2] < 0).all()


def test_every_pixel_of_every_layer_is_of_one_picture() -> None:
    first = np.array([[40, 30], [11, 90], [25, 61]])
    pyramid = octaves.Octaves(first, np.array([False, False, True]))
    assert [own.tolist() for own in pyramid.sizes] == [
        [[40, 30], [0, 0], [25, 61]],
        [[20, 15], [0, 0], [12, 30]],
    ]
    segments = pyramid.segments
    covered = np.zeros(3 * pyramid.begins[-1], int)
    for start, _, _, height, width, *_ in segments.tolist():
        covered[start : start + height * width] += 1
    assert covered.max() == 1
    assert covered.sum() == 3 * sum(int(own.prod(axis=1).sum()) for own in pyramid.sizes)
    assert (np.diff(segments[:, 0]) >= 0).all()


def test_blurs_follow_each_other_to_twice_the_first_scale() -> None:
    """What is blurred twice is blurred by the root of the sum of squares: from 1.6 to 3.2 in three steps."""
    _, weights = octaves.blurs()
    at = np.arange(-15, 16)
    variances = [(np.concatenate([row[:0:-1], row]) * at**2).sum() for row in weights[:, 0].astype(float)]
    np.testing.assert_allclose(weights.sum(axis=2) * 2 - weights[:, :, 0], 1, atol=1e-6)
    assert 0.5**2 + variances[0] == pytest.approx(1.6**2, rel=0.03)
    assert 1.6**2 + sum(variances[1:4]) == pytest.approx(3.2**2, rel=0.03)


def test_a_kind_that_the_gpu_does_not_know_is_named() -> None:
    with pytest.raises(InvalidInputError, match="kind surf is none of sift"):
        on_gpu("surf", 500)


def test_the_kernels_find_in_the_interpreter_what_the_core_finds() -> None:
    run_interpreted("tests.geometry.interpreted_finding")


def found(photos: list[Pixels]) -> list[Features]:
    """Return the features of photos that go to the GPU together."""
    pixels = torch.from_numpy(np.concatenate([photo.reshape(-1, 3) for photo in photos])).cuda()
    made = on_gpu("sift", 500).find(pixels, np.array([photo.shape[:2] for photo in photos]))
    return [features_of(made, number, photo) for number, photo in enumerate(photos)]


@on_a_gpu
def test_on_a_gpu_features_are_those_of_the_processor() -> None:
    """Photographs of many sizes together: reduced, as they are, doubled, high, wide, tiny and even ones."""
    photos = [photograph(name) for name in UNRELATED]
    for size in ((2000, 1500), (300, 1100), (1023, 768), (200, 150), (90, 60), (5, 7)):
        resized = Image.fromarray(photograph("coffee.png")).resize(size, Image.Resampling.BICUBIC)
        photos.append(np.asarray(resized))
    photos.append(np.full((300, 400, 3), 90, np.uint8))
    for number, (photo, there) in enumerate(zip(photos, found(photos), strict=True)):
        here = extract(photo)
        assert abs(len(here) - len(there)) <= 0.02 * len(here), number
        if len(here):
            agree(here, there)


@on_a_gpu
def test_on_a_gpu_verdicts_are_those_of_the_processor() -> None:
    photos = [photograph(name) for name in ("astronaut.png", "coffee.png", "rocket.jpg", "chelsea.png", "grass.png")]
    seen = [warped(one, turned(20, 0.7, (250, 200), (240, 210)), (500, 420), photos[4]) for one in photos[:4]]
    here, there = ([extract(one) for one in photos + seen], found(photos + seen))
    for query in range(4):
        for other in range(4, 9):
            truth = verify(here[query], here[other])
            for one, two in ((here, there), (there, here), (there, there)):
                verdict = verify(one[query], two[other])
                assert verdict.verified == truth.verified == (other == query + 5)
                if truth.verified:
                    assert verdict.inliers == pytest.approx(truth.inliers, rel=0.1)


@on_a_gpu
def test_on_a_gpu_the_same_pixels_give_the_same_features_to_the_bit() -> None:
    photos = [photograph("coffee.png"), photograph("rocket.jpg")]
    for one, other in zip(found(photos), found(photos), strict=True):
        for name in ("keypoints", "scales", "orientations", "descriptors"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()

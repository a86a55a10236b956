"""The kernels of SIFT stay within their memory: photos between inaccessible pages, of odd sizes, and rounded samples.

`scripts/sanitize` runs these with AddressSanitizer, which also watches variables on the stack.
"""

import ctypes
import mmap
import sys
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from manifind.kernels import detect_keypoints, features_compiled

pytestmark = pytest.mark.skipif(not features_compiled(), reason="there is no compiled core")

Pixels = npt.NDArray[np.uint8]
SIZES = [
    (side, other) for side in (1, 2, 3, 11, 12, 13, 16, 17, 31, 32, 33, 47, 64, 65) for other in (1, 12, 15, 40, 97)
]


def levels() -> list[str]:
    if not features_compiled():
        return []
    from manifind.kernels import _features

    return list(_features.levels())


@pytest.fixture(params=levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    from manifind.kernels import _features

    before = _features.level()
    _features.use_level(request.param)
    yield request.param
    _features.use_level(before)


def smooth_noise(seed: int, height: int, width: int) -> Pixels:
    """Noise blurred over 5 × 5 pixels, from black to white: full of keypoints."""
    noise = np.random.default_rng(seed).random((height + 4, width + 4))
    blurred = sum(noise[y : y + height, x : x + width] for y in range(5) for x in range(5))
    blurred = np.asarray(blurred) - np.min(blurred)
    return (255 * blurred / max(float(np.max(blurred)), 1e-9)).astype(np.uint8)


def contents(height: int, width: int) -> dict[str, Pixels]:
    y, x = np.mgrid[:height, :width]
    return {
        "smooth noise": smooth_noise(height * 1000 + width, height, width),
        "noise": np.random.default_rng(width).integers(0, 256, (height, width), dtype=np.uint8),
        "black": np.zeros((height, width), np.uint8),
        "chessboard": np.where((x // 3 + y // 3) % 2, 255, 0).astype(np.uint8),
    }


def features_of(grey: Pixels, doubled: bool) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    found = detect_keypoints(grey, doubled=doubled, contrast=0.005)
    assert found is not None
    _, _, descriptors = found.describe(np.arange(len(found.points)))
    return found.points, descriptors


class GuardedPages:
    """Memory between two inaccessible pages."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self.length = -(-size // page) * page
        self.memory = mmap.mmap(-1, self.length + 2 * page)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc = ctypes.CDLL(None, use_errno=True)
        for at in (self.start, self.start + page + self.length):
            assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0) == 0

    def place(self, grey: Pixels, *, at_end: bool) -> Pixels:
        """Copy a photo to the first or the last bytes."""
        begin = mmap.PAGESIZE + (self.length - grey.size if at_end else 0)
        array = np.frombuffer(self.memory, np.uint8, grey.size, begin).reshape(grey.shape)
        array[...] = grey
        return array


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect is called as Linux has it")
@pytest.mark.usefixtures("level")
def test_nothing_is_read_before_or_after_a_photo() -> None:
    pages = GuardedPages(65 * 97)
    for height, width in SIZES:
        for content, grey in contents(height, width).items():
            for doubled in (False, True):
                points, descriptors = features_of(grey, doubled)
                for at_end in (False, True):
                    guarded_points, guarded = features_of(pages.place(grey, at_end=at_end), doubled)
                    np.testing.assert_array_equal(guarded_points, points, err_msg=content)
                    np.testing.assert_array_equal(guarded, descriptors, err_msg=content)


@pytest.mark.usefixtures("level")
def test_samples_that_are_rounded_to_the_edge_of_a_descriptor_stay_within() -> None:
    """One photo in eight has a sample one rounding below the edge, whose cell is then the one beyond."""
    for seed in range(8):
        points, descriptors = features_of(smooth_noise(seed, 300, 300), doubled=True)
        assert len(points) > 1000
        np.testing.assert_allclose(np.linalg.norm(descriptors, axis=1), 1, atol=1e-5)


def test_levels_find_the_same_keypoints_and_descriptors() -> None:
    from manifind.kernels import _features

    before, grey = _features.level(), smooth_noise(3, 257, 319)
    try:
        found = []
        for name in levels():
            _features.use_level(name)
            found.append(features_of(grey, doubled=True))
    finally:
        _features.use_level(before)
    for points, descriptors in found:
        apart = np.linalg.norm(points[:, None] - found[0][0], axis=2)
        assert (apart.min(axis=1) < 1e-2).mean() > 0.99
        assert abs(len(descriptors) - len(found[0][1])) <= len(descriptors) // 100


def test_threads_at_once_describe_as_one_does() -> None:
    photos = [smooth_noise(seed, 150 + 7 * seed, 180 - 11 * seed) for seed in range(6)]
    expected = [features_of(grey, doubled=True)[1] for grey in photos]
    results: list[npt.NDArray[np.float32] | None] = [None] * len(photos)

    def describe(number: int) -> None:
        results[number] = features_of(photos[number], doubled=True)[1]

    threads = [threading.Thread(target=describe, args=(number,)) for number in range(len(photos))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result, descriptors in zip(results, expected, strict=True):
        assert result is not None
        np.testing.assert_array_equal(result, descriptors)

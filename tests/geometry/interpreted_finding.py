"""The kernels that find local features in Triton's interpreter: with TRITON_INTERPRET=1, by `test_cuda_features`."""

import warnings
from dataclasses import replace

import numpy as np
import torch
from triton.runtime import interpreter

from manifind.geometry import KINDS, Features, extract, pack, sift, verify
from manifind.geometry.cuda import sift as on_gpu
from tests.geometry.agreement import agree, features_of
from tests.geometry.photographs import Pixels, photograph, turned, warped

warnings.simplefilter("ignore")

MOST = 24


def found(photos: list[Pixels]) -> list[Features]:
    """Return the features of photos that lie one after the other; what an index keeps of them is what `pack` makes."""
    pixels = torch.from_numpy(np.concatenate([photo.reshape(-1, 3) for photo in photos]))
    sizes = np.array([photo.shape[:2] for photo in photos])
    finder = on_gpu.Finder(MOST)
    made = finder.find(pixels, sizes)
    features = [features_of(made, number, photo) for number, photo in enumerate(photos)]
    finder.find = lambda *_: made  # type: ignore[method-assign]
    for kept, one in zip(finder(pixels, sizes), features, strict=True):
        np.testing.assert_array_equal(kept, pack(one))
    return features


def compare() -> None:
    """A photo that is reduced, the same turned and enlarged, one that is doubled, and one that is too small.

    The two of one thing are verified by whichever features, and no other two are.
    """
    photo = photograph("gravel.png")[:90, :120]
    seen = warped(photo, turned(25, 1.1, (60, 45), (45, 45)), (90, 90))
    photos = [photo, seen, photograph("brick.png")[40:100, 30:90], photograph("brick.png")[:6, :90]]
    here, there = [extract(one, max_keypoints=MOST) for one in photos], found(photos)
    counts = [len(one) for one in here]
    assert counts == [len(one) for one in there]
    assert counts[:2] == [MOST, MOST]
    assert counts[2] > counts[3] == 0
    for one, other in zip(here[:3], there[:3], strict=True):
        agree(one, other)
    vars(sift)["detect_keypoints"] = lambda *_, **__: None  # as where the extension was not compiled
    by_opencv = [extract(one, max_keypoints=MOST) for one in photos[:3]]
    for queries in (here, there, by_opencv):
        for collection in (here, there, by_opencv):
            assert verify(queries[0], collection[1]).verified
            assert not verify(queries[0], collection[2]).verified


if __name__ == "__main__":
    torch.set_num_threads(1)
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)  # it makes every sum twice
    KINDS["sift"] = replace(KINDS["sift"], long_side=100)
    sift.MAX_DOUBLED_PIXELS = 4_000
    on_gpu.BLOCK, on_gpu.CANDIDATES = 2**14, 2**12
    on_gpu.ORIENTATION_LAUNCH = on_gpu.DESCRIPTOR_LAUNCH = 2**11, 1
    compare()

"""Objects planted in scenes, turned, tilted, shaded and partly hidden: what is verified, and where it is."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from threadpoolctl import threadpool_limits

from manifind.demo.scenes import Scenes, make_scenes
from manifind.geometry import extract, pack, unpack, verify


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    return make_scenes(tmp_path_factory.mktemp("scenes"), scenes=36, seed=5)


def pixels(file: Path) -> np.ndarray:
    return np.asarray(Image.open(file).convert("RGB"))


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0.0, width) * max(0.0, height)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def test_what_is_verified_shows_the_object_where_it_was_planted(scenes: Scenes) -> None:
    kept = []
    for scene in scenes.truth:
        features = extract(pixels(scenes.folder / scene.file), max_keypoints=500)
        kept.append(unpack(pack(features), features.width, features.height))
    right, found, overlaps = 0, 0, []
    with threadpool_limits(1):
        for query in scenes.queries:
            asked = extract(pixels(scenes.queries_folder / query.file), query.box, max_keypoints=700)
            for scene, photo in zip(scenes.truth, kept, strict=True):
                verdict = verify(asked, photo, query.box)
                if verdict.verified:
                    found += 1
                    if scene.shows == query.shows:
                        right += 1
                        assert scene.box is not None
                        overlaps.append(overlap(verdict.instances[0].box, scene.box))
    shown = sum(scene.shows == query.shows for query in scenes.queries for scene in scenes.truth)
    assert right >= 0.95 * found
    assert right >= 0.6 * shown
    assert np.mean(overlaps) > 0.68

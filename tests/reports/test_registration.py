"""One photo laid on another, for somebody to look at."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from manifind.errors import InvalidInputError
from manifind.index import MatchingPoints
from manifind.reports.html import SIDE, overlay, side_by_side, warped
from tests.index.conftest import texture

BOX = (40.0, 60.0, 168.0, 188.0)


def joined(to: np.ndarray) -> MatchingPoints:
    """Five points that this map takes to five others."""
    query = np.array([[50, 70], [160, 70], [160, 180], [50, 180], [100, 120]], np.float32)
    at = np.column_stack([query, np.ones(5)]) @ to.T
    return MatchingPoints(True, query, (at[:, :2] / at[:, 2:]).astype(np.float32), to, 5)


def test_the_warped_box_covers_the_same_things_in_the_photo() -> None:
    query = texture(1, 240, 320)
    photo = texture(2, 300, 500).copy()
    photo[150:278, 320:448] = query[60:188, 40:168]
    shift = np.array([[1, 0, 280], [0, 1, 90], [0, 0, 1.0]])
    seen = np.asarray(Image.open(io.BytesIO(warped(query, BOX, photo.shape[:2], joined(shift)))).convert("RGBA"))
    assert seen.shape == (300, 500, 4)
    inner = np.s_[154:274, 324:444]
    assert (seen[inner][..., 3] == 255).all()
    difference = np.abs(seen[inner][..., :3].astype(int) - photo[inner])
    assert difference.mean() < 5  # what WebP loses
    around = np.ones((300, 500), bool)
    around[146:282, 316:452] = False
    assert (seen[around][:, 3] == 0).all()


def test_large_photos_are_reduced_and_the_map_with_them() -> None:
    query = texture(1, 240, 320)
    larger = np.array([[8.0, 0, 0], [0, 8.0, 0], [0, 0, 1]])
    seen = np.asarray(Image.open(io.BytesIO(warped(query, BOX, (1920, 2560), joined(larger)))).convert("RGBA"))
    assert seen.shape[:2] == (SIDE * 3 // 4, SIDE)
    solid = np.argwhere(seen[..., 3] > 128)
    by = SIDE / 2560
    np.testing.assert_allclose(solid.min(axis=0)[::-1], [8 * 40 * by, 8 * 60 * by], atol=2)
    np.testing.assert_allclose(solid.max(axis=0)[::-1], [8 * 168 * by, 8 * 188 * by], atol=3)


def test_each_pair_of_points_has_its_line() -> None:
    query, photo = texture(1, 240, 320), texture(2, 480, 640)
    found = joined(np.array([[2.0, 0, 0], [0, 2.0, 0], [0, 0, 1]]))
    drawn = side_by_side(query, photo, found)
    lines = re.findall(r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', drawn)
    assert sorted((float(x), float(y)) for x, y, _, _ in lines) == sorted(map(tuple, found.query.tolist()))
    # Both stand at one height, so that a photo of twice the size is drawn like the query itself.
    beside = {(round(float(u) - float(x), 1), round(float(v) - float(y), 1)) for x, y, u, v in lines}
    assert beside == {(327.2, 0.0)}


def test_pages_need_no_script() -> None:
    query = texture(1, 240, 320)
    shown = overlay(query, None, query, joined(np.eye(3))) + side_by_side(query, query, joined(np.eye(3)))
    assert "<script" not in shown
    assert not re.search(r"(src|href)=\"(?!data:)", shown)
    assert shown.count('type="radio"') == 5


def test_photos_that_no_map_joins_cannot_be_laid_on_each_other() -> None:
    none = np.empty((0, 2), np.float32)
    with pytest.raises(InvalidInputError, match="no transform"):
        warped(texture(1, 24, 32), None, (24, 32), MatchingPoints(False, none, none, None, 0))

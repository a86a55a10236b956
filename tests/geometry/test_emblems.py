"""Emblems drawn from nothing, among photographs that do not show them: geometry finds each of them and nothing else."""

import numpy as np
import pytest
from PIL import Image, ImageDraw
from threadpoolctl import threadpool_limits

from manifind.geometry import Features, extract, pack, unpack, verify
from tests.geometry.photographs import UNRELATED, Pixels, photograph

EMBLEMS, EACH, PHOTOS = 5, 8, 70
SIDE = 160


def emblem(number: int) -> Image.Image:
    """A shield of coloured polygons, rings and letters that no other number has."""
    rng = np.random.default_rng(number)
    made = Image.new("RGB", (SIDE, SIDE), tuple(rng.integers(0, 256, 3).tolist()))
    draw = ImageDraw.Draw(made)
    for _ in range(14):
        colour = tuple(rng.integers(0, 256, 3).tolist())
        draw.polygon([tuple(at) for at in rng.integers(0, SIDE, (rng.integers(3, 6), 2)).tolist()], fill=colour)
    for _ in range(5):
        x, y = rng.integers(20, SIDE - 20, 2).tolist()
        r = int(rng.integers(6, 28))
        draw.ellipse((x - r, y - r, x + r, y + r), outline=tuple(rng.integers(0, 256, 3).tolist()), width=4)
    return made


def background(number: int) -> Image.Image:
    """A part of a photograph, another one for each number."""
    rng = np.random.default_rng(1000 + number)
    pixels = photograph(UNRELATED[number % len(UNRELATED)])
    height, width = pixels.shape[:2]
    x, y = rng.integers(0, width // 3), rng.integers(0, height // 3)
    part = Image.fromarray(pixels[y : y + 2 * height // 3, x : x + 2 * width // 3])
    return part.resize((480, 360))


def photo(number: int) -> Pixels:
    """The first forty show an emblem, turned, scaled and shifted; the others none."""
    made = background(number)
    if number < EMBLEMS * EACH:
        rng = np.random.default_rng(2000 + number)
        side = int(rng.uniform(90, 190))
        drawn = emblem(number % EMBLEMS).resize((side, side), Image.Resampling.LANCZOS)
        angle = float(rng.uniform(-180, 180))
        mask = Image.new("L", drawn.size, 255).rotate(angle, expand=True)
        turned = drawn.rotate(angle, Image.Resampling.BICUBIC, expand=True)
        at = rng.integers(0, 480 - turned.width), rng.integers(0, 360 - turned.height)
        made.paste(turned, (int(at[0]), int(at[1])), mask)
    return np.asarray(made)


@pytest.fixture(scope="module")
def kept() -> list[Features]:
    """What an index keeps of the photos."""
    return [unpack(pack(extract(photo(number), max_keypoints=500)), 480, 360) for number in range(PHOTOS)]


def test_the_photos_of_emblems_are_verified_and_no_others(kept: list[Features]) -> None:
    found = 0
    for number in range(EMBLEMS):
        asked = extract(np.asarray(emblem(number)), max_keypoints=700)
        verified = {i for i, photo in enumerate(kept) if verify(asked, photo).verified}
        shows = set(range(number, EMBLEMS * EACH, EMBLEMS))
        assert verified <= shows
        found += len(verified)
    assert found >= 38  # of 40, the smallest 90 pixels wide


def test_none_of_ten_thousand_pairs_of_unrelated_photos_is_verified() -> None:
    """Features of 15 photographs, drawn in handfuls of 80: each handful against those of other photographs."""
    rng = np.random.default_rng(0)
    whole = [extract(photograph(name), max_keypoints=500) for name in UNRELATED]
    handfuls = [
        (i, features[np.sort(rng.permutation(len(features))[:80])])
        for i, features in enumerate(whole)
        for _ in range(7)
    ]
    tried, false = 0, []
    with threadpool_limits(1):  # the products are small
        for i, one in handfuls:
            others = [(j, other) for j, other in handfuls if j != i]
            tried += len(others)
            false += [(UNRELATED[i], UNRELATED[j]) for j, other in others if verify(one, other).verified]
    assert tried > 10_000
    assert not false

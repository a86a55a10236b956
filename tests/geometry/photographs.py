"""Photographs to test geometry on, and literal warps of them: each output pixel is looked up where the map says."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
Map = npt.NDArray[np.float64]

UNRELATED = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "coins.png",
    "grass.png",
    "gravel.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "moon.png",
    "motorcycle_left.png",
    "page.png",
    "retina.jpg",
    "rocket.jpg",
)
"""Photographs inside scikit-image of which no two show the same thing."""


@cache
def photograph(name: str) -> Pixels:
    found = find_spec("skimage")
    assert found is not None
    assert found.origin is not None
    return np.asarray(Image.open(Path(found.origin).parent / "data" / name).convert("RGB"))


def warped(pixels: Pixels, to: Map, size: tuple[int, int], behind: Pixels | None = None) -> Pixels:
    """Return a photo of this width and height in which the map lays the pixels, over what is behind."""
    back = np.linalg.inv(to)
    picture = Image.fromarray(pixels)
    made = picture.transform(
        size, Image.Transform.PERSPECTIVE, (back / back[2, 2]).ravel()[:8], Image.Resampling.BICUBIC
    )
    cover = Image.new("L", picture.size, 255).transform(
        size, Image.Transform.PERSPECTIVE, (back / back[2, 2]).ravel()[:8], Image.Resampling.NEAREST
    )
    under = Image.new("RGB", size) if behind is None else Image.fromarray(behind).resize(size)
    under.paste(made, (0, 0), cover)
    return np.asarray(under)


def turned(
    degrees: float, scale: float, about: tuple[float, float], onto: tuple[float, float], shear: float = 0
) -> Map:
    """Return the map that turns, scales and shears about one point and brings it to another."""
    angle = np.deg2rad(degrees)
    linear = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ [[1, shear], [0, 1]]
    to = np.eye(3)
    to[:2, :2] = linear
    to[:2, 2] = np.array(onto) - linear @ np.array(about)
    return to


def mapped(to: Map, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return where a map takes points, one after the other."""
    rows = []
    for x, y in np.asarray(points, float):
        u, v, w = to @ np.array([x, y, 1.0])
        rows.append((u / w, v / w))
    return np.array(rows)

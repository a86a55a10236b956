"""XFeat between its network and its features: what is read off the network's maps, and where."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.ndimage import map_coordinates

from manifind.geometry import xfeat
from manifind.types import FloatArray
from tests.geometry.photographs import photograph


def between(channels: FloatArray, points: FloatArray, stride: int) -> npt.NDArray[np.float64]:
    """What SciPy finds at points of the photo, each cell's value being that of the cell's middle."""
    at = (points[:, ::-1].T + 0.5) / stride - 0.5
    return np.stack([map_coordinates(channel, at, order=1, mode="nearest") for channel in channels], axis=1)


def test_a_map_is_read_between_its_cells_and_beyond_its_edge(rng: np.random.Generator) -> None:
    channels = rng.normal(size=(5, 7, 9)).astype(np.float32)
    corners = [(0, 0), (71, 0), (0, 55), (71, 55), (3.5, 3.5), (67.5, 51.5)]
    points = np.concatenate([rng.uniform((0, 0), (72, 56), (200, 2)), corners]).astype(np.float32)
    np.testing.assert_allclose(xfeat.sample(channels, points, 8), between(channels, points, 8), atol=1e-5)


@pytest.mark.parametrize("size", [(160, 224), (131, 170)])
def test_points_are_the_bright_pixels_of_the_network_and_as_strong_as_they_are_reliable(size: tuple[int, int]) -> None:
    grey = np.ascontiguousarray(photograph("astronaut.png")[: size[0], : size[1]].mean(axis=2).astype(np.uint8))
    seen: list[tuple[FloatArray, FloatArray]] = []

    def choose(points: FloatArray, strengths: FloatArray) -> npt.NDArray[np.intp]:
        seen.append((points, strengths))
        return np.argsort(-strengths)[:40]

    found, scales, angles, descriptors = xfeat.detect(grey, choose)
    ((points, strengths),) = seen
    height, width = -(-size[0] // 32) * 32, -(-size[1] // 32) * 32
    padded = np.pad(grey, ((0, height - size[0]), (0, width - size[1])), mode="edge").astype(np.float32)
    maps, scores, reliability = xfeat.session(xfeat.NETWORK).run(None, {"photo": padded[None, None]})
    bright = {(x, y) for y, x in np.argwhere(scores[0, 0] > 0.05).tolist() if x < size[1] and y < size[0]}
    assert {(x, y) for x, y in points.tolist()} == bright
    rows, columns = points[:, 1].astype(int), points[:, 0].astype(int)
    expected = scores[0, 0][rows, columns] * between(reliability[0], points, 8)[:, 0]
    np.testing.assert_allclose(strengths, expected, atol=1e-5)
    described = between(maps[0], found, 8)
    described /= np.linalg.norm(described, axis=1, keepdims=True)
    np.testing.assert_allclose(descriptors, described, atol=1e-4)
    assert (scales == 1).all()
    assert (angles == 0).all()

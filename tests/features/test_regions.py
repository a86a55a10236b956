import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness
from manifind.errors import InvalidInputError
from manifind.features import region_grid, to_pixels

sides = st.integers(1, 60)


def literal_grid(height: int, width: int, levels: int = 3, target: float = 0.4) -> list[tuple[int, int, int, int]]:
    """R-MAC's grid as its authors compute it: centres of squares, step by step in floating point."""
    w = min(height, width)
    best, steps = math.inf, 0
    for count in range(1, 7):
        b = (max(height, width) - w) / count
        distance = abs((w**2 - w * b) / w**2 - target)
        if distance < best:
            best, steps = distance, count
    more_across = steps if height < width else 0
    more_down = steps if height > width else 0
    boxes = [(0, 0, width, height)]
    for scale in range(1, levels + 1):
        side = math.floor(2 * w / (scale + 1))
        if side == 0:
            continue
        half = math.floor(side / 2 - 1)

        def starts(length: int, count: int, side: int = side, half: int = half) -> list[int]:
            b = 0 if count == 1 else (length - side) / (count - 1)
            return [math.floor(half + at * b) - half for at in range(count)]

        down, across = starts(height, scale + more_down), starts(width, scale + more_across)
        boxes += [(x, y, x + side, y + side) for y in down for x in across]
    return boxes


def test_the_grid_is_the_literal_one_on_every_map_up_to_forty_cells() -> None:
    for height in range(1, 41):
        for width in range(1, 41):
            assert region_grid(height, width).tolist() == [list(box) for box in literal_grid(height, width)]


@given(sides, sides, st.integers(0, 5), st.sampled_from([0.2, 0.4, 0.6]))
def test_regions_are_squares_within_the_map_and_touch_its_sides(
    height: int, width: int, levels: int, overlap: float
) -> None:
    boxes = region_grid(height, width, levels=levels, overlap=overlap)
    assert boxes.dtype == np.int32
    assert boxes[0].tolist() == [0, 0, width, height]
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= [width, height]).all()
    squares = boxes[1:]
    across, down = squares[:, 2] - squares[:, 0], squares[:, 3] - squares[:, 1]
    assert (across == down).all()
    assert (across > 0).all()
    if len(squares):
        assert squares[0, :2].tolist() == [0, 0]
        # The last square of each scale is in the far corner, unless it is the scale's only one.
        ends = squares[np.append(np.diff(across) < 0, True)]
        assert all(end[2:].tolist() == [width, height] or (end[:2] == 0).all() for end in ends)


@pytest.mark.parametrize("size", [(18, 24), (24, 18), (16, 24), (24, 16)])
def test_an_ordinary_photo_has_twenty_one_regions(size: tuple[int, int]) -> None:
    assert len(region_grid(*size)) == 21


def test_regions_of_a_turned_map_are_the_turned_regions() -> None:
    upright, turned = region_grid(24, 17), region_grid(17, 24)
    assert sorted(map(tuple, upright[:, [1, 0, 3, 2]].tolist())) == sorted(map(tuple, turned.tolist()))


def test_boxes_in_pixels_cover_the_photo_from_edge_to_edge() -> None:
    cells = region_grid(17, 24)
    pixels = to_pixels(cells, (17, 24), (1080, 1536))
    assert pixels.dtype == np.float32
    assert pixels[0].tolist() == [0, 0, 1536, 1080]
    np.testing.assert_allclose(pixels, cells * np.array([64, 1080 / 17, 64, 1080 / 17]), rtol=1e-6)


@pytest.mark.skipif(not harness.at_hand(), reason=f"the Oxford5k boxes are not at {harness.FOLDER}")
def test_boxes_equal_those_of_an_independent_program_on_oxford5k() -> None:
    boxes = np.load(harness.FOLDER / "boxes.npy")
    starts = np.unique(np.load(harness.FOLDER / "image_of.npy"), return_index=True)[1]
    seen = set()
    for theirs in np.split(boxes, starts[1:]):
        width, height = theirs[0, 2:].astype(int).tolist()
        if (height, width) in seen:
            continue
        seen.add((height, width))
        size = -(-height // 32), -(-width // 32)
        np.testing.assert_allclose(to_pixels(region_grid(*size), size, (height, width)), theirs, rtol=1e-6)
    assert len(seen) > 300


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"height": 0}, "height is 0"),
        ({"width": 2.5}, "width is 2.5"),
        ({"levels": -1}, "levels is -1"),
        ({"overlap": 1.0}, "overlap is 1.0"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_in_one_sentence(wrong: dict[str, int], named: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{named}; give [^\n]*$"):
        region_grid(**{"height": 12, "width": 16, **wrong})

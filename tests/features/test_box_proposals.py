"""Boxes round what lies at a point of a photo."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifind.boxes import iou
from manifind.errors import InvalidInputError
from manifind.features.box_proposals import (
    SIDE,
    candidate_boxes,
    measure_boxes,
    nested_boxes,
    propose_boxes,
    shrink,
)


def photo(box: tuple[int, int, int, int], size: tuple[int, int] = (240, 320)) -> np.ndarray:
    """Return a disc of red and yellow stripes in a box, on noise of greens."""
    rng = np.random.default_rng(0)
    pixels = np.stack([rng.integers(20, 60, size), rng.integers(90, 150, size), rng.integers(20, 60, size)], axis=2)
    x0, y0, x1, y1 = box
    rows, columns = np.mgrid[: size[0], : size[1]]
    across, down = (2 * columns - x0 - x1 + 1) / (x1 - x0), (2 * rows - y0 - y1 + 1) / (y1 - y0)
    inside = across**2 + down**2
    stripes = np.where((columns // 12 % 2 == 0)[..., None], [220, 30, 30], [230, 190, 40])
    return np.where((inside <= 1)[..., None], stripes, pixels).astype(np.uint8)


@pytest.mark.parametrize("box", [(60, 50, 180, 170), (200, 100, 290, 200), (20, 30, 110, 90), (100, 10, 180, 220)])
def test_one_of_the_boxes_fits_an_object_that_stands_out(box: tuple[int, int, int, int]) -> None:
    pixels = photo(box)
    for across, down in ((0.5, 0.5), (0.35, 0.6), (0.6, 0.4)):
        x, y = box[0] + across * (box[2] - box[0]), box[1] + down * (box[3] - box[1])
        assert max(float(iou(one, box)) for one in propose_boxes(pixels, x, y)) > 0.6


@pytest.mark.parametrize("size", [(1, 1), (2, 300), (40, 30), (96, 96), (700, 500)])
def test_a_photo_of_any_size_has_boxes_that_lie_in_it(size: tuple[int, int]) -> None:
    pixels = np.full((*size, 3), 120, np.uint8)
    for x, y in ((0, 0), (size[1] / 2, size[0] / 2), (size[1], size[0])):
        boxes = propose_boxes(pixels, x, y)
        assert len(boxes) <= 3
        assert boxes or min(size) < 0.05 * max(size) or size == (1, 1)
        for x0, y0, x1, y1 in boxes:
            assert 0 <= x0 < x1 <= size[1]
            assert 0 <= y0 < y1 <= size[0]


@pytest.mark.parametrize("x", [float("nan"), float("inf"), "3", None])
def test_a_point_is_two_numbers(x: object) -> None:
    with pytest.raises(InvalidInputError, match="a point's place"):
        propose_boxes(photo((60, 50, 180, 170)), x, 3)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(st.integers(8, SIDE), st.integers(8, SIDE), st.data())
def test_candidates_hold_the_point(height: int, width: int, data: st.DataObject) -> None:
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    boxes = candidate_boxes((height, width), (x, y))
    assert len(boxes) == len(np.unique(boxes, axis=0))
    assert (boxes[:, 0] <= x).all()
    assert (x < boxes[:, 2]).all()
    assert (boxes[:, 1] <= y).all()
    assert (y < boxes[:, 3]).all()
    assert (boxes >= 0).all()
    assert (boxes[:, 2:] <= [width, height]).all()


def test_measurements_are_those_of_the_pixels() -> None:
    box = (60, 50, 180, 170)
    copy = shrink(photo(box))
    boxes = np.array([[18, 15, 54, 51], [25, 22, 40, 60], [0, 0, 90, 70]], np.int32)
    measured = measure_boxes(copy, boxes, (36, 33))
    area = np.array([36 * 36, 15 * 38, 90 * 70])
    assert measured["log_area"] == pytest.approx(np.log(area / (72 * 96)))
    assert measured["log_shape"] == pytest.approx(np.abs(np.log([1, 15 / 38, 90 / 70])))
    assert measured["edges"].tolist() == [0, 0, 2]
    assert measured["off_centre"][0] == 0
    # The box of the object is bordered by superpixels, and its colours are not those around.
    assert measured["straddling_small"][0] < measured["straddling_small"][1]
    assert measured["colour_contrast"][0] == max(measured["colour_contrast"])
    assert (measured["straddling_large"] >= 0).all()
    assert (measured["straddling_large"] <= 0.5 * 72 * 96 / area).all()
    assert ((measured["held"] >= 0) & (measured["held"] <= 1 + 1e-9)).all()


def test_the_other_boxes_nest_by_score() -> None:
    boxes = np.array([[10, 10, 30, 30], [0, 0, 40, 40], [5, 5, 33, 33], [12, 12, 20, 20], [60, 60, 90, 90]], np.int32)
    assert nested_boxes(boxes, np.array([9.0, 3, 5, 1, 8])) == [0, 2, 3]  # the last lies elsewhere
    assert nested_boxes(boxes, np.array([9.0, 6, 5, 1, 8])) == [0, 1, 3]
    assert nested_boxes(boxes[:1], np.array([1.0])) == [0]
    nearly = np.array([[0, 0, 10, 10], [0, 0, 13, 13]], np.int32)  # 1.69 times as large
    assert nested_boxes(nearly, np.array([2.0, 1])) == [0]


def test_a_photo_of_very_many_superpixels_takes_little_memory() -> None:
    squares = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    tracemalloc.start()
    try:
        assert propose_boxes(squares.repeat(13, axis=0).repeat(13, axis=1), 156, 156)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()

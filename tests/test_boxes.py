"""Boxes are parsed and clipped in one place; overlaps are what counting pixels gives."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifind import InvalidInputError
from manifind.boxes import areas, clip_box, covered_fraction, iou, parse_box
from tests.errors import raises

Mask = npt.NDArray[np.bool_]
SIDE = 24

boxes = st.tuples(*[st.integers(0, 11)] * 4).map(lambda one: (one[0], one[1], one[0] + 1 + one[2], one[1] + 1 + one[3]))


def filled(box: tuple[int, int, int, int]) -> Mask:
    mask = np.zeros((SIDE, SIDE), bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    return mask


@given(boxes, boxes)
def test_what_two_boxes_share_is_what_counting_their_pixels_gives(
    a: tuple[int, int, int, int], b: tuple[int, int, int, int]
) -> None:
    one, other = filled(a), filled(b)
    both = (one & other).sum()
    np.testing.assert_allclose(areas(np.array(a)), one.sum())
    np.testing.assert_allclose(iou(a, b), both / (one | other).sum(), rtol=1e-6)
    np.testing.assert_allclose(covered_fraction(a, b), both / min(one.sum(), other.sum()), rtol=1e-6)


@given(st.lists(boxes, min_size=1, max_size=4), st.lists(boxes, min_size=1, max_size=4))
def test_arrays_of_boxes_are_compared_each_with_each(
    some: list[tuple[int, int, int, int]], others: list[tuple[int, int, int, int]]
) -> None:
    a, b = np.array(some, np.float32), np.array(others, np.float32)
    singly = [[float(iou(one, other)) for other in others] for one in some]
    np.testing.assert_allclose(iou(a[:, None], b), singly, rtol=1e-5)


def test_a_box_without_a_place_overlaps_nothing() -> None:
    assert np.isnan(iou([np.nan] * 4, (0, 0, 1, 1)))


def test_a_box_of_no_size_shares_nothing_with_others() -> None:
    assert iou((2, 2, 2, 2), (0, 0, 4, 4)) == 0
    assert covered_fraction((2, 2, 2, 2), (0, 0, 4, 4)) == 0


def test_boxes_that_lie_apart_share_nothing_whichever_way_they_do() -> None:
    for apart in ((6, 0, 8, 4), (0, 6, 4, 8), (6, 6, 8, 8), (4, 0, 8, 4)):
        assert iou((0, 0, 4, 4), apart) == 0
        assert covered_fraction(apart, (0, 0, 4, 4)) == 0


def test_two_boxes_of_no_size_share_nothing_even_at_one_place() -> None:
    assert iou((2, 2, 2, 2), (2, 2, 2, 2)) == 0


@pytest.mark.parametrize(
    "value", ["1,2,3,4", " 1, 2,3.0,4e0", (1, 2, 3, 4), [1.0, 2.0, 3.0, 4.0], np.array([1, 2, 3, 4])]
)
def test_a_box_is_four_numbers_in_text_or_a_sequence(value: object) -> None:
    assert parse_box(value) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1,2,3",
        "1,2,3,4,5",
        "1,2,3,x",
        "1,2,3,nan",
        "1,2,inf,4",
        "0" * 9000,
        (1, 2, 3),
        [1, 2, 3, None],
        5,
        None,
        "1;2;3;4",
    ],
)
def test_what_is_no_box_is_named_with_what_to_give(value: object) -> None:
    with raises("box-numbers", InvalidInputError) as raised:
        parse_box(value)
    assert len(str(raised.value)) < 300


@given(st.tuples(*[st.integers(-9, 19)] * 4))
def test_a_clipped_box_is_what_lies_inside_the_image(box: tuple[int, int, int, int]) -> None:
    inside = {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3]) if 0 <= x < 10 and 0 <= y < 8}
    if not inside:
        with raises("box-outside", InvalidInputError):
            clip_box(box, 10, 8)
        return
    x0, y0, x1, y1 = (int(side) for side in clip_box(box, 10, 8))
    assert {(x, y) for x in range(x0, x1) for y in range(y0, y1)} == inside

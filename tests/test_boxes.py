"""How much boxes have in common is what counting pixels gives."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from manifind.boxes import areas, overlaps, shared_area

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
    np.testing.assert_allclose(overlaps(a, b), both / (one | other).sum(), rtol=1e-6)
    np.testing.assert_allclose(shared_area(a, b), both / min(one.sum(), other.sum()), rtol=1e-6)


@given(st.lists(boxes, min_size=1, max_size=4), st.lists(boxes, min_size=1, max_size=4))
def test_arrays_of_boxes_are_compared_each_with_each(
    some: list[tuple[int, int, int, int]], others: list[tuple[int, int, int, int]]
) -> None:
    a, b = np.array(some, np.float32), np.array(others, np.float32)
    singly = [[float(overlaps(one, other)) for other in others] for one in some]
    np.testing.assert_allclose(overlaps(a[:, None], b), singly, rtol=1e-5)


def test_a_box_without_a_place_overlaps_nothing() -> None:
    assert np.isnan(overlaps([np.nan] * 4, (0, 0, 1, 1)))


def test_a_box_of_no_size_shares_nothing_with_others() -> None:
    assert overlaps((2, 2, 2, 2), (0, 0, 4, 4)) == 0
    assert shared_area((2, 2, 2, 2), (0, 0, 4, 4)) == 0


def test_boxes_that_lie_apart_share_nothing_whichever_way_they_do() -> None:
    for apart in ((6, 0, 8, 4), (0, 6, 4, 8), (6, 6, 8, 8), (4, 0, 8, 4)):
        assert overlaps((0, 0, 4, 4), apart) == 0
        assert shared_area(apart, (0, 0, 4, 4)) == 0


def test_two_boxes_of_no_size_share_nothing_even_at_one_place() -> None:
    assert overlaps((2, 2, 2, 2), (2, 2, 2, 2)) == 0

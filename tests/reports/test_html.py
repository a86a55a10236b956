"""What is drawn in the pictures of a page."""

import pytest

from manifind.reports.html import Corners, render, seen_part


def area(corners: Corners) -> float:
    """By the shoelace formula."""
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(corners, [*corners[1:], corners[0]], strict=True))) / 2


@pytest.mark.parametrize(
    ("outline", "seen"),
    [
        ([(10, 10), (30, 10), (30, 20), (10, 20)], 200),  # within: as it is
        ([(-50, -50), (500, -50), (500, 500), (-50, 500)], 100 * 60),  # round all of it: the photo
        ([(-10, 10), (10, 10), (10, 20), (-10, 20)], 100),  # half of it beyond the left border
        ([(50, -30), (80, 0), (50, 30), (20, 0)], 900),  # the lower half of a square on its corner
        ([(200, 10), (300, 10), (300, 20)], 0),  # beside the photo
    ],
)
def test_an_outline_that_goes_beyond_the_photo_is_closed_along_its_border(outline: Corners, seen: float) -> None:
    drawn = seen_part(outline, 100, 60)
    assert all(0 <= x <= 100 and 0 <= y <= 60 for x, y in drawn)
    assert (area(drawn) if drawn else 0) == pytest.approx(seen)


def test_what_a_name_says_is_neither_run_nor_hidden() -> None:
    keys = [["<script>1</script>.png", '"\u202egnp.png']]
    page = render("repeats.html", title="<i>", subtitle="&", objects=[], near_duplicates=keys)
    assert "&lt;script&gt;1&lt;/script&gt;.png, &#34;\\u202egnp.png" in page
    assert "<title>&lt;i&gt;</title>" in page
    assert "<script" not in page

"""Answers that geometry has looked at: what is verified, where it is, and how far geometry looks."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from manifind.index import Index
from manifind.index.asking import verify as verifying
from manifind.index.asking.features import sought_in
from manifind.index.asking.looking import Checked
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.verify import verified_answer
from tests.described import PLAINLY
from tests.index.conftest import BOX, Pixels, where


@pytest.fixture(scope="module")
def found(index: Index, query: Pixels) -> VerifiedAnswer:
    return verified_answer(index.search(query, BOX, top=None, verify=0), [sought_in(query, BOX)])


def test_exactly_the_photos_of_the_object_are_verified_and_come_first(found: VerifiedAnswer) -> None:
    assert found.verified == 4
    assert sorted(hit.key for hit in found[:4]) == [f"first-{i}.png" for i in range(4)]
    assert [hit.verified for hit in found[:4]] == [True] * 4
    assert all(hit.verified is False for hit in found[4:])
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))


def test_the_box_and_the_outline_are_where_the_object_was_pasted(found: VerifiedAnswer) -> None:
    for hit in found[:4]:
        x0, y0, x1, y1 = truth = where(int(hit.key[6]))
        assert hit.outline is not None
        assert hit.box is not None
        assert hit.inliers is not None
        np.testing.assert_allclose(hit.box, truth, atol=4)
        np.testing.assert_allclose(hit.outline, [(x0, y0), (x1, y0), (x1, y1), (x0, y1)], atol=4)
        assert hit.inliers >= 6


def test_the_line_holds_the_verified_photos(found: VerifiedAnswer) -> None:
    assert found.likely is not None
    assert found.likely >= 4
    assert all(hit.likely for hit in found[:4])


def test_files_say_what_kept_features_say(photos: Path, query: Pixels, found: VerifiedAnswer, tmp_path: Path) -> None:
    plain = Index.create(
        tmp_path / "plain",
        photos,
        geometry=False,
        **PLAINLY,
        k=20,
        query_k=20,
        alpha=0.99,
    )
    assert plain.state.local is None
    assert plain.info()["geometry"]["kind"] is None
    assert {hit.verified for hit in plain.search(query, BOX)} == {None}
    read = verified_answer(plain.search(query, BOX, top=None), [sought_in(query, BOX)])
    assert [hit.key for hit in read] == [hit.key for hit in found]
    for one, other in zip(read[:4], found[:4], strict=True):
        assert one.box is not None
        assert other.box is not None
        np.testing.assert_allclose(one.box, other.box, atol=3)


def test_photos_that_no_score_reached_may_be_left_out(found: VerifiedAnswer) -> None:
    left = found.reached()
    assert left.verified == 4
    assert all(hit.score > 0 for hit in left)
    assert [hit.key for hit in left[:4]] == [hit.key for hit in found[:4]]


def test_a_search_asks_geometry_when_told_to(index: Index, query: Pixels, found: VerifiedAnswer) -> None:
    answer = index.search(query, BOX, top=6, verify=50, refine="none")
    assert [(hit.key, hit.verified, hit.box) for hit in answer] == [
        (hit.key, hit.verified, hit.box) for hit in found[:6]
    ]
    assert {hit.verified for hit in index.search(query, BOX, top=6, verify=0)} == {None}


def test_of_several_views_the_surest_counts(index: Index, query: Pixels, found: VerifiedAnswer) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    both = verified_answer(index.search(query, BOX, top=None), [sought_in(even, None), sought_in(query, BOX)])
    assert [(hit.key, hit.outline) for hit in both[:4]] == [(hit.key, hit.outline) for hit in found[:4]]


def test_a_query_without_texture_leaves_the_answer_as_it_is(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    answer = index.search(even, top=None)
    looked = verified_answer(answer, [sought_in(even, None)])
    assert looked.verified == 0
    assert [hit.key for hit in looked] == [hit.key for hit in answer]
    assert {hit.verified for hit in looked} == {None}
    assert looked.likely == answer.likely


def test_matching_points_lie_where_the_object_was_pasted_in_both_photos(index: Index, query: Pixels) -> None:
    points = index.matching_points(query, "first-2.png", BOX)
    assert points.verified
    assert len(points.query) == len(points.photo) >= points.inliers >= 6
    shift = np.array(where(2)[:2]) - BOX[:2]
    np.testing.assert_allclose(points.photo - points.query, np.broadcast_to(shift, points.photo.shape), atol=4)


def test_photos_of_different_things_have_no_matching_points(index: Index, query: Pixels) -> None:
    points = index.matching_points(query, "more/none-1.png", BOX)
    assert (points.verified, len(points.query), points.map) == (False, 0, None)


@pytest.mark.parametrize(
    ("verified", "looked"),
    [
        ((), 20),
        ((1,), 20),
        ((1, 2), 40),
        ((0, 7, 20, 39), 60),
        (range(80), 80),
    ],
)
def test_geometry_looks_on_while_a_tenth_of_the_last_photos_are_verified(
    monkeypatch: pytest.MonkeyPatch, index: Index, query: Pixels, verified: Sequence[int], looked: int
) -> None:
    monkeypatch.setattr("manifind.index.asking.verified.resembles_both", lambda _search, _image: False)
    answer = index.search(query, BOX, top=None, verify=0)
    answer._images, answer._scores = np.arange(90, dtype=np.int32), np.linspace(1, 0.1, 90, dtype=np.float32)

    def says(_: object, images: Sequence[int], *__: object, **___: object) -> dict[int, Checked]:
        return {image: Checked(image in verified) for image in images}

    monkeypatch.setattr(verifying, "looked_at", says)
    found = verified_answer(answer, [sought_in(query, BOX)], first=20)
    assert list(found.looked_at) == list(range(looked))
    assert found.verified == len(verified)


def test_what_is_looked_at_late_is_only_the_first_photos(index: Index, query: Pixels) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    never, long_ago = time.monotonic() + 600, time.monotonic() - 1
    assert len(verified_answer(answer, [sought_in(query, BOX)], first=2, until=never).looked_at) > 2
    assert (
        len(verified_answer(answer, [sought_in(query, BOX)], first=2, until=never, deeper_until=long_ago).looked_at)
        == 2
    )
    with pytest.raises(TimeoutError):
        verified_answer(answer, [sought_in(query, BOX)], first=2, until=long_ago)

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.geometry import LIMITS, Verdict, verify
from manifind.geometry.shape import fitted
from manifind.index import Answer, Index
from manifind.index.asking import looking, verified
from manifind.index.asking import verify as verifying
from manifind.index.asking.features import query_features, sought_in
from manifind.index.asking.looking import Checked, Seen, checked
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.verify import verified_answer
from manifind.index.state.kept import Kept, keep
from manifind.types import Box
from tests.described import PLAINLY
from tests.index.conftest import Pixels, scene, texture

BOX = (40.0, 60.0, 168.0, 188.0)
ALL = (0.0, 0.0, 320.0, 240.0)
"""Of the thing in `scene` where it is laid by default."""


def where(i: int) -> tuple[float, float, float, float]:
    """The box of the first thing in photo ``first-{i}.png``."""
    x, y = 20 + 50 * i, 30 + 20 * i
    return x, y, x + 128, y + 128


@pytest.fixture(scope="module")
def query() -> Pixels:
    return scene(99, 1)


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


def test_a_photo_that_cannot_be_read_is_neither_verified_nor_refused(query: Pixels, photos: Path) -> None:
    assert checked(query_features(query, BOX), BOX, [photos / "broken.jpg", photos / "not-there.jpg"]) == [
        Checked(None),
        Checked(None),
    ]


def test_photos_are_looked_at_until_a_moment_and_not_beyond_it() -> None:
    photo = scene(1, 1)
    kept = keep(photo)
    (alone,) = checked(query_features(photo, None), None, [kept])
    assert checked(query_features(photo, None), None, [kept], until=time.monotonic() + 600) == [alone]
    with pytest.raises(TimeoutError, match="not looked at in time"):
        checked(query_features(photo, None), None, [kept], until=time.monotonic() - 1)


def test_a_query_without_texture_leaves_the_answer_as_it_is(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    answer = index.search(even, top=None)
    looked = verified_answer(answer, [sought_in(even, None)])
    assert looked.verified == 0
    assert [hit.key for hit in looked] == [hit.key for hit in answer]
    assert {hit.verified for hit in looked} == {None}
    assert looked.likely == answer.likely


def twice_the_object() -> Pixels:
    photo = texture(5, 300, 500).copy()
    thing = scene(0, 1)[60:188, 40:168]
    photo[20:148, 30:158] = thing
    photo[150:278, 320:448] = thing
    return photo


def test_several_instances_each_have_an_outline() -> None:
    photo = twice_the_object()
    (check,) = checked(query_features(scene(99, 1), BOX), BOX, [keep(photo)])
    assert check.verified
    assert check.outline is not None
    corners = sorted(outline[0] for outline in (check.outline, *check.others))
    np.testing.assert_allclose(corners, [(30, 20), (320, 150)], atol=4)


def test_another_instance_counts_from_as_many_points_as_verify_a_photo(monkeypatch: pytest.MonkeyPatch) -> None:
    half_hidden = twice_the_object()
    half_hidden[214:278, 320:448] = 0
    photo = keep(half_hidden)
    _, second = verify(query_features(scene(99, 1), BOX), photo.features(), BOX).instances

    def others(limit: int) -> int:
        monkeypatch.setattr(looking, "LIMITS", {"sift": replace(LIMITS["sift"], inliers=limit)})
        (check,) = checked(query_features(scene(99, 1), BOX), BOX, [photo])
        assert check.verified
        return len(check.others)

    assert others(second.inliers) == 1
    assert others(second.inliers + 1) == 0


def test_what_is_kept_is_small(query: Pixels) -> None:
    kept = keep(query)
    assert isinstance(kept, Kept)
    assert kept.rows.nbytes <= 20_000


def test_matching_points_lie_where_the_object_was_pasted_in_both_photos(index: Index, query: Pixels) -> None:
    points = index.matching_points(query, "first-2.png", BOX)
    assert points.verified
    assert len(points.query) == len(points.photo) >= points.inliers >= 6
    shift = np.array(where(2)[:2]) - BOX[:2]
    np.testing.assert_allclose(points.photo - points.query, np.broadcast_to(shift, points.photo.shape), atol=4)


def test_photos_of_different_things_have_no_matching_points(index: Index, query: Pixels) -> None:
    points = index.matching_points(query, "more/none-1.png", BOX)
    assert (points.verified, len(points.query), points.map) == (False, 0, None)


def test_a_query_without_texture_must_resemble_a_photo_clearly(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("manifind.index.asking.evidence")
    monkeypatch.setattr(module, "STANDS_OUT", np.inf)
    monkeypatch.setattr(module, "TOGETHER", 0.1)
    answer = index.search(query, BOX, top=None, verify=0)
    evidence = answer.evidence
    assert evidence is not None
    assert answer.likely
    textured, plain = ({hit.image: Checked(verified) for hit in answer[:5]} for verified in (False, None))
    assert VerifiedAnswer(answer, textured).likely == answer.likely
    for more, likely in ((-0.01, answer.likely), (0.01, 0)):
        monkeypatch.setattr(verified, "UNTEXTURED", evidence.similarity / evidence.chance + more)
        assert VerifiedAnswer(answer, plain).likely == likely


@pytest.mark.parametrize(
    ("textured", "nearly", "kin", "some"),
    [(True, True, True, True), (True, True, False, False), (True, False, True, False), (False, True, True, False)],
)
def test_less_resemblance_is_enough_where_the_best_photos_resemble_each_other(
    index: Index, query: Pixels, textured: bool, nearly: bool, kin: bool, some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("manifind.index.asking.evidence")
    monkeypatch.setattr(module, "STANDS_OUT", np.inf)
    monkeypatch.setattr(module, "TOGETHER", 3.0)
    answer = index.search(query, BOX, top=None, verify=0)
    evidence = answer.evidence
    assert evidence is not None
    assert not answer.likely
    monkeypatch.setattr(verified, "NEARLY", evidence.similarity / evidence.chance + (-0.01 if nearly else 0.01))
    monkeypatch.setattr(verified, "KINSHIP", module.kinship(answer.search) + (-0.01 if kin else 0.01))
    looked = {hit.image: Checked(False if textured else None) for hit in answer[:5]}
    half = int((answer.scores >= answer.scores.max() / 2).sum())
    assert VerifiedAnswer(answer, looked).likely == (half if some else 0)


def test_photos_that_few_points_match_stand_above_the_line_beside_verified_ones(index: Index, query: Pixels) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    images = answer.images.tolist()
    sure, doubted = images[0], images[-2]
    where = (10.0, 20.0, 30.0, 40.0)
    perhaps = Checked(False, 4, perhaps=where)
    found = VerifiedAnswer(answer, {sure: Checked(True, 9, box=BOX), doubted: perhaps}, part=True)
    assert [hit.image for hit in found[:2]] == [sure, doubted]
    assert (found[1].likely, found[1].verified, found[1].box) == (True, False, where)
    assert (found.verified, found.cut(1).likely, found.cut(2).likely) == (1, 1, 2)


@pytest.mark.parametrize(
    ("points", "scores_tell", "counts"), [(4, False, False), (5, False, True), (6, False, False), (5, True, False)]
)
def test_photos_that_few_points_match_count_alone_where_scores_tell_nothing(
    index: Index, query: Pixels, points: int, scores_tell: bool, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("manifind.index.asking.evidence")
    monkeypatch.setattr(module, "STANDS_OUT", 0 if scores_tell else np.inf)
    answer = index.search(query, BOX, top=None, verify=0)
    assert bool(answer.likely) == scores_tell
    images, where = answer.images.tolist(), (10.0, 20.0, 30.0, 40.0)
    doubted, last = images[-2:]
    looked = {doubted: Checked(False, points, perhaps=where), last: Checked(False)}
    found = VerifiedAnswer(answer, looked, part=True)
    assert (found.images[0] == doubted) == counts
    assert (found.likely, found.verified) == (1 if counts else answer.likely, 0)
    assert (found[images.index(doubted) if not counts else 0].box == where) == counts


def test_verified_photos_together_give_the_object_its_shape(index: Index, query: Pixels) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    first, second, third = answer.images[:3].tolist()
    points = np.random.default_rng(0).uniform(60, 120, (3, 12, 2)).astype(np.float32)
    plain, size = (10.0, 20.0, 110.0, 120.0), (320, 240)
    looked = {
        image: Checked(True, 9, box=plain, seen=Seen(BOX, np.eye(3), some, size, view))
        for image, some, view in zip((first, second, third), points, (0, 0, 1), strict=True)
    }

    def boxes(own: set[int]) -> list[Box | None]:
        found = VerifiedAnswer(Answer(answer.search, own=own), looked, part=True)
        return [hit.box for image in (first, second, third) if (hit := found.of_image(image)) is not None]

    def by(*some: int) -> Box:
        return fitted(np.eye(3), np.concatenate([points[i] for i in some]), BOX, plain, size)

    np.testing.assert_allclose(np.array(boxes(set())), [by(0, 1), by(0, 1), by(2)], atol=0.051)
    # The photo that the query was taken from confirms what is behind the object too.
    np.testing.assert_allclose(np.array(boxes({first})), [plain, by(1), by(2)], atol=0.051)


def test_geometry_says_which_points_of_a_part_of_a_photo_matched(query: Pixels) -> None:
    photo = keep(scene(0, 1))
    (part,), (whole,) = (checked(query_features(query, box), box, [photo]) for box in (BOX, None))
    assert part.seen is not None
    assert part.seen.size == (320, 240)
    assert len(part.seen.points) >= part.inliers
    assert ((part.seen.points >= BOX[:2]) & (part.seen.points <= BOX[2:])).all()
    assert whole.verified
    assert whole.seen is None


@pytest.mark.parametrize("part", [True, False])
def test_what_scores_as_well_as_verified_photos_stands_above_the_line(
    index: Index, query: Pixels, part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    monkeypatch.setattr(verified, "resembles_both", lambda _search, _image: True)
    looked = {int(answer.images[0]): Checked(True, 9, box=BOX)}
    limit = (verified.AS_WELL_AS if part else verified.AS_WELL_AS_WHOLE) * answer.scores[0]
    assert VerifiedAnswer(answer, looked, part=part).likely == (answer.scores >= limit).sum()


def test_a_box_round_the_whole_photo_is_no_part_of_it(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = index.search(query, top=None, verify=0)
    monkeypatch.setattr(verified, "AS_WELL_AS", 0.0)
    monkeypatch.setattr(verified, "resembles_both", lambda _search, _image: True)
    part, boxed, whole = (verified_answer(answer, [sought_in(query, box)]).likely for box in (BOX, ALL, None))
    assert part == len(answer)
    assert boxed == whole != part


def test_where_a_box_is_given_what_does_not_resemble_both_stands_below_the_line(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    first, second, third = answer.images[:3].tolist()
    assert answer.scores[2] >= verified.AS_WELL_AS * answer.scores[0]
    monkeypatch.setattr(verified, "resembles_both", lambda _search, image: image == third)
    found = VerifiedAnswer(answer, {first: Checked(True, 9, box=BOX)}, part=True)
    assert [hit.image for hit in found[:3]] == [first, third, second]
    assert (found.likely, found.verified, found.cut(1).likely) == (2, 1, 1)


def test_fewer_points_than_verify_a_photo_count_only_for_a_part_of_a_photo(
    query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = keep(scene(0, 1))
    (sure,) = checked(query_features(query, BOX), BOX, [photo])
    assert sure.verified
    strict = {"sift": replace(LIMITS["sift"], inliers=sure.inliers + 1)}
    monkeypatch.setattr(looking, "LIMITS", strict)
    (part,) = checked(query_features(query, BOX), BOX, [photo])
    assert (part.verified, part.inliers, part.outline, part.box) == (False, sure.inliers, None, None)
    assert part.perhaps == sure.box
    (whole,) = checked(query_features(query, ALL), ALL, [photo])
    assert whole.perhaps is None


def test_a_photo_in_which_a_part_of_the_box_alone_matches_is_not_verified_and_perhaps_shows_it(
    query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sure,) = checked(query_features(query, BOX), BOX, [keep(scene(0, 1))])

    def crowded(*asked: Any, **how: Any) -> Verdict:
        (instance,) = verify(*asked, **how).instances
        return Verdict(False, (replace(instance, crowded=True),))

    monkeypatch.setattr(looking, "verify", crowded)
    (part,) = checked(query_features(query, BOX), BOX, [keep(scene(0, 1))])
    assert (sure.verified, part.verified) == (True, False)
    assert (part.inliers, part.perhaps, part.box, part.outline) == (sure.inliers, sure.box, None, None)


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

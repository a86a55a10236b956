"""The order and the line of an answer, given what geometry says of its photos."""

from importlib import import_module

import numpy as np
import pytest

from manifind.geometry.shape import fitted
from manifind.index import Answer, Index
from manifind.index.asking import verified
from manifind.index.asking.features import sought_in
from manifind.index.asking.looking import Checked, Seen
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.verify import verified_answer
from manifind.types import Box
from tests.index.conftest import ALL, BOX, Pixels


def test_where_geometry_finds_nothing_the_scores_say_how_many_are_likely_if_they_know(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("manifind.index.asking.evidence"), "TOGETHER", 0.1)
    answer = index.search(query, BOX, top=None, verify=0)
    assert answer.likely is not None
    assert answer.likely > 1
    looked = {int(answer.images[0]): Checked(False)}
    assert VerifiedAnswer(answer, looked).likely == answer.likely
    assert VerifiedAnswer(answer, looked, top=1).likely == 1
    assert VerifiedAnswer(index.search(query, BOX, method="match"), looked).likely is None


def test_a_query_without_texture_must_resemble_a_photo_clearly(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("manifind.index.asking.evidence")
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


@pytest.mark.parametrize("scores_tell", [False, True])
def test_points_that_verify_nothing_change_nothing_by_themselves(
    index: Index, query: Pixels, scores_tell: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("manifind.index.asking.evidence")
    monkeypatch.setattr(module, "TOGETHER", 0.1 if scores_tell else 3)
    answer = index.search(query, BOX, top=None, verify=0)
    assert bool(answer.likely) == scores_tell
    doubted, last = answer.images[-2:].tolist()
    looked = {doubted: Checked(False, 9, perhaps=(10.0, 20.0, 30.0, 40.0)), last: Checked(False)}
    found = VerifiedAnswer(answer, looked, part=True)
    assert (found.likely, found.verified) == (answer.likely, 0)
    assert [(hit.image, hit.box) for hit in found] == [(hit.image, hit.box) for hit in answer]


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


def test_a_point_that_several_photos_confirm_counts_once(index: Index, query: Pixels) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    points = np.random.default_rng(0).uniform(60, 120, (12, 2)).astype(np.float32)
    plain, size = (10.0, 20.0, 110.0, 120.0), (320, 240)
    looked = {
        image: Checked(True, 9, box=plain, seen=Seen(BOX, np.eye(3), points, size, 0))
        for image in answer.images[:9].tolist()
    }
    found = VerifiedAnswer(answer, looked, part=True)
    np.testing.assert_allclose(np.array(found[0].box), fitted(np.eye(3), points, BOX, plain, size), atol=0.051)


@pytest.mark.parametrize("part", [True, False])
def test_what_scores_as_well_as_verified_photos_stands_above_the_line(
    index: Index, query: Pixels, part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    monkeypatch.setattr(verified, "resembles_both", lambda _search, _image: True)
    looked = {int(answer.images[0]): Checked(True, 9, box=BOX)}
    limit = (verified.AS_WELL_AS if part else verified.AS_WELL_AS_WHOLE) * answer.scores[0]
    assert VerifiedAnswer(answer, looked, part=part).likely == (answer.scores >= limit).sum()
    # A photo that took a closer look does not lower what others must score, unless no other is verified.
    last = int(answer.images[-1])
    closely = {last: Checked(True, 9, box=BOX, closely=True)}
    assert VerifiedAnswer(answer, looked | closely, part=part).likely == (answer.scores >= limit).sum() + 1
    assert VerifiedAnswer(answer, closely, part=part).likely == len(answer)


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

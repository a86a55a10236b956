"""One photo, looked at for what the query shows."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.geometry import LIMITS, Verdict, verify
from manifind.index import Index
from manifind.index.asking import looking
from manifind.index.asking.features import query_features
from manifind.index.asking.looking import Checked, checked
from manifind.index.state.generation import Generation
from manifind.index.state.kept import keep
from tests.index.conftest import ALL, BOX, Pixels, scene, texture


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


def test_another_instance_counts_unless_it_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = keep(twice_the_object())

    def with_a_doubt(*asked: Any, **how: Any) -> Verdict:
        first, second = verify(*asked, **how).instances
        return Verdict(True, (first, replace(second, doubtful=True)))

    for look, others in ((verify, 1), (with_a_doubt, 0)):
        monkeypatch.setattr(looking, "verify", look)
        (check,) = checked(query_features(scene(99, 1), BOX), BOX, [photo])
        assert (check.verified, len(check.others)) == (True, others)


def test_geometry_says_which_points_of_a_part_of_a_photo_matched(query: Pixels) -> None:
    photo = keep(scene(0, 1))
    (part,), (whole,) = (checked(query_features(query, box), box, [photo]) for box in (BOX, None))
    assert part.seen is not None
    assert part.seen.size == (320, 240)
    assert len(part.seen.points) >= part.inliers
    assert ((part.seen.points >= BOX[:2]) & (part.seen.points <= BOX[2:])).all()
    assert whole.verified
    assert whole.seen is None


def test_few_points_count_only_for_a_part_of_a_photo(query: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    photo = keep(scene(0, 1))
    (sure,) = checked(query_features(query, BOX), BOX, [photo])
    assert sure.verified
    monkeypatch.setattr(looking, "LIMITS", {"sift": replace(LIMITS["sift"], inliers=500)})
    (part,) = checked(query_features(query, BOX), BOX, [photo])
    assert part == sure
    (whole,) = checked(query_features(query, ALL), ALL, [photo])
    assert (whole.verified, whole.inliers, whole.perhaps) == (False, 0, None)


def test_a_photo_in_which_a_part_of_the_box_alone_matches_is_not_verified_and_perhaps_shows_it(
    query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sure,) = checked(query_features(query, BOX), BOX, [keep(scene(0, 1))])

    def crowded(*asked: Any, **how: Any) -> Verdict:
        (instance,) = verify(*asked, **how).instances
        return Verdict(False, (replace(instance, doubtful=True),))

    monkeypatch.setattr(looking, "verify", crowded)
    (part,) = checked(query_features(query, BOX), BOX, [keep(scene(0, 1))])
    assert (sure.verified, part.verified) == (True, False)
    assert (part.inliers, part.perhaps, part.box, part.outline) == (sure.inliers, sure.box, None, None)


def test_the_view_that_is_verified_counts_before_one_with_more_points(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = iter([[Checked(False, 9, perhaps=(0.0, 0.0, 9.0, 9.0))], [Checked(True, 4)], [Checked(None, 0)]])
    monkeypatch.setattr(looking, "checked", lambda *asked, **how: next(checks))
    features = query_features(scene(99, 1), BOX)
    assert isinstance(index.state, Generation)
    found = looking.looked_at(index.state, [0], [(features, BOX)] * 3)
    assert (found[0].verified, found[0].inliers) == (True, 4)

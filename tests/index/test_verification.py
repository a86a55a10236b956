"""Spatial verification: of one image, of several views, of a ranking and of the images that are voted for."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.geometry import Verdict, VerificationConfig, verify_many
from manifind.index import Index, SearchConfig, SearchResult, Verification
from manifind.index.config import DepthConfig
from manifind.index.search import pipeline, verification
from manifind.index.search.query import Deadline, extract_query_features
from manifind.index.search.verification import verify_images, verify_sources, vote_for_images
from manifind.index.storage.local_features import keep
from manifind.index.storage.snapshot import Snapshot
from tests.extraction_options import PLAINLY
from tests.index.conftest import ALL, BOX, Pixels, scene, texture, where
from tests.index.searching import ranked, result_of, verified

NEVER, LONG_AGO = Deadline(time.monotonic() + 86_400), Deadline(time.monotonic() - 1)


# -- one image --------------------------------------------------------------------------------------------------------


def test_an_image_that_cannot_be_read_is_neither_verified_nor_refused(query: Pixels, photos: Path) -> None:
    files = [photos / "broken.jpg", photos / "not-there.jpg"]
    assert verify_sources([extract_query_features(query, BOX)], files) == [Verification(None), Verification(None)]


def test_images_are_verified_until_the_deadline_and_not_beyond_it() -> None:
    photo = scene(1, 1)
    kept, views = keep(photo), [extract_query_features(photo, None)]
    (alone,) = verify_sources(views, [kept])
    assert verify_sources(views, [kept], deadline=NEVER) == [alone]
    with pytest.raises(TimeoutError, match="cut short by its deadline"):
        verify_sources(views, [kept], deadline=LONG_AGO)


def twice_the_object() -> Pixels:
    photo = texture(5, 300, 500).copy()
    thing = scene(0, 1)[60:188, 40:168]
    photo[20:148, 30:158] = thing
    photo[150:278, 320:448] = thing
    return photo


def test_several_instances_each_have_an_outline() -> None:
    (found,) = verify_sources([extract_query_features(scene(99, 1), BOX)], [keep(twice_the_object())])
    assert found.verified
    assert found.outline is not None
    corners = sorted(outline[0] for outline in (found.outline, *found.other_outlines))
    np.testing.assert_allclose(corners, [(30, 20), (320, 150)], atol=4)


def test_another_instance_counts_unless_it_is_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = keep(twice_the_object())

    def with_a_weak_one(*asked: Any, **how: Any) -> list[Verdict]:
        ((first, second),) = (verdict.instances for verdict in verify_many(*asked, **how))
        return [Verdict(True, (first, replace(second, weak=True)))]

    for look, others in ((verify_many, 1), (with_a_weak_one, 0)):
        monkeypatch.setattr(verification, "verify_many", look)
        (found,) = verify_sources([extract_query_features(scene(99, 1), BOX)], [photo])
        assert (found.verified, len(found.other_outlines)) == (True, others)


def test_a_verification_says_which_points_of_a_part_of_a_photo_matched(query: Pixels) -> None:
    photo = keep(scene(0, 1))
    (part,), (whole,) = (verify_sources([extract_query_features(query, box)], [photo]) for box in (BOX, None))
    assert part.geometry is not None
    assert part.geometry.size == (320, 240)
    assert len(part.geometry.inliers) >= part.inliers
    assert ((part.geometry.inliers >= BOX[:2]) & (part.geometry.inliers <= BOX[2:])).all()
    assert whole.verified
    assert whole.geometry is None


def test_few_points_count_only_for_a_part_of_a_photo(query: Pixels) -> None:
    photo = keep(scene(0, 1))
    (sure,) = verify_sources([extract_query_features(query, BOX)], [photo])
    assert sure.verified
    strict = SearchConfig(matching=VerificationConfig(min_inliers=500))
    (part,) = verify_sources([extract_query_features(query, BOX, config=strict)], [photo], strict)
    assert part == sure
    (whole,) = verify_sources([extract_query_features(query, ALL, config=strict)], [photo], strict)
    assert (whole.verified, whole.inliers, whole.weak_match_box) == (False, 0, None)


def test_an_image_in_which_a_part_of_the_box_alone_matches_is_a_weak_match(
    query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sure,) = verify_sources([extract_query_features(query, BOX)], [keep(scene(0, 1))])

    def crowded(*asked: Any, **how: Any) -> list[Verdict]:
        ((instance,),) = (verdict.instances for verdict in verify_many(*asked, **how))
        return [Verdict(False, (replace(instance, weak=True),))]

    monkeypatch.setattr(verification, "verify_many", crowded)
    (part,) = verify_sources([extract_query_features(query, BOX)], [keep(scene(0, 1))])
    assert (sure.verified, part.verified) == (True, False)
    assert (part.inliers, part.weak_match_box, part.box, part.outline) == (sure.inliers, sure.box, None, None)


def test_the_view_that_is_verified_counts_before_one_with_more_points(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = Verification(False, 9, weak_match_box=(0.0, 0.0, 9.0, 9.0))
    by_view = iter([[weak], [Verification(True, 4)], [Verification(None, 0)]])
    monkeypatch.setattr(verification, "_verify_view", lambda *asked, **how: next(by_view))
    found = verify_images(snapshot, [0], [extract_query_features(scene(99, 1), BOX)] * 3)
    assert (found[0].verified, found[0].inliers) == (True, 4)


# -- a ranking --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(index: Index, query: Pixels) -> SearchResult:
    return verified(ranked(index, query, BOX), [extract_query_features(query, BOX)])


def test_exactly_the_images_of_the_object_are_verified_and_come_first(found: SearchResult) -> None:
    assert found.n_verified == 4
    assert sorted(hit.key for hit in found[:4]) == [f"first-{i}.png" for i in range(4)]
    assert [hit.verified for hit in found[:4]] == [True] * 4
    assert all(hit.verified is False for hit in found[4:])
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))


def test_the_box_and_the_outline_are_where_the_object_was_pasted(found: SearchResult) -> None:
    for hit in found[:4]:
        x0, y0, x1, y1 = truth = where(int(hit.key[6]))
        assert hit.outline is not None
        assert hit.box is not None
        assert hit.inliers is not None
        np.testing.assert_allclose(hit.box, truth, atol=4)
        np.testing.assert_allclose(hit.outline, [(x0, y0), (x1, y0), (x1, y1), (x0, y1)], atol=4)
        assert hit.inliers >= 6


def test_verified_images_are_matches(found: SearchResult) -> None:
    assert found.n_matches is not None
    assert found.n_matches >= 4
    assert all(hit.is_match for hit in found[:4])


def test_files_say_what_stored_features_say(photos: Path, query: Pixels, found: SearchResult, tmp_path: Path) -> None:
    plain = Index.create(
        tmp_path / "plain",
        photos,
        local_features=False,
        **PLAINLY,
        k=20,
        query_k=20,
        alpha=0.99,
    )
    assert plain.state.local is None
    assert plain.info()["local_features"]["kind"] is None
    assert {hit.verified for hit in plain.search(query, BOX)} == {None}
    read = verified(plain.search(query, BOX, top=None), [extract_query_features(query, BOX)])
    assert [hit.key for hit in read] == [hit.key for hit in found]
    for one, other in zip(read[:4], found[:4], strict=True):
        assert one.box is not None
        assert other.box is not None
        np.testing.assert_allclose(one.box, other.box, atol=3)


def test_images_that_no_score_reached_may_be_left_out(found: SearchResult) -> None:
    left = found.nonzero()
    assert left.n_verified == 4
    assert all(hit.score > 0 for hit in left)
    assert [hit.key for hit in left[:4]] == [hit.key for hit in found[:4]]


def test_a_search_verifies_when_told_to(index: Index, query: Pixels, found: SearchResult) -> None:
    result = index.search(query, BOX, top=6, verify=50, expand=False)
    assert [(hit.key, hit.verified, hit.box) for hit in result] == [
        (hit.key, hit.verified, hit.box) for hit in found[:6]
    ]
    assert {hit.verified for hit in index.search(query, BOX, top=6, verify=0)} == {None}


def test_of_several_views_the_surest_counts(index: Index, query: Pixels, found: SearchResult) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    views = [extract_query_features(even, None), extract_query_features(query, BOX)]
    both = verified(ranked(index, query, BOX), views)
    assert [(hit.key, hit.outline) for hit in both[:4]] == [(hit.key, hit.outline) for hit in found[:4]]


def test_a_photo_stays_verified_when_a_positive_is_added(index: Index, query: Pixels) -> None:
    before = index.search(query, BOX, top=None)
    verified_before = {hit.key: hit.inliers for hit in before if hit.verified}
    assert len(verified_before) == 4
    # Photos of the same object and of another one, and noise.
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    for positive in (("first-0.png", BOX), ("second-0.png", None), (noise, BOX)):
        after = {
            hit.key: hit.inliers for hit in index.search(query, BOX, top=None, positives=[positive]) if hit.verified
        }
        assert all((after.get(key) or 0) >= (inliers or 0) for key, inliers in verified_before.items())


@pytest.mark.parametrize("box", [BOX, None])
@pytest.mark.parametrize("expand", [False, True])
def test_what_a_query_verifies_stays_verified_though_another_photo_changes_its_shortlist(
    index: Index, query: Pixels, box: Any, expand: bool
) -> None:
    given = [("second-0.png", None), ("second-1.png", None), ("more/none-1.png", None)]
    for depth in (1, 2):
        before: set[str] = set()
        for n in range(len(given) + 1):
            result = index.search(query, box, top=None, verify=depth, expand=expand, positives=given[:n])
            after = {hit.key for hit in result if hit.verified}
            assert after >= before
            before = after
        assert "first-0.png" in before


@pytest.mark.parametrize(("limit", "n_searches"), [(0, 0), (1, 1), (4, 3)])
def test_a_query_of_many_photos_contains_so_many_searches_for_fewer(
    index: Index, query: Pixels, limit: int, n_searches: int
) -> None:
    config = SearchConfig(depth=DepthConfig(max_shorter=limit))
    bounded = Index.open(index.path, config=config)
    state = bounded.search(query, BOX, positives=[(query, BOX)] * 3, verify=1).state
    contained = 0
    while state is not None and state.shorter is not None:
        state, contained = state.shorter, contained + 1
    assert contained == n_searches


def test_a_query_without_texture_leaves_the_result_as_it_is(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    result = index.search(even, top=None)
    looked = verified(result, [extract_query_features(even, None)])
    assert looked.n_verified == 0
    assert [hit.key for hit in looked] == [hit.key for hit in result]
    assert {hit.verified for hit in looked} == {None}
    assert looked.n_matches == result.n_matches


def test_matching_points_lie_where_the_object_was_pasted_in_both_photos(index: Index, query: Pixels) -> None:
    points = index.matching_points(query, "first-2.png", BOX)
    assert points.verified
    assert len(points.query) == len(points.photo) >= points.inliers >= 6
    shift = np.array(where(2)[:2]) - BOX[:2]
    np.testing.assert_allclose(points.photo - points.query, np.broadcast_to(shift, points.photo.shape), atol=4)


def test_photos_of_different_things_have_no_matching_points(index: Index, query: Pixels) -> None:
    points = index.matching_points(query, "more/none-1.png", BOX)
    assert (points.verified, len(points.query), points.transform) == (False, 0, None)


@pytest.mark.parametrize(
    ("right", "looked"),
    [
        ((), 20),
        ((1,), 20),
        ((1, 2), 40),
        ((0, 7, 20, 39), 60),
        (range(80), 80),
    ],
)
def test_more_images_are_verified_while_a_tenth_of_the_last_ones_are(
    monkeypatch: pytest.MonkeyPatch, index: Index, query: Pixels, right: Sequence[int], looked: int
) -> None:
    monkeypatch.setattr("manifind.index.search.results.resembles_query_and_expansion", lambda _retrieval, _image: False)
    retrieval = ranked(index, query, BOX).retrieval
    images, scores = np.arange(90, dtype=np.int32), np.linspace(1, 0.1, 90, dtype=np.float32)
    ranking = replace(retrieval.ranking, images=images, scores=scores)
    snapshot = replace(retrieval.snapshot, catalogue=range(90))  # type: ignore[arg-type]
    result = result_of(replace(retrieval, ranking=ranking, snapshot=snapshot, method="match"))

    def says(_: object, __: int, images: Sequence[int], *___: object, **____: object) -> list[Verification]:
        return [Verification(image in right) for image in images]

    monkeypatch.setattr(pipeline, "load_or_locate_features", lambda _snapshot, images: images)
    monkeypatch.setattr(pipeline, "verify_view", says)
    found = verified(result, [extract_query_features(query, BOX)], first=20)
    assert list(found.verifications) == list(range(looked))
    assert found.n_verified == len(right)


# -- votes ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def snapshot(index: Index) -> Snapshot:
    assert isinstance(index.state, Snapshot)
    return index.state


def keys(snapshot: Snapshot, images: list[int]) -> list[str]:
    return [snapshot.catalogue[image].key for image in images]


def test_the_images_of_the_object_get_the_votes(snapshot: Snapshot, query: Pixels) -> None:
    everything = np.arange(len(snapshot.catalogue))
    found = vote_for_images(snapshot, everything, [extract_query_features(query, BOX)], 4)
    assert sorted(keys(snapshot, found)) == [f"first-{i}.png" for i in range(4)]


def test_only_the_images_of_the_ranking_are_voted_for(snapshot: Snapshot, query: Pixels) -> None:
    some = np.array(
        [image for image in range(len(snapshot.catalogue)) if snapshot.catalogue[image].key != "first-2.png"]
    )[::-1]
    found = vote_for_images(snapshot, some, [extract_query_features(query, BOX)], 3)
    assert sorted(keys(snapshot, found)) == ["first-0.png", "first-1.png", "first-3.png"]


def test_whole_photos_and_what_has_no_texture_do_not_vote(snapshot: Snapshot, query: Pixels) -> None:
    everything, even = np.arange(len(snapshot.catalogue)), np.full((240, 320, 3), 90, np.uint8)
    whole, boxed = (extract_query_features(query, box) for box in (None, (0, 0, 320, 240)))
    assert vote_for_images(snapshot, everything, [whole, boxed, extract_query_features(even, BOX)], 4) == []


def test_an_index_without_features_has_no_votes(snapshot: Snapshot, query: Pixels) -> None:
    everything = np.arange(len(snapshot.catalogue))
    assert vote_for_images(replace(snapshot, local=None), everything, [extract_query_features(query, BOX)], 4) == []


def test_an_image_that_stands_last_is_verified_by_votes(index: Index, query: Pixels) -> None:
    retrieval = ranked(index, query, BOX).retrieval
    ranking = retrieval.ranking
    last = replace(ranking, images=ranking.images[::-1], scores=ranking.scores[::-1])
    upside_down = result_of(replace(retrieval, ranking=last))
    assert not any(hit.key.startswith("first") for hit in upside_down[:4])
    result = verified(upside_down, [extract_query_features(query, BOX)], first=4)
    assert result.n_verified == 4
    assert sorted(hit.key for hit in result[:4]) == [f"first-{i}.png" for i in range(4)]


def test_a_further_view_takes_no_votes_from_the_first(index: Index, query: Pixels) -> None:
    retrieval = ranked(index, query, BOX).retrieval
    ranking, catalogue = retrieval.ranking, retrieval.snapshot.catalogue
    order = sorted(
        range(len(ranking.images)), key=lambda i: not catalogue[int(ranking.images[i])].key.startswith("more")
    )
    empty_first = result_of(replace(retrieval, ranking=replace(ranking, images=ranking.images[order])))
    assert all(hit.key.startswith("more/none") for hit in empty_first[:4])
    views = [extract_query_features(query, BOX), extract_query_features(scene(98, 2), BOX)]
    result = verified(empty_first, views, first=4)
    assert sorted(hit.key for hit in result if hit.verified) == [
        f"{n}-{i}.png" for n in ("first", "second") for i in range(4)
    ]

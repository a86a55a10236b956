"""A result: hits made when they are looked at, the order of its images, and the cutoff."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manifind.boxes import iou
from manifind.geometry.object_box import fit_object_box
from manifind.index import Grade, Hit, Index, RegionShare, SearchConfig, SearchResult, Verification, measure_confidence
from manifind.index.config import CutoffConfig
from manifind.index.search import results
from manifind.index.search.query import SearchQuery, extract_query_features
from manifind.index.search.verification import MatchedGeometry
from manifind.reports.results import COLUMNS, hit_data, result_data, table_rows
from manifind.reports.search import found_words, rule_words
from manifind.types import Box
from tests.index.conftest import ALL, BOX, Pixels
from tests.index.searching import configured, knowing, ranked, result_of, verified

THING = (20, 30, 148, 158)
UNREACHABLE = CutoffConfig(min_null_similarity=4.0, max_null_similarity=4.0)
"""No photo resembles a query as much."""


def test_a_result_is_a_sequence_of_hits(index: Index, photos: Path) -> None:
    result = index.search(photos / "first-0.png", THING, top=6)
    assert len(result) == 6
    assert isinstance(result[0], Hit)
    assert result[-1] is result[5]
    assert result[1:3] == [result[1], result[2]]
    assert [hit.rank for hit in result] == [1, 2, 3, 4, 5, 6]
    assert [hit.rank for hit in reversed(result)] == [6, 5, 4, 3, 2, 1]
    assert result[2] in result
    with pytest.raises(IndexError):
        result[6]
    assert repr(result) == f"SearchResult(6 photos by 'regional', {result.n_matches} of them matches, {result.stage})"


def test_hits_are_made_when_they_are_looked_at(index: Index, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = SearchResult._make_hit

    def noted(self: SearchResult, place: int) -> Hit:
        made.append(place)
        return real(self, place)

    monkeypatch.setattr(SearchResult, "_make_hit", noted)
    result = index.search(photos / "first-0.png", THING, top=None)
    record = index.find(photos / "first-3.png")
    assert record is not None
    hit = result.hit_of(record.number)
    assert hit is not None
    assert hit.key == "first-3.png"
    assert result.n_matches is not None
    assert made == [hit.rank - 1]


def test_the_cutoff_is_where_the_confidence_puts_it(index: Index, photos: Path) -> None:
    result = index.search(photos / "first-0.png", THING, top=None)
    own = index.catalogue.of_key("first-0.png")
    assert own is not None
    confidence = measure_confidence(result.retrieval, {own.number})
    assert confidence is not None
    assert confidence.cutoff > 0
    n_matches = int((result.retrieval.ranking.scores >= confidence.cutoff).sum())
    assert result.n_matches == n_matches
    assert [hit.is_match for hit in result] == [hit.score >= confidence.cutoff for hit in result]
    assert index.search(photos / "first-0.png", THING, top=2).n_matches == min(2, n_matches)
    plain = index.search(photos / "first-0.png", THING, verify=0)
    assert plain.confidence == measure_confidence(plain.retrieval, {own.number})
    assert index.search("first-0.png", method="plain").n_matches is None
    assert index.search("first-0.png", method="plain")[0].is_match is None


@pytest.mark.parametrize("as_what", ["key", "path", "relative path", "bytes", "copy"])
def test_the_querys_own_photo_is_known_however_it_is_given(
    as_what: str, index: Index, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy.png").write_bytes((photos / "more" / "none-1.png").read_bytes())
    monkeypatch.chdir(photos / "more")
    given: Any = {
        "key": "more/none-1.png",
        "path": photos / "more" / "none-1.png",
        "relative path": "../more/none-1.png",
        "bytes": (photos / "more" / "none-1.png").read_bytes(),
        "copy": tmp_path / "copy.png",
    }[as_what]
    found = index.find(given)
    assert found is not None
    assert found.key == "more/none-1.png"
    assert index.find(np.zeros((4, 4, 3), np.uint8)) is None
    assert index.find("nowhere.png") is None


def test_excluded_images_do_not_count(index: Index, photos: Path) -> None:
    result = index.search(photos / "first-0.png", THING, top=None)
    query = SearchQuery(result.retrieval.query, excluded=frozenset({result[0].image}))
    without = SearchResult.of(query, result.retrieval, config=index.config, candidates=3)
    assert [hit.key for hit in without] == [hit.key for hit in result[1:4]]
    assert [hit.rank for hit in without] == [1, 2, 3]


def test_a_verified_image_that_a_ranking_lacks_is_a_result_nonetheless(index: Index, photos: Path) -> None:
    whole = ranked(index, photos / "first-0.png", THING)
    first = SearchResult.of(SearchQuery(whole.retrieval.query), whole.retrieval, config=index.config, candidates=3)
    known = {whole[5].image: Verification(True, 9), whole[6].image: Verification(False, 2)}
    result = knowing(first, known, is_part=True)
    assert [hit.key for hit in result] == [whole[place].key for place in (5, 0, 1, 2)]
    assert [hit.verified for hit in result] == [True, None, None, None]
    assert result[0].score == whole[2].score


def test_what_was_not_verified_or_a_method_does_not_know_is_none(index: Index, photos: Path) -> None:
    for hit in index.search(photos / "first-0.png", THING, top=4, verify=0):
        assert hit.box is not None
        assert (hit.verified, hit.outline, hit.inliers) == (None, None, None)
    assert index.search("first-0.png", method="match")[0].box is None


def test_the_box_meets_the_thing_that_the_query_shows(index: Index, photos: Path) -> None:
    met = []
    for name, box in (("first", THING), ("second", (180, 20, 308, 148))):
        for hit in index.search(photos / f"{name}-0.png", box, top=4, verify=0):
            i = int(hit.key.removeprefix(f"{name}-").removesuffix(".png"))
            x, y = (20 + 50 * i, 30 + 20 * i) if name == "first" else (180 - 50 * i, 20 + 25 * i)
            assert hit.box is not None
            met.append(float(iou(hit.box, (x, y, x + 128, y + 128))))
    assert np.mean(met) > 0.5  # all of the photo would give 0.21


def test_the_box_is_round_what_resembles_the_query_and_not_round_what_scored(index: Index, photos: Path) -> None:
    retrieval = index.search(photos / "first-0.png", THING, verify=0).retrieval
    image = int(retrieval.ranking.images[0])
    ones = np.ones_like(retrieval.ranking.regions)
    even = replace(retrieval, ranking=replace(retrieval.ranking, _region_scores=lambda: ones))
    assert even.locate(image) == retrieval.locate(image)
    nothing = replace(retrieval.query, vectors=np.zeros_like(retrieval.query.vectors))
    assert replace(retrieval, query=nothing).locate(image) != retrieval.locate(image)
    assert replace(even, query=nothing).locate(image) != replace(retrieval, query=nothing).locate(image)


def test_data_and_table_say_the_same(index: Index, photos: Path) -> None:
    result = index.search(photos / "first-0.png", THING)
    said = json.loads(json.dumps(result_data({"image": "x"}, result)))
    assert list(said) == ["query", "method", "complete", "n_matches", "results", "n_unchecked", "config"]
    assert (said["complete"], said["n_matches"], said["config"]) == (True, result.n_matches, index.config.config_hash)
    header, *rows = table_rows(said["results"])
    assert tuple(header) == COLUMNS
    for hit, row in zip(result, rows, strict=True):
        assert row[:3] == [hit.rank, hit.key, hit.score]
        assert tuple(row[3:7]) == hit.box
        assert row[8] == ("yes" if hit.is_match else "no")
        assert len(row) == len(COLUMNS)


def test_what_a_method_does_not_know_is_empty_in_the_table(index: Index) -> None:
    hit = index.search("first-0.png", method="plain")[0]
    _, row = table_rows([hit_data(hit)])
    assert row[3:] == [""] * 13
    region = RegionShare((0, 0, 1, 1), 0.5)
    told = {**hit_data(hit), "verified": False, "regions": [{"box": region.box, "share": region.share}]}
    _, row = table_rows([told])
    assert row[7:10] == [0.5, "", "no"]


# -- the order and the cutoff, given verifications --------------------------------------------------------------------


def test_where_nothing_is_verified_the_scores_say_how_many_match_if_they_know(index: Index, query: Pixels) -> None:
    lenient = configured(index, cutoff=CutoffConfig(pair_null_ratio=0.1))
    result = ranked(lenient, query, BOX)
    assert result.n_matches is not None
    assert result.n_matches > 1
    known = {int(result.images[0]): Verification(False)}
    assert knowing(result, known).n_matches == result.n_matches
    assert knowing(result, known).head(1).n_matches == 1
    assert knowing(lenient.search(query, BOX, method="match"), known).n_matches is None


def test_a_query_without_texture_must_resemble_an_image_clearly(index: Index, query: Pixels) -> None:
    result = ranked(configured(index, cutoff=CutoffConfig(pair_null_ratio=0.1)), query, BOX)
    confidence = result.confidence
    assert confidence is not None
    assert result.n_matches
    textured, plain = ({hit.image: Verification(verified) for hit in result[:5]} for verified in (False, None))
    assert knowing(result, textured).n_matches == result.n_matches
    for more, n_matches in ((-0.01, result.n_matches), (0.01, 0)):
        factor = confidence.similarity / confidence.null_similarity + more
        cutoff = replace(result.config.cutoff, textureless_factor=factor)
        strict = replace(result, config=replace(result.config, cutoff=cutoff))
        assert knowing(strict, plain).n_matches == n_matches


def test_the_querys_own_photo_is_counted_nowhere(index: Index, query: Pixels) -> None:
    result = index.search("first-0.png", BOX)
    assert (result.n_matches, result.n_other_matches) == (4, 3)
    assert not result.nearest_may_match
    assert found_words(result) == "3 photos are likely to show it, 3 of them verified"
    alone = configured(index, cutoff=UNREACHABLE).search("first-0.png", BOX, verify=0)
    assert (alone.n_other_matches, alone.nearest_may_match) == (0, True)
    assert found_words(alone) == "Nothing certain besides the query's own photo"
    assert rule_words(alone) == "Nothing certain besides the query's own photo. The nearest, please judge"
    assert index.search(query, BOX, method="match").n_other_matches is None


def test_the_nearest_may_match_a_query_without_texture_and_none_that_resembles_nothing(
    index: Index, query: Pixels
) -> None:
    unlike = ranked(configured(index, cutoff=UNREACHABLE), query, BOX)
    assert (unlike.n_matches, unlike.nearest_may_match) == (0, False)
    assert found_words(unlike) == "Nothing in this collection matches"
    textured, plain = (knowing(unlike, {hit.image: Verification(said) for hit in unlike[:5]}) for said in (False, None))
    assert not textured.nearest_may_match
    assert plain.nearest_may_match
    assert (found_words(plain), rule_words(plain)) == ("Nothing certain", "Nothing certain. The nearest, please judge")
    # What shares a part stands out, and is no match.
    clear = ranked(configured(index, cutoff=CutoffConfig(pair_null_ratio=0.1)), query, BOX)
    shared = knowing(
        clear, dict.fromkeys(clear.images.tolist(), Verification(False, 9, shares_part=True)), is_part=True
    )
    assert (shared.n_matches, shared.nearest_may_match) == (0, True)


def test_weak_matches_beside_verified_images_are_matches(index: Index, query: Pixels) -> None:
    result = ranked(index, query, BOX)
    images = result.images.tolist()
    sure, doubted = images[0], images[-2]
    where = (10.0, 20.0, 30.0, 40.0)
    weak = Verification(False, 4, weak_match_box=where)
    found = knowing(result, {sure: Verification(True, 9, box=BOX), doubted: weak}, is_part=True)
    assert [hit.image for hit in found[:2]] == [sure, doubted]
    assert (found[1].is_match, found[1].verified, found[1].box) == (True, False, where)
    assert (found.n_verified, found.head(1).n_matches, found.head(2).n_matches) == (1, 1, 2)


def test_each_grade_says_what_is_known_of_a_photo(index: Index, query: Pixels) -> None:
    result = ranked(index, query, BOX)
    corners = ((1.0, 1.0), (9.0, 1.0), (9.0, 9.0), (1.0, 9.0))
    part = Verification(False, 7, weak_match_box=(1.0, 1.0, 9.0, 9.0), part=corners)
    last = result.images.tolist()[-1]
    alone = knowing(result, {last: part}, is_part=True).hit_of(last)
    assert alone is not None
    assert (alone.grade, alone.part, alone.inliers, alone.outline) == (Grade.SHARES_PART, corners, 7, None)
    assert (alone.verified, alone.is_match) == (False, False)
    found = knowing(result, {last: Verification(True, 9, corners, BOX)}, is_part=True)
    assert found[0].grade is Grade.VERIFIED
    assert {(hit.is_match, hit.grade) for hit in found[1:]} <= {(True, Grade.LIKELY), (False, Grade.UNLIKELY)}
    assert index.search("first-0.png", method="plain")[0].grade is None


@pytest.mark.parametrize("scores_tell", [False, True])
def test_weak_matches_change_nothing_by_themselves(index: Index, query: Pixels, scores_tell: bool) -> None:
    result = ranked(configured(index, cutoff=CutoffConfig(pair_null_ratio=0.1 if scores_tell else 3)), query, BOX)
    assert bool(result.n_matches) == scores_tell
    doubted, last = result.images[-2:].tolist()
    known = {doubted: Verification(False, 9, weak_match_box=(10.0, 20.0, 30.0, 40.0)), last: Verification(False)}
    found = knowing(result, known, is_part=True)
    assert (found.n_matches, found.n_verified) == (result.n_matches, 0)
    assert [(hit.image, hit.box) for hit in found] == [(hit.image, hit.box) for hit in result]


def test_verified_images_together_give_the_object_its_shape(index: Index, query: Pixels) -> None:
    result = ranked(index, query, BOX)
    first, second, third = result.images[:3].tolist()
    points = np.random.default_rng(0).uniform(60, 120, (3, 12, 2)).astype(np.float32)
    plain, size = (10.0, 20.0, 110.0, 120.0), (320, 240)
    known = {
        image: Verification(True, 9, box=plain, geometry=MatchedGeometry(BOX, np.eye(3), some, size, view))
        for image, some, view in zip((first, second, third), points, (0, 0, 1), strict=True)
    }

    def boxes(own: set[int]) -> list[Box | None]:
        found = knowing(result_of(result.retrieval, own=frozenset(own)), known, is_part=True)
        return [hit.box for image in (first, second, third) if (hit := found.hit_of(image)) is not None]

    def by(*some: int) -> Box:
        return fit_object_box(np.eye(3), np.concatenate([points[i] for i in some]), BOX, plain, size)

    np.testing.assert_allclose(np.array(boxes(set())), [by(0, 1), by(0, 1), by(2)], atol=0.051)
    # The photo that the query was taken from confirms what is behind the object too.
    np.testing.assert_allclose(np.array(boxes({first})), [plain, by(1), by(2)], atol=0.051)


def test_a_point_that_several_images_confirm_counts_once(index: Index, query: Pixels) -> None:
    result = ranked(index, query, BOX)
    points = np.random.default_rng(0).uniform(60, 120, (12, 2)).astype(np.float32)
    plain, size = (10.0, 20.0, 110.0, 120.0), (320, 240)
    known = {
        image: Verification(True, 9, box=plain, geometry=MatchedGeometry(BOX, np.eye(3), points, size, 0))
        for image in result.images[:9].tolist()
    }
    found = knowing(result, known, is_part=True)
    np.testing.assert_allclose(np.array(found[0].box), fit_object_box(np.eye(3), points, BOX, plain, size), atol=0.051)


@pytest.mark.parametrize("is_part", [True, False])
def test_what_scores_as_well_as_verified_images_matches(
    index: Index, query: Pixels, is_part: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, cutoff = ranked(index, query, BOX), SearchConfig().cutoff
    monkeypatch.setattr(results, "resembles_query_and_expansion", lambda _retrieval, _image: True)
    known = {int(result.images[0]): Verification(True, 9, box=BOX)}
    limit = (cutoff.min_verified_ratio_box if is_part else cutoff.min_verified_ratio_whole) * result.scores[0]
    assert knowing(result, known, is_part=is_part).n_matches == (result.scores >= limit).sum()
    # An image verified at full resolution does not lower what others must score, unless no other is verified.
    last = int(result.images[-1])
    full = {last: Verification(True, 9, box=BOX, full_resolution=True)}
    assert knowing(result, known | full, is_part=is_part).n_matches == (result.scores >= limit).sum() + 1
    assert knowing(result, full, is_part=is_part).n_matches == len(result)


def test_a_box_round_the_whole_photo_is_no_part_of_it(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ranked(configured(index, cutoff=CutoffConfig(min_verified_ratio_box=0.0)), query)
    monkeypatch.setattr(results, "resembles_query_and_expansion", lambda _retrieval, _image: True)
    part, boxed, whole = (verified(result, [extract_query_features(query, box)]).n_matches for box in (BOX, ALL, None))
    assert part == len(result)
    assert boxed == whole != part


def test_where_a_box_is_given_what_does_not_resemble_both_is_no_match(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ranked(index, query, BOX)
    first, second, third = result.images[:3].tolist()
    assert result.scores[2] >= SearchConfig().cutoff.min_verified_ratio_box * result.scores[0]
    monkeypatch.setattr(results, "resembles_query_and_expansion", lambda _retrieval, image: image == third)
    found = knowing(result, {first: Verification(True, 9, box=BOX)}, is_part=True)
    assert [hit.image for hit in found[:3]] == [first, third, second]
    assert (found.n_matches, found.n_verified, found.head(1).n_matches) == (2, 1, 1)

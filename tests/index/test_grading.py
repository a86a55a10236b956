"""Grades: results of another product, which match each other better than the query, share a part of it."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from manifind.index import Grade, Index, SearchConfig
from manifind.index.config import GradingConfig
from manifind.index.search import grading
from manifind.index.search.grading import Pair, count_matches, grade_verifications, measure, probabilities, spread
from manifind.index.search.query import extract_query_features
from manifind.index.search.verification import Evidence, Outline, Verification, verify_images
from tests.index.conftest import BOX, Pixels
from tests.index.searching import configured, knowing, ranked

CORNERS: Outline = ((0.0, 0.0), (9.0, 0.0), (9.0, 9.0), (0.0, 9.0))
WHERE = (0.0, 0.0, 9.0, 9.0)


def evidence(inliers: int, coverage: float) -> Evidence:
    return Evidence(inliers, coverage, CORNERS, WHERE, CORNERS)


def two_products() -> tuple[dict[int, Evidence], dict[Pair, int]]:
    """Results 0 to 3 show the object; 10 to 13 another one with the same logo."""
    right, wrong = range(4), range(10, 14)
    results = {image: evidence(40 - image, 0.6) for image in right}
    results |= {image: evidence(22 - image, 0.1) for image in wrong}
    counts = {(i, j, WHERE): 30 for i in right for j in right if i != j}
    counts |= {(i, j, WHERE): 50 for i in wrong for j in wrong if i != j}
    return results, counts | {(i, j, WHERE): 8 for i in wrong for j in right}


def test_results_that_match_each_other_better_than_the_query_are_improbable() -> None:
    config = GradingConfig()
    chances = probabilities(measure(*two_products(), config), config)
    assert (chances[:4] >= config.min_verified).all()
    assert (chances[4:] < config.max_part).all()


def test_figures_are_the_rank_the_better_matches_and_the_coverage() -> None:
    results = {0: evidence(20, 0.5), 1: evidence(9, 0.25), 2: evidence(30, 0.75)}
    counts = {(0, 1, WHERE): 25, (0, 2, WHERE): 12, (1, 0, WHERE): 9, (2, 0, (1.0, 1.0, 2.0, 2.0)): 99}
    figures = measure(results, counts, GradingConfig(partners=1))
    np.testing.assert_allclose(figures.own, [[np.log(2), np.log(2), 0.5], [np.log(3), 0, 0.25], [0, 0, 0.75]])
    assert figures.partners == ((1,), (0,), (0,))


def test_a_logit_spreads_to_the_partners_and_stays_where_there_is_none() -> None:
    np.testing.assert_allclose(spread(np.array([1.0, 3.0, -4.0]), ((1, 2), (), (0,))), [-0.5, 3.0, 1.0])


def test_an_improbable_result_shares_a_part_and_a_doubtful_one_is_a_weak_match(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ranked(index, query, BOX)
    images = result.images[:3].tolist()
    _, second, third = images
    sure = Verification(True, 9, CORNERS, WHERE, evidence=evidence(9, 0.5))
    monkeypatch.setattr(grading, "count_matches", lambda *asked: True)
    monkeypatch.setattr(grading, "probabilities", lambda *asked: np.array([0.9, 0.1, 0.5]))
    snapshot = result.retrieval.snapshot
    on = SearchConfig(grading=GradingConfig(enabled=True))
    graded = grade_verifications(snapshot, dict.fromkeys(images, sure), frozenset(), {}, on)
    assert [graded[image].verified for image in images] == [True, False, False]
    found = {hit.image: hit for hit in knowing(result, graded, is_part=True)}
    assert [found[image].grade for image in images] == [Grade.VERIFIED, Grade.SHARES_PART, Grade.LIKELY]
    assert (found[second].part, found[second].inliers, found[second].is_match) == (CORNERS, 9, False)
    assert found[third].is_match
    # Graded once more, the verifications as they were count.
    again = grade_verifications(snapshot, graded, frozenset(), {}, on)
    assert again == graded
    assert grade_verifications(snapshot, graded, frozenset(), {}, SearchConfig()) == dict.fromkeys(images, sure)
    assert grade_verifications(snapshot, graded, frozenset(images), {}, on) == dict.fromkeys(images, sure)


def test_an_image_that_shares_a_part_is_no_match_by_its_score(index: Index, query: Pixels) -> None:
    result = ranked(configured(index, cutoff=replace(SearchConfig().cutoff, pair_null_ratio=0.1)), query, BOX)
    n, first = result.n_matches, int(result.images[0])
    assert n
    shared = Verification(False, 9, part=CORNERS, shares_part=True)
    found = knowing(result, {first: shared}, is_part=True)
    hit = found.hit_of(first)
    assert hit is not None
    assert (found.n_matches, hit.is_match, hit.grade) == (n - 1, False, Grade.SHARES_PART)


def test_results_of_the_object_match_each_other_and_are_matched_once(index: Index, query: Pixels) -> None:
    result = ranked(index, query, BOX)
    snapshot = result.retrieval.snapshot
    on = SearchConfig(grading=GradingConfig(enabled=True))
    found = verify_images(snapshot, result.images.tolist(), [extract_query_features(query, BOX)], on)
    known = {image: one.evidence for image, one in found.items() if one.verified and one.evidence is not None}
    assert len(known) == 4
    assert all(0.3 < one.coverage <= 1 for one in known.values())
    counts: dict[Pair, int] = {}
    assert count_matches(snapshot, known, counts, index.config)
    assert len(counts) == 4 * 3
    assert min(counts.values()) >= index.config.matching.min_inliers
    assert count_matches(snapshot, known, counts, index.config, lambda: False)
    assert not count_matches(snapshot, known, {}, index.config, lambda: False)


def test_the_photos_of_an_object_stay_verified_in_a_graded_search(index: Index, query: Pixels) -> None:
    result = configured(index, grading=GradingConfig(enabled=True)).search(query, BOX)
    assert sorted(hit.key for hit in result if hit.grade is Grade.VERIFIED) == [f"first-{i}.png" for i in range(4)]
    assert result.state is not None
    assert result.state.matches_of_results
    assert result.n_verified == 4


def test_the_benchmark_fits_coefficients_that_part_right_from_wrong(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    grades = importlib.import_module("grades")
    rng = np.random.default_rng(0)
    rows, right = rng.normal(size=(400, 2)) * (3, 1) + (1, 0), rng.random(400)
    labels = right < 1 / (1 + np.exp(-(0.5 + rows @ np.array([0.4, -1.0]))))
    constant, *slopes = grades.logistic(rows, labels, np.ones(400))
    np.testing.assert_allclose([constant, *slopes], [0.5, 0.4, -1.0], atol=0.35)
    # Newton's method ends where the derivative is zero: the constant has no penalty.
    chances = 1 / (1 + np.exp(-(constant + rows @ np.array(slopes))))
    assert chances.sum() == pytest.approx(labels.sum())
    figures = measure(*two_products(), GradingConfig())
    query = {"own": figures.own.tolist(), "partners": figures.partners, "verified": [True] * 8, "counts": [True] * 8}
    labelled = grades.Labelled(
        {"name": "", "queries": [{**query, "positives": 5, "right": [True] * 4 + [False] * 4}] * 9}
    )
    found = labelled.grades(grades.fit([labelled]))
    assert found["before"] == "precision 0.500 recall 0.800 (36 of 72)"
    assert found["verified"] == "precision 1.000 recall 0.800 (36 of 36)"

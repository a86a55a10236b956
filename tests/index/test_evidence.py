"""Where the evidence of a ranking ends."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manifind.index import QueryRegions, Search, View, evidence
from manifind.index.asking.evidence import (
    A_DOUBLING,
    AT_MOST,
    LEAST_AMONG,
    LEAST_BY_CHANCE,
    MOST_AMONG,
    MOST_BY_CHANCE,
    PAIRS,
    PART_OF_THE_BEST,
    PHOTOS,
    THE_SAME,
    TOGETHER,
    among,
    chance_similarity,
    resemblance,
    resembles_both,
    unlikely_similarity,
)
from manifind.index.state import chance
from manifind.index.state.generation import MadeOnce
from manifind.layout import Layout
from manifind.ranking import Ranking
from tests.collections_of_regions import unit


def collection(images: int = 200, d: int = 64, shared: int = 0) -> Any:
    """Photos of three random regions each; the first `shared` all show one thing in their first region."""
    rng = np.random.default_rng(3)
    vectors = unit(rng.normal(size=(3 * images, d)).astype(np.float32))
    for image in range(shared):
        vectors[3 * image] = unit(vectors[:1] + 0.02 * rng.normal(size=(1, d)))[0]
    layout = Layout.of(np.repeat(np.arange(images, dtype=np.int32), 3))
    manifold = SimpleNamespace(vectors_=vectors, layout_=layout)
    return SimpleNamespace(
        manifold=manifold,
        manifest=SimpleNamespace(unlikely=None),
        photos=images,
        made=MadeOnce(),
        regions_of=lambda image: slice(3 * image, 3 * image + 3),
    )


def found(
    now: Any, query: np.ndarray[Any, Any], images: list[int], scores: list[float], method: str = "regional"
) -> Search:
    asked = QueryRegions.of([View(query, np.zeros((len(query), 4), np.float32))])
    ranking = Ranking(np.array(images, np.int32), np.array(scores, np.float32))
    return Search(now, asked, ranking, method)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_line_is_half_of_the_best_besides_the_querys_own(count: int) -> None:
    now = collection(shared=8)
    scores = [*(1.0, 0.8, 0.7, 0.6, 0.5, 0.41)[: count + 1], 0.39, 0.2, 0.01]
    shown = evidence(found(now, now.manifold.vectors_[:1], list(range(len(scores))), scores), own={0})
    assert shown is not None
    assert shown.score == pytest.approx(PART_OF_THE_BEST * 0.8)
    assert shown.likely == count + 1


def test_the_querys_own_photo_is_no_evidence() -> None:
    now = collection()
    shown = evidence(found(now, now.manifold.vectors_[:1], [0, 1, 2], [1.0, 0.1, 0.1]), own={0})
    assert shown is not None
    assert shown.similarity < MOST_BY_CHANCE
    assert shown.likely == 1


def test_a_query_with_no_other_photo_resembles_none() -> None:
    now = collection()
    shown = evidence(found(now, now.manifold.vectors_[:1], [0, 1], [1.0, 0.0]), own={0})
    assert shown is not None
    assert (shown.likely, shown.similarity, shown.score) == (1, 0, 0)


def test_nothing_is_likely_where_nothing_is_alike() -> None:
    now = collection()
    stranger = unit(np.random.default_rng(9).normal(size=(4, 64)).astype(np.float32))
    shown = evidence(found(now, stranger, list(range(20)), [1.0] * 20))
    assert shown is not None
    assert shown.likely == 0


def test_the_best_of_more_photos_must_resemble_a_query_more() -> None:
    assert among(PHOTOS) == 1
    assert among(2 * PHOTOS) - among(PHOTOS) == pytest.approx(among(8 * PHOTOS) - among(4 * PHOTOS)) == A_DOUBLING
    assert among(0) == among(2) == LEAST_AMONG < among(75) < among(300) < 1
    # What three pairs must reach together stays below what one pair must.
    assert among(10**6) == among(10**9) == MOST_AMONG < 1 / TOGETHER


def test_a_shortlist_has_the_limit_of_its_whole_collection() -> None:
    now = collection(images=40)
    query = now.manifold.vectors_[:3]
    limits = []
    for photos in (40, 2_000, 50_000):
        now.photos = photos
        shown = evidence(found(now, query, list(range(20)), [1.0] * 20))
        assert shown is not None
        limits.append(shown.chance / chance_similarity(now) / TOGETHER)
    assert limits == pytest.approx([among(40), among(2_000), among(50_000)])


@pytest.mark.parametrize("photos", [1, 2, 7, 40, 400])
def test_what_is_unlikely_is_a_quantile_of_all_pairs_of_regions_of_different_photos(
    photos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chance, "BLOCK", 50)
    X = unit(np.random.default_rng(photos).normal(size=(photos, 8)).astype(np.float32))
    # Regions of one photo, two of each and the same twice, are no pair, however alike they are.
    pairs = np.repeat((X @ X.T)[~np.eye(photos, dtype=bool)], 4)
    measured = chance.measure_unlikely(np.repeat(X, 2, axis=0), np.arange(2 * photos) // 2)
    assert measured == pytest.approx(np.quantile(pairs, 1 - 1 / 300) if len(pairs) else 1.0, abs=1e-5)


def test_what_the_manifest_says_is_not_measured_again() -> None:
    now = collection()
    now.manifest.unlikely = 0.141
    assert unlikely_similarity(now) == 0.141
    assert chance_similarity(now) == pytest.approx(3 * 0.141)


def test_chance_is_measured_between_photos_and_bounded() -> None:
    for d in (20, 370, 390, 3000):
        now = collection(d=d)
        X = now.manifold.vectors_
        apart = np.repeat(np.arange(200), 3)
        measured = np.quantile((X @ X.T)[apart[:, None] != apart], 1 - 1 / 300)
        expected = np.clip(AT_MOST * measured, LEAST_BY_CHANCE, MOST_BY_CHANCE)
        assert chance_similarity(now) == pytest.approx(expected, abs=0.01)
    assert chance_similarity(collection(images=30, shared=30)) == MOST_BY_CHANCE


@pytest.mark.parametrize("method", ["global", "match", "plain"])
def test_other_methods_know_no_line(method: str, tmp_path: Path) -> None:
    now = collection()
    assert evidence(found(now, now.manifold.vectors_[:1], [0], [1.0], method)) is None


def test_a_query_resembles_a_photo_by_the_best_pairs_that_are_each_others_best() -> None:
    rng = np.random.default_rng(1)
    query, photo = (unit(rng.normal(size=(many, 16)).astype(np.float32)) for many in (7, 9))
    similarities = query @ photo.T
    mutual = sorted(
        float(similarities[i, j])
        for i in range(7)
        for j in range(9)
        if similarities[i, j] == similarities[i].max() == similarities[:, j].max()
    )
    assert len(mutual) > PAIRS
    assert resemblance(query, photo) == pytest.approx(np.mean(mutual[-PAIRS:]))
    # A region that is best for all others makes one pair.
    assert resemblance(query[:1], query[:3]) == pytest.approx(1 / PAIRS)


@pytest.mark.parametrize("alike", [0.01, -0.01])
def test_regions_that_are_nearly_the_same_count_once(alike: float) -> None:
    """Three patches of sky resemble three others, each the other's best, and tell no more than one."""
    rng = np.random.default_rng(2)
    share = np.sqrt(THE_SAME + alike)
    # Orthonormal: what all patches share, and what each has of its own.
    one, *own = np.linalg.qr(rng.normal(size=(16, 4)))[0].T.astype(np.float32)
    sky = np.stack([share * one + np.sqrt(1 - share**2) * each for each in own]).astype(np.float32)
    assert resemblance(sky, sky) == pytest.approx(1 / PAIRS if alike > 0 else 1, rel=1e-5)


@pytest.mark.parametrize("alike", [0.9, 1.1])
def test_a_query_of_one_region_must_resemble_one_region_by_more_than_chance(alike: float) -> None:
    now = collection()
    chance = chance_similarity(now)
    other = unit(np.random.default_rng(4).normal(size=(1, 64)).astype(np.float32))
    shown = now.manifold.vectors_[:1]
    other = unit(other - (other @ shown.T) * shown)
    query = alike * chance * shown + np.sqrt(1 - (alike * chance) ** 2) * other
    told = evidence(found(now, query.astype(np.float32), [0, 1, 2], [1.0, 0.1, 0.1]))
    assert told is not None
    assert told.chance == chance
    assert told.likely == (alike > 1)


def test_one_region_that_is_closely_alike_is_not_enough() -> None:
    now = collection()
    vectors = now.manifold.vectors_
    strange = unit(np.random.default_rng(9).normal(size=(3, 64)).astype(np.float32))
    for alike, part, likely in ((1, 0.45, 0), (3, 0.45, 1), (1, 0.6, 0)):
        query = np.concatenate([part * vectors[:alike] + np.sqrt(1 - part**2) * strange[:alike], strange[alike:]])
        shown = evidence(found(now, unit(query.astype(np.float32)), [0, *range(10, 20)], [1.0, *([0.3] * 10)]))
        assert shown is not None
        assert shown.chance == pytest.approx(TOGETHER * among(200) * chance_similarity(now))
        assert shown.likely == likely
        assert (shown.similarity > shown.chance) == (alike == 3)


def test_a_photo_resembles_both_the_query_and_what_was_taught_by_one_region() -> None:
    now = collection(images=300)
    vectors = now.manifold.vectors_
    query, lesson = (unit(vectors[some].sum(axis=0, keepdims=True)) for some in ([0, 3, 7], [0, 4, 6]))
    asked = QueryRegions.of([View(query, np.zeros((1, 4), np.float32))])
    taught = asked.taught(View(lesson, np.zeros((1, 4), np.float32), np.array([4], np.int32)))
    assert 0.3 < unlikely_similarity(now) < 0.5
    # Region 0, of photo 0, is the query's and the lesson's; photos 1 and 2 have one region of each.
    told = [[resembles_both(Search(now, q, None, "regional"), photo) for photo in range(4)] for q in (asked, taught)]  # type: ignore[arg-type]
    assert told == [[True, True, True, False], [True, False, False, False]]

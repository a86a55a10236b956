"""Whether anything in a ranking matches, and where the cutoff is."""

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manifind.groups import Layout
from manifind.index import Confidence, QueryRegions, QueryView, Retrieval, measure_confidence
from manifind.index.config import CutoffConfig, RetrievalConfig
from manifind.index.search.confidence import (
    collection_size_factor,
    null_similarity,
    resemblance,
    resembles_query_and_expansion,
    unrelated_similarity,
)
from manifind.index.search.results import order_by_score
from manifind.index.storage import snapshot as measuring
from manifind.index.storage.snapshot import SnapshotCache
from manifind.ranking import Ranking
from tests.collections_of_regions import unit

CUTOFF = CutoffConfig()


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
        manifest=SimpleNamespace(null_similarity=None),
        photos=images,
        cache=SnapshotCache(),
        regions_of=lambda image: slice(3 * image, 3 * image + 3),
    )


def found(
    snapshot: Any, query: np.ndarray[Any, Any], images: list[int], scores: list[float], method: str = "regional"
) -> Retrieval:
    regions = QueryRegions.of([QueryView(query, np.zeros((len(query), 4), np.float32))])
    ranking = Ranking(np.array(images, np.int32), np.array(scores, np.float32))
    return Retrieval(snapshot, regions, ranking, method, RetrievalConfig())


def measured(retrieval: Retrieval, own: Collection[int] = ()) -> tuple[Confidence, int | None]:
    """The confidence of a ranking, and how many of its images match."""
    confidence = measure_confidence(retrieval, own)
    assert confidence is not None
    ranking = retrieval.ranking
    return confidence, order_by_score(ranking.images, ranking.scores, own, confidence).n_matches


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_cutoff_is_half_of_the_best_besides_the_querys_own(count: int) -> None:
    snapshot = collection(shared=8)
    scores = [*(1.0, 0.8, 0.7, 0.6, 0.5, 0.41)[: count + 1], 0.39, 0.2, 0.01]
    shown, n_matches = measured(
        found(snapshot, snapshot.manifold.vectors_[:1], list(range(len(scores))), scores), own={0}
    )
    assert shown.cutoff == pytest.approx(CUTOFF.min_score_ratio * 0.8)
    assert n_matches == count + 1


def test_the_querys_own_image_says_nothing() -> None:
    snapshot = collection()
    shown, n_matches = measured(found(snapshot, snapshot.manifold.vectors_[:1], [0, 1, 2], [1.0, 0.1, 0.1]), own={0})
    assert shown.similarity < CUTOFF.max_null_similarity
    assert n_matches == 1


def test_a_query_with_no_other_photo_resembles_none() -> None:
    snapshot = collection()
    shown, n_matches = measured(found(snapshot, snapshot.manifold.vectors_[:1], [0, 1], [1.0, 0.0]), own={0})
    assert (n_matches, shown.similarity, shown.cutoff) == (1, 0, 0)


def test_nothing_matches_where_nothing_is_alike() -> None:
    snapshot = collection()
    stranger = unit(np.random.default_rng(9).normal(size=(4, 64)).astype(np.float32))
    _, n_matches = measured(found(snapshot, stranger, list(range(20)), [1.0] * 20))
    assert n_matches == 0


def test_the_best_of_more_photos_must_resemble_a_query_more() -> None:
    assert collection_size_factor(CUTOFF.reference_images) == 1
    assert (
        collection_size_factor(2 * CUTOFF.reference_images) - collection_size_factor(CUTOFF.reference_images)
        == pytest.approx(
            collection_size_factor(8 * CUTOFF.reference_images) - collection_size_factor(4 * CUTOFF.reference_images)
        )
        == CUTOFF.gain_per_doubling
    )
    assert (
        collection_size_factor(0)
        == collection_size_factor(2)
        == CUTOFF.size_factor_bounds[0]
        < collection_size_factor(75)
        < collection_size_factor(300)
        < 1
    )
    # What three pairs must reach together stays below what one pair must.
    assert (
        collection_size_factor(10**6)
        == collection_size_factor(10**9)
        == CUTOFF.size_factor_bounds[1]
        < 1 / CUTOFF.pair_null_ratio
    )


def test_a_shortlist_has_the_limit_of_its_whole_collection() -> None:
    snapshot = collection(images=40)
    query = snapshot.manifold.vectors_[:3]
    limits = []
    for photos in (40, 2_000, 50_000):
        snapshot.photos = photos
        shown, _ = measured(found(snapshot, query, list(range(20)), [1.0] * 20))
        limits.append(shown.null_similarity / null_similarity(snapshot) / CUTOFF.pair_null_ratio)
    assert limits == pytest.approx(
        [collection_size_factor(40), collection_size_factor(2_000), collection_size_factor(50_000)]
    )


@pytest.mark.parametrize("photos", [1, 2, 7, 40, 400])
def test_the_unrelated_similarity_is_a_quantile_of_all_pairs_of_regions_of_different_photos(
    photos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "NULL_BLOCK", 50)
    X = unit(np.random.default_rng(photos).normal(size=(photos, 8)).astype(np.float32))
    # Regions of one photo, two of each and the same twice, are no pair, however alike they are.
    pairs = np.repeat((X @ X.T)[~np.eye(photos, dtype=bool)], 4)
    measured = measuring.measure_null_similarity(np.repeat(X, 2, axis=0), np.arange(2 * photos) // 2)
    assert measured == pytest.approx(np.quantile(pairs, 1 - 1 / 300) if len(pairs) else 1.0, abs=1e-5)


def test_what_the_manifest_says_is_not_measured_again() -> None:
    snapshot = collection()
    snapshot.manifest.null_similarity = 0.141
    assert unrelated_similarity(snapshot) == 0.141
    assert null_similarity(snapshot) == pytest.approx(3 * 0.141)


def test_the_null_similarity_is_measured_between_images_and_bounded() -> None:
    for d in (20, 370, 390, 3000):
        snapshot = collection(d=d)
        X = snapshot.manifold.vectors_
        apart = np.repeat(np.arange(200), 3)
        measured = np.quantile((X @ X.T)[apart[:, None] != apart], 1 - 1 / 300)
        expected = np.clip(CUTOFF.null_factor * measured, CUTOFF.min_null_similarity, CUTOFF.max_null_similarity)
        assert null_similarity(snapshot) == pytest.approx(expected, abs=0.01)
    assert null_similarity(collection(images=30, shared=30)) == CUTOFF.max_null_similarity


@pytest.mark.parametrize("method", ["global", "match", "plain"])
def test_other_methods_have_no_cutoff(method: str, tmp_path: Path) -> None:
    snapshot = collection()
    assert measure_confidence(found(snapshot, snapshot.manifold.vectors_[:1], [0], [1.0], method)) is None


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
    assert len(mutual) > CUTOFF.pairs
    assert resemblance(query, photo) == pytest.approx(np.mean(mutual[-CUTOFF.pairs :]))
    # A region that is best for all others makes one pair.
    assert resemblance(query[:1], query[:3]) == pytest.approx(1 / CUTOFF.pairs)


@pytest.mark.parametrize("alike", [0.01, -0.01])
def test_regions_that_are_nearly_the_same_count_once(alike: float) -> None:
    """Three patches of sky resemble three others, each the other's best, and tell no more than one."""
    rng = np.random.default_rng(2)
    share = np.sqrt(CUTOFF.duplicate_similarity + alike)
    # Orthonormal: what all patches share, and what each has of its own.
    one, *own = np.linalg.qr(rng.normal(size=(16, 4)))[0].T.astype(np.float32)
    sky = np.stack([share * one + np.sqrt(1 - share**2) * each for each in own]).astype(np.float32)
    assert resemblance(sky, sky) == pytest.approx(1 / CUTOFF.pairs if alike > 0 else 1, rel=1e-5)


@pytest.mark.parametrize("alike", [0.9, 1.1])
def test_a_query_of_one_region_must_resemble_one_region_by_more_than_chance(alike: float) -> None:
    snapshot = collection()
    chance = null_similarity(snapshot)
    other = unit(np.random.default_rng(4).normal(size=(1, 64)).astype(np.float32))
    shown = snapshot.manifold.vectors_[:1]
    other = unit(other - (other @ shown.T) * shown)
    query = alike * chance * shown + np.sqrt(1 - (alike * chance) ** 2) * other
    told, n_matches = measured(found(snapshot, query.astype(np.float32), [0, 1, 2], [1.0, 0.1, 0.1]))
    assert told.null_similarity == chance
    assert n_matches == (alike > 1)


def test_one_region_that_is_closely_alike_is_not_enough() -> None:
    snapshot = collection()
    vectors = snapshot.manifold.vectors_
    strange = unit(np.random.default_rng(9).normal(size=(3, 64)).astype(np.float32))
    for alike, part, expected in ((1, 0.45, 0), (3, 0.45, 1), (1, 0.6, 0)):
        query = np.concatenate([part * vectors[:alike] + np.sqrt(1 - part**2) * strange[:alike], strange[alike:]])
        shown, n_matches = measured(
            found(snapshot, unit(query.astype(np.float32)), [0, *range(10, 20)], [1.0, *([0.3] * 10)])
        )
        assert shown.null_similarity == pytest.approx(
            CUTOFF.pair_null_ratio * collection_size_factor(200) * null_similarity(snapshot)
        )
        assert n_matches == expected
        assert (shown.similarity > shown.null_similarity) == (alike == 3)


def test_a_photo_resembles_both_the_query_and_its_expansion_by_one_region() -> None:
    snapshot = collection(images=300)
    vectors = snapshot.manifold.vectors_
    query, lesson = (unit(vectors[some].sum(axis=0, keepdims=True)) for some in ([0, 3, 7], [0, 4, 6]))
    asked = QueryRegions.of([QueryView(query, np.zeros((1, 4), np.float32))])
    expanded = asked.with_expansion(QueryView(lesson, np.zeros((1, 4), np.float32), np.array([4], np.int32)))
    assert 0.3 < unrelated_similarity(snapshot) < 0.5
    # Region 0, of image 0, is the query's and the expansion's; images 1 and 2 have one region of each.
    told = [
        [
            resembles_query_and_expansion(
                Retrieval(snapshot, q, None, "regional", RetrievalConfig()),  # type: ignore[arg-type]
                image,
            )
            for image in range(4)
        ]
        for q in (asked, expanded)
    ]
    assert told == [[True, True, True, False], [True, False, False, False]]

"""Queries of several views, what is not meant, and many at once."""

from pathlib import Path

import numpy as np
import pytest

from manifind.errors import InvalidInputError
from manifind.index import METHODS, Index, QueryRegions, QueryView, extract_query_view, retrieve, stored_query_view
from tests.errors import raises
from tests.index.conftest import Pixels, scene
from tests.index.searching import result_of

FIRST = (20, 30, 148, 158)
SECOND = (180, 20, 308, 148)


def extracted(index: Index, pixels: Pixels, box: tuple[int, ...] | None = None) -> QueryView:
    return extract_query_view(index.extractor, pixels, box)


@pytest.mark.parametrize("method", METHODS)
def test_many_at_once_are_answered_as_one_by_one(method: str, index: Index) -> None:
    queries = [
        QueryRegions.of([extracted(index, scene(i, 1, (20, 30)), FIRST), extracted(index, scene(30, 2))], against)
        for i, against in enumerate([[], [extracted(index, scene(31, 2), SECOND)], []])
    ]
    together = retrieve(index.state, queries, 6, method)
    for query, shared in zip(queries, together, strict=True):
        (alone,) = retrieve(index.state, [query], 6, method)
        assert shared.ranking.images.tolist() == alone.ranking.images.tolist()
        np.testing.assert_allclose(shared.ranking.scores, alone.ranking.scores, rtol=1e-5)
        for a, b in zip(result_of(shared), result_of(alone), strict=True):
            assert [region.box for region in a.regions] == [region.box for region in b.regions]
            shares = [region.share for region in b.regions]
            assert [region.share for region in a.regions] == pytest.approx(shares, rel=1e-4)


def test_a_whole_photo_of_the_collection_needs_no_extraction(index: Index, photos: Path) -> None:
    image = index.catalogue.of_key("first-1.png")
    assert image is not None
    stored, anew = stored_query_view(index.state, image), extracted(index, scene(1, 1, (70, 50)))
    np.testing.assert_allclose(stored.vectors, anew.vectors, atol=2e-3)
    np.testing.assert_allclose(stored.boxes, anew.boxes, atol=0.1)


def test_what_is_not_meant_falls_behind(index: Index, photos: Path) -> None:
    before = index.search(photos / "first-0.png", FIRST)
    wrong = before[4]
    after = index.search(photos / "first-0.png", FIRST, negatives=[(wrong.key, wrong.regions[0].box)])
    assert {hit.key for hit in after[:4]} == {f"first-{i}.png" for i in range(4)}
    snapshot = next(hit for hit in after if hit.key == wrong.key)
    assert snapshot.score < wrong.score / 2
    assert snapshot.rank > wrong.rank


def test_a_chain_never_begins_at_what_is_not_meant(index: Index, photos: Path) -> None:
    hits = index.search(photos / "first-0.png", FIRST, negatives=[("second-1.png", None)], top=4)
    for hit in hits:
        chain = index.explain(hit)
        assert chain.keys[-1] == hit.key
        assert all(link.flow > 0 for link in chain.links)


def test_shares_of_all_regions_add_up_to_one(index: Index, photos: Path) -> None:
    result = index.search(photos / "first-0.png", FIRST, expand=False)
    hit = result[0]
    shares = result.original.region_shares(hit.image, None)
    assert sum(share.share for share in shares) == pytest.approx(1)
    assert tuple(shares[:5]) == hit.regions


def test_a_photo_outside_the_ranking_is_no_hit(index: Index) -> None:
    (retrieval,) = retrieve(index.state, [QueryRegions.of([stored_query_view(index.state, index.catalogue[0])])], 3)
    result = result_of(retrieval)
    assert [result.hit_of(hit.image) == hit for hit in result] == [True] * 3
    assert sum(result.hit_of(i) is not None for i in range(len(index))) == 3


def test_a_query_needs_a_photo() -> None:
    with raises("query-without-photo", InvalidInputError):
        QueryRegions.of([])

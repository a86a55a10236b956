"""Queries of several views, what is not meant, and many at once."""

from pathlib import Path

import numpy as np
import pytest

from manifind import InvalidInput
from manifind.index import METHODS, Answer, Index, QueryRegions, View, rank, stored_view, view
from tests.index.conftest import Pixels, scene

FIRST = (20, 30, 148, 158)
SECOND = (180, 20, 308, 148)


def described(index: Index, pixels: Pixels, box: tuple[int, ...] | None = None) -> View:
    return view(index.describer, pixels, box)


@pytest.mark.parametrize("method", METHODS)
def test_many_at_once_are_answered_as_one_by_one(method: str, index: Index) -> None:
    queries = [
        QueryRegions.of([described(index, scene(i, 1, (20, 30)), FIRST), described(index, scene(30, 2))], against)
        for i, against in enumerate([[], [described(index, scene(31, 2), SECOND)], []])
    ]
    together = rank(index.state, queries, 6, method)
    for query, search in zip(queries, together, strict=True):
        (alone,) = rank(index.state, [query], 6, method)
        assert search.ranking.images.tolist() == alone.ranking.images.tolist()
        np.testing.assert_allclose(search.ranking.scores, alone.ranking.scores, rtol=1e-5)
        for a, b in zip(Answer(search), Answer(alone), strict=True):
            assert [region.box for region in a.regions] == [region.box for region in b.regions]
            shares = [region.share for region in b.regions]
            assert [region.share for region in a.regions] == pytest.approx(shares, rel=1e-4)


def test_a_whole_photo_of_the_collection_needs_no_describing(index: Index, photos: Path) -> None:
    image = index.catalogue.of_key("first-1.png")
    assert image is not None
    stored, anew = stored_view(index.state, image), described(index, scene(1, 1, (70, 50)))
    np.testing.assert_allclose(stored.vectors, anew.vectors, atol=2e-3)
    np.testing.assert_allclose(stored.boxes, anew.boxes, atol=0.1)


def test_what_is_not_meant_falls_behind(index: Index, photos: Path) -> None:
    before = index.search(photos / "first-0.png", FIRST)
    wrong = before[4]
    after = index.search(photos / "first-0.png", FIRST, not_this=[(wrong.key, wrong.regions[0].box)])
    assert {hit.key for hit in after[:4]} == {f"first-{i}.png" for i in range(4)}
    now = next(hit for hit in after if hit.key == wrong.key)
    assert now.score < wrong.score / 2
    assert now.rank > wrong.rank


def test_a_chain_never_begins_at_what_is_not_meant(index: Index, photos: Path) -> None:
    hits = index.search(photos / "first-0.png", FIRST, not_this=[("second-1.png", None)], top=4)
    for hit in hits:
        chain = index.explain(hit)
        assert chain.keys[-1] == hit.key
        assert all(link.flow > 0 for link in chain.links)


def test_shares_of_all_regions_add_up_to_one(index: Index, photos: Path) -> None:
    hit = index.search(photos / "first-0.png", FIRST, refine="none")[0]
    shares = hit.search.shares(hit.image, most=None)
    assert sum(share.share for share in shares) == pytest.approx(1)
    assert tuple(shares[:5]) == hit.regions


def test_a_photo_outside_the_ranking_is_no_hit(index: Index) -> None:
    (search,) = rank(index.state, [QueryRegions.of([stored_view(index.state, index.catalogue[0])])], 3)
    assert [Answer(search).of_image(hit.image) == hit for hit in Answer(search)] == [True] * 3
    assert sum(Answer(search).of_image(i) is not None for i in range(len(index))) == 3


def test_a_query_needs_a_photo() -> None:
    with pytest.raises(InvalidInput, match="no photo"):
        QueryRegions.of([])

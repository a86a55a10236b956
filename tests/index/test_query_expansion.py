"""Query expansion: which regions join the query, what the second retrieval finds, and how it is told."""

import numpy as np
import pytest

from manifind.boxes import iou
from manifind.index import Index, SearchResult, Stage
from manifind.index.config import DepthConfig
from manifind.index.search.query_expansion import expansion_regions
from tests.index.conftest import BOX, Pixels, where
from tests.index.searching import configured


@pytest.fixture(scope="module")
def steps(index: Index, query: Pixels) -> dict[Stage, SearchResult]:
    """The results of a search that verifies the first two images before expansion, and all of them after it."""
    twice = configured(index, depth=DepthConfig(max_factor=1, expanded_factor=6))
    return {result.stage: result for result in twice.search_steps(query, BOX, top=None, verify=2)}


@pytest.fixture
def two(steps: dict[Stage, SearchResult]) -> SearchResult:
    return steps[Stage.VERIFIED]


def test_regions_under_the_outline_join_the_query(index: Index, two: SearchResult) -> None:
    regions = expansion_regions(two.retrieval.snapshot, two.verifications)
    assert regions is not None
    assert regions.rows is not None
    verified = {int(key[6]): index.catalogue.of_key(key) for key in (hit.key for hit in two[: two.n_verified])}
    assert len(regions.rows) == len(verified)
    for i, record in verified.items():
        assert record is not None
        own = two.retrieval.snapshot.regions_of(record.number)
        joined = [row for row in regions.rows.tolist() if own.start <= row < own.stop]
        shared = iou(np.asarray(index.boxes[own]), where(i))
        assert iou(np.asarray(index.boxes[joined]), where(i)).tolist() == [shared.max()]


def test_what_only_query_expansion_found_is_marked(steps: dict[Stage, SearchResult], two: SearchResult) -> None:
    again = steps[Stage.EXPANDED]
    assert again.unexpanded is not None
    assert two.unexpanded is None
    assert sorted(hit.key for hit in again[:4]) == [f"first-{i}.png" for i in range(4)]
    assert all(hit.verified for hit in again[:4])
    assert {hit.key for hit in again if hit.expanded} == {hit.key for hit in again[:4]} - {hit.key for hit in two[:2]}


def test_a_search_expands_unless_told_not_to(index: Index, query: Pixels) -> None:
    result = index.search(query, BOX, top=6)
    assert result.unexpanded is not None
    assert len(result) == 6
    assert sorted(hit.key for hit in result[:4]) == [f"first-{i}.png" for i in range(4)]
    assert index.explain(result[3]).keys[-1] == result[3].key
    assert index.search(query, BOX, top=6, expand=False).unexpanded is None
    assert index.search(query, BOX, top=6, verify=0).unexpanded is None


def test_without_a_verified_image_nothing_is_expanded(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    assert index.search(even, expand=True).unexpanded is None


def test_a_result_that_nothing_expands_is_as_long_as_was_asked(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    assert len(index.search(even, top=3)) == 3


def test_chains_begin_at_the_query_whatever_joined_it(index: Index, query: Pixels) -> None:
    once, again = (index.search(query, BOX, top=None, expand=expand) for expand in (False, True))
    assert again.unexpanded is not None
    for hit in again[:6]:
        first = once.hit_of(hit.image)
        assert first is not None
        assert index.explain(hit) == index.explain(first)
        assert index.explain(hit).links[0].source.key is None


def test_the_original_query_says_what_it_resembles(index: Index, query: Pixels) -> None:
    once, again = (index.search(query, BOX, top=None, expand=expand).confidence for expand in (False, True))
    assert once is not None
    assert again is not None
    assert again.similarity == once.similarity < 0.99
    assert again.cutoff != once.cutoff


def test_the_querys_own_photo_stays_first(index: Index) -> None:
    result = index.search("first-2.png")
    assert result.unexpanded is not None
    assert result[0].key == "first-2.png"

"""Verified photos teach the query: which regions join it, what the second pass finds, and how it is told."""

import numpy as np
import pytest

from manifind.errors import InvalidInput
from manifind.index import Index
from manifind.index.refine import lessons, overlaps, refined_answer
from manifind.index.verify import VerifiedAnswer, verified_answer
from tests.index.conftest import Pixels, scene
from tests.index.test_verify import BOX, where


@pytest.fixture(scope="module")
def query() -> Pixels:
    return scene(99, 1)


@pytest.fixture(scope="module")
def two(index: Index, query: Pixels) -> VerifiedAnswer:
    """An answer of which geometry has looked at the first two photos alone."""
    return verified_answer(index.search(query, BOX, top=None, verify=0), [(query, BOX)], first=2)


def test_regions_under_the_outline_join_the_query(index: Index, two: VerifiedAnswer) -> None:
    lesson = lessons(two)
    assert lesson is not None
    assert lesson.rows is not None
    teachers = {int(key[6]): index.catalogue.of_key(key) for key in (hit.key for hit in two[: two.verified])}
    assert len(lesson.rows) == 2 * len(teachers)
    for i, record in teachers.items():
        assert record is not None
        own = two.search.generation.regions_of(record.number)
        taught = [row for row in lesson.rows.tolist() if own.start <= row < own.stop]
        shared = overlaps(np.asarray(index.boxes[own]), where(i))
        assert sorted(overlaps(np.asarray(index.boxes[taught]), where(i))) == sorted(np.sort(shared)[-2:])


def test_what_only_the_second_pass_reached_is_marked(query: Pixels, two: VerifiedAnswer) -> None:
    again = refined_answer(two, [(query, BOX)], first=12)
    assert again.refined
    assert not two.refined
    assert sorted(hit.key for hit in again[:4]) == [f"first-{i}.png" for i in range(4)]
    assert all(hit.verified for hit in again[:4])
    assert {hit.key for hit in again if hit.refined} == {hit.key for hit in again[:4]} - {hit.key for hit in two[:2]}


def test_a_search_refines_when_told_to(index: Index, query: Pixels) -> None:
    answer = index.search(query, BOX, top=6, refine="verified")
    assert answer.refined
    assert len(answer) == 6
    assert sorted(hit.key for hit in answer[:4]) == [f"first-{i}.png" for i in range(4)]
    assert index.explain(answer[3]).keys[-1] == answer[3].key
    assert not index.search(query, BOX, top=6, refine="none").refined
    with pytest.raises(InvalidInput, match="refine"):
        index.search(query, BOX, refine="always")


def test_without_a_verified_photo_nothing_is_refined(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    assert not index.search(even, refine="verified").refined

"""Verified photos teach the query: which regions join it, what the second pass finds, and how it is told."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manifind.boxes import overlaps
from manifind.errors import InvalidInput
from manifind.index import Index
from manifind.index.asking import refine
from manifind.index.asking.features import sought_in
from manifind.index.asking.refine import lessons, refined_answer, verified_in_time
from manifind.index.asking.verified import VerifiedAnswer
from manifind.index.asking.verify import verified_answer
from tests.index.conftest import BOX, Pixels, where


@pytest.fixture(scope="module")
def two(index: Index, query: Pixels) -> VerifiedAnswer:
    """An answer of which geometry has looked at the first two photos alone."""
    return verified_answer(index.search(query, BOX, top=None, verify=0), [sought_in(query, BOX)], first=2, most=2)


def test_regions_under_the_outline_join_the_query(index: Index, two: VerifiedAnswer) -> None:
    lesson = lessons(two)
    assert lesson is not None
    assert lesson.rows is not None
    teachers = {int(key[6]): index.catalogue.of_key(key) for key in (hit.key for hit in two[: two.verified])}
    assert len(lesson.rows) == len(teachers)
    for i, record in teachers.items():
        assert record is not None
        own = two.search.generation.regions_of(record.number)
        taught = [row for row in lesson.rows.tolist() if own.start <= row < own.stop]
        shared = overlaps(np.asarray(index.boxes[own]), where(i))
        assert overlaps(np.asarray(index.boxes[taught]), where(i)).tolist() == [shared.max()]


def test_what_only_the_second_pass_reached_is_marked(query: Pixels, two: VerifiedAnswer) -> None:
    again = refined_answer(two, [sought_in(query, BOX)], first=12)
    assert again.refined
    assert not two.refined
    assert sorted(hit.key for hit in again[:4]) == [f"first-{i}.png" for i in range(4)]
    assert all(hit.verified for hit in again[:4])
    assert {hit.key for hit in again if hit.refined} == {hit.key for hit in again[:4]} - {hit.key for hit in two[:2]}


def test_a_search_refines_unless_told_not_to(index: Index, query: Pixels) -> None:
    answer = index.search(query, BOX, top=6)
    assert answer.refined
    assert len(answer) == 6
    assert sorted(hit.key for hit in answer[:4]) == [f"first-{i}.png" for i in range(4)]
    assert index.explain(answer[3]).keys[-1] == answer[3].key
    assert not index.search(query, BOX, top=6, refine="none").refined
    assert not index.search(query, BOX, top=6, verify=0).refined
    with pytest.raises(InvalidInput, match="refine"):
        index.search(query, BOX, refine="always")


def test_without_a_verified_photo_nothing_is_refined(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    assert not index.search(even, refine="verified").refined


def test_an_answer_that_nothing_teaches_is_as_long_as_was_asked(index: Index) -> None:
    even = np.full((240, 320, 3), 120, np.uint8)
    assert len(index.search(even, top=3)) == 3


def test_chains_begin_at_the_query_whatever_joined_it(index: Index, query: Pixels) -> None:
    once, again = (index.search(query, BOX, top=None, refine=how) for how in ("none", "verified"))
    assert again.refined
    for hit in again[:6]:
        first = once.of_image(hit.image)
        assert first is not None
        assert index.explain(hit) == index.explain(first)
        assert index.explain(hit).links[0].source.key is None


def test_what_the_query_resembles_is_said_by_the_query_as_it_was_given(index: Index, query: Pixels) -> None:
    once, again = (index.search(query, BOX, top=None, refine=how).evidence for how in ("none", "verified"))
    assert once is not None
    assert again is not None
    assert again.similarity == once.similarity < 0.99
    assert again.score != once.score


def test_the_querys_own_photo_stays_first(index: Index) -> None:
    answer = index.search("first-2.png")
    assert answer.refined
    assert answer[0].key == "first-2.png"


@pytest.mark.parametrize(("seconds", "left"), [(0.9, True), (1.1, False)])
def test_a_query_is_taught_only_where_half_of_the_time_is_left(
    index: Index, query: Pixels, monkeypatch: pytest.MonkeyPatch, seconds: float, left: bool
) -> None:
    answer = index.search(query, BOX, top=None, verify=0)
    now = [100.0]

    def looked_at(*given: Any, **more: Any) -> VerifiedAnswer:
        now[0] += seconds
        return verified_answer(*given, first=more["first"])

    monkeypatch.setattr(refine, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(refine, "verified_answer", looked_at)
    found, taught = verified_in_time(answer, [sought_in(query, BOX)], until=102.0)
    assert (found.verified, found.refined) == (4, False)
    assert (taught is not None) == left

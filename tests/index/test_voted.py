from dataclasses import replace

import numpy as np
import pytest

from manifind.index import Index
from manifind.index.asking.answer import Answer
from manifind.index.asking.features import sought_in
from manifind.index.asking.query import Search
from manifind.index.asking.verify import verified_answer
from manifind.index.asking.voted import voted
from manifind.index.state.generation import Generation
from tests.index.conftest import BOX, Pixels


@pytest.fixture(scope="module")
def now(index: Index) -> Generation:
    assert isinstance(index.state, Generation)
    return index.state


def keys(now: Generation, images: list[int]) -> list[str]:
    return [now.catalogue[image].key for image in images]


def test_the_photos_of_the_object_get_the_votes(now: Generation, query: Pixels) -> None:
    everything = np.arange(len(now.catalogue))
    found = voted(now, everything, [sought_in(query, BOX)], most=4)
    assert sorted(keys(now, found)) == [f"first-{i}.png" for i in range(4)]


def test_only_the_photos_of_the_ranking_are_voted_for(now: Generation, query: Pixels) -> None:
    some = np.array([image for image in range(len(now.catalogue)) if now.catalogue[image].key != "first-2.png"])[::-1]
    found = voted(now, some, [sought_in(query, BOX)], most=3)
    assert sorted(keys(now, found)) == ["first-0.png", "first-1.png", "first-3.png"]


def test_whole_photos_and_what_has_no_texture_do_not_vote(now: Generation, query: Pixels) -> None:
    everything, even = np.arange(len(now.catalogue)), np.full((240, 320, 3), 90, np.uint8)
    views = [sought_in(query, None), sought_in(query, (0, 0, 320, 240)), sought_in(even, BOX)]
    assert voted(now, everything, views, most=4) == []


def test_an_index_without_features_has_no_votes(now: Generation, query: Pixels) -> None:
    everything = np.arange(len(now.catalogue))
    assert voted(replace(now, local=None), everything, [sought_in(query, BOX)], most=4) == []


def test_a_photo_that_stands_last_is_verified_by_votes(index: Index, query: Pixels) -> None:
    search = index.search(query, BOX, top=None, verify=0).search
    last = replace(search.ranking, images=search.ranking.images[::-1], scores=search.ranking.scores[::-1])
    upside_down = Answer(Search(search.generation, search.query, last, search.method))
    sought = [sought_in(query, BOX)]
    assert not any(hit.key.startswith("first") for hit in upside_down[:4])
    answer = verified_answer(upside_down, sought, first=4)
    assert answer.verified == 4
    assert sorted(hit.key for hit in answer[:4]) == [f"first-{i}.png" for i in range(4)]

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from manifind.geometry import FEATURE_BYTES, Features, VotedFeatures, extract, pack, select_by_votes
from manifind.geometry.packing import GEOMETRY_BYTES, QUANTIZATION_LEVELS, gray_codes
from manifind.geometry.voting import VotingConfig, count_votes
from manifind.kernels import features_compiled
from tests.geometry.photographs import photograph

Pixels = npt.NDArray[np.uint8]
NAMES = ("motorcycle_left.png", "coffee.png", "chelsea.png", "astronaut.png", "rocket.jpg")


def from_rows(photos: list[Features]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    rows = [pack(photo) for photo in photos]
    return np.concatenate(rows), np.cumsum([0, *map(len, rows)]).astype(np.int64)


@pytest.fixture(scope="module")
def photos() -> list[Features]:
    return [extract(photograph(name), max_keypoints=500) for name in NAMES]


@pytest.mark.parametrize("turned", [0, 30, 90, 200])
def test_a_part_of_a_photo_votes_for_that_photo_however_turned_and_large(photos: list[Features], turned: int) -> None:
    rows, starts = from_rows(photos)
    for place, name in enumerate(NAMES[:4]):
        whole = Image.fromarray(photograph(name))
        width, height = whole.size
        part = whole.crop((width // 4, height // 4, 3 * width // 4, 3 * height // 4)).rotate(turned)
        query = extract(np.asarray(part.resize((part.width * 4 // 5, part.height * 4 // 5))), max_keypoints=700)
        found = count_votes(pack(query), rows, starts)
        assert int(found.argmax()) == place


def test_votes_are_counted_as_one_by_one(photos: list[Features]) -> None:
    """Each feature of the query votes for the ten features with the fewest bits that differ; the largest bin counts."""
    rows, starts = from_rows([photo[:60] for photo in photos])
    query = pack(photos[0][60:160])
    bits, asked = (np.unpackbits(gray_codes(some), axis=1).astype(int) for some in (rows, query))
    apart = np.sort(np.abs(asked[:, None] - bits).sum(axis=2), axis=1)
    query = query[apart[:, 9] < apart[:, 10]]  # of two that are equally near, either may be the tenth
    assert len(query) > 20
    bins: dict[tuple[int, ...], int] = {}
    for row, own in zip(query, np.unpackbits(gray_codes(query), axis=1).astype(int), strict=True):
        for at in np.argsort(np.abs(bits - own).sum(axis=1))[:10]:
            larger, angle = int(rows[at, 4]) - int(row[4]), int(rows[at, 5]) - int(row[5])
            photo = int((starts <= at).sum()) - 1
            for half_turn in (0, 16):
                for half_octave in (0, 10):
                    turns, octaves = (angle + half_turn) % 256 // 32, (larger + half_octave) // 20
                    key = photo, half_turn, half_octave, turns, octaves
                    bins[key] = bins.get(key, 0) + 1
    expected = [max((n for key, n in bins.items() if key[0] == photo), default=0) for photo in range(len(photos))]
    np.testing.assert_array_equal(count_votes(query, rows, starts), expected)


@pytest.mark.skipif(not features_compiled(), reason="features are grouped by the compiled core")
def test_features_in_groups_vote_as_all_do_where_all_groups_are_visited(photos: list[Features]) -> None:
    rows, starts = from_rows(photos)
    query, few = pack(photos[2][::3]), VotingConfig(max_keypoints=200, min_grouped=1, training_features=300)
    exact = count_votes(query, rows, starts, config=replace(few, min_grouped=len(rows) + 1))
    alone = VotedFeatures.of(rows, starts, config=few, group=False)
    np.testing.assert_array_equal(count_votes(query, rows, starts, config=few, features=alone), exact)
    everywhere = replace(few, visited_groups=few.groups)
    np.testing.assert_array_equal(count_votes(query, rows, starts, config=everywhere), exact)
    some = count_votes(query, rows, starts, config=few)
    assert some.argmax() == exact.argmax() == 2
    assert some[2] > 0.9 * exact[2]


def test_only_the_chosen_images_get_votes_and_as_many_as_alone(photos: list[Features]) -> None:
    rows, starts = from_rows(photos)
    config, places = VotingConfig(max_keypoints=200), np.array([1, 3, 4])
    chosen = VotedFeatures.of(rows, starts, places=places, config=config)
    query = pack(photos[3][:200])
    votes = count_votes(query, rows, starts, config=config, features=chosen)
    alone = from_rows([photos[place][:200] for place in places])
    np.testing.assert_array_equal(votes[places], count_votes(query, *alone))
    assert votes[[0, 2]].tolist() == [0, 0]


def test_where_no_image_is_chosen_none_is_selected(photos: list[Features]) -> None:
    rows, starts = from_rows(photos)
    nobody = VotedFeatures.of(rows, starts, places=np.empty(0, np.int64))
    assert count_votes(rows[:200], rows, starts, features=nobody).tolist() == [0] * len(photos)
    assert select_by_votes([rows[:200]], rows, starts, 2, features=nobody).tolist() == []


def test_where_there_is_no_feature_nobody_votes(photos: list[Features]) -> None:
    none = np.empty((0, FEATURE_BYTES), np.uint8)
    rows, starts = from_rows(photos[:2])
    assert count_votes(none, rows, starts).tolist() == [0, 0]
    assert count_votes(pack(photos[0]), none, np.zeros(3, np.int64)).tolist() == [0, 0]
    assert count_votes(rows[:3], rows[:2], np.array([0, 1, 1, 2])).tolist()[1] == 0


def test_the_images_with_the_most_votes_of_any_query_come_first(photos: list[Features]) -> None:
    rows, starts = from_rows(photos)
    queries = [pack(photos[number][:200]) for number in (1, 3)]
    votes = np.maximum(*(count_votes(query, rows, starts) for query in queries))
    best = select_by_votes(queries, rows, starts, 2)
    assert set(best.tolist()) == {1, 3}
    assert votes[best[0]] >= votes[best[1]]
    enough = VotingConfig(min_votes=int(votes.max()) + 1)
    assert select_by_votes(queries, rows, starts, 2, config=enough).tolist() == []


def test_levels_next_to_each_other_differ_in_one_bit(photos: list[Features]) -> None:
    some = photos[0][:1]
    levels = QUANTIZATION_LEVELS["sift"]
    rows = [pack(replace(some, descriptors=np.full((1, 128), value, np.float32))) for value in levels]
    codes = [np.unpackbits(gray_codes(row)) for row in rows]
    assert codes[0].size == 8 * (FEATURE_BYTES - GEOMETRY_BYTES)
    for one, other in pairwise(codes):
        assert np.count_nonzero(one != other) == 128

"""Pairs of photos that show the same thing, and the regions in them that match."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from manifind.geometry import extract
from manifind.geometry import maps as plane
from manifind.index.tending.pairs import (
    PhotoPair,
    _inside,
    likely_pairs,
    matching_regions,
    things,
    verified_pairs,
)
from tests.index.conftest import scene, texture


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_likely_pairs_are_those_that_most_edges_join(photos: int, each: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    image_of = np.sort(np.concatenate([np.arange(photos), rng.integers(0, photos, 20)])).astype(np.int32)
    upper = np.triu(rng.random((len(image_of),) * 2) * (rng.random((len(image_of),) * 2) < 0.3), 1).astype(np.float32)
    S = upper + upper.T
    found = likely_pairs(sp.csr_array(S), image_of, each=each)
    weights = np.array([[S[np.ix_(image_of == a, image_of == b)].sum() for b in range(photos)] for a in range(photos)])
    np.fill_diagonal(weights, 0)
    expected = set()
    for a in range(photos):
        best = [b for b in np.argsort(-weights[a], kind="stable")[:each] if weights[a, b] > 0]
        expected |= {(min(a, int(b)), max(a, int(b))) for b in best}
    assert set(map(tuple, found.tolist())) == expected


def test_of_many_photos_some_are_looked_at() -> None:
    n = 40
    ring = sp.csr_array((np.ones(n, np.float32), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    found = likely_pairs(sp.csr_array(ring + ring.T), np.arange(n), photos=4, each=1)
    assert len(found) == 4


def test_regions_match_where_the_map_takes_the_one_to_the_other() -> None:
    to = np.array([[0.5, 0, 100], [0, 0.5, 20], [0, 0, 1.0]])
    boxes = np.array([[0, 0, 100, 100], [100, 0, 200, 100], [0, 0, 200, 200]], np.float32)
    placed = np.concatenate([plane.apply(to, boxes[:, :2]), plane.apply(to, boxes[:, 2:])], axis=1).astype(np.float32)
    elsewhere = np.array([[0, 0, 90, 20]], np.float32)
    points = np.array([[20, 20], [80, 30], [50, 70], [40, 90], [150, 50]], np.float32)
    moved = plane.apply(to, points).astype(np.float32)
    found = matching_regions(to, points, moved, boxes, np.concatenate([elsewhere, placed[::-1]]))
    # The second region holds one matching point, which proves nothing.
    assert found.tolist() == [[0, 3], [2, 1]]


@pytest.mark.parametrize("corner", range(4))
def test_a_region_is_placed_by_all_four_corners(corner: int) -> None:
    """Turned by an eighth, each corner alone reaches one side of the box that is round the region."""
    half = np.sqrt(0.5)
    to = np.array([[half, -half, 200], [half, half, 0], [0, 0, 1.0]])
    region = np.array([[20, 40, 120, 46]], np.float32)
    at = plane.apply(to, np.array([[20, 40], [120, 40], [120, 46], [20, 46]], np.float64))
    round_it = np.concatenate([at.min(axis=0), at.max(axis=0)])
    without = np.delete(at, corner, axis=0)
    less = np.concatenate([without.min(axis=0), without.max(axis=0)])
    points = np.array([[60, 42], [70, 44], [80, 43]], np.float32)
    moved = plane.apply(to, points).astype(np.float32)
    found = matching_regions(to, points, moved, region, np.stack([less, round_it]).astype(np.float32))
    assert found.tolist() == [[0, 1]]


def test_photos_of_one_thing_are_joined_and_others_are_not() -> None:
    photos = [scene(0, 1, (20, 30)), scene(1, 1, (150, 80)), scene(2, 2, (40, 60)), texture(7, 240, 320)]
    box = np.array([[20, 30, 148, 158], [150, 80, 278, 208], [40, 60, 168, 188], [0, 0, 128, 128]], np.float32)
    every = np.array([(a, b) for a in range(4) for b in range(a + 1, 4)])
    done = []
    found = list(
        verified_pairs(every, lambda i: extract(photos[i]), lambda i: box[[i]], lambda *so_far: done.append(so_far))
    )
    assert [(one.a, one.b, one.regions.tolist()) for one in found] == [(0, 1, [[0, 0]])]
    assert done == [(i, 6) for i in range(1, 7)]
    assert list(verified_pairs(every, lambda _: None, lambda i: box[[i]])) == []


def test_what_pairs_join_by_way_of_others_is_one_thing() -> None:
    none = np.empty((0, 2), np.intp)
    shown = things([PhotoPair(0, 2, none), PhotoPair(2, 3, none), PhotoPair(4, 5, none)], 7)
    assert shown[0] == shown[2] == shown[3]
    assert shown[4] == shown[5]
    assert len(set(shown.tolist())) == 4


def test_a_point_on_the_edge_of_two_boxes_is_in_one() -> None:
    boxes = np.array([[0, 0, 10, 10], [10, 0, 20, 10]], np.float32)
    points = np.array([[10, 5], [0, 0], [20, 5], [5, 10]], np.float32)
    assert _inside(boxes, points).tolist() == [[False, True, False, False], [True, False, False, False]]


def test_two_matching_points_prove_nothing_and_three_do() -> None:
    to, box = np.eye(3), np.array([[0, 0, 100, 100]], np.float32)
    points = np.array([[20, 20], [80, 30], [50, 70]], np.float32)
    assert matching_regions(to, points[:2], points[:2], box, box).tolist() == []
    assert matching_regions(to, points, points, box, box).tolist() == [[0, 0]]

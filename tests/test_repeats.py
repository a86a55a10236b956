"""What occurs in several images, on collections whose truth is planted."""

import numpy as np
import numpy.typing as npt
import pytest

from manifind import Manifold
from manifind.groups import Layout
from manifind.repeats import find_groups, near_duplicates, self_similarity
from manifind.types import FloatArray, IntArray
from tests.errors import raises

D, REGIONS = 256, 6


def unit(rows: npt.NDArray[np.float64]) -> FloatArray:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float32)


class Planted:
    """Images of six regions side by side, no two alike but where objects or stuff are planted."""

    def __init__(self, images: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.rows = self.rng.standard_normal((images, REGIONS, D))
        self.boxes = np.zeros((images, REGIONS, 4), np.float32)
        self.boxes[..., 0] = 10 * np.arange(REGIONS)
        self.boxes[..., 2] = self.boxes[..., 0] + 10
        self.boxes[..., 3] = 10

    def plant(self, images: list[int], places: list[int], noise: float = 0.6) -> None:
        """Put one thing into images, at these regions of each."""
        thing = self.rng.standard_normal(D)
        for image in images:
            for place in places:
                self.rows[image, place] = thing + noise * self.rng.standard_normal(D)

    @property
    def vectors(self) -> FloatArray:
        return unit(self.rows.reshape(-1, D))

    @property
    def image_of(self) -> IntArray:
        return np.repeat(np.arange(len(self.rows), dtype=np.int32), REGIONS)

    def groups(self, **given: object) -> list[set[int]]:
        manifold = Manifold(k=20, query_k=10).fit(self.vectors, self.image_of)
        found = find_groups(
            manifold.neighbours_,
            self.vectors,
            self.boxes.reshape(-1, 4),
            manifold.layout_,
            **given,  # type: ignore[arg-type]
        )
        for group in found:
            assert list(self.image_of[group.regions]) == list(group.images)
        return [set(group.images.tolist()) for group in found]


def test_planted_objects_are_the_groups_the_largest_first() -> None:
    planted = Planted(60)
    planted.plant(list(range(12)), [2])
    planted.plant(list(range(20, 27)), [4])
    planted.plant(list(range(40, 44)), [0])
    assert planted.groups() == [set(range(12)), set(range(20, 27)), set(range(40, 44))]


def test_the_surer_of_two_equally_large_groups_is_first() -> None:
    planted = Planted(60)
    planted.plant(list(range(8)), [1], noise=0.8)
    planted.plant(list(range(30, 38)), [1], noise=0.4)
    assert planted.groups() == [set(range(30, 38)), set(range(8))]


def test_stuff_that_is_all_over_its_own_images_is_no_object() -> None:
    planted = Planted(60)
    planted.plant(list(range(20)), [0, 1, 2, 3])  # sky
    planted.plant(list(range(30, 36)), [5])
    assert planted.groups() == [set(range(30, 36))]


def test_what_lies_over_one_another_is_not_apart() -> None:
    planted = Planted(60)
    planted.plant(list(range(6)), [2, 3])  # an object that two regions see
    planted.boxes[:, 3] = planted.boxes[:, 2] + np.array([2, 0, 2, 0], np.float32)
    assert planted.groups() == [set(range(6))]


def test_an_object_in_too_few_images_is_none_and_near_duplicates_are_one_image() -> None:
    planted = Planted(40)
    planted.plant([3, 9], [1])
    planted.plant([20, 21, 22, 23], [1])
    assert planted.groups() == [{20, 21, 22, 23}]
    assert planted.groups(least=2) == [{20, 21, 22, 23}, {3, 9}]
    same = np.arange(40, dtype=np.int32)
    same[21:24] = 20  # a burst
    assert planted.groups(same=same) == []


def test_two_objects_in_the_same_images_are_told_once() -> None:
    planted = Planted(50)
    planted.plant(list(range(8)), [0])
    planted.plant(list(range(7)), [5])
    planted.plant(list(range(6, 14)), [3])  # with two images of the first alone
    assert sorted(map(sorted, planted.groups())) == [list(range(8)), list(range(6, 14))]


def test_nothing_recurs_among_images_with_nothing_in_common() -> None:
    assert Planted(50).groups() == []
    with raises("invalid-input"):
        Planted(10).groups(least=1)


def test_images_that_are_alike_all_over_are_near_duplicates_and_those_that_share_an_object_are_not() -> None:
    planted = Planted(30)
    planted.plant([1, 2, 3, 4], [0])
    for copy, rows in ((11, planted.rows[10]), (12, planted.rows[10]), (21, planted.rows[20, ::-1])):
        planted.rows[copy] = rows + 0.3 * planted.rng.standard_normal(rows.shape)
    manifold = Manifold(k=20, query_k=10).fit(planted.vectors, planted.image_of)
    same = near_duplicates(manifold.neighbours_, planted.boxes.reshape(-1, 4), manifold.layout_)
    assert same[10] == same[11] == same[12]
    assert len(set(same.tolist())) == 28  # the same things in other places are another photo


def test_own_similarity_is_that_of_the_most_similar_region_apart() -> None:
    planted = Planted(4, seed=3)
    planted.plant([1], [0, 4])
    planted.boxes[:, 5] = planted.boxes[:, 4]
    vectors, boxes = planted.vectors, planted.boxes.reshape(-1, 4)
    own = self_similarity(vectors, boxes, Layout.of(planted.image_of))
    for i in range(len(vectors)):
        others = [
            float(vectors[i] @ vectors[j])
            for j in range(len(vectors))
            if planted.image_of[j] == planted.image_of[i] and j != i and not np.array_equal(boxes[i], boxes[j])
        ]
        assert own[i] == pytest.approx(max(0, *others), abs=1e-5)

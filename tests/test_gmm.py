"""Compacting: each image becomes the unit-normalised means of a Gaussian mixture of its regions."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from manifind.errors import InvalidInputError, ManifindWarning
from manifind.gmm import compact
from manifind.types import FloatArray, IntArray
from tests.collections_of_regions import unit


def photos(counts: list[int], d: int, *, spread: float = 0.5, seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Images whose regions gather around four directions each, `spread` wide."""
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    centres = unit(rng.standard_normal((4 * len(counts), d)))
    around = centres[4 * image_of + rng.integers(4, size=len(image_of))]
    return unit(around + spread * rng.standard_normal(around.shape) / np.sqrt(d)), image_of


def far_apart(points: npt.NDArray[np.float64], c: int) -> list[int]:
    """Choose c regions, each the farthest from those before it, the first being nearest to all others."""
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    chosen = [int(distances.sum(axis=1).argmin())]
    while len(chosen) < c:
        chosen.append(int(distances[chosen].min(axis=0).argmax()))
    return chosen


def scikit_learn(regions: FloatArray, c: int, **settings: Any) -> tuple[FloatArray, IntArray]:
    """Return the unit-normalised means and the component of each region, from the same start."""
    points = regions.astype(np.float64)
    mixture = GaussianMixture(
        c,
        covariance_type="spherical",
        means_init=points[far_apart(points, c)],
        weights_init=np.full(c, 1 / c),
        precisions_init=np.full(c, 1e6),
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        component_of = mixture.fit_predict(points)
    return unit(mixture.means_), component_of


def check_against_scikit_learn(vectors: FloatArray, image_of: IntArray, c: int, **settings: Any) -> None:
    compacted = compact(vectors, image_of, regions_per_image=c, **settings)
    for image in np.unique(image_of):
        means, component_of = scikit_learn(vectors[image_of == image], c, **settings)
        used = np.unique(component_of)
        np.testing.assert_allclose(compacted.vectors[compacted.image_of == image], means[used], atol=1e-5)
        rows = compacted.row_of[image_of == image]
        np.testing.assert_array_equal(rows - rows.min(), np.searchsorted(used, component_of))


@pytest.mark.parametrize("c", [1, 2, 5, 9])
@pytest.mark.parametrize(("d", "spread"), [(3, 0.3), (3, 1.5), (16, 0.5), (128, 0.3), (512, 1.0)])
def test_the_means_are_those_of_scikit_learn_from_the_same_start(d: int, spread: float, c: int) -> None:
    vectors, image_of = photos([10, 21, 21, 33, 21, 80], d, spread=spread)
    check_against_scikit_learn(vectors, image_of, c)


@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_updates_that_are_cut_short_are_those_of_scikit_learn_too(max_iter: int) -> None:
    vectors, image_of = photos([21, 30, 30], 3)
    with pytest.warns(ManifindWarning, match=f"3 of 3 images did not converge in max_iter={max_iter} "):
        check_against_scikit_learn(vectors, image_of, 4, max_iter=max_iter, tol=1e-12)


def test_each_image_stops_at_its_own_convergence() -> None:
    vectors, image_of = photos([40] * 12, 3, spread=1.0)
    check_against_scikit_learn(vectors, image_of, 4, tol=0.05)
    check_against_scikit_learn(vectors, image_of, 4, tol=1e-5, max_iter=2000)


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    c=st.integers(1, 6),
    gap=st.integers(1, 1000),
    seed=st.integers(0, 2**32),
)
def test_the_result_is_unit_rows_in_the_order_of_the_images(counts: list[int], c: int, gap: int, seed: int) -> None:
    vectors, image_of = photos(counts, 8, seed=seed)
    compacted = compact(vectors, gap * image_of + 7, regions_per_image=c, max_iter=1000)
    assert compacted.vectors.dtype == np.float32
    assert compacted.image_of.dtype == compacted.row_of.dtype == np.int32
    np.testing.assert_allclose(np.linalg.norm(compacted.vectors, axis=1), 1, atol=1e-6)
    assert (np.diff(compacted.image_of) >= 0).all()
    assert (np.bincount((compacted.image_of - 7) // gap) <= np.minimum(counts, c)).all()
    np.testing.assert_array_equal(compacted.image_of[compacted.row_of], gap * image_of + 7)
    np.testing.assert_array_equal(np.unique(compacted.row_of), np.arange(len(compacted.vectors)))


def test_an_image_of_few_regions_keeps_them_as_they_are() -> None:
    vectors, image_of = photos([3, 21, 5, 1], 16)
    compacted = compact(vectors, image_of, regions_per_image=5)
    for image in (0, 2, 3):
        np.testing.assert_array_equal(compacted.vectors[compacted.image_of == image], vectors[image_of == image])
    np.testing.assert_array_equal(np.bincount(compacted.image_of), [3, 5, 5, 1])
    np.testing.assert_array_equal(compacted.row_of[:3], [0, 1, 2])


def test_one_region_an_image_is_the_mean_of_its_regions() -> None:
    vectors, image_of = photos([21, 6], 16)
    compacted = compact(vectors, image_of, regions_per_image=1)
    sums = np.stack([vectors[:21].sum(axis=0), vectors[21:].sum(axis=0)])
    np.testing.assert_allclose(compacted.vectors, unit(sums), atol=1e-6)


def test_an_image_does_not_depend_on_the_others_nor_on_the_memory() -> None:
    vectors, image_of = photos([21, 7, 21, 40, 3, 21], 64)
    together = compact(vectors, image_of)
    one_at_a_time = compact(vectors, image_of, memory=1)
    np.testing.assert_array_equal(together.vectors, one_at_a_time.vectors)
    np.testing.assert_array_equal(together.row_of, one_at_a_time.row_of)
    for image in range(6):
        alone = compact(vectors[image_of == image], image_of[image_of == image])
        np.testing.assert_array_equal(alone.vectors, together.vectors[together.image_of == image])


def test_the_order_of_the_regions_does_not_matter() -> None:
    vectors, image_of = photos([21], 64)
    order = np.random.default_rng(1).permutation(21)
    np.testing.assert_allclose(compact(vectors[order], image_of).vectors, compact(vectors, image_of).vectors, atol=1e-6)


def test_repeated_regions_become_one() -> None:
    vectors, _ = photos([3], 512)
    compacted = compact(vectors[[0] * 9 + [1] * 4 + [2] * 8 + [0] * 21], [0] * 21 + [1] * 21)
    np.testing.assert_array_equal(compacted.image_of, [0, 0, 0, 1])
    similarities = compacted.vectors @ vectors.T
    np.testing.assert_allclose(similarities.max(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(np.bincount(similarities[compacted.row_of].argmax(axis=1)), [30, 4, 8])


def test_regions_that_cancel_out_leave_one_of_themselves() -> None:
    vectors, _ = photos([2], 16)
    compacted = compact(np.concatenate([vectors, -vectors]), [0, 0, 0, 0], regions_per_image=1)
    np.testing.assert_allclose(np.abs(vectors @ compacted.vectors[0]).max(), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"regions_per_image": 0}, "regions_per_image"),
        ({"regions_per_image": 2.5}, "regions_per_image"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": 0.0}, "tol"),
        ({"memory": 0}, "memory"),
        ({"image_of": [1, 0, 0]}, "image_of"),
        ({"image_of": [0, 0]}, "image_of"),
        ({"vectors": np.zeros((3, 4))}, "vectors"),
        ({"vectors": np.full((3, 4), np.nan)}, "vectors"),
    ],
)
def test_what_cannot_be_used_is_named(wrong: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"vectors": np.eye(3), "image_of": [0, 0, 1], **wrong}
    with pytest.raises(InvalidInputError, match=f"^{named} "):
        compact(**given)

"""The synthetic collections are what their descriptions say."""

from typing import Any

import numpy as np
import pytest

from manifind import InvalidInputError, Manifold, Ranking
from manifind.baselines import NearestImages
from manifind.demo.synthetic import LARGEST, REGIONS, bananas, planted_objects
from manifind.evaluation import mean_average_precision
from manifind.groups import Layout, aggregate, aggregate_one
from tests.collections_of_regions import unit
from tests.errors import raises

SMALL: dict[str, Any] = {"images": 60, "objects": 3, "views": 15, "queries": 2, "d": 32}


def test_points_lie_near_the_crescent_they_belong_to() -> None:
    data = bananas(400, noise=0.01)
    assert data.points.shape == (400, 2)
    assert np.bincount(data.crescent_of).tolist() == [100] * 4
    assert (np.diff(data.crescent_of) >= 0).all()
    for number in range(4):
        # Each is a half circle of radius one: its points have one centre at distance one.
        x, y = data.points[data.crescent_of == number].T
        a, b, _ = np.linalg.lstsq(np.stack([2 * x, 2 * y, np.ones_like(x)], axis=1), x**2 + y**2)[0]
        np.testing.assert_allclose(np.hypot(x - a, y - b), 1, atol=0.06)
        assert np.hypot(*(data.queries[number] - [a, b])) == pytest.approx(1, abs=0.02)


def test_crescents_keep_apart() -> None:
    data = bananas(400, noise=1e-6)
    apart = np.linalg.norm(data.points[:, None] - data.points, axis=-1)
    others = data.crescent_of[:, None] != data.crescent_of
    assert apart[others].min() > 0.45


def test_a_collection_has_unit_regions_in_the_order_of_images() -> None:
    made = planted_objects(**SMALL)
    assert made.vectors.dtype == np.float32
    assert made.vectors.shape == (60 * REGIONS, 32)
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)
    assert made.image_of.dtype == np.int32
    assert made.image_of.tolist() == sorted(list(range(60)) * REGIONS)
    for query in made.queries:
        np.testing.assert_allclose(np.linalg.norm(query, axis=1), 1, atol=1e-5)


def test_truth_names_the_images_of_each_query() -> None:
    made = planted_objects(**SMALL)
    assert len(made.queries) == len(made.positives) == len(made.sizes) == 3 * 2
    for positives, sizes in zip(made.positives, made.sizes, strict=True):
        assert len(positives) == len(sizes) == 15
        assert (np.diff(positives) > 0).all()
        assert positives[-1] < 60
        assert sizes.min() >= 1
        assert sizes.max() <= LARGEST
    np.testing.assert_array_equal(made.positives[0], made.positives[1])
    assert not set(made.positives[0]) & set(made.positives[2])


def test_images_that_show_the_object_have_regions_like_the_query() -> None:
    made = planted_objects(images=100, objects=1, views=80, queries=4)
    for query, positives in zip(made.queries, made.positives, strict=True):
        best = (made.vectors @ query.mean(axis=0)).reshape(100, REGIONS).max(axis=1)
        assert set(np.argsort(-best)[:5]) <= set(positives)


def test_near_views_are_similar_and_far_views_unrelated() -> None:
    made = planted_objects(images=80, objects=1, views=80, queries=200)
    views = unit(np.stack([query.mean(axis=0) for query in made.queries]))
    similarities = views @ views.T
    np.fill_diagonal(similarities, -1)
    assert similarities.max(axis=1).min() > 0.7  # each has a near one
    assert np.median(similarities) < 0.2


@pytest.mark.parametrize("make", [bananas, planted_objects])
def test_the_same_seed_gives_the_same_and_another_another(make: Any) -> None:
    first, again, other = (
        make(100, seed=3, **_few(make)),
        make(100, seed=3, **_few(make)),
        make(100, seed=4, **_few(make)),
    )
    for name in vars(first):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    name = next(iter(vars(first)))
    assert not np.array_equal(getattr(first, name), getattr(other, name))


def _few(make: Any) -> dict[str, int]:
    return {"objects": 2, "views": 10} if make is planted_objects else {}


def test_regional_diffusion_beats_global_diffusion_beats_plain_search() -> None:
    made = planted_objects()
    images = aggregate(made.vectors, Layout.of(made.image_of))
    plain = NearestImages().fit(made.vectors, made.image_of).search_many(made.queries)
    global_ = Manifold(k=50, query_k=10).fit(images).search_many([aggregate_one(query) for query in made.queries])
    regional = Manifold().fit(made.vectors, made.image_of).search_many(made.queries)

    def found(rankings: list[Ranking], least: int = 1, most: int = LARGEST) -> float:
        shown = [(least <= sizes) & (sizes <= most) for sizes in made.sizes]
        wanted = [positives[own] for positives, own in zip(made.positives, shown, strict=True)]
        others = [positives[~own] for positives, own in zip(made.positives, shown, strict=True)]
        return 100 * mean_average_precision(rankings, wanted, others)

    assert found(plain) + 5 < found(global_) < found(regional) - 20
    assert found(regional) < 95  # not everything is found
    gain = [found(regional, size, size + 2) - found(global_, size, size + 2) for size in (1, 4, 7, 10)]
    assert gain == sorted(gain, reverse=True)  # the smaller the object, the more


@pytest.mark.parametrize(
    ("make", "given", "code", "sentence"),
    [
        (bananas, {"points": 3}, "invalid-input", "points is 3; give a whole number of at least 4."),
        (bananas, {"noise": -1}, "invalid-input", "noise is -1; give "),
        (bananas, {"seed": -1}, "invalid-input", "seed is -1; give "),
        (planted_objects, {"images": 99, "objects": 10, "views": 10}, "too-few-images", "images is 99, too few for "),
        (planted_objects, {"d": 0}, "invalid-input", "d is 0; give "),
    ],
)
def test_parameters_that_make_no_collection_are_refused(
    make: Any, given: dict[str, Any], code: str, sentence: str
) -> None:
    with raises(code, InvalidInputError) as refused:
        make(**given)
    assert str(refused.value).startswith(sentence)

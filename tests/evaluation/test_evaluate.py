"""`evaluate` on arrays: any estimator with ``fit`` and ``search_many``."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pytest

from manifind import Manifold
from manifind.baselines import RegionMatch
from manifind.demo.synthetic import Planted
from manifind.errors import InvalidInputError
from manifind.evaluation import EvaluationSet, evaluate, mean_average_precision
from tests.evaluation.conftest import Laid


class Images(NamedTuple):
    images: np.ndarray


class MeanSimilarity:
    """An estimator of somebody's own: images by the mean similarity of their regions."""

    def fit(self, vectors: np.ndarray, image_of: np.ndarray) -> Self:
        self.means_ = np.stack([vectors[image_of == image].mean(axis=0) for image in range(image_of[-1] + 1)])
        return self

    def search_many(self, queries: Sequence[np.ndarray]) -> list[Images]:
        return [Images(np.argsort(-(self.means_ @ query.mean(axis=0)), kind="stable")) for query in queries]


def dataset(planted: Planted, **more: Any) -> EvaluationSet:
    return EvaluationSet.from_arrays(
        planted.vectors, planted.image_of, queries=planted.queries, positives=planted.positives, **more
    )


@pytest.mark.parametrize(
    "estimator", [Manifold(k=20, query_k=10), RegionMatch(), MeanSimilarity()], ids=lambda one: type(one).__name__
)
def test_any_estimator_is_measured_by_its_own_rankings(laid: Laid, estimator: Any) -> None:
    planted = laid.planted
    result = evaluate(estimator, dataset(planted))
    rankings = estimator.fit(planted.vectors, planted.image_of).search_many(planted.queries)
    for definition in ("trapezoid", "mean"):
        truth = 100 * mean_average_precision(rankings, planted.positives, definition=definition)
        assert result.mean_average_precision(definition=definition) == pytest.approx(truth)
        assert result.figures()[f"mAP_{definition}"] == pytest.approx(truth)
    for ranked, ranking in zip(result.rankings, rankings, strict=True):
        np.testing.assert_array_equal(ranked, ranking.images)
    assert result.costs["single_seconds"] > 0
    assert result.n_matches is None


def test_junk_is_ignored(laid: Laid) -> None:
    """A perfect ranking but for junk is perfect."""
    planted = laid.planted
    ranking = evaluate(MeanSimilarity(), dataset(planted)).rankings
    junk = [np.setdiff1d(ranked, wanted) for ranked, wanted in zip(ranking, planted.positives, strict=True)]
    assert evaluate(MeanSimilarity(), dataset(planted, junk=junk)).mean_average_precision() == pytest.approx(100)


def test_a_fitted_estimator_is_not_fitted_again(laid: Laid) -> None:
    estimator = MeanSimilarity().fit(laid.planted.vectors, laid.planted.image_of)
    fitted = estimator.means_
    evaluate(estimator, dataset(laid.planted), fit=False)
    assert estimator.means_ is fitted


def test_numbers_that_are_no_images_are_refused(laid: Laid) -> None:
    planted = laid.planted
    every = len(planted.queries)
    for positives, code in (([[60]] * every, "image-number"), ([[-1]] * every, "image-number"), ([[0]], "query-count")):
        with pytest.raises(InvalidInputError) as refused:
            EvaluationSet.from_arrays(planted.vectors, planted.image_of, queries=planted.queries, positives=positives)
        assert refused.value.code == code

"""What scikit-learn, joblib and pickle expect of an estimator, for `Manifold` and every baseline."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from manifind import Manifold, Ranking, baselines
from manifind.errors import NotFittedError
from manifind.groups import Layout
from tests.collections_of_regions import Collection

ESTIMATORS: list[Any] = [
    Manifold(k=6, query_k=5),
    baselines.NearestImages(),
    baselines.AverageQueryExpansion(neighbours=3),
    baselines.AlphaQueryExpansion(neighbours=3),
    baselines.SpatiallyConstrainedMatching(neighbours=3),
    baselines.HelloNeighbor(neighbours=3),
    baselines.DatabaseAugmentation(neighbours=3),
    baselines.KReciprocal(k1=5, k2=3),
    baselines.GlobalDiffusion(k=5, query_k=4),
    baselines.RegionMatch(),
    baselines.RegionMatchExpansion(neighbours=3),
    baselines.RegionalDiffusion(k=5, query_k=4, alpha=0.9),
    baselines.RegionalDiffusion(k=5, query_k=4, solver="offline"),
    baselines.GlobalDiffusion(k=5, query_k=4, solver="spectral"),
    baselines.AppendedDiffusion(k=5, query_k=4),
    baselines.UnnormalisedDiffusion(k=5, query_k=4),
    baselines.CompactDiffusion(k=5, query_k=4, regions_per_image=2),
]

each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)


def by_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (our own)


def assert_equal(found: Ranking, expected: Ranking) -> None:
    np.testing.assert_array_equal(found.images, expected.images)
    np.testing.assert_array_equal(found.scores, expected.scores)


@each_estimator
@pytest.mark.parametrize("duplicate", [by_pickle, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copy_of_a_fitted_estimator_searches_as_the_original(
    estimator: Any, duplicate: Callable[[Any], Any], collection: Collection
) -> None:
    fitted = clone(estimator).fit(collection.vectors, collection.image_of)
    for before in (duplicate(fitted), fitted):  # copied before the first search, and after
        expected = fitted.search_many(collection.queries, 7)
        again = duplicate(before)
        assert again.get_params() == fitted.get_params()
        for found, ranking in zip(again.search_many(collection.queries, 7), expected, strict=True):
            assert_equal(found, ranking)


@each_estimator
def test_an_unfitted_estimator_is_copied_and_cloned(estimator: Any) -> None:
    for again in (by_pickle(estimator), copy.deepcopy(estimator), clone(estimator)):
        assert type(again) is type(estimator)
        assert again.get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        clone(estimator).search(np.eye(2, dtype=np.float32))


@each_estimator
def test_scikit_learn_sees_whether_an_estimator_is_fitted(estimator: Any, collection: Collection) -> None:
    unfitted = clone(estimator)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(unfitted)
    assert not hasattr(unfitted, "n_features_in_")
    check_is_fitted(unfitted.fit(collection.vectors, collection.image_of))
    assert unfitted.n_features_in_ == collection.vectors.shape[1]
    assert get_tags(estimator).target_tags.required is False


@each_estimator
def test_joblib_searches_in_another_process(estimator: Any, collection: Collection, tmp_path: Path) -> None:
    fitted = clone(estimator).fit(collection.vectors, collection.image_of)
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    assert_equal(
        joblib.load(tmp_path / "fitted.joblib", mmap_mode="r").search(collection.queries[0]),
        fitted.search(collection.queries[0]),
    )


IN_OTHER_PROCESSES = """
import joblib
import numpy as np
from sklearn.model_selection import GridSearchCV
from manifind import Manifold
from tests.collections_of_regions import make
from tests.test_estimator import best_scores

if __name__ == "__main__":
    collection = make("clusters", images=40, most_regions=5, d=12, seed=1)
    manifold = Manifold(k=6, query_k=5).fit(collection.vectors, collection.image_of)
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(manifold.search)(query) for query in collection.queries)
    for ranking, query in zip(found, collection.queries, strict=True):
        assert np.array_equal(ranking.scores, manifold.search(query).scores)
    search = GridSearchCV(Manifold(query_k=4), {"k": [3, 5]}, scoring=best_scores, cv=2, n_jobs=2)
    search.fit(collection.vectors, collection.image_of)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
"""


def test_joblib_sends_estimators_to_other_processes_and_rankings_back(tmp_path: Path) -> None:
    script = tmp_path / "parallel.py"
    script.write_text(IN_OTHER_PROCESSES)
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, script], env={**os.environ, "PYTHONPATH": str(root)}, check=True, timeout=600)  # noqa: S603


def best_scores(estimator: Any, vectors: Any, image_of: Any) -> float:
    """Return the mean score of the first image, for each image that the estimator was not fitted on."""
    layout = Layout.of(np.asarray(image_of, np.int32))
    queries = np.split(vectors, layout.starts[1:-1])
    return float(np.mean([ranking.scores[0] for ranking in estimator.search_many(queries, 1)]))


def test_a_grid_search_chooses_parameters(collection: Collection) -> None:
    grid = {"alpha": [0.5, 0.9], "k": [3, 5]}
    search = GridSearchCV(Manifold(query_k=4), grid, scoring=best_scores, cv=3)
    search.fit(collection.vectors, collection.image_of)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = Manifold(query_k=4, **search.best_params_).fit(collection.vectors, collection.image_of)
    assert_equal(search.best_estimator_.search(collection.queries[0]), best.search(collection.queries[0]))


def test_what_local_prepared_travels_with_a_copy(collection: Collection) -> None:
    manifold = Manifold(k=6, query_k=5).fit(collection.vectors, collection.image_of).prepare("local")
    again = by_pickle(manifold)
    assert again.is_ready("local")
    expected = manifold.search(collection.queries[0], solver="local")
    assert_equal(again.search(collection.queries[0], solver="local"), expected)


def test_a_ranking_unpacks_and_is_copied_with_the_region_scores_that_it_has(collection: Collection) -> None:
    manifold = Manifold(k=6, query_k=5).fit(collection.vectors, collection.image_of)
    ranking = manifold.search(collection.queries[0], 5)
    images, scores = ranking
    assert images is ranking.images
    assert scores is ranking.scores
    with pytest.raises(AttributeError, match="without region scores"):
        _ = by_pickle(ranking).regions
    regions = ranking.regions
    np.testing.assert_array_equal(by_pickle(ranking).regions, regions)

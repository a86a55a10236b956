"""Each baseline against a literal version of itself."""

import numpy as np
import pytest
from hypothesis import given

from manifind.baselines import NearestImages, RegionMatch, rmatch
from tests.collections_of_regions import Collection, collections


@given(collections)
def test_nearest_images_multiplies_sums_of_regions(collection: Collection) -> None:
    ranking = NearestImages().fit(collection.vectors, collection.image_of).search(collection.queries[0])

    def whole(regions: np.ndarray) -> np.ndarray:
        total = regions.astype(np.float64).sum(axis=0)
        return np.asarray(total / np.linalg.norm(total))

    truth = [
        whole(collection.vectors[collection.image_of == image]) @ whole(collection.queries[0])
        for image in ranking.images
    ]
    np.testing.assert_allclose(ranking.scores, truth, atol=1e-5)


@pytest.mark.parametrize("block", [1, 200, 2**24])
@given(collection=collections)
def test_region_match_adds_up_the_best_match_of_each_query_region(block: int, collection: Collection) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rmatch, "BLOCK_BYTES", block)
        ranking = RegionMatch().fit(collection.vectors, collection.image_of).search(collection.queries[0])
    truth = [
        sum(max(float(q @ x) for x in collection.vectors[collection.image_of == image]) for q in collection.queries[0])
        for image in ranking.images
    ]
    np.testing.assert_allclose(ranking.scores, truth, atol=1e-5)

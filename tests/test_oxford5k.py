"""Real descriptors: the order that the paper finds, and the figures of an independent reference."""

import numpy as np
import pytest

import harness
from manifind import Manifold
from manifind.baselines import NearestImages
from manifind.graph import Neighbours, exact_neighbours
from manifind.ranking import Ranking

pytestmark = pytest.mark.skipif(not harness.at_hand(), reason=f"the Oxford5k descriptors are not at {harness.FOLDER}")


@pytest.fixture(scope="module")
def oxford() -> harness.Protocol:
    return harness.oxford5k()


@pytest.fixture(scope="module")
def lists(oxford: harness.Protocol) -> Neighbours:
    return exact_neighbours(oxford.vectors, 200)


def score(oxford: harness.Protocol, rankings: list[Ranking]) -> float:
    return oxford.tasks["Oxford5k"].mean_average_precision(rankings)


def test_plain_is_below_global_is_below_regional(oxford: harness.Protocol, lists: Neighbours) -> None:
    """The reference is a slow, literal program of its own; its figures came with the descriptors."""
    plain = NearestImages().fit(oxford.vectors, oxford.image_of).search_many(oxford.queries)
    whole = Manifold(k=50, query_k=10).fit(oxford.whole_images).search_many(oxford.whole_queries)
    regional = Manifold(k=200, query_k=200).fit(oxford.vectors, oxford.image_of, neighbours=lists)
    fewer = Manifold(k=50, query_k=50).fit(oxford.vectors, oxford.image_of, neighbours=lists)
    figures = [
        score(oxford, plain),
        score(oxford, whole),
        score(oxford, regional.search_many(oxford.queries)),
        score(oxford, fewer.search_many(oxford.queries)),
    ]
    assert figures == sorted(figures)
    np.testing.assert_allclose(figures, [57.74, 65.42, 74.17, 83.29], atol=0.1)


def test_twenty_steps_settle_the_best_and_the_plain_iteration_does_not(
    oxford: harness.Protocol, lists: Neighbours
) -> None:
    manifold = Manifold(k=50, query_k=50).fit(oxford.vectors, oxford.image_of, neighbours=lists)
    queries = oxford.queries[::8]

    def best(max_iter: int, solver: str = "cg") -> list[set[int]]:
        manifold.set_params(max_iter=max_iter)
        rankings = manifold.search_many(queries, solver=solver)
        return [set(np.argsort(-ranking.regions)[:100].tolist()) for ranking in rankings]

    def agreement(a: list[set[int]], b: list[set[int]]) -> float:
        return float(np.mean([len(x & y) / 100 for x, y in zip(a, b, strict=True)]))

    final = best(400)
    assert agreement(best(20), final) > 0.98
    with pytest.warns(UserWarning, match="110"):
        assert agreement(best(20, "iteration"), final) < 0.95


def test_a_shortlist_is_between_plain_and_whole(oxford: harness.Protocol, lists: Neighbours) -> None:
    manifold = Manifold(k=50, query_k=50).fit(oxford.vectors, oxford.image_of, neighbours=lists)
    assert 57.74 < score(oxford, manifold.search_many(oxford.queries, shortlist=1000)) < 83.4

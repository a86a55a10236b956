"""Each baseline against a literal version of itself, and all of them against the contract."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from manifind import Manifold, baselines
from manifind.baselines import query_expansion, reranking, similarity
from manifind.errors import InvalidInputError, ManifindWarning, NotFittedError
from manifind.gmm import compact
from tests import literal_baselines as truths
from tests.collections_of_regions import Collection, collections, make, unit
from tests.errors import raises

METHODS: list[tuple[type[baselines.ImageScorer], dict[str, Any], truths.Literal]] = [
    (baselines.NearestImages, {}, truths.plain),
    (baselines.AverageQueryExpansion, {"neighbours": 3}, truths.average_expansion),
    (baselines.AlphaQueryExpansion, {"neighbours": 6, "alpha": 2.5}, truths.alpha_expansion),
    (baselines.SpatiallyConstrainedMatching, {"neighbours": 4}, truths.scsm),
    (baselines.HelloNeighbor, {"neighbours": 4}, truths.hello_neighbor),
    (baselines.DatabaseAugmentation, {"neighbours": 5}, truths.augmentation),
    (baselines.KReciprocal, {"k1": 5, "k2": 3, "lam": 0.4}, truths.k_reciprocal),
    (baselines.GlobalDiffusion, {"k": 4, "query_k": 3, "max_iter": 500, "tol": 1e-9}, truths.global_diffusion),
    (baselines.RegionMatch, {}, truths.region_match),
    (baselines.RegionMatchExpansion, {"neighbours": 3}, truths.region_match_expansion),
    (baselines.RegionalDiffusion, {"k": 4, "query_k": 3, "max_iter": 500, "tol": 1e-9}, truths.regional_diffusion),
]
METHODS.append((baselines.UnnormalisedDiffusion, {"k": 4, "query_k": 3, "max_iter": 500}, truths.regional_diffusion))
ALL = [(method, parameters) for method, parameters, _ in METHODS]
ALL += [(baselines.AppendedDiffusion, {"k": 4, "query_k": 3})]
ALL += [(baselines.RegionalDiffusion, {"k": 4, "query_k": 3, "solver": solver}) for solver in ("offline", "spectral")]
ALL += [(baselines.CompactDiffusion, {"regions_per_image": 2, "k": 4, "query_k": 3})]

each_method = pytest.mark.parametrize(
    ("method", "parameters"), [pytest.param(*case, id=case[0].__name__) for case in ALL]
)


def fitted(
    method: type[baselines.ImageScorer], parameters: dict[str, Any], collection: Collection
) -> baselines.ImageScorer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifindWarning)  # small collections have fewer than k others
        return method(**parameters).fit(collection.vectors, collection.image_of)


@pytest.mark.parametrize("kind", ["random", "clusters", "ring"])
@pytest.mark.parametrize(
    ("method", "parameters", "literal"), [pytest.param(*case, id=case[0].__name__) for case in METHODS]
)
def test_a_method_equals_its_literal_version(
    method: type[baselines.ImageScorer],
    parameters: dict[str, Any],
    literal: truths.Literal,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = {name: parameters[name] for name in parameters if name not in ("max_iter", "tol")}
    for module in (similarity, query_expansion, reranking):
        monkeypatch.setattr(module, "BLOCK_BYTES", 200)
    for seed in range(8):
        collection = make(kind, images=1 + 3 * seed, most_regions=3, d=8, seed=seed)
        scorer = fitted(method, parameters, collection)
        X, image_of = collection.vectors.astype(np.float64), collection.image_of.tolist()
        for query in collection.queries:
            ranking = scorer.search(query)
            truth = literal(X, image_of, query.astype(np.float64), **named)
            assert sorted(ranking.images.tolist()) == sorted(truth)
            np.testing.assert_allclose(ranking.scores, [truth[image] for image in ranking.images.tolist()], atol=2e-5)


def test_compact_diffusion_is_diffusion_on_the_means(collection: Collection) -> None:
    scorer = baselines.CompactDiffusion(regions_per_image=2, k=10, query_k=5)
    ranking = scorer.fit(collection.vectors, collection.image_of).search(collection.queries[0])
    few = compact(collection.vectors, collection.image_of, regions_per_image=2)
    truth = Manifold(k=10, query_k=5).fit(few.vectors, few.image_of).search(collection.queries[0])
    assert ranking.images.tolist() == truth.images.tolist()
    assert ranking.scores.tolist() == truth.scores.tolist()


def test_global_descriptors_of_ones_own_rank_and_choose_the_shortlist(collection: Collection) -> None:
    """Random ones of another dimension: plain search goes by them, and diffusion looks no further than they do."""
    rng = np.random.default_rng(3)
    whole, asked = unit(rng.normal(size=(40, 5))), unit(rng.normal(size=(5, 5)))
    vectors, image_of = collection.vectors, collection.image_of
    plain = baselines.NearestImages().fit(vectors, image_of, global_vectors=whole)
    orders = np.unique(collection.image_of)[np.argsort(-asked @ whole.T, axis=1, kind="stable")]
    rankings = plain.search_many(collection.queries, global_vectors=list(asked))
    assert [ranking.images.tolist() for ranking in rankings] == orders.tolist()
    for method in (baselines.RegionalDiffusion, baselines.CompactDiffusion):
        short = method(k=10, query_k=5, shortlist=7).fit(vectors, image_of, global_vectors=whole)
        rankings = short.search_many(collection.queries, global_vectors=list(asked))
        for ranking, order in zip(rankings, orders, strict=True):
            assert sorted(ranking.images.tolist()) == sorted(order[:7].tolist())
    with raises("no-global-vectors"):
        plain.search(collection.queries[0])
    with raises("image-count"):
        plain.fit(vectors, image_of, global_vectors=whole[:3])


def test_parameters_of_the_search_change_without_fitting_anew(collection: Collection) -> None:
    fitted_once = baselines.RegionalDiffusion(k=10, query_k=5).fit(collection.vectors, collection.image_of)
    S = fitted_once.manifold_.S_
    for changed in ({"query_k": 3}, {"alpha": 0.5, "max_iter": 3}, {"shortlist": 9}, {}):
        parameters = {**baselines.RegionalDiffusion(k=10, query_k=5, alpha=0.99, max_iter=20).get_params(), **changed}
        assert fitted_once.try_params(parameters)
        assert fitted_once.manifold_.S_ is S
        anew = baselines.RegionalDiffusion(**parameters).fit(collection.vectors, collection.image_of)
        for query in collection.queries:
            np.testing.assert_array_equal(fitted_once.search(query).scores, anew.search(query).scores)
    assert not fitted_once.try_params({**parameters, "k": 11})
    assert not fitted_once.try_params({**parameters, "solver": "spectral"})


@each_method
@given(collection=collections, top=st.integers(1, 15))
def test_a_ranking_is_complete_and_sorted_and_top_is_its_beginning(
    method: type[baselines.ImageScorer], parameters: dict[str, Any], collection: Collection, top: int
) -> None:
    scorer = fitted(method, parameters, collection)
    ranking = scorer.search(collection.queries[0])
    assert sorted(ranking.images.tolist()) == np.unique(collection.image_of).tolist()
    assert (np.diff(ranking.scores) <= 0).all()
    assert np.isfinite(ranking.scores).all()
    first = scorer.search(collection.queries[0], top=top)
    assert first.images.tolist() == ranking.images[:top].tolist()
    assert first.scores.tolist() == ranking.scores[:top].tolist()


@each_method
def test_a_batch_equals_single_searches(
    method: type[baselines.ImageScorer], parameters: dict[str, Any], collection: Collection
) -> None:
    scorer = fitted(method, parameters, collection)
    for query, ranking in zip(collection.queries, scorer.search_many(collection.queries, top=7), strict=True):
        alone = scorer.search(query, top=7)
        assert ranking.images.tolist() == alone.images.tolist()
        np.testing.assert_allclose(ranking.scores, alone.scores, rtol=1e-5, atol=1e-6)
    assert scorer.search_many([]) == []


@each_method
def test_one_region_an_image_needs_no_image_numbers(
    method: type[baselines.ImageScorer], parameters: dict[str, Any], rng: np.random.Generator
) -> None:
    vectors = unit(rng.normal(size=(20, 6)))
    query = unit(rng.normal(size=(1, 6)))
    ranking = method(**parameters).fit(vectors).search(query)
    numbered = method(**parameters).fit(vectors, 10 * np.arange(20)).search(query)
    assert sorted(ranking.images.tolist()) == list(range(20))
    assert numbered.images.tolist() == (10 * ranking.images).tolist()


@each_method
def test_equal_images_and_a_query_like_none_of_them_are_ranked(
    method: type[baselines.ImageScorer], parameters: dict[str, Any]
) -> None:
    vectors = np.zeros((9, 4), np.float32)
    vectors[:, 0] = 1
    query = np.array([[0, 1, 0, 0]], np.float32)
    image_of = np.arange(9) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifindWarning)
        ranking = method(**parameters).fit(vectors, image_of).search(query)
    assert sorted(ranking.images.tolist()) == list(range(5))
    assert np.isfinite(ranking.scores).all()


@each_method
@pytest.mark.parametrize(
    ("ask", "code", "named"),
    [
        (lambda s: s.search(np.ones((2, 5), np.float32)), "wrong-dimension", "query_vectors"),
        (lambda s: s.search_many([np.ones((2, 5), np.float32)]), "wrong-dimension", "queries[0]"),
        (lambda s: s.search(np.full((1, 12), np.nan, np.float32)), "not-finite", "query_vectors"),
        (lambda s: s.search(np.zeros((0, 12), np.float32)), "empty", "query_vectors"),
        (lambda s: s.search(np.eye(12, dtype=np.float32), top=0), "invalid-input", "top"),
        (lambda s: s.search_many(np.eye(12, dtype=np.float32)), "wrong-type", "queries"),
        (lambda s: s.fit(np.eye(3, dtype=np.float32), [2, 1, 0]), "not-ascending", "image_of"),
        (lambda s: s.fit(np.eye(3, dtype=np.float32), [0, 1]), "wrong-shape", "image_of"),
        (lambda s: s.fit(np.zeros((3, 3), np.float32)), "zero-vector", "vectors"),
        (lambda s: s.fit(np.eye(3, dtype=np.int64)), "wrong-dtype", "vectors"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(
    method: type[baselines.ImageScorer],
    parameters: dict[str, Any],
    collection: Collection,
    ask: Callable[[baselines.ImageScorer], object],
    code: str,
    named: str,
) -> None:
    with raises(code, InvalidInputError) as refused:
        ask(fitted(method, parameters, collection))
    sentence = str(refused.value)
    assert sentence.startswith(named)
    assert sentence.endswith(".")
    assert "\n" not in sentence


@each_method
def test_asking_before_fitting_is_refused(method: type[baselines.ImageScorer], parameters: dict[str, Any]) -> None:
    with raises("not-fitted", NotFittedError):
        method(**parameters).search(np.eye(2, dtype=np.float32))


@each_method
def test_parameters_are_kept_as_given_and_checked_by_fit(
    method: type[baselines.ImageScorer], parameters: dict[str, Any], collection: Collection
) -> None:
    scorer = method(**parameters)
    assert scorer.get_params().items() >= parameters.items()
    for name, value in parameters.items():
        assert f"{name}={value!r}" in repr(scorer)
        if name == "solver":
            continue
        with raises("invalid-input", InvalidInputError) as refused:
            method(**{**parameters, name: -1}).fit(collection.vectors, collection.image_of)
        assert str(refused.value).startswith(f"{name} is -1; give ")


@each_method
def test_parameters_have_scikit_learns_manners(
    method: type[baselines.ImageScorer], parameters: dict[str, Any], collection: Collection
) -> None:
    scorer = method().set_params(**parameters)
    assert scorer.get_params() == method(**parameters).get_params()
    copy = clone(scorer)
    assert type(copy) is method
    assert copy.get_params() == scorer.get_params()
    with raises("invalid-input") as refused:
        scorer.set_params(colour="red")
    assert str(refused.value).startswith("parameter is 'colour'; choose one of ")
    alone = fitted(method, parameters, collection)
    again = scorer.fit(collection.vectors, collection.image_of)
    query = collection.queries[0]
    assert again.search(query).scores.tolist() == alone.search(query).scores.tolist()
    assert again.try_params(again.get_params())


@pytest.mark.parametrize("block", [1, 200, 2**24])
@given(collection=collections)
def test_region_match_is_the_same_in_blocks_of_any_size(block: int, collection: Collection) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similarity, "BLOCK_BYTES", block)
        ranking = baselines.RegionMatch().fit(collection.vectors, collection.image_of).search(collection.queries[0])
    truth = truths.region_match(
        collection.vectors.astype(np.float64), collection.image_of.tolist(), collection.queries[0].astype(np.float64)
    )
    np.testing.assert_allclose(ranking.scores, [truth[image] for image in ranking.images.tolist()], atol=1e-5)

"""Methods by name."""

import inspect

import numpy as np
import pytest

from manifind import InvalidInput, Manifold, baselines
from manifind.demo.synthetic import planted_objects
from manifind.evaluate.methods import METHODS, OF_SEARCH, chosen, parse
from manifind.evaluate.published import published


def test_parameters_are_the_estimators_own_but_for_those_asked_for() -> None:
    choice = parse("regional-diffusion:k=50,alpha=0.9,engine=iteration,pooling=sum")
    own = {name: one.default for name, one in inspect.signature(Manifold).parameters.items() if name != "memory"}
    asked = {"k": 50, "alpha": 0.9, "engine": "iteration", "pooling": "sum"}
    assert choice.parameters == {**own, "shortlist": None, **asked}
    assert parse("regional-diffusion:engine=offline,size=300").parameters["size"] == 300
    assert "size" not in choice.parameters
    assert chosen("regional-diffusion-paper").parameters["k"] == 200
    assert parse("aqe:neighbours=5").method.make(neighbours=5).neighbours == 5


def test_what_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(InvalidInput, match="'nearist'; choose one of nearest, aqe"):
        parse("nearist")
    with pytest.raises(InvalidInput, match=r"aqe has no parameter 'k'; it has neighbours"):
        parse("aqe:k=5")
    with pytest.raises(InvalidInput, match="write NAME:parameter=value"):
        parse("aqe:5")


def test_every_baseline_is_a_method() -> None:
    known = {method.make for method in METHODS.values()}
    missing = [
        name
        for name in baselines.__all__
        if not inspect.isabstract(getattr(baselines, name)) and getattr(baselines, name) not in known
    ]
    # Manifold stands in for it, on neighbours that all its settings share.
    assert missing == ["RegionalDiffusion"]


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.wants != "photos"])
def test_every_method_ranks_every_image_once(name: str) -> None:
    planted = planted_objects(images=60, objects=2, views=5, queries=1, d=32, seed=3)
    choice = chosen(name)
    own = {"size", *(OF_SEARCH if choice.method.on_graph else ())}
    parameters = {key: value for key, value in choice.parameters.items() if key not in own}
    estimator = choice.method.make(**parameters).fit(planted.vectors, planted.image_of)
    for ranking in estimator.search_many(planted.queries):
        np.testing.assert_array_equal(np.sort(ranking.images), np.arange(60))


def test_published_figures_are_of_methods_and_columns_that_exist() -> None:
    columns = ["INSTRE", "Oxford5k", "Oxford5k+100k", "Paris6k", "Paris6k+100k"]
    columns += [f"{data} {task}" for data in ("ROxford5k", "RParis6k") for task in ("Easy", "Medium", "Hard")]
    rows = published(columns)
    assert {row.method for row in rows} <= {None, *METHODS}
    assert {name for row in rows for name in row.values} == set(columns)
    assert all(0 < value < 100 and row.source for row in rows for value in row.values.values())


def test_a_published_figure_is_comparable_only_on_the_same_descriptors_and_definition() -> None:
    rows = [row for row in published(["Oxford5k"]) if row.method == "regional-diffusion-paper"]
    (row,) = [one for one in rows if one.values["Oxford5k"] == 93.2]
    assert row.why_not_comparable(row.descriptors, "trapezoid") == ""
    assert row.why_not_comparable(None, "trapezoid") == "other descriptors"
    assert row.why_not_comparable(row.descriptors, "mean") == "AP is trapezoid, not mean"
    decoupled = [one for one in published(["Oxford5k"]) if one.method == "offline-diffusion"]
    assert [one.values["Oxford5k"] for one in decoupled] == [92.6, 91.33]
    assert decoupled[0].why_not_comparable(decoupled[0].descriptors, "trapezoid")
    assert decoupled[1].why_not_comparable(decoupled[1].descriptors, "trapezoid") == ""
    assert "evaluator" in decoupled[0].note

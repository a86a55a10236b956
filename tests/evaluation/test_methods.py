"""Methods by name."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

from manifind import Manifold, baselines
from manifind.demo.synthetic import planted_objects
from manifind.evaluation.comparison import methods_of_the_paper, published
from manifind.evaluation.methods import METHODS, method_spec, parse
from tests.errors import raises


def test_parameters_are_the_estimators_own_but_for_those_asked_for() -> None:
    choice = parse("regional-diffusion:k=50,alpha=0.9,solver=iteration,pooling=sum")
    signature = inspect.signature(Manifold).parameters.items()
    own = {name: one.default for name, one in signature if name not in ("memory", "reserve")}
    asked = {"k": 50, "alpha": 0.9, "solver": "iteration", "pooling": "sum"}
    # All pairs are compared, whatever the machine: figures should not depend on it.
    assert choice.parameters == {**own, "shortlist": None, "size": 1000, "knn": "exact", **asked}
    assert parse("global-diffusion:solver=offline,size=300").parameters["size"] == 300
    assert parse("compact-diffusion:shortlist=30").parameters["shortlist"] == 30
    assert method_spec("regional-diffusion-paper").parameters["k"] == 200
    assert parse("aqe:neighbours=5").method.make(neighbours=5).neighbours == 5


def test_what_is_computed_alike_is_computed_once() -> None:
    """Two names for the paper's setting, and the order in which parameters are given."""
    paper = method_spec("regional-diffusion-paper")
    assert parse("regional-diffusion:query_k=200,k=200").key == paper.key
    assert parse("regional-diffusion-paper:knn=auto").key == paper.key
    assert parse("regional-diffusion-paper:pooling=sum").key != paper.key


def test_what_is_not_there_is_refused_with_what_is() -> None:
    with raises("unknown-method") as refused:
        parse("nearist")
    assert str(refused.value) == f"method is 'nearist'; choose one of {', '.join(METHODS)}."
    with raises("method-parameter") as refused:
        parse("aqe:k=5")
    assert str(refused.value) == "aqe has no parameter 'k'; it has neighbours."
    with raises("method-syntax") as refused:
        parse("aqe:5")
    assert str(refused.value) == "'aqe:5' has '5'; write NAME:parameter=value,parameter=value."


def test_every_baseline_is_a_method() -> None:
    known = {method.make for method in METHODS.values()}
    missing = [
        name
        for name in baselines.__all__
        if name != "Baseline"
        and not inspect.isabstract(getattr(baselines, name))
        and getattr(baselines, name) not in known
    ]
    assert missing == []


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs in ("global", "regional")])
def test_every_method_ranks_every_image_once(name: str) -> None:
    planted = planted_objects(images=60, objects=2, views=5, queries=1, d=32, seed=3)
    choice = method_spec(name)
    estimator = choice.method.make(**choice.parameters).fit(planted.vectors, planted.image_of)
    for ranking in estimator.search_many(planted.queries):
        np.testing.assert_array_equal(np.sort(ranking.images), np.arange(60))


def test_published_figures_are_of_methods_and_columns_that_exist() -> None:
    columns = ["INSTRE", "Oxford5k", "Oxford5k+100k", "Paris6k", "Paris6k+100k"]
    columns += [f"{data} {task}" for data in ("ROxford5k", "RParis6k") for task in ("Easy", "Medium", "Hard")]
    rows = published(columns)
    assert all(row.key for row in rows if row.method is not None)
    assert {name for row in rows for name in row.values} == set(columns)
    assert {row.measure for row in rows} == {"mAP", "seconds", "edges"}
    assert all(0 < value < 100 and row.source for row in rows for value in row.values.values())


def beside(method: str, column: str, value: float) -> bool:
    """Whether the mAP that somebody published stands beside a run of this method."""
    (row,) = [r for r in published([column]) if r.values.get(column) == value and r.measure == "mAP"]
    return row.key == parse(method).key


@pytest.mark.parametrize(
    ("column", "value", "method"),
    [
        ("Oxford5k", 93.2, "regional-diffusion:k=200,query_k=200"),
        ("Oxford5k", 92.2, "regional-diffusion:k=200,query_k=200,pooling=sum"),
        ("Oxford5k+100k", 92.5, "regional-diffusion:k=200,query_k=200"),
        ("Oxford5k+100k", 91.6, "regional-diffusion:k=200,query_k=200,knn=nn-descent"),
        ("Oxford5k+100k", 90.3, "regional-diffusion:k=200,query_k=200,knn=nn-descent,shortlist=10000"),
        ("INSTRE", 77.7, "regional-diffusion:k=200,query_k=200,seeding=append"),
        ("Oxford5k", 91.5, "compact-diffusion"),
        ("Oxford5k+100k", 84.7, "compact-diffusion:knn=nn-descent,shortlist=40000"),
        ("Oxford5k", 80.94, "global-diffusion"),
    ],
)
def test_a_published_figure_stands_beside_a_run_of_the_same_and_no_other(
    column: str, value: float, method: str
) -> None:
    assert beside(method, column, value)
    others = ("alpha=0.9", "pooling=sum", "knn=nn-descent", "shortlist=10000", "query_k=50", "seeding=released")
    for other in others:
        name, _, given = method.partition(":")
        changed = f"{name}:{','.join([*filter(None, given.split(',')), other])}"
        if parse(changed).key != parse(method).key:
            assert not beside(changed, column, value)


def test_a_published_figure_is_comparable_only_on_the_same_descriptors_and_definition() -> None:
    (row,) = [one for one in published(["Oxford5k"]) if one.values["Oxford5k"] == 93.2]
    assert row.why_not_comparable(row.descriptors, "trapezoid") == ""
    assert row.why_not_comparable(None, "trapezoid") == "other descriptors"
    assert row.why_not_comparable(row.descriptors, "mean") == "AP is trapezoid, not mean"
    decoupled = [one for one in published(["Oxford5k"]) if one.method == "offline-diffusion"]
    assert [one.values["Oxford5k"] for one in decoupled] == [92.6, 91.33]
    assert decoupled[0].why_not_comparable(decoupled[0].descriptors, "trapezoid")
    assert decoupled[1].why_not_comparable(decoupled[1].descriptors, "trapezoid") == ""
    assert "evaluator" in decoupled[0].note


def test_seconds_of_another_machine_are_never_comparable() -> None:
    times = replace(next(one for one in published(["Oxford5k"]) if one.method is not None), measure="seconds")
    assert times.why_not_comparable(times.descriptors, "trapezoid") == "another machine"
    assert replace(times, method=None).why_not_comparable(None, "mean") == "the method is not one of these"


def test_the_papers_recipe_is_every_row_of_its_tables_for_the_columns_at_hand() -> None:
    small = methods_of_the_paper(["Oxford5k"])
    assert {"nearest", "aqe", "scsm", "hello-neighbor", "global-diffusion", "r-match", "hqe", "r-match-aqe"} <= set(
        small
    )
    assert {"compact-diffusion", "regional-diffusion-paper", "regional-diffusion-paper:pooling=sum"} <= set(small)
    assert not any("shortlist" in method for method in small)
    large = methods_of_the_paper(["Oxford5k+100k"])
    assert "regional-diffusion-paper:shortlist=10000,knn=nn-descent" in large
    assert methods_of_the_paper(["toys"]) == small

"""The paper's figures as data: the parameter that varies, and what each value gives.

A figure is planned first, as methods to run, so that all methods of one graph run together; then their results are
looked up. The default parameters are the paper's: k = query_k = 200 for regions, 50 for mixture means, and 50 with
query_k = 10 for global descriptors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from manifind.errors import InvalidInputError
from manifind.evaluation.dataset import EvaluationSet
from manifind.evaluation.methods import MethodSpec, method_spec, named_parameters
from manifind.evaluation.protocol import Task
from manifind.evaluation.runner import Run

KS = (10, 20, 50, 100, 200, 500, 1000)
QUERY_KS = (5, 10, 20, 50, 100, 200, 400)
ITERATIONS = {"cg": (1, 2, 5, 10, 20, 40), "iteration": (1, 5, 20, 40, 80, 110)}
SYSTEMS = (1, 2, 5, 10, 20, 40)
MEANS = (3, 5, 10)
SHORTLISTS = (50, 100, 250, 500, 1000, 2500, 5000, 10_000)
SIZES = tuple(round(0.1 * i, 1) for i in range(11))
"""Bounds of the relative sizes of objects that Figure 6 tells apart."""
MAX_GAINS, MAX_GAIN_IMAGES = 5, 12
"""How many of the queries that gained most are shown, and how many images of each: as many as in the paper's Figure
7."""
DEFAULT_TASK = "Medium"
"""The default level of Revisited."""
REGIONAL = "regional-diffusion-paper"

Given = Mapping[str, Any]
PlannedPoint = tuple[str, float, MethodSpec]
"""A line, a place on the axis, and the method to run for it."""


@dataclass(frozen=True)
class Point:
    """One measured place of a line."""

    column: str
    line: str
    x: float
    mAP: float  # noqa: N815 (the field's word)
    query_seconds: float
    """The seconds that one query alone takes, over all stages."""
    residual: float
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """Lines of one figure, of one or more data."""

    name: str
    title: str
    axis: str
    points: tuple[Point, ...]
    levels: tuple[tuple[str, str, float], ...]
    """The dashed lines, which do not depend on what is varied: for each a column, a name and its mAP."""
    log: bool = True


@dataclass(frozen=True)
class BySize:
    """Precision of positives by the part of the photo that the object takes: Figure 6."""

    column: str
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    precision: dict[str, tuple[float, ...]]
    """By method, in percent; NaN where there is no positive of a size."""


@dataclass(frozen=True)
class Gain:
    """A query and the images that regional diffusion found earlier than global: Figure 7."""

    query: int
    before: float
    """Average precision, in percent, by global diffusion."""
    after: float
    images: tuple[tuple[int, float, float], ...]
    """Image number, precision at its rank before and after."""


# -- plans -------------------------------------------------------------------------------------------------------------


def _global_spec(given: Given, **more: Any) -> MethodSpec:
    """Return global diffusion with the given parameters except k and query_k, which are those of regions."""
    return method_spec(
        "global-diffusion", **{name: given[name] for name in given if name not in ("k", "query_k")}, **more
    )


def _below(values: Sequence[int], count: int) -> list[int]:
    return [value for value in values if value < count]


def _k(data: EvaluationSet, given: Given) -> Iterator[PlannedPoint]:
    for k in _below(KS, len(data.images.any.vectors)):
        yield "regional", k, method_spec(REGIONAL, **{**given, "k": k})
    for k in _below(KS, data.images.count):
        yield "global", k, _global_spec(given, k=k)


def _query_k(data: EvaluationSet, given: Given) -> Iterator[PlannedPoint]:
    for k in [given["k"]] if "k" in given else (50, 100, 200):
        for query_k in _below(QUERY_KS, len(data.images.any.vectors)):
            yield f"regional, k = {k}", query_k, method_spec(REGIONAL, **{**given, "k": k, "query_k": query_k})
    for query_k in _below(QUERY_KS, data.images.count):
        yield "global", query_k, _global_spec(given, query_k=query_k)


def _iterations(_: EvaluationSet, given: Given) -> Iterator[PlannedPoint]:
    for solver, line in (("cg", "conjugate gradient"), ("iteration", "iteration of eq. 3")):
        for steps in ITERATIONS[solver]:
            yield line, steps, method_spec(REGIONAL, **{**given, "solver": solver, "max_iter": steps})


def _systems(_: EvaluationSet, given: Given) -> Iterator[PlannedPoint]:
    for method, line in ((REGIONAL, "normalised, eq. 17"), ("unnormalised-diffusion", "not normalised, eq. 18")):
        for steps in SYSTEMS:
            yield line, steps, method_spec(method, **{**given, "max_iter": steps})


def _mixtures(data: EvaluationSet, given: Given) -> Iterator[PlannedPoint]:
    every = len(data.images.any.vectors) / data.images.count
    yield "global diffusion", 1, _global_spec(given)
    for means in [means for means in MEANS if means < every]:
        yield "means of mixtures", means, method_spec("compact-diffusion", **{**given, "regions_per_image": means})
    yield "all regions", round(every), method_spec(REGIONAL, **given)


def _shortlists(data: EvaluationSet, given: Given) -> Iterator[PlannedPoint]:
    for size in [*_below(SHORTLISTS, data.images.count), data.images.count]:
        whole = size == data.images.count
        yield "regional", size, method_spec(REGIONAL, **{**given, "shortlist": None if whole else size})


@dataclass(frozen=True)
class Plan:
    """What a figure shows, and the methods to run for it."""

    title: str
    axis: str
    places: Callable[[EvaluationSet, Given], Iterator[PlannedPoint]]
    baselines: bool = False
    """Whether plain search and R-match are drawn, dashed."""
    log: bool = True


CURVES = {
    "k": Plan("mAP against k (Figure 2)", "k", _k, baselines=True),
    "query_k": Plan("mAP against the query's neighbours", "query_k", _query_k, baselines=True),
    "iterations": Plan("mAP against iterations, with the time of a query (Figure 3)", "iterations", _iterations),
    "systems": Plan("mAP and residual against iterations, by both systems (eq. 18)", "iterations", _systems),
    "mixtures": Plan("mAP against mixture means an image (Figure 4)", "regions an image", _mixtures, log=False),
    "shortlists": Plan("mAP against the shortlist (Figure 5)", "images in it", _shortlists, baselines=True),
}
FIGURES = (*CURVES, "sizes", "gains")
BASELINES = {"R-match": method_spec("r-match"), "nearest neighbours": method_spec("nearest")}


@dataclass(frozen=True)
class FigureRequest:
    """A request for a figure: ``NAME`` or ``NAME:parameter=value,...``; ``task`` is the level of Revisited."""

    name: str
    given: Given = field(default_factory=dict)
    task: str | None = None

    @classmethod
    def of(cls, text: str) -> "FigureRequest":
        """Parse a request."""
        name, given = named_parameters(text)
        if name not in FIGURES:
            raise InvalidInputError(
                f"figure is {name!r}; choose one of all, {', '.join(FIGURES)}.", code="unknown-figure"
            )
        task = given.pop("task", None)
        return cls(name, given, task)

    def missing(self, data: Sequence[EvaluationSet]) -> str:
        """Warn what the figure needs and no data has. The sentence is empty where the figure can be drawn."""
        if not any(dataset.regional for dataset in data):
            return "descriptors of regions"
        if self.name == "sizes" and not any(_has_object_sizes(dataset) for dataset in data):
            return "the boxes of objects in the positives, and the sizes of photos"
        if self.task is not None and self.task not in {
            task.name for dataset in data for task in dataset.protocol.tasks
        }:
            return f"a ground truth with the task {self.task}"
        return ""

    def specs(self, data: EvaluationSet) -> list[MethodSpec]:
        """Return the methods that must be run on some data."""
        if not data.regional:
            return []
        if self.name not in CURVES:
            return list(self.pair())
        plan = CURVES[self.name]
        return [spec for _, _, spec in plan.places(data, self.given)] + (
            list(BASELINES.values()) if plan.baselines else []
        )

    def pair(self) -> tuple[MethodSpec, MethodSpec]:
        """Return global and regional diffusion, which Figures 6 and 7 compare."""
        return _global_spec(self.given), method_spec(REGIONAL, **self.given)

    def task_of(self, data: EvaluationSet) -> tuple[str, Task]:
        """Return the task that is drawn and its column: the requested level, or Medium, or the only task."""
        by_name = {task.name: task for task in data.protocol.tasks}
        name = next((task for task in (self.task, DEFAULT_TASK) if task in by_name), data.protocol.tasks[0].name)
        assert name is not None  # noqa: S101 (a protocol has tasks)
        return data.protocol.column(by_name[name]), by_name[name]


# -- results -----------------------------------------------------------------------------------------------------------


def curve(
    request: FigureRequest, measured: Sequence[tuple[EvaluationSet, Mapping[str, Run]]], definition: str
) -> Curve:
    """Return the lines of a figure, of every data that has them."""
    plan = CURVES[request.name]
    points, levels = [], []
    for data, runs in measured:
        if not data.regional:
            continue
        column, task = request.task_of(data)
        for line, x, spec in plan.places(data, request.given):
            if (run := runs.get(spec.key)) is not None:
                scored, costs = run.mean_average_precision(task, definition), run.costs
                parameters = dict(spec.parameters)
                points.append(Point(column, line, x, scored, costs["single_seconds"], costs["residual"], parameters))
        for name, spec in BASELINES.items() if plan.baselines else ():
            if (run := runs.get(spec.key)) is not None:
                levels.append((column, name, run.mean_average_precision(task, definition)))
    return Curve(request.name, plan.title, plan.axis, tuple(points), tuple(levels), plan.log)


def fixed_parameters(curve: Curve) -> dict[str, str]:
    """Return the parameters that do not change along each line, in words."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for point in curve.points:
        lines.setdefault(point.line, []).append(point.parameters)
    return {
        line: ", ".join(
            f"{name} = {value}"
            for name, value in parameters[0].items()
            if name != "size" and all(other.get(name) == value for other in parameters)
        )
        for line, parameters in lines.items()
    }


def _has_object_sizes(data: EvaluationSet) -> bool:
    protocol = data.protocol
    return data.regional and any(
        np.isfinite(protocol.relative_sizes(q, positives)).any()
        for q, positives in enumerate(protocol.tasks[0].positives)
    )


def by_size(request: FigureRequest, measured: Sequence[tuple[EvaluationSet, Mapping[str, Run]]]) -> BySize:
    """Return the precision of positives by object size, of the first data that knows sizes."""
    data, runs = next((data, runs) for data, runs in measured if _has_object_sizes(data))
    column, task = request.task_of(data)
    relative_sizes = np.concatenate(
        [data.protocol.relative_sizes(q, images) for q, images in enumerate(task.positives)]
    )
    bins = np.clip(np.digitize(relative_sizes, SIZES[1:-1]), 0, len(SIZES) - 2)
    masks = [np.isfinite(relative_sizes) & (bins == b) for b in range(len(SIZES) - 1)]
    precision = {}
    for spec in request.pair():
        run = runs[spec.key]
        values = np.concatenate([run.precision_of_positives(task, q) for q in range(len(task.positives))])
        precision[spec.title] = tuple(float(100 * values[mask].mean()) if mask.any() else np.nan for mask in masks)
    return BySize(column, SIZES, tuple(int(mask.sum()) for mask in masks), precision)


def gains(request: FigureRequest, data: EvaluationSet, runs: Mapping[str, Run], definition: str) -> list[Gain]:
    """Return the queries that gained most, and their images by how much later they were before."""
    _, task = request.task_of(data)
    before, after = (runs[spec.key] for spec in request.pair())
    first, second = (100 * run.average_precisions(task, definition) for run in (before, after))
    order = np.argsort(-np.nan_to_num(second - first, nan=-np.inf), kind="stable")[:MAX_GAINS]

    def images(query: int) -> Iterator[tuple[int, float, float]]:
        a, b = (100 * run.precision_of_positives(task, query) for run in (before, after))
        for place in np.argsort(a - b, kind="stable")[:MAX_GAIN_IMAGES]:
            if b[place] > a[place]:
                yield int(task.positives[query][place]), float(a[place]), float(b[place])

    return [
        Gain(int(q), float(first[q]), float(second[q]), tuple(images(int(q)))) for q in order if second[q] > first[q]
    ]

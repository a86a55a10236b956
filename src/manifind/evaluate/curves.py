"""The paper's figures as data: what is varied, and what it gives.

Each curve is runs of methods like any others, so they are kept between runs too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifind.evaluate.data import Data
from manifind.evaluate.methods import Choice, chosen
from manifind.evaluate.protocol import Task
from manifind.evaluate.runs import Run, Runner

KS = (10, 20, 50, 100, 200, 500, 1000)
QUERY_KS = (5, 10, 20, 50, 100, 200, 400)
ITERATIONS = {"cg": (1, 2, 5, 10, 20, 40), "iteration": (1, 5, 20, 40, 80, 110)}
MEANS = (3, 5, 10)
SHORTLISTS = (50, 100, 250, 500, 1000, 2500, 5000, 10_000)
SIZES = tuple(round(0.1 * i, 1) for i in range(11))
"""Bounds of the relative sizes of objects that Figure 6 tells apart."""
EXAMPLES, SHOWN = 5, 12
"""Queries that gained most, and images shown of each, as many as in the paper's Figure 7."""


@dataclass(frozen=True)
class Point:
    """One measured place of a line."""

    line: str
    x: float
    mAP: float  # noqa: N815 (the field's word)
    query_seconds: float


@dataclass(frozen=True)
class Curve:
    """Lines of one figure."""

    name: str
    title: str
    axis: str
    points: tuple[Point, ...]
    levels: tuple[tuple[str, float], ...] = ()
    """Lines that do not depend on what is varied, dashed: a name and mAP."""
    log: bool = True


@dataclass(frozen=True)
class BySize:
    """Precision of positives by the part of the photo that the object takes: Figure 6."""

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


def k_curve(run: "Sweep") -> Curve:
    """Vary k, for regional and global diffusion: Figure 2."""
    lines = [
        run.line(
            "regional, query_k = 50", [(k, chosen("regional-diffusion", k=k, query_k=50)) for k in run.some_regions(KS)]
        ),
        run.line(
            "regional, query_k = k", [(k, chosen("regional-diffusion", k=k, query_k=k)) for k in run.some_regions(KS)]
        ),
        run.line("global, query_k = 10", [(k, chosen("global-diffusion", k=k)) for k in run.some_images(KS)]),
    ]
    return Curve("k", "mAP against k", "k", run.all(lines), run.levels())


def query_k_curve(run: "Sweep") -> Curve:
    """Vary the neighbours of the query; the paper says 200 for regions and 10 for images."""
    lines = [
        run.line(
            f"regional, k = {k}",
            [(q, chosen("regional-diffusion", k=k, query_k=q)) for q in run.some_regions(QUERY_KS)],
        )
        for k in (50, 100, 200)
    ]
    lines.append(
        run.line("global, k = 50", [(q, chosen("global-diffusion", query_k=q)) for q in run.some_images(QUERY_KS)])
    )
    return Curve("query_k", "mAP against the query's neighbours", "query_k", run.all(lines), run.levels())


def iterations_curve(run: "Sweep") -> Curve:
    """Vary the iterations of conjugate gradient and of eq. 3, with the time of a query: Figure 3."""
    lines = [
        run.line(shown, [(n, chosen("regional-diffusion", engine=engine, max_iter=n)) for n in ITERATIONS[engine]])
        for engine, shown in (("cg", "conjugate gradient"), ("iteration", "iteration of eq. 3"))
    ]
    return Curve("iterations", "mAP against iterations, with the time of a query", "iterations", run.all(lines))


def mixtures_curve(run: "Sweep") -> Curve:
    """Vary the number of mixture means an image: Figure 4. Global diffusion and all regions at the ends."""
    every = run.regions_an_image
    lines = []
    for k in (20, 50):
        line = [(m, chosen("compact-diffusion", regions_per_image=m, k=k, query_k=k)) for m in MEANS if m < every]
        line.append((round(every), chosen("regional-diffusion", k=k, query_k=k)))
        lines.append(run.line(f"k = query_k = {k}", line))
    lines.append(run.line("global diffusion", [(1, chosen("global-diffusion"))]))
    return Curve("mixtures", "mAP against mixture means an image", "regions an image", run.all(lines), log=False)


def shortlists_curve(run: "Sweep") -> Curve:
    """Vary the size of the shortlist: Figure 5."""
    images = run.data.images.count
    sizes = [*[size for size in SHORTLISTS if size < images], images]
    places = [(size, chosen("regional-diffusion", shortlist=size)) for size in sizes]
    lines = [run.line("regional", places)]
    return Curve("shortlists", "mAP against the shortlist", "images in the shortlist", run.all(lines), run.levels())


CURVES: dict[str, Callable[["Sweep"], Curve]] = {
    "k": k_curve,
    "query_k": query_k_curve,
    "iterations": iterations_curve,
    "mixtures": mixtures_curve,
    "shortlists": shortlists_curve,
}


class Sweep:
    """Runs the points of curves on the first task of some data."""

    def __init__(self, runner: Runner, data: Data, definition: str) -> None:
        self.data = data
        self.task: Task = data.protocol.tasks[0]
        self._runner = runner
        self._definition = definition
        self._asked: list[tuple[str, float, Choice]] = []
        self._name = ""

    def curve(self, name: str) -> Curve:
        """Return a curve by its name in `CURVES`."""
        self._name = name
        return CURVES[name](self)

    @property
    def regions_an_image(self) -> float:
        """How many regions an image has on average."""
        regional = self.data.images.regional
        return len(regional.vectors) / regional.count if regional is not None else 1.0

    def some_regions(self, ks: Sequence[int]) -> list[int]:
        """Return the values that are below the number of regions."""
        return [k for k in ks if k < len(self.data.images.any.vectors)]

    def some_images(self, ks: Sequence[int]) -> list[int]:
        """Return the values that are below the number of images."""
        return [k for k in ks if k < self.data.images.count]

    def line(self, name: str, places: Sequence[tuple[float, Choice]]) -> list[tuple[str, float, Choice]]:
        """Return the places of a line, to be measured by `all`."""
        return [(name, x, choice) for x, choice in places]

    def all(self, lines: Sequence[Sequence[tuple[str, float, Choice]]]) -> tuple[Point, ...]:
        """Measure all places."""
        flat = [place for line in lines for place in line]
        runs = self._runner.run(self.data, [choice for _, _, choice in flat], f"figure: {self._name}")
        return tuple(
            Point(name, x, run.mean_average_precision(self.task, self._definition), run.query_seconds)
            for (name, x, _), run in zip(flat, runs, strict=True)
            if run is not None
        )

    def levels(self) -> tuple[tuple[str, float], ...]:
        """Return mAP of the baselines that the paper draws dashed."""
        runs = self._runner.run(self.data, [chosen("r-match"), chosen("nearest")], f"figure: {self._name}")
        return tuple(
            (title, run.mean_average_precision(self.task, self._definition))
            for title, run in zip(("R-match", "nearest neighbours"), runs, strict=True)
            if run is not None
        )


def by_size(runs: Sequence[Run]) -> BySize | None:
    """Return the precision of positives by object size; None where no sizes are known."""
    data = runs[0].data
    task = data.protocol.tasks[0]
    sizes = [data.protocol.relative_sizes(q, wanted) for q, wanted in enumerate(task.positives)]
    everything = np.concatenate(sizes)
    if not np.isfinite(everything).any():
        return None
    bins = np.clip(np.digitize(everything, SIZES[1:-1]), 0, len(SIZES) - 2)
    known = np.isfinite(everything)
    precision = {}
    for run in runs:
        values = np.concatenate([run.precision_of_positives(task, q) for q in range(len(task.positives))])
        precision[run.choice.title] = tuple(
            float(100 * values[known & (bins == b)].mean()) if (known & (bins == b)).any() else float("nan")
            for b in range(len(SIZES) - 1)
        )
    return BySize(SIZES, tuple(int((known & (bins == b)).sum()) for b in range(len(SIZES) - 1)), precision)


def gains(before: Run, after: Run, definition: str) -> list[Gain]:
    """Return the queries that gained most, and their images by how much later they were before."""
    task = before.data.protocol.tasks[0]
    first, second = (100 * run.average_precisions(task, definition) for run in (before, after))
    order = np.argsort(-np.nan_to_num(second - first, nan=-np.inf), kind="stable")[:EXAMPLES]

    def images(query: int) -> Iterator[tuple[int, float, float]]:
        a, b = (100 * run.precision_of_positives(task, query) for run in (before, after))
        for place in np.argsort(a - b, kind="stable")[:SHOWN]:
            if b[place] > a[place]:
                yield int(task.positives[query][place]), float(a[place]), float(b[place])

    return [
        Gain(int(q), float(first[q]), float(second[q]), tuple(images(int(q)))) for q in order if second[q] > first[q]
    ]


def as_dict(curve: Curve) -> dict[str, Any]:
    """Return a curve as JSON has it."""
    return {
        "title": curve.title,
        "axis": curve.axis,
        "points": [{"line": p.line, "x": p.x, "mAP": p.mAP, "ms_a_query": 1e3 * p.query_seconds} for p in curve.points],
        "levels": dict(curve.levels),
    }

"""Everything that one evaluation measured, and how it is written: a table, JSON, CSV, Markdown."""

import csv
import io
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.evaluate.curves import CURVES, BySize, Curve, Gain, Sweep, as_dict, by_size, gains
from manifind.evaluate.data import Data
from manifind.evaluate.methods import Choice
from manifind.evaluate.protocol import Task
from manifind.evaluate.published import Published, published
from manifind.evaluate.runs import AT, Run, Runner
from manifind.kernels import thread_count
from manifind.version import VERSION

DEFINED = {
    "trapezoid": "average precision by the trapezoid under the precision-recall curve, as Oxford's own program has it",
    "mean": "average precision as the mean of the precisions at the positives",
}
FIGURES = (*CURVES, "sizes", "gains")


@dataclass(frozen=True)
class Evaluation:
    """What was measured."""

    definition: str
    data: tuple[Data, ...]
    choices: tuple[Choice, ...]
    runs: tuple[tuple[Run | None, ...], ...]
    """A row for each method, an entry for each data."""
    curves: tuple[Curve, ...]
    sizes: BySize | None
    gains: tuple[Gain, ...]
    gained: tuple[Run, Run] | None
    """Global and regional diffusion, whom `gains` compares."""
    descriptors: str | None
    """What the descriptors are, by the name that published figures know them by."""

    def columns(self) -> list[tuple[str, int, Task]]:
        """Return the name of each column, the place of its data, and its task."""
        return [
            (data.protocol.name if len(data.protocol.tasks) == 1 else f"{data.protocol.name} {task.name}", place, task)
            for place, data in enumerate(self.data)
            for task in data.protocol.tasks
        ]

    def rows(self) -> Iterator[tuple[Choice, list[float | None], float | None]]:
        """Yield each method with its mAP in every column and the milliseconds of a query."""
        for choice, runs in zip(self.choices, self.runs, strict=True):
            if not any(runs):
                continue
            values = []
            for _, place, task in self.columns():
                run = runs[place]
                values.append(None if run is None else run.mean_average_precision(task, self.definition))
            first = next(run for run in runs if run is not None)
            yield choice, values, 1e3 * first.query_seconds

    def published(self) -> list[tuple[Published, str]]:
        """Return published rows for these columns, each with why it cannot be compared; nothing if it can."""
        return [
            (row, row.why_not_comparable(self.descriptors, self.definition))
            for row in published(name for name, _, _ in self.columns())
        ]

    def facts(self) -> list[tuple[str, str]]:
        """Return data, checksums and versions, by name."""
        found = [("average precision", DEFINED[self.definition])]
        for data in self.data:
            protocol, images = data.protocol, data.images
            kinds = [
                f"{len(kind.vectors)} {name} descriptors of {kind.vectors.shape[1]} dimensions"
                for name, kind in (("regional", images.regional), ("global", images.whole))
                if kind is not None
            ]
            found += [
                (
                    protocol.name,
                    f"{images.count} images, {len(protocol.queries)} queries, {', '.join(kinds)}; "
                    f"ground truth {', '.join(protocol.files)}; descriptors {images.what}, {data.queries.what}; "
                    f"SHA-256 {data.checksum}",
                )
            ]
        found.append(("versions", ", ".join(f"{name} {number}" for name, number in versions().items())))
        found.append(("threads", str(thread_count())))
        return found


def evaluate(
    data: Sequence[Data],
    choices: Sequence[Choice],
    runner: Runner,
    *,
    definition: str = "trapezoid",
    figures: Sequence[str] = (),
    descriptors: str | None = None,
) -> Evaluation:
    """Run methods on data, and draw the paper's figures from them.

    Parameters
    ----------
    data
        Protocols with their descriptors. Figures are of the first.
    choices
        Methods; one that the descriptors are not for is left out of the table.
    runner
        What runs them.
    definition : {"trapezoid", "mean"}
        Of average precision.
    figures
        Which of `FIGURES`.
    descriptors
        What the descriptors are, by the name that published figures know them by.
    """
    columns = []
    curves: list[Curve] = []
    sizes, gained, pair = None, tuple[Gain, ...](), None
    for place, one in enumerate(data):
        runs = runner.run(one, choices, f"methods, {one.protocol.name}")
        columns.append(runs)
        if place == 0:
            # While the neighbours of its regions are at hand.
            wanted = [name for name in figures if name in CURVES]
            curves = [Sweep(runner, one, definition).curve(name) for name in wanted if one.images.regional is not None]
            pair = _pair(runs)
            if pair is not None and "sizes" in figures:
                sizes = by_size(pair)
            if pair is not None and "gains" in figures:
                gained = tuple(gains(*pair, definition))
    rows = tuple(zip(*columns, strict=True))
    return Evaluation(definition, tuple(data), tuple(choices), rows, tuple(curves), sizes, gained, pair, descriptors)


def _pair(runs: Sequence[Run | None]) -> tuple[Run, Run] | None:
    """Return global diffusion and the last regional diffusion among runs."""
    by_name = {run.choice.method.name: run for run in runs if run is not None}
    regional = by_name.get("regional-diffusion") or by_name.get("regional-diffusion-paper")
    before = by_name.get("global-diffusion")
    return None if regional is None or before is None else (before, regional)


# -- how it is written -------------------------------------------------------------------------------------------------


def as_table(found: Evaluation) -> str:
    """Return the table for a terminal."""
    header, rows = _cells(found)
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [header, *rows]
    ]
    lines.append(f"\nmAP in percent; {DEFINED[found.definition]}; times of a query, all in one batch")
    return "\n".join(lines)


def as_markdown(found: Evaluation) -> str:
    """Return the table, the curves and the published figures in Markdown."""
    header, rows = _cells(found)
    parts = [
        f"mAP in percent; {DEFINED[found.definition]}.",
        _markdown(header, rows),
        *(f"## {curve.title}\n\n{_curve_markdown(curve)}" for curve in found.curves),
    ]
    if found.sizes is not None:
        parts.append(f"## Precision by object size\n\n{_markdown(*size_cells(found.sizes))}")
    beside = published_cells(found)
    if beside[1]:
        parts.append(f"## Published\n\n{_markdown(*beside)}")
    parts.append("## Data and versions\n\n" + "\n".join(f"- **{name}**: {value}" for name, value in found.facts()))
    parts.append("## Parameters\n\n" + _markdown(*parameter_cells(found)))
    return "\n\n".join(parts) + "\n"


def as_csv(found: Evaluation) -> str:
    """Return a line for each method and column, with every measure."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    measures = ["mAP_trapezoid", "mAP_mean", *(f"mP@{k}" for k in AT)]
    writer.writerow(["method", "parameters", "data", "task", *measures, "ms_a_query", "fit_seconds"])
    for row in _measured(found):
        parameters = ";".join(f"{name}={value}" for name, value in row["parameters"].items())
        figures = [f"{row[measure]:.4f}" for measure in measures]
        times = [f"{row['ms_a_query']:.3f}", f"{row['fit_seconds']:.3f}"]
        writer.writerow([row["method"], parameters, row["data"], row["task"], *figures, *times])
    return buffer.getvalue()


def as_json(found: Evaluation) -> str:
    """Return everything, the average precision of each query too."""
    stored = {
        "manifind": VERSION,
        "versions": versions(),
        "threads": thread_count(),
        "definition": found.definition,
        "definition_in_words": DEFINED[found.definition],
        "data": [
            {
                "name": data.protocol.name,
                "images": data.images.count,
                "queries": [query.name for query in data.protocol.queries],
                "tasks": [task.name for task in data.protocol.tasks],
                "truth": list(data.protocol.files),
                "descriptors": [data.images.what, data.queries.what],
                "sha256": data.checksum,
            }
            for data in found.data
        ],
        "results": list(_measured(found, each=True)),
        "figures": {curve.name: as_dict(curve) for curve in found.curves},
        "precision_by_size": None if found.sizes is None else asdict(found.sizes),
        "gains": [
            {
                **asdict(gain),
                "query": found.data[0].protocol.queries[gain.query].name,
                "images": [
                    {"image": found.data[0].protocol.images[image], "before": before, "after": after}
                    for image, before, after in gain.images
                ],
            }
            for gain in found.gains
        ],
        "published": [{**asdict(row), "not_comparable": why or None} for row, why in found.published()],
    }
    return json.dumps(_without_nan(stored), indent=1, ensure_ascii=False) + "\n"


def _measured(found: Evaluation, *, each: bool = False) -> Iterator[dict[str, Any]]:
    for runs in found.runs:
        for name, place, task in found.columns():
            run = runs[place]
            if run is None:
                continue
            more: dict[str, Any] = {}
            if each:
                more = {"average_precisions": _rounded(run.average_precisions(task, found.definition))}
                more |= {f"right_of_first_{k}": run.right_of_first(task, k) for k in AT}
            yield {
                "method": run.choice.method.name,
                "title": run.choice.title,
                "source": run.choice.method.source,
                "parameters": dict(run.choice.parameters),
                "data": found.data[place].protocol.name,
                "task": task.name,
                "column": name,
                **run.figures(task),
                "ms_a_query": 1e3 * run.query_seconds,
                "fit_seconds": run.fit_seconds,
                "from_cache": run.kept,
                **more,
            }


def _rounded(values: npt.NDArray[np.float64]) -> list[float]:
    """Return percentages, short enough for a file."""
    return [round(100 * float(value), 4) for value in values]


def _cells(found: Evaluation) -> tuple[list[str], list[list[str]]]:
    header = ["method", *(name for name, _, _ in found.columns()), "ms a query"]
    rows = [
        [
            choice.title,
            *("" if value is None else f"{value:.2f}" for value in values),
            "" if ms is None else f"{ms:.1f}",
        ]
        for choice, values, ms in found.rows()
    ]
    return header, rows


def published_cells(found: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Return the published figures for the columns measured: what they are of, and whether they can be compared."""
    columns = [name for name, _, _ in found.columns()]
    ours = {choice.method.name: values for choice, values, _ in found.rows() if not choice.given}

    def beside(row: Published, why: str) -> str:
        if why:
            return f"not comparable: {why}"
        values = zip(columns, ours.get(row.method or "", ()), strict=False)
        shown = [f"{value:.1f}" for name, value in values if name in row.values and value is not None]
        return f"comparable: {', '.join(shown)}" if shown else "comparable"

    header = ["published", "descriptors", "figures", "ours", "source"]
    rows = [
        [
            row.title,
            row.descriptors,
            ", ".join(f"{name} {_as_published(row.values[name])}" for name in columns if name in row.values),
            beside(row, why),
            f"{row.source}{f' ({row.note})' if row.note else ''}",
        ]
        for row, why in found.published()
    ]
    return header, rows


def _as_published(value: float) -> str:
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def parameter_cells(found: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Return each method with all its parameters and its source."""
    rows = [
        [
            choice.title,
            choice.method.source,
            ", ".join(f"{name} = {value}" for name, value in choice.parameters.items()) or "none",
        ]
        for choice, _, _ in found.rows()
    ]
    return ["method", "source", "parameters"], rows


def curve_cells(curve: Curve) -> tuple[list[str], list[list[str]]]:
    """Return a curve as a table, a line of it a row."""
    xs = sorted({point.x for point in curve.points})
    at = {(point.line, point.x): point.mAP for point in curve.points}
    rows = [
        [line, *(f"{at[line, x]:.2f}" if (line, x) in at else "" for x in xs)]
        for line in dict.fromkeys(point.line for point in curve.points)
    ]
    return [curve.axis, *(f"{x:g}" for x in xs)], rows


def size_cells(sizes: BySize) -> tuple[list[str], list[list[str]]]:
    """Return precision by size as a table."""
    header = ["size", *(f"{a:g}–{b:g}" for a, b in zip(sizes.bounds[:-1], sizes.bounds[1:], strict=True))]
    rows = [["positives", *map(str, sizes.counts)]]
    rows += [[name, *("" if math.isnan(v) else f"{v:.1f}" for v in values)] for name, values in sizes.precision.items()]
    return header, rows


def _curve_markdown(curve: Curve) -> str:
    return f"![{curve.title}](figure-{curve.name}.png)\n\n{_markdown(*curve_cells(curve))}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def versions() -> dict[str, str]:
    """Return the versions of what figures may depend on."""
    found = {"manifind": VERSION, "python": platform.python_version()}
    for name in ("numpy", "scipy", "faiss-cpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return value

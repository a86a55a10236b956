"""The tables of an evaluation, shared by the terminal, Markdown, CSV, JSON and the report."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from manifind.evaluation.comparison import PAPER, SIGNIFICANCE, Comparison, versions
from manifind.evaluation.curves import BySize, Curve, fixed_parameters
from manifind.evaluation.measures import DEFINITIONS, bootstrap_ci
from manifind.evaluation.runner import PRECISION_RANKS, Run
from manifind.kernels import thread_count
from manifind.version import VERSION

Cells = tuple[list[str], list[list[str]]]
"""A header and rows."""
COSTS = {
    "fit_seconds": ("off line, s", 1.0),
    "neighbours_seconds": ("neighbours, s", 1.0),
    "mixtures_seconds": ("mixtures, s", 1.0),
    "affinity_seconds": ("affinity, s", 1.0),
    "edges_a_region": ("edges a region", 1.0),
    "descriptors_bytes": ("descriptors, MB", 1e-6),
    "neighbours_bytes": ("lists, MB", 1e-6),
    "affinity_bytes": ("affinity, MB", 1e-6),
}


def heading(comparison: Comparison) -> str:
    """Warn what the evaluation is of."""
    return "How good manifind is on " + ", ".join(data.protocol.name for data in comparison.data)


def legend(comparison: Comparison) -> str:
    """Warn what the figures of the table are."""
    queries = ", ".join(f"{len(data.protocol.queries)} of {data.protocol.name}" for data in comparison.data)
    return (
        f"mAP in percent; {DEFINITIONS[comparison.definition]}. ± is half of the 95 % interval that drawing other "
        f"queries like these would give ({queries}); ~ marks what a paired test does not tell from the best of its "
        f"column (p ≥ {SIGNIFICANCE:g}). Times of one query alone, all stages but extraction, of all in one batch, "
        "and, where photos are extracted, of one alone with that."
    )


# -- cells -------------------------------------------------------------------------------------------------------------


def method_cells(comparison: Comparison) -> Cells:
    """Return mAP of every method in every column, and the times of a query."""
    unsure = {
        (name, spec.key)
        for name, _, others in comparison.compare_methods()
        for spec, _, p in others
        if p >= SIGNIFICANCE
    }
    columns = comparison.columns()
    extracts = any(data.extraction_seconds is not None for data in comparison.data)
    header = ["method", *(name for name, _, _ in columns), "ms a query", "in a batch"]
    header += ["with extraction"] if extracts else []
    rows = []
    for spec, runs in comparison.rows():
        cells = [spec.title]
        for (name, _, task), run in zip(columns, runs, strict=True):
            if run is None:
                cells.append("")
                continue
            low, high = bootstrap_ci(100 * run.average_precisions(task, comparison.definition))
            mark = "~" if (name, spec.key) in unsure else ""
            cells.append(f"{run.mean_average_precision(task, comparison.definition):.2f} ±{(high - low) / 2:.1f}{mark}")
        costs = _first(runs).costs
        cells += [f"{1e3 * costs['single_seconds']:.1f}", f"{1e3 * costs['batch_seconds']:.1f}"]
        rows.append([*cells, f"{1e3 * with_extraction(_first(runs)):.1f}"] if extracts else cells)
    return header, rows


def difference_cells(comparison: Comparison) -> Cells:
    """Return how far each method is below the best of a column, and the p of a paired test."""
    header = ["column", "best", "other", "difference", "p"]
    rows = [
        [name, best.title, spec.title, f"{difference:+.2f}", f"{p:.4f}"]
        for name, best, others in comparison.compare_methods()
        for spec, difference, p in others
    ]
    return header, rows


def cutoff_cells(comparison: Comparison) -> Cells:
    """Return precision and recall at the cutoff, for methods that have one."""
    rows = []
    for spec, runs in comparison.rows():
        for (name, _, task), run in zip(comparison.columns(), runs, strict=True):
            if run is not None and run.n_matches is not None:
                figures = run.figures(task)
                count = f"{np.mean(run.n_matches):.1f}"
                shown = [f"{figures[f'cutoff_{what}']:.1f}" for what in ("precision", "recall")]
                rows.append([spec.title, name, count, *shown])
    return ["method", "column", "images at the cutoff", "precision", "recall"], rows


def cost_cells(comparison: Comparison) -> Cells:
    """Return the off-line seconds and the bytes in memory of each method, on the first data that it ran on."""
    rows = [(spec, _first(runs).costs) for spec, runs in comparison.rows()]
    shown = [name for name in COSTS if any(name in costs for _, costs in rows)]

    def cell(costs: Mapping[str, float], name: str) -> str:
        return f"{costs[name] * COSTS[name][1]:.1f}" if name in costs else ""

    return ["method", *(COSTS[name][0] for name in shown)], [
        [spec.title, *(cell(costs, name) for name in shown)] for spec, costs in rows
    ]


def published_cells(comparison: Comparison, *, paper_only: bool = False) -> Cells:
    """Return published figures, each beside a run of the same method, and whether the two can be compared."""
    rows = []
    for row, column, theirs, ours, why in comparison.published():
        if paper_only and not row.source.startswith(PAPER):
            continue
        unit = "" if row.measure == "mAP" else f", {row.measure}"
        digits = 3 if row.measure == "seconds" else 1
        rows.append(
            [
                row.title + unit,
                row.descriptors,
                column,
                _as_published(theirs),
                "" if ours is None else f"{ours:.{digits}f}",
                "" if ours is None else f"{ours - theirs:+.{digits}f}",
                f"no: {why}" if why else "yes" if ours is not None else f"not run: --method {row.method}",
                f"{row.source}{f' ({row.note})' if row.note else ''}",
            ]
        )
    return ["published", "descriptors", "column", "theirs", "ours", "difference", "comparable", "source"], rows


def _as_published(value: float) -> str:
    return f"{value:.1f}" if round(value, 1) == value else f"{value:g}"


def parameter_cells(comparison: Comparison) -> Cells:
    """Return each method with all its parameters and its source."""
    rows = [
        [
            spec.title,
            spec.method.source,
            ", ".join(f"{name} = {value}" for name, value in spec.parameters.items()) or "none",
        ]
        for spec, _ in comparison.rows()
    ]
    return ["method", "source", "parameters"], rows


def curve_cells(curve: Curve) -> Cells:
    """Return a curve as a table, a line of it a row."""
    xs = sorted({point.x for point in curve.points})
    at = {(point.column, point.line, point.x): point.mAP for point in curve.points}
    rows = [
        [f"{column}, {line}", *(f"{at[column, line, x]:.2f}" if (column, line, x) in at else "" for x in xs)]
        for column, line in dict.fromkeys((point.column, point.line) for point in curve.points)
    ]
    return [curve.axis, *(f"{x:g}" for x in xs)], rows


def size_cells(sizes: BySize) -> Cells:
    """Return precision by size as a table."""
    header = ["size", *(f"{a:g}–{b:g}" for a, b in zip(sizes.bounds[:-1], sizes.bounds[1:], strict=True))]
    rows = [["positives", *map(str, sizes.counts)]]
    rows += [[name, *("" if math.isnan(v) else f"{v:.1f}" for v in values)] for name, values in sizes.precision.items()]
    return header, rows


def with_extraction(run: Run) -> float:
    """Return the seconds of one query alone, from its pixels on; a method on photos includes extraction."""
    by_pixels = run.spec.method.needs == "photos"
    return run.costs["single_seconds"] + (0.0 if by_pixels else run.data.extraction_seconds or 0.0)


def _first(runs: Sequence[Run | None]) -> Run:
    return next(run for run in runs if run is not None)


# -- files -------------------------------------------------------------------------------------------------------------


def as_table(comparison: Comparison, *, paper: bool = False) -> str:
    """Return the table for a terminal; with the paper's figures beside ours where those were asked for."""
    parts = [_align_columns(*method_cells(comparison)), legend(comparison), *comparison.warnings()]
    if cutoff_cells(comparison)[1]:
        parts.append(_align_columns(*cutoff_cells(comparison)))
    if paper:
        header, rows = published_cells(comparison, paper_only=True)
        parts.append(_align_columns(header[:-1], [row[:-1] for row in rows]))
    return "\n\n".join(parts)


def _align_columns(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [header, *rows]
    )


def as_markdown(comparison: Comparison) -> str:
    """Return the tables, the curves and the published figures in Markdown."""
    parts = [
        f"# {heading(comparison)}",
        legend(comparison),
        *(f"**{sentence}**" for sentence in comparison.warnings()),
        _markdown(*method_cells(comparison)),
    ]
    for curve in comparison.curves:
        settings = "\n".join(f"- {line}: {words}" for line, words in fixed_parameters(curve).items())
        drawn = f"![{curve.title}](figure-{curve.name}.png)"
        parts.append(f"## {curve.title}\n\n{drawn}\n\n{_markdown(*curve_cells(curve))}\n\n{settings}")
    if comparison.sizes is not None:
        parts.append(
            f"## Precision by object size, {comparison.sizes.column}\n\n{_markdown(*size_cells(comparison.sizes))}"
        )
    for title, cells in (
        ("At the cutoff", cutoff_cells(comparison)),
        ("Off line", cost_cells(comparison)),
        ("Which differences are more than chance", difference_cells(comparison)),
        ("Published", published_cells(comparison)),
        ("Data and versions", (["what", "which"], [list(fact) for fact in comparison.facts()])),
        ("Parameters", parameter_cells(comparison)),
    ):
        if cells[1]:
            parts.append(f"## {title}\n\n{_markdown(*cells)}")
    return "\n\n".join(parts) + "\n"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def as_csv(comparison: Comparison) -> str:
    """Return a line for each method and column, with every measure."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    measures = [*(f"mAP_{name}" for name in DEFINITIONS), *(f"mP@{k}" for k in PRECISION_RANKS)]
    measures += [f"mAP_{name}_{end}" for name in DEFINITIONS for end in ("low", "high")]
    times = ["ms_a_query", "ms_alone", "fit_seconds"]
    writer.writerow(["method", "parameters", "data", "task", *measures, *times])
    for row in _measured(comparison):
        parameters = ";".join(f"{name}={value}" for name, value in row["parameters"].items())
        numbers = [f"{row[name]:.4f}" for name in measures] + [f"{row[name]:.3f}" for name in times]
        writer.writerow([row["method"], parameters, row["data"], row["task"], *numbers])
    return buffer.getvalue()


def as_json(comparison: Comparison) -> str:
    """Return everything, the average precision of each query too."""
    stored = {
        "manifind": VERSION,
        "versions": versions(),
        "threads": thread_count(),
        "definition": comparison.definition,
        "definition_in_words": DEFINITIONS[comparison.definition],
        "warnings": comparison.warnings(),
        "data": [
            {
                "name": data.protocol.name,
                "images": data.images.count,
                "queries": [query.name for query in data.protocol.queries],
                "own_photos": data.protocol.own_photos_note(),
                "tasks": [task.name for task in data.protocol.tasks],
                "truth": list(data.protocol.files),
                "descriptors": [data.images.what, data.queries.what],
                "sha256": data.checksum,
                "ms_extraction": None if data.extraction_seconds is None else 1e3 * data.extraction_seconds,
                "skipped": list(data.skipped),
            }
            for data in comparison.data
        ],
        "results": list(_measured(comparison, each=True)),
        "differences": [
            {"column": name, "best": best.title, "other": spec.title, "difference": difference, "p": p}
            for name, best, others in comparison.compare_methods()
            for spec, difference, p in others
        ],
        "figures": {curve.name: _curve(curve) for curve in comparison.curves},
        "precision_by_size": None if comparison.sizes is None else asdict(comparison.sizes),
        "gains": [
            {
                **asdict(gain),
                "query": comparison.gain_data().protocol.queries[gain.query].name,
                "images": [
                    {"image": comparison.gain_data().protocol.images[image], "before": before, "after": after}
                    for image, before, after in gain.images
                ],
            }
            for gain in comparison.gains
        ],
        "published": [
            {**asdict(row), "column": column, "value": theirs, "ours": ours, "not_comparable": why or None}
            for row, column, theirs, ours, why in comparison.published()
        ],
    }
    return json.dumps(_without_nan(stored), indent=1, ensure_ascii=False) + "\n"


def _curve(curve: Curve) -> dict[str, Any]:
    points = [asdict(point) for point in curve.points]
    for point in points:
        point["ms_alone"] = 1e3 * point.pop("query_seconds")
    levels = [{"column": column, "line": line, "mAP": value} for column, line, value in curve.levels]
    return {"title": curve.title, "axis": curve.axis, "points": points, "levels": levels}


def _measured(comparison: Comparison, *, each: bool = False) -> Iterator[dict[str, Any]]:
    for spec, runs in comparison.rows():
        for (name, place, task), run in zip(comparison.columns(), runs, strict=True):
            if run is None:
                continue
            more: dict[str, Any] = {}
            if each:
                rounded = np.round(100 * run.average_precisions(task, comparison.definition), 4)
                more = {"average_precisions": rounded.tolist(), "costs": run.costs}
                more |= {f"right_of_first_{k}": run.positives_in_first(task, k) for k in PRECISION_RANKS}
            yield {
                "method": spec.method.name,
                "title": spec.title,
                "source": spec.method.source,
                "parameters": dict(spec.parameters),
                "data": comparison.data[place].protocol.name,
                "task": task.name,
                "column": name,
                **run.figures(task),
                "ms_a_query": 1e3 * run.costs["batch_seconds"],
                "ms_alone": 1e3 * run.costs["single_seconds"],
                "fit_seconds": run.costs["fit_seconds"],
                "from_cache": run.from_cache,
                **more,
            }


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return value

"""The report of an evaluation, one self-contained page, and the paper's figures drawn from what was measured.

matplotlib is imported when a figure is drawn, not before.
"""

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifind.errors import MissingExtraError, UnreadableImageError
from manifind.evaluation.comparison import Comparison
from manifind.evaluation.curves import BySize, Curve, Gain, Point, fixed_parameters
from manifind.evaluation.tables import (
    cost_cells,
    curve_cells,
    cutoff_cells,
    difference_cells,
    heading,
    legend,
    method_cells,
    parameter_cells,
    published_cells,
    size_cells,
)
from manifind.io import read_photo
from manifind.reports.html import THUMBNAIL, Picture, render
from manifind.types import Box

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Find = Callable[[str], Path | None]


def drawings(comparison: Comparison) -> dict[str, bytes]:
    """Return the figures as PNG files by name."""
    drawn = {curve.name: curve_png(curve, comparison.definition) for curve in comparison.curves}
    return drawn if comparison.sizes is None else {**drawn, "sizes": sizes_png(comparison.sizes)}


def report(comparison: Comparison, pictures: dict[str, bytes], find: Find | None = None) -> str:
    """Return the page; `find` gives the file of a photo by its name, where there are photos."""
    return render(
        "evaluation.html",
        title=heading(comparison),
        subtitle=legend(comparison),
        warnings=comparison.warnings(),
        methods=method_cells(comparison),
        curves=[
            (curve.title, pictures[curve.name], curve_cells(curve), fixed_parameters(curve))
            for curve in comparison.curves
        ],
        sizes=None if comparison.sizes is None else {"png": pictures["sizes"], "cells": size_cells(comparison.sizes)},
        gains=[_gain(comparison, gain, find) for gain in comparison.gains],
        figures=[("At the cutoff", cutoff_cells(comparison)), ("Off line", cost_cells(comparison))],
        texts=[
            ("Which differences are more than chance", difference_cells(comparison)),
            ("Published figures", published_cells(comparison)),
            ("Parameters and sources", parameter_cells(comparison)),
            ("Data and versions", (["what", "which"], comparison.facts())),
        ],
    )


def _gain(comparison: Comparison, gain: Gain, find: Find | None) -> dict[str, Any]:
    """Return what the page shows of one query: pictures where there are photos."""
    protocol = comparison.gain_data().protocol
    query = protocol.queries[gain.query]
    objects = (protocol.objects[gain.query] if protocol.objects else None) or {}
    shown = _picture(find, query.image, query.box)
    images = []
    for image, before, after in gain.images:
        name = protocol.images[image]
        picture = None if shown is None else _picture(find, name, objects.get(image))
        images.append((name, f"{before:.1f}", f"{after:.1f}", picture))
    return {
        "query": query.name,
        "before": gain.before,
        "after": gain.after,
        "picture": shown,
        "images": images,
        "rows": [cells for *cells, _ in images],
    }


def _picture(find: Find | None, name: str, box: Box | None) -> Picture | None:
    path = None if find is None else find(name)
    if path is None:
        return None
    try:
        photo = read_photo(path, long_side=THUMBNAIL)
    except UnreadableImageError:
        return None
    return Picture(photo.pixels, photo.width, photo.height, name, box)


COLOURS = ("#2a6fbb", "#d0202e", "#1b9e54", "#8a4b1c", "#7b3fa0", "#008b9a", "#c2500a", "#c23b8f", "#5f6b12", "#45505c")
STYLES = ("o-", "s:", "^-.", "v--")
LABELLED = (20, 110)
"""Iterations at which the time is written, as in the paper's figure."""
TIMED = ("iterations", "mixtures")


def check_drawing() -> None:
    """Raise `MissingExtraError` where nothing can be drawn."""
    _figure(1, 1)


def curve_png(curve: Curve, definition: str) -> bytes:
    """Draw mAP against what was varied: a colour for each curve and level, a style for each line, parameters below."""
    residuals = curve.name == "systems"
    figure, panels = _figure(7.2, 7.4 if residuals else 4.6, rows=2 if residuals else 1)
    _lines(panels[0], curve, [point.mAP for point in curve.points], f"mAP ({definition})")
    for number, (column, name, level) in enumerate(curve.levels):
        colour = COLOURS[(len(_series(curve)) + number) % len(COLOURS)]
        style = "--" if number % 2 == 0 else (0, (1, 3))
        panels[0].axhline(level, ls=style, lw=1, color=colour, label=f"{column}, {name}, {level:.1f}")
    panels[0].legend(fontsize="x-small")
    if residuals:
        _lines(panels[1], curve, [point.residual for point in curve.points], "relative residual")
        panels[1].set_yscale("log")
    settings = [f"{line}: {words}" for line, words in fixed_parameters(curve).items()]
    figure.supxlabel("\n".join(settings), fontsize=5)
    return _png(figure)


def _series(curve: Curve) -> list[tuple[str, str]]:
    """Return the data and the line of each curve that is drawn."""
    return list(dict.fromkeys((point.column, point.line) for point in curve.points))


def _lines(axes: "Axes", curve: Curve, heights: list[float], label: str) -> None:
    series = _series(curve)
    names = list(dict.fromkeys(point.line for point in curve.points))
    by_line: dict[tuple[str, str], list[tuple[Point, float]]] = {}
    for point, height in zip(curve.points, heights, strict=True):
        by_line.setdefault((point.column, point.line), []).append((point, height))
    for (column, line), points in by_line.items():
        colour = COLOURS[series.index((column, line)) % len(COLOURS)]
        style = STYLES[names.index(line) % len(STYLES)]
        xs = [point.x for point, _ in points]
        axes.plot(xs, [height for _, height in points], style, ms=4, lw=1.4, color=colour, label=f"{column}, {line}")
        for point, height in points:
            if curve.name == "mixtures" or (curve.name in TIMED and point.x in LABELLED):
                place = (0, -11 if names.index(line) % 2 else 6)
                axes.annotate(
                    seconds(point.query_seconds),
                    (point.x, height),
                    textcoords="offset points",
                    xytext=place,
                    ha="center",
                    fontsize=7,
                    color=colour,
                )
    ticks = sorted({point.x for point in curve.points})
    axes.set(xscale="log" if curve.log else "linear", xlabel=curve.axis, ylabel=label)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=45 if len(ticks) > 8 else 0)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def seconds(value: float) -> str:
    """Return a time as it is read."""
    return f"{value:.2g} s" if value >= 1 else f"{1e3 * value:.0f} ms"


def sizes_png(sizes: BySize) -> bytes:
    """Draw the precision of positives by object size, a bar for each method and size."""
    figure, (axes,) = _figure(7.2, 3.8)
    methods = list(sizes.precision)
    width = 0.8 * (sizes.bounds[1] - sizes.bounds[0]) / len(methods)
    for number, method in enumerate(methods):
        middles = [
            (low + high) / 2 + (number - (len(methods) - 1) / 2) * width
            for low, high in zip(sizes.bounds[:-1], sizes.bounds[1:], strict=True)
        ]
        heights = [0 if math.isnan(value) else value for value in sizes.precision[method]]
        axes.bar(middles, heights, width, color=COLOURS[number], label=method)
    axes.set(
        xlabel=f"part of the photo that the object takes, {sizes.column}",
        ylabel="precision at the rank, %",
        xticks=sizes.bounds,
    )
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize="small")
    return _png(figure)


def _figure(width: float, height: float, *, rows: int = 1) -> "tuple[Figure, list[Axes]]":
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise MissingExtraError("drawing a figure needs matplotlib; pip install 'manifind[plots]'") from missing
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, 1, squeeze=False).ravel())


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()

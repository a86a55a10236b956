"""The paper's figures drawn from what was measured. matplotlib is imported when one is drawn, not before."""

import io
import math
from typing import TYPE_CHECKING

from manifind.errors import MissingExtra
from manifind.evaluate.curves import BySize, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2a6fbb", "#d0202e", "#1b9e54", "#8a4b1c", "#7b3fa0")
LABELLED = (20, 110)
"""Iterations at which the time is written, as in the paper's figure."""


def curve_png(curve: Curve, definition: str, data: str) -> bytes:
    """Draw mAP against what was varied."""
    figure, axes = _figure(7.2, 4.2)
    lines = dict.fromkeys(point.line for point in curve.points)
    for number, line in enumerate(lines):
        own = [point for point in curve.points if point.line == line]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot([p.x for p in own], [p.mAP for p in own], "o-", ms=4, lw=1.4, color=colour, label=line)
        if curve.name in ("iterations", "mixtures"):
            _label_times(axes, curve, line, colour, below=number > 0)
    for number, (name, level) in enumerate(curve.levels):
        axes.axhline(level, ls="--", lw=1, color=COLOURS[number], label=f"{name}, {level:.1f}")
    ticks = sorted({point.x for point in curve.points})
    axes.set(xscale="log" if curve.log else "linear", xlabel=curve.axis, ylabel=f"mAP ({definition}), {data}")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=45 if len(ticks) > 8 else 0)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return _png(figure)


def _label_times(axes: "Axes", curve: Curve, line: str, colour: str, *, below: bool) -> None:
    for point in curve.points:
        if point.line == line and (curve.name == "mixtures" or point.x in LABELLED):
            seconds = (
                f"{point.query_seconds:.2g} s" if point.query_seconds >= 1 else f"{1e3 * point.query_seconds:.0f} ms"
            )
            axes.annotate(
                seconds,
                (point.x, point.mAP),
                textcoords="offset points",
                xytext=(0, -11 if below else 6),
                ha="center",
                fontsize=7,
                color=colour,
            )


def sizes_png(sizes: BySize) -> bytes:
    """Draw the precision of positives by object size, a bar for each method and size."""
    figure, axes = _figure(7.2, 3.8)
    methods = list(sizes.precision)
    width = 0.8 * (sizes.bounds[1] - sizes.bounds[0]) / len(methods)
    for number, method in enumerate(methods):
        middles = [
            (low + high) / 2 + (number - (len(methods) - 1) / 2) * width
            for low, high in zip(sizes.bounds[:-1], sizes.bounds[1:], strict=True)
        ]
        heights = [0 if math.isnan(value) else value for value in sizes.precision[method]]
        axes.bar(middles, heights, width, color=COLOURS[number], label=method)
    axes.set(xlabel="part of the photo that the object takes", ylabel="precision at the rank, %", xticks=sizes.bounds)
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize="small")
    return _png(figure)


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise MissingExtra("drawing a figure needs matplotlib; pip install 'manifind[plots]'") from missing
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()

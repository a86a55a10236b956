"""The report of an evaluation: one self-contained page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from manifind.errors import UnreadableImageError
from manifind.evaluation.comparison import Comparison
from manifind.evaluation.curves import Gain, fixed_parameters
from manifind.evaluation.figures import curve_png, sizes_png
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

Find = Callable[[str], Path | None]


def drawings(found: Comparison) -> dict[str, bytes]:
    """Return the figures as PNG files by name."""
    drawn = {curve.name: curve_png(curve, found.definition) for curve in found.curves}
    return drawn if found.sizes is None else {**drawn, "sizes": sizes_png(found.sizes)}


def report(found: Comparison, pictures: dict[str, bytes], find: Find | None = None) -> str:
    """Return the page; `find` gives the file of a photo by its name, where there are photos."""
    return render(
        "evaluation.html",
        title=heading(found),
        subtitle=legend(found),
        warnings=found.warnings(),
        methods=method_cells(found),
        curves=[
            (curve.title, pictures[curve.name], curve_cells(curve), fixed_parameters(curve)) for curve in found.curves
        ],
        sizes=None if found.sizes is None else {"png": pictures["sizes"], "cells": size_cells(found.sizes)},
        gains=[_gain(found, one, find) for one in found.gains],
        figures=[("At the cutoff", cutoff_cells(found)), ("Off line", cost_cells(found))],
        texts=[
            ("Which differences are more than chance", difference_cells(found)),
            ("Published figures", published_cells(found)),
            ("Parameters and sources", parameter_cells(found)),
            ("Data and versions", (["what", "which"], found.facts())),
        ],
    )


def _gain(found: Comparison, gain: Gain, find: Find | None) -> dict[str, Any]:
    """Return what the page shows of one query: pictures where there are photos."""
    protocol = found.gained().protocol
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

"""The report of an evaluation: one self-contained page."""

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manifind.describe import Unreadable, read_photo
from manifind.errors import MissingExtra
from manifind.evaluate.curves import Gain
from manifind.evaluate.evaluation import (
    DEFINED,
    Evaluation,
    curve_cells,
    parameter_cells,
    published_cells,
    size_cells,
)
from manifind.evaluate.figures import curve_png, sizes_png
from manifind.pages.html import THUMBNAIL, Picture, gallery, illustration, page, table
from manifind.types import Box

Find = Callable[[str], Path | None]
A_FEW_WORDS = 35


def drawings(found: Evaluation) -> dict[str, bytes]:
    """Return the figures as PNG files by name; none if matplotlib is not there."""
    name = found.data[0].protocol.name
    try:
        drawn = {curve.name: curve_png(curve, found.definition, name) for curve in found.curves}
        if found.sizes is not None:
            drawn["sizes"] = sizes_png(found.sizes)
    except MissingExtra:
        return {}
    return drawn


def report(found: Evaluation, pictures: dict[str, bytes], find: Find | None = None) -> str:
    """Return the page; `find` gives the file of a photo by its name, where there are photos."""
    title = "How good manifind is on " + ", ".join(data.protocol.name for data in found.data)
    subtitle = f"mAP in percent; {DEFINED[found.definition]}."
    return page(title, subtitle, _sections(found, pictures, find))


def _sections(found: Evaluation, pictures: dict[str, bytes], find: Find | None) -> Iterator[tuple[str, str]]:
    yield "Methods", _methods(found)
    for curve in found.curves:
        drawn = illustration(pictures[curve.name], curve.title) if curve.name in pictures else ""
        yield curve.title, drawn + table(*curve_cells(curve))
    if found.sizes is not None:
        drawn = illustration(pictures["sizes"], "precision by object size") if "sizes" in pictures else ""
        yield "Precision of positives at their rank, by the size of the object", drawn + table(*size_cells(found.sizes))
    if found.gains:
        said = (
            "<p>The queries that gained most; under each image the precision at its rank by global → by regional.</p>"
        )
        shown = "".join(_gain(found, one, find) for one in found.gains)
        yield "What regional diffusion gains over global diffusion", said + shown
    header, rows = published_cells(found)
    if rows:
        yield "Published figures", _words(header, rows)
    yield "Parameters and sources", _words(*parameter_cells(found))
    yield "Data and versions", _words(["what", "which"], found.facts())


def _words(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of words, which read from the left; cells of a few words are not broken into lines."""

    def cells(row: Sequence[str], tag: str) -> str:
        parts = []
        for i, cell in enumerate(row):
            unbroken = "; white-space: nowrap" if len(cell) <= A_FEW_WORDS and i < len(row) - 1 else ""
            parts.append(f'<{tag} style="text-align: left; vertical-align: top{unbroken}">{html.escape(cell)}</{tag}>')
        return "".join(parts)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(header, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _methods(found: Evaluation) -> str:
    header = ["method", *(name for name, _, _ in found.columns()), "ms a query"]
    listed = list(found.rows())
    best = [
        max((value for _, values, _ in listed if (value := values[i]) is not None), default=-1.0)
        for i in range(len(header) - 2)
    ]
    body = []
    for choice, values, ms in listed:
        cells = [f"<td>{html.escape(choice.title)}</td>"]
        for value, top in zip(values, best, strict=True):
            text = "" if value is None else f"{value:.2f}"
            cells.append(f"<td>{f'<b>{text}</b>' if value is not None and value == top else text}</td>")
        cells.append(f"<td>{'' if ms is None else f'{ms:.1f}'}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _gain(found: Evaluation, gain: Gain, find: Find | None) -> str:
    protocol = found.data[0].protocol
    query = protocol.queries[gain.query]
    heading = f"<p><b>{html.escape(query.name)}</b>: average precision {gain.before:.1f} → {gain.after:.1f}</p>"
    pixels = None if find is None else _pixels(find, query.image)
    if find is None or pixels is None:
        rows = [[protocol.images[image], f"{before:.1f}", f"{after:.1f}"] for image, before, after in gain.images]
        return heading + table(["image", "precision, global", "precision, regional"], rows)
    boxes = [] if query.box is None else [(query.box, 1.0)]
    shown = [_picture(pixels, boxes, "query", is_query=True)]
    objects = protocol.objects[gain.query] if protocol.objects else {}
    for image, before, after in gain.images:
        found_pixels = _pixels(find, protocol.images[image])
        caption = f"{html.escape(protocol.images[image])}<br><b>{before:.1f} → {after:.1f}</b>"
        if found_pixels is not None:
            outlined = [(objects[image], 1.0)] if image in objects else []
            shown.append(_picture(found_pixels, outlined, caption))
    return f'{heading}<div class="small">{gallery(shown)}</div>'


Seen = tuple[npt.NDArray[np.uint8], int, int]


def _pixels(find: Find, name: str) -> Seen | None:
    path = find(name)
    if path is None:
        return None
    try:
        photo = read_photo(path, long_side=THUMBNAIL)
    except Unreadable:
        return None
    return photo.pixels, photo.width, photo.height


def _picture(seen: Seen, boxes: list[tuple[Box, float]], caption: str, *, is_query: bool = False) -> Picture:
    pixels, width, height = seen
    return Picture(pixels, width, height, boxes, caption, query=is_query)

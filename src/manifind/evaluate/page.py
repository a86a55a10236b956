"""The report of an evaluation: one self-contained page."""

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manifind.describe import Unreadable, read_photo
from manifind.evaluate.curves import Gain, fixed_parameters
from manifind.evaluate.evaluation import Evaluation
from manifind.evaluate.figures import curve_png, sizes_png
from manifind.evaluate.writing import (
    cost_cells,
    curve_cells,
    difference_cells,
    heading,
    legend,
    line_cells,
    method_cells,
    parameter_cells,
    published_cells,
    size_cells,
)
from manifind.pages.html import THUMBNAIL, Picture, gallery, illustration, page, table
from manifind.types import Box

Find = Callable[[str], Path | None]
A_FEW_WORDS = 35


def drawings(found: Evaluation) -> dict[str, bytes]:
    """Return the figures as PNG files by name."""
    drawn = {curve.name: curve_png(curve, found.definition) for curve in found.curves}
    return drawn if found.sizes is None else {**drawn, "sizes": sizes_png(found.sizes)}


def report(found: Evaluation, pictures: dict[str, bytes], find: Find | None = None) -> str:
    """Return the page; `find` gives the file of a photo by its name, where there are photos."""
    return page(heading(found), legend(found), _sections(found, pictures, find))


def _sections(found: Evaluation, pictures: dict[str, bytes], find: Find | None) -> Iterator[tuple[str, str]]:
    said = "".join(f"<p><b>{html.escape(sentence)}</b></p>" for sentence in found.warnings())
    yield "Methods", said + table(*method_cells(found))
    for curve in found.curves:
        settings = "".join(f"<br>{html.escape(f'{line}: {words}')}" for line, words in fixed_parameters(curve).items())
        drawn = illustration(pictures[curve.name], curve.title)
        yield curve.title, f'{drawn}{table(*curve_cells(curve))}<p class="faint">{settings}</p>'
    if found.sizes is not None:
        drawn = illustration(pictures["sizes"], "precision by object size")
        yield "Precision of positives at their rank, by the size of the object", drawn + table(*size_cells(found.sizes))
    if found.gains:
        said = (
            "<p>The queries that gained most; under each image the precision at its rank by global → by regional.</p>"
        )
        shown = "".join(_gain(found, one, find) for one in found.gains)
        yield "What regional diffusion gains over global diffusion", said + shown
    if line_cells(found)[1]:
        yield "At the line", table(*line_cells(found))
    yield "Off line", table(*cost_cells(found))
    for title, cells in (
        ("Which differences are more than chance", difference_cells(found)),
        ("Published figures", published_cells(found)),
        ("Parameters and sources", parameter_cells(found)),
        ("Data and versions", (["what", "which"], found.facts())),
    ):
        if cells[1]:
            yield title, _words(*cells)


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


def _gain(found: Evaluation, gain: Gain, find: Find | None) -> str:
    protocol = found.gained().protocol
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

"""Results as Web Annotations on the canvases of a IIIF collection: W3C's annotation page, as viewers of IIIF show it.

Each match is a box on its canvas (``xywh``), and an outline (SVG) where spatial verification found one.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from manifind.errors import InvalidInputError
from manifind.iiif import Canvas, read_canvases
from manifind.index import Hit, Index
from manifind.reports.html import Corners, seen_part


def annotations_data(index: Index, hits: Iterable[Hit]) -> dict[str, Any]:
    """Return the matches among some hits as an annotation page."""
    canvases = read_canvases(index.root)
    if not canvases:
        raise InvalidInputError(
            f"the photos of {index.where} are of no IIIF manifest; --annotations needs an index that "
            "manifind index https://… made.",
            code="no-canvases",
        )
    items = [
        _annotation(index, hit, canvases[key])
        for hit in hits
        if hit.is_match is not False
        for key in (hit.key, *hit.duplicates)
        if key in canvases
    ]
    return {
        "@context": "http://www.w3.org/ns/anno.jsonld",
        "id": "urn:manifind:annotations",
        "type": "AnnotationPage",
        "items": [{"id": f"urn:manifind:annotations:{place}", **one} for place, one in enumerate(items, 1)],
    }


def _annotation(index: Index, hit: Hit, canvas: Canvas) -> dict[str, Any]:
    record = index.catalogue.photo_of(hit.key)
    assert record is not None  # noqa: S101 (it was found)
    size = record.width, record.height
    outlines = [one for one in (hit.outline, hit.part, *hit.other_outlines) if one is not None]
    words = [f"rank {hit.rank}", hit.grade, None if hit.inliers is None else f"{hit.inliers} matching points"]
    source = {"id": canvas.canvas, "type": "Canvas", "partOf": [{"id": canvas.manifest, "type": "Manifest"}]}
    return {
        "type": "Annotation",
        "motivation": "commenting",
        "body": {"type": "TextualBody", "value": ", ".join(filter(None, words)), "format": "text/plain"},
        "target": {
            "type": "SpecificResource",
            "source": source,
            "selector": list(_selectors(canvas, size, hit.box, outlines)),
        },
    }


def _selectors(
    canvas: Canvas, size: tuple[int, int], box: Sequence[float] | None, outlines: Sequence[Corners]
) -> Iterator[dict[str, Any]]:
    """Yield the box round a match, and its outlines, in units of the canvas."""
    left, top, width, height = canvas.place
    across, down = (width or size[0]) / size[0], (height or size[1]) / size[1]
    drawn = [seen_part(outline, *size) for outline in outlines]
    drawn = [corners for corners in drawn if len(corners) > 2]
    if drawn:  # the box of a viewer holds what it outlines
        xs, ys = ([corner[axis] for corners in drawn for corner in corners] for axis in (0, 1))
        box = min(xs), min(ys), max(xs), max(ys)
    x0, y0, x1, y1 = box or (0, 0, *size)
    numbers = [left + x0 * across, top + y0 * down, (x1 - x0) * across, (y1 - y0) * down]
    yield {
        "type": "FragmentSelector",
        "conformsTo": "http://www.w3.org/TR/media-frags/",
        "value": "xywh=" + ",".join(str(round(one)) for one in numbers),
    }
    if drawn:
        lines = (
            "M" + " L".join(f"{left + x * across:.1f},{top + y * down:.1f}" for x, y in corners) + " Z"
            for corners in drawn
        )
        path = f'<path d="{" ".join(lines)}" fill="none" stroke="#ff6a2b" stroke-width="2"/>'
        yield {"type": "SvgSelector", "value": f'<svg xmlns="http://www.w3.org/2000/svg">{path}</svg>'}


def annotations_text(index: Index, hits: Iterable[Hit]) -> str:
    """Return the matches among some hits as JSON."""
    return json.dumps(annotations_data(index, hits), indent=2)

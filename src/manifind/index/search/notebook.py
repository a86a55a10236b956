"""A result as a notebook shows it: a strip of the first photos, each with its box or outline."""

import base64
import io
from html import escape
from typing import TYPE_CHECKING

from PIL import Image

from manifind.errors import UnreadableImageError
from manifind.index.search.query import photo_of

if TYPE_CHECKING:
    from manifind.index.search.results import Hit, SearchResult

PHOTOS = 12
"""Photos that are shown."""
SIDE = 180
"""Pixels of a photo's longer side."""


def result_html(result: "SearchResult") -> str:
    """Return a result as HTML, without a script or a request."""
    shown = "".join(_figure(result, hit) for hit in result[:PHOTOS])
    more = f"<div>and {len(result) - PHOTOS} more</div>" if len(result) > PHOTOS else ""
    return f'<div><code>{escape(repr(result))}</code><div style="display:flex;flex-wrap:wrap">{shown}</div>{more}</div>'


def _figure(result: "SearchResult", hit: "Hit") -> str:
    words = f"<b>{hit.rank}</b> <bdi>{escape(hit.key)}</bdi><br>{hit.score:.4f}"
    words += f", {hit.grade}" if hit.grade is not None else ""
    words += ", mirrored" if hit.mirrored else ""
    faint = ";opacity:.5" if hit.is_match is False else ""
    return (
        f'<figure style="margin:4px;width:{SIDE}px{faint}">{_drawn(result, hit)}'
        f'<figcaption style="overflow-wrap:anywhere">{words}</figcaption></figure>'
    )


def _drawn(result: "SearchResult", hit: "Hit") -> str:
    try:
        photo = photo_of(result.retrieval.snapshot, hit.key, long_side=SIDE)
    except UnreadableImageError as error:
        return f"<i>{escape(error.reason)}</i>"
    image = Image.fromarray(photo.pixels)
    image.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    outlines = [one for one in (hit.outline, hit.part, *hit.other_outlines) if one is not None]
    if not outlines and hit.box is not None:
        x0, y0, x1, y1 = hit.box
        outlines = [((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
    lines = "".join(
        f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in one)}" fill="none" stroke="#e11" stroke-width="2" '
        'vector-effect="non-scaling-stroke"/>'
        for one in outlines
    )
    picture = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<svg viewBox="0 0 {photo.width} {photo.height}" width="{image.width}" height="{image.height}">'
        f'<image width="100%" height="100%" preserveAspectRatio="none" href="data:image/jpeg;base64,{picture}"/>'
        f"{lines}</svg>"
    )

"""What geometry saw, as HTML without a script: lines between two photos, and the one warped onto the other.

The steps of the overlay are buttons of which one is chosen; the style of the page does the rest.
"""

import html
import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from manifind.errors import InvalidInput
from manifind.index import MatchingPoints
from manifind.pages.html import data_address, inline
from manifind.types import Box

SIDE = 640
"""Long side of the pictures, in pixels."""
GAP = 0.03
"""Between two photos side by side, in parts of their height."""
STEPS = {"the result": 0.0, "a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "the query": 1.0}
"""How much of the query is seen in the overlay."""

Pixels = npt.NDArray[np.uint8]

STYLE = (
    "<style>.lines { width: 100%; max-height: 34rem; display: block; }"
    ".lines line { stroke-width: 1.2; vector-effect: non-scaling-stroke; opacity: .85; }"
    ".lines circle { stroke: #000a; stroke-width: .5; vector-effect: non-scaling-stroke; }"
    ".laid { margin: 0; padding: 0; border: 0; } .laid .photo { max-width: 40rem; margin-top: .6rem; }"
    ".laid .over { position: absolute; inset: 0; opacity: .5; } .laid label { margin-right: 1rem; }"
    + "".join(f"#laid{i}:checked ~ .photo .over {{ opacity: {part:g}; }}" for i, part in enumerate(STEPS.values()))
    + "</style>"
)


def side_by_side(query: Pixels, photo: Pixels, found: MatchingPoints) -> str:
    """Return two photos of one height, with a line from each point of the query to its match."""
    (height, width), (tall, wide) = query.shape[:2], photo.shape[:2]
    by, gap = height / tall, GAP * height
    across = width + gap
    lines = []
    # From the top of the query to its foot, through all the colours.
    order = np.argsort(found.query[:, 1], kind="stable")
    for turn, place in enumerate(order):
        (x, y), (u, v) = found.query[place], found.photo[place] * by
        colour = f"hsl({300 * turn / max(1, len(order) - 1):.0f} 90% 55%)"
        lines.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{across + u:.1f}" y2="{v:.1f}" stroke="{colour}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{height / 150:.1f}" fill="{colour}"/>'
            f'<circle cx="{across + u:.1f}" cy="{v:.1f}" r="{height / 150:.1f}" fill="{colour}"/>'
        )
    frame = f"0 0 {across + wide * by:.1f} {height}"
    return (
        f'{STYLE}<svg class="lines" viewBox="{frame}" role="img" aria-label="The points that match">'
        f'<image href="{inline(query, SIDE)}" width="{width}" height="{height}" preserveAspectRatio="none"/>'
        f'<image href="{inline(photo, SIDE)}" x="{across:.1f}" width="{wide * by:.1f}" height="{height}" '
        f'preserveAspectRatio="none"/>{"".join(lines)}</svg>'
    )


def overlay(query: Pixels, box: Box | None, photo: Pixels, found: MatchingPoints) -> str:
    """Return the photo with the query's box warped onto it, and buttons for how much of the query is seen."""
    buttons = "".join(
        f'<input type="radio" name="laid" id="laid{i}"{" checked" if part == 0.5 else ""}>'
        f'<label for="laid{i}"> {html.escape(name)}</label>'
        for i, (name, part) in enumerate(STEPS.items())
    )
    seen = data_address(warped(query, box, photo.shape[:2], found), "webp")
    return (
        f'<div class="laid" role="radiogroup" aria-label="How much of the query is seen">{buttons}'
        f'<div class="photo"><img alt="" src="{inline(photo, SIDE)}">'
        f'<img class="over" alt="" src="{seen}"></div></div>'
    )


def warped(query: Pixels, box: Box | None, shape: tuple[int, int], found: MatchingPoints) -> bytes:
    """Return the query's box as it lies in a photo of this height and width, clear around it, as WebP."""
    if found.map is None:
        raise InvalidInput("no map joins the two photos; there is nothing to lay on the other.")
    height, width = query.shape[:2]
    by = min(1.0, SIDE / max(shape))
    size = max(1, round(shape[1] * by)), max(1, round(shape[0] * by))
    part = Image.new("L", (width, height))
    ImageDraw.Draw(part).rectangle(box or (0, 0, width, height), fill=255)
    whole = Image.fromarray(query).convert("RGB")
    whole.putalpha(part)
    # For each place of the picture, the place of the query that is seen there.
    back = np.linalg.inv(found.map) @ np.diag([shape[1] / size[0], shape[0] / size[1], 1.0])
    back /= back[2, 2]
    seen = whole.transform(size, Image.Transform.PERSPECTIVE, back.ravel()[:8].tolist(), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    seen.save(buffer, "WEBP", quality=82)
    return buffer.getvalue()

"""What geometry saw, as HTML without a script: lines between two photos, and the one warped onto the other.

The steps of the overlay are buttons of which one is chosen; the style of the page does the rest.
"""

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from manifind.errors import InvalidInputError
from manifind.index import MatchingPoints
from manifind.reports.html import render
from manifind.types import Box

SIDE = 640
"""Long side of the pictures, in pixels."""
GAP = 0.03
"""Between two photos side by side, in parts of their height."""
STEPS = {"the result": 0.0, "a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "the query": 1.0}
"""How much of the query is seen in the overlay."""

Pixels = npt.NDArray[np.uint8]


def side_by_side(query: Pixels, photo: Pixels, found: MatchingPoints) -> str:
    """Return two photos of one height, with a line from each point of the query to its match."""
    (height, width), (tall, wide) = query.shape[:2], photo.shape[:2]
    by = height / tall
    across = width + GAP * height
    # From the top of the query to its foot, through all the colours.
    order = np.argsort(found.query[:, 1], kind="stable")
    pairs = np.hstack([found.query, found.photo * by + (across, 0)])[order].tolist()
    sizes = {"width": width, "height": height, "wide": wide * by, "across": across}
    return render("lines.html", query=query, photo=photo, side=SIDE, pairs=pairs, **sizes)


def overlay(query: Pixels, box: Box | None, photo: Pixels, found: MatchingPoints) -> str:
    """Return the photo with the query's box warped onto it, and buttons for how much of the query is seen."""
    seen = warped(query, box, photo.shape[:2], found)
    return render("overlay.html", photo=photo, warped=seen, side=SIDE, steps=STEPS)


def warped(query: Pixels, box: Box | None, shape: tuple[int, int], found: MatchingPoints) -> bytes:
    """Return the query's box as it lies in a photo of this height and width, clear around it, as WebP."""
    if found.transform is None:
        raise InvalidInputError("no transform joins the two photos; there is nothing to overlay.")
    height, width = query.shape[:2]
    by = min(1.0, SIDE / max(shape))
    size = max(1, round(shape[1] * by)), max(1, round(shape[0] * by))
    part = Image.new("L", (width, height))
    ImageDraw.Draw(part).rectangle(box or (0, 0, width, height), fill=255)
    whole = Image.fromarray(query).convert("RGB")
    whole.putalpha(part)
    # For each place of the picture, the place of the query that is seen there.
    back = np.linalg.inv(found.transform) @ np.diag([shape[1] / size[0], shape[0] / size[1], 1.0])
    back /= back[2, 2]
    seen = whole.transform(size, Image.Transform.PERSPECTIVE, back.ravel()[:8].tolist(), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    seen.save(buffer, "WEBP", quality=82)
    return buffer.getvalue()

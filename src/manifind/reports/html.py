"""Pictures of results: self-contained HTML from the templates beside this file, contact sheets, and registrations.

The HTML has no script and makes no request. A registration shows what geometry saw: lines between two photos, and the
one warped onto the other; the steps of the overlay are buttons of which one is chosen, and the style of the page does
the rest.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from manifind.errors import InvalidInputError
from manifind.index import MatchingPoints
from manifind.reports.text import visible
from manifind.types import Box

THUMBNAIL = 360
"""Long side of the pictures in a page, in pixels."""
THUMBNAIL_HEIGHT, SHEET_GAP, SHEET_WIDTH = 132, 6, 780
"""In pixels: of each photo, between two, and of a row."""
OUTLINE = (255, 106, 43)
SIDE = 640
"""Long side of the pictures, in pixels."""
LINES_GAP = 0.03
"""Between two photos side by side, in parts of their height."""
STEPS = {"the result": 0.0, "a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "the query": 1.0}
"""How much of the query is seen in the overlay."""
Pixels = npt.NDArray[np.uint8]


if TYPE_CHECKING:
    from jinja2 import Environment

Corners = Sequence[tuple[float, float]]
"""x and y of each, in pixels of the photo."""


@dataclass(frozen=True)
class Picture:
    """A photo for a page: its pixels at any size, its true size, and what to draw in it."""

    pixels: npt.NDArray[np.uint8]
    width: int
    height: int
    name: str = ""
    box: Box | None = None
    outlines: Sequence[Corners] = ()
    """Corners of what geometry found, in place of a box."""
    missing: str = ""
    """Why the photo cannot be shown."""
    note: str = ""
    """What the user's catalogue says of it."""
    link: str = ""
    """The address of the photo's file on this machine."""

    @property
    def polygons(self) -> list[str]:
        """The parts of the outlines that lie in the photo, as SVG has their points."""
        parts = [seen_part(outline, self.width, self.height) for outline in self.outlines]
        return [" ".join(f"{x:.1f},{y:.1f}" for x, y in corners) for corners in parts]


def render(template: str, **values: Any) -> str:
    """Return a template filled in, safe to stand in another one."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))  # noqa: S704 (the template escaped the values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("manifind.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(visible=visible, photo_address=photo_address, data_address=data_address)
    return environment


def seen_part(outline: Corners, width: float, height: float) -> list[tuple[float, float]]:
    """Return the part of an outline that lies in the photo: one that goes beyond it is closed along the border."""
    corners = list(outline)
    for axis, sign, border in ((0, 1, 0.0), (0, -1, -width), (1, 1, 0.0), (1, -1, -height)):
        inside = []
        for before, here in zip((corners[-1:] + corners)[:-1], corners, strict=True):
            out, into = sign * before[axis] - border, sign * here[axis] - border
            if (out < 0) != (into < 0):
                part = out / (out - into)
                inside.append((before[0] + part * (here[0] - before[0]), before[1] + part * (here[1] - before[1])))
            if into >= 0:
                inside.append(here)
        corners = inside
    return corners


def photo_address(pixels: npt.NDArray[np.uint8], side: int = THUMBNAIL) -> str:
    """Return a photo of at most so many pixels a side as an address that holds all of it."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return data_address(buffer.getvalue(), "jpeg")


def data_address(picture: bytes, kind: str) -> str:
    """Return a picture as an address that holds all of it."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode()


def contact_sheet(photos: Sequence[tuple[int, Picture]]) -> Image.Image:
    """Return photos, each given with its rank, in rows of `SHEET_WIDTH`."""
    tiles = [_tile(rank, picture) for rank, picture in photos]
    rows: list[list[Image.Image]] = [[]]
    for tile in tiles:
        if rows[-1] and sum(thumbnail.width + SHEET_GAP for thumbnail in rows[-1]) + tile.width > SHEET_WIDTH:
            rows.append([])
        rows[-1].append(tile)
    width = max(sum(thumbnail.width + SHEET_GAP for thumbnail in row) for row in rows)
    sheet = Image.new("RGB", (max(1, width - SHEET_GAP), len(rows) * (THUMBNAIL_HEIGHT + SHEET_GAP) - SHEET_GAP))
    for number, row in enumerate(rows):
        x = 0
        for tile in row:
            sheet.paste(tile, (x, number * (THUMBNAIL_HEIGHT + SHEET_GAP)))
            x += tile.width + SHEET_GAP
    return sheet


def _tile(rank: int, picture: Picture) -> Image.Image:
    scale = THUMBNAIL_HEIGHT / picture.height
    size = max(1, min(SHEET_WIDTH, round(picture.width * scale))), THUMBNAIL_HEIGHT
    tile = Image.fromarray(picture.pixels).resize(size, Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(tile)
    outlines = [list(outline) for outline in picture.outlines]
    if picture.box is not None:
        x0, y0, x1, y1 = picture.box
        outlines.append([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
    for outline in outlines:
        corners = [(x * scale, y * scale) for x, y in outline]
        draw.line([*corners, corners[0]], fill=OUTLINE, width=2)
    draw.rectangle((0, 0, 8 + 6 * len(str(rank)), 13), fill=(0, 0, 0))
    draw.text((4, 1), str(rank), fill=(255, 255, 255))
    return tile


def side_by_side(query: Pixels, photo: Pixels, points: MatchingPoints) -> str:
    """Return two photos of one height, with a line from each point of the query to its match."""
    (height, width), (tall, wide) = query.shape[:2], photo.shape[:2]
    by = height / tall
    across = width + LINES_GAP * height
    # From the top of the query to its foot, through all the colours.
    order = np.argsort(points.query[:, 1], kind="stable")
    pairs = np.hstack([points.query, points.photo * by + (across, 0)])[order].tolist()
    sizes = {"width": width, "height": height, "wide": wide * by, "across": across}
    return render("lines.html", query=query, photo=photo, side=SIDE, pairs=pairs, **sizes)


def overlay(query: Pixels, box: Box | None, photo: Pixels, points: MatchingPoints) -> str:
    """Return the photo with the query's box warped onto it, and buttons for how much of the query is seen."""
    picture = warped(query, box, photo.shape[:2], points)
    return render("overlay.html", photo=photo, warped=picture, side=SIDE, steps=STEPS)


def warped(query: Pixels, box: Box | None, shape: tuple[int, int], points: MatchingPoints) -> bytes:
    """Return the query's box as it lies in a photo of this height and width, clear around it, as WebP."""
    if points.transform is None:
        raise InvalidInputError("no transform joins the two photos; there is nothing to overlay.")
    height, width = query.shape[:2]
    by = min(1.0, SIDE / max(shape))
    size = max(1, round(shape[1] * by)), max(1, round(shape[0] * by))
    part = Image.new("L", (width, height))
    ImageDraw.Draw(part).rectangle(box or (0, 0, width, height), fill=255)
    whole = Image.fromarray(query).convert("RGB")
    whole.putalpha(part)
    # For each place of the picture, the place of the query that is seen there.
    back = np.linalg.inv(points.transform) @ np.diag([shape[1] / size[0], shape[0] / size[1], 1.0])
    back /= back[2, 2]
    picture = whole.transform(size, Image.Transform.PERSPECTIVE, back.ravel()[:8].tolist(), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=82)
    return buffer.getvalue()

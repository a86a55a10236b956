"""Self-contained HTML from the templates beside this file. No script, no request."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from manifind.reports.text import visible
from manifind.types import Box

if TYPE_CHECKING:
    from jinja2 import Environment

Corners = Sequence[tuple[float, float]]
"""x and y of each, in pixels of the photo."""

THUMBNAIL = 360
"""Long side of the pictures in a page, in pixels."""


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
        seen = [seen_part(outline, self.width, self.height) for outline in self.outlines]
        return [" ".join(f"{x:.1f},{y:.1f}" for x, y in corners) for corners in seen]


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
    left = list(outline)
    for axis, sign, border in ((0, 1, 0.0), (0, -1, -width), (1, 1, 0.0), (1, -1, -height)):
        kept = []
        for before, here in zip((left[-1:] + left)[:-1], left, strict=True):
            out, into = sign * before[axis] - border, sign * here[axis] - border
            if (out < 0) != (into < 0):
                part = out / (out - into)
                kept.append((before[0] + part * (here[0] - before[0]), before[1] + part * (here[1] - before[1])))
            if into >= 0:
                kept.append(here)
        left = kept
    return left


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

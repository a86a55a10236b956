"""Pictures in terminals that can show them: by kitty's protocol, iTerm2's, or as sixels.

A terminal says who it is in the environment; nothing is asked of it. Where it says nothing known, there is no picture.
"""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
from PIL import Image

from manifind.errors import InvalidInputError
from manifind.index import Hit
from manifind.reports.html import Picture, contact_sheet

MAX_PAYLOAD = 4096
"""Characters of one of kitty's commands."""
SIXEL_COLOURS = 64


def picture_protocol(environment: Mapping[str, str]) -> str | None:
    """Return how the terminal shows pictures: "kitty", "iterm" or "sixel"; None where it is not known to."""
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if "KITTY_WINDOW_ID" in environment or term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    if term.startswith(("foot", "mlterm", "yaft")) or "sixel" in term:
        return "sixel"
    return None


def check_protocol(environment: Mapping[str, str], *, is_terminal: bool) -> str:
    """Return how the terminal shows pictures, or raise `InvalidInputError`."""
    protocol = picture_protocol(environment) if is_terminal else None
    if protocol is None:
        raise InvalidInputError(
            "--show needs a terminal that shows pictures (kitty, Ghostty, iTerm2, WezTerm, foot, mlterm); "
            "give --html report.html instead.",
            code="no-pictures",
        )
    return protocol


def strip(hits: Sequence[tuple[Hit, Picture]]) -> Image.Image:
    """Return photos in rows, each with its rank and the outline of the object."""
    return contact_sheet([(hit.rank, picture) for hit, picture in hits])


def show_picture(picture: Image.Image, protocol: str) -> str:
    """Return what a terminal is to be sent to show a picture."""
    if protocol == "sixel":
        return "".join(_sixels(picture))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;size={len(buffer.getvalue())}:{data}\a"
    parts = [data[start : start + MAX_PAYLOAD] for start in range(0, len(data), MAX_PAYLOAD)]
    commands = []
    for number, part in enumerate(parts):
        first = "a=T,f=100," if number == 0 else ""
        commands.append(f"\x1b_G{first}m={int(number + 1 < len(parts))};{part}\x1b\\")
    return "".join(commands)


def _sixels(picture: Image.Image) -> Iterator[str]:
    """Yield a picture as sixels: bands of six rows, each colour of a band in a line of its own."""
    indexed = picture.quantize(SIXEL_COLOURS)
    palette = indexed.getpalette() or []
    pixels = np.asarray(indexed)
    height, width = pixels.shape
    yield f'\x1bPq"1;1;{width};{height}'
    for colour in np.unique(pixels).tolist():
        red, green, blue = (round(100 * level / 255) for level in palette[3 * colour : 3 * colour + 3])
        yield f"#{colour};2;{red};{green};{blue}"
    for top in range(0, height, 6):
        band = pixels[top : top + 6]
        bits = 1 << np.arange(len(band))[:, None]
        for colour in np.unique(band).tolist():
            rows = ((band == colour) * bits).sum(axis=0)
            yield f"#{colour}" + "".join(_runs(chr(63 + value) for value in rows.tolist())) + "$"
        yield "-"
    yield "\x1b\\"


def _runs(letters: Iterator[str]) -> Iterator[str]:
    for letter, group in groupby(letters):
        count = len(list(group))
        yield f"!{count}{letter}" if count > 3 else letter * count

"""The types of options that click lacks: boxes, photos with boxes, amounts of memory, seconds."""

import math
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import click

from manifind.boxes import parse_box
from manifind.errors import InvalidInputError
from manifind.iiif import is_web_address
from manifind.index.storage.remote import is_address
from manifind.io.video import is_photo_there
from manifind.kernels import AUTO, DEVICES

LONGEST = 32
"""Characters of an amount of memory: what is longer is none."""


class BoxType(click.ParamType[tuple[float, ...]]):
    """``X0,Y0,X1,Y1`` in pixels."""

    name = "X0,Y0,X1,Y1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the four numbers."""
        try:
            return parse_box(value)
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)


class ExampleType(click.ParamType[tuple[str, tuple[float, ...] | None]]):
    """``IMAGE`` or ``IMAGE@X0,Y0,X1,Y1``."""

    name = "IMAGE[@X0,Y0,X1,Y1]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[float, ...] | None]:
        """Return the photo and the box."""
        if isinstance(value, tuple):
            return value
        image, at, box = str(value).rpartition("@")
        if not at or is_photo_there(str(value)):
            return str(value), None
        return image, BOX.convert(box, param, ctx)


def index_location(value: str) -> Path | str:
    """Return the folder of an index, or the address of a collection in a store."""
    return value if is_address(value) else Path(value)


def photos_location(value: str) -> Path | str:
    """Return a folder of photos, or the address of a manifest of IIIF."""
    return value if is_web_address(value) else Path(value)


class BytesType(click.ParamType[int]):
    """``4GiB``, ``500MB`` or a plain number."""

    name = "BYTES"
    units: ClassVar = {"": 1, "b": 1} | {
        f"{letter}{ending}": base ** (power + 1)
        for power, letter in enumerate("kmgt")
        for ending, base in (("", 1024), ("ib", 1024), ("b", 1000))
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        text = str(value).strip().lower()
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
        if len(text) > LONGEST or not number.rstrip().replace(".", "", 1).isdecimal():
            self.fail_on(value, param, ctx)
        unit = text[len(number) :]
        return int(float(number) * self.units[unit]) if unit in self.units else self.fail_on(value, param, ctx)

    def fail_on(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        """Say what would do."""
        self.fail(f"{str(value)[:80]!r} is no amount of memory; give 4GiB, say.", param, ctx)


class SecondsType(click.FloatRange):
    """A finite number of seconds within limits: click takes nan for one."""

    name = "SECONDS"

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        seconds = float(super().convert(value, param, ctx))
        return seconds if math.isfinite(seconds) else self.fail(f"{value!r} is no number of seconds.", param, ctx)


BOX, EXAMPLE, BYTES = BoxType(), ExampleType(), BytesType()
DEADLINE = SecondsType(0.001, 86_400)
TIME_LIMIT = SecondsType(0.1, 86_400)
FRAME_INTERVAL = SecondsType(0.1, 3_600_000)
"""Of a film's frames; a frame is named by its time, up to 999 hours."""

DEVICE = click.option(
    "--device",
    type=click.Choice(DEVICES),
    default=AUTO,
    show_default=True,
    help="Where to work: the CPU, or an NVIDIA GPU with manifind[torch].",
)
"""Which every command that builds or serves takes."""

"""The options by which a command says how photos are described; the same words mean the same in every command."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from manifind.describe import POOLINGS, Describer
from manifind.index.making.describing import described_by
from manifind.index.state.parameters import RECIPES
from manifind.index.state.recipe import Learning

Command = TypeVar("Command", bound=Callable[..., Any])


class ZoomsType(click.ParamType[tuple[float, ...]]):
    """``1,0.71,0.5``."""

    name = "PARTS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} are no parts of a photo's size; give 1,0.71,0.5, say.", param, ctx)


ZOOMS = ZoomsType()
OPTIONS = (
    click.option(
        "--backbone",
        help="A network that comes with manifind, or an ONNX file with a spatial output; "
        f"{RECIPES['default']['backbone']} by default.",
    ),
    click.option("--pooling", type=click.Choice(list(POOLINGS)), help="How regions are pooled; gem by default."),
    click.option("--zooms", type=ZOOMS, help="Parts of its size at which a photo is seen: 1,0.71,0.5, say."),
    click.option("--long-side", type=click.IntRange(min=1), help="Pixels of a photo's longer side as it is seen."),
)
WHITEN = click.option("--whiten", help="auto (the default), learn, shipped, none, or a file of `whiten`.")


def describing(command: Command) -> Command:
    """Give a command the options that say how photos are described."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def settings_of(
    pooling: str | None = None, zooms: tuple[float, ...] | None = None, long_side: int | None = None
) -> dict[str, Any]:
    """Return what was given by the names of `Describer`."""
    given = {"pooling": pooling, "zooms": zooms, "long_side": long_side}
    return {name: value for name, value in given.items() if value is not None}


def describer_of(
    backbone: str | None, whiten: str | None, recipe: str | None = None, **settings: Any
) -> tuple[Describer, Learning | None]:
    """Return a describer as an index would take it by the same words, and how it learns its whitening if it must."""
    preset = RECIPES[recipe or "default"]
    given = {name: settings.get(name, preset[name]) for name in ("zooms", "pooling")}
    made, _, learning = described_by(
        backbone or preset["backbone"], whiten=whiten or preset["whiten"], **given, long_side=settings.get("long_side")
    )
    return made, learning

"""The options of extraction, the same in every command."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from manifind.features import POOLINGS, RegionExtractor
from manifind.index.build.extractor_factory import make_extractor
from manifind.index.config import PRESETS
from manifind.index.storage.build_config import WhiteningTraining

Command = TypeVar("Command", bound=Callable[..., Any])


class ScalesType(click.ParamType[tuple[float, ...]]):
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


SCALES = ScalesType()
OPTIONS = (
    click.option(
        "--backbone",
        help="A network that comes with manifind, or an ONNX file with a spatial output; "
        f"{PRESETS['default'].backbone} by default.",
    ),
    click.option("--pooling", type=click.Choice(list(POOLINGS)), help="How regions are pooled; gem by default."),
    click.option("--scales", type=SCALES, help="Image scales, in parts of the size: 1,0.71,0.5 for example."),
    click.option("--long-side", type=click.IntRange(min=1), help="Pixels of a photo's longer side, for extraction."),
)
WHITEN = click.option("--whiten", help="auto (the default), learn, shipped, none, or a file of `whiten`.")


def extraction_options(command: Command) -> Command:
    """Give a command the options of extraction."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def settings_of(
    pooling: str | None = None, scales: tuple[float, ...] | None = None, long_side: int | None = None
) -> dict[str, Any]:
    """Return what was given by the names of `RegionExtractor`."""
    given = {"pooling": pooling, "scales": scales, "long_side": long_side}
    return {name: value for name, value in given.items() if value is not None}


def extractor_of(
    backbone: str | None, whiten: str | None, preset: str | None = None, **settings: Any
) -> tuple[RegionExtractor, WhiteningTraining | None]:
    """Return the extractor of an index with these options, and how its whitening is learnt if it must be."""
    choices = PRESETS[preset or "default"]
    given = {name: settings.get(name, getattr(choices, name)) for name in ("scales", "pooling")}
    extractor, _, learning = make_extractor(
        backbone or str(choices.backbone),
        whiten=whiten or choices.whiten,
        **given,
        long_side=settings.get("long_side"),
    )
    return extractor, learning

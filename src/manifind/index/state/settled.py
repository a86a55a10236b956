"""What is settled when an index is made, and whether somebody asks for anything else.

Whoever brings an index up to date may give the same choices as at its making: a command is run again as it was written
down. Other choices would need another index.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manifind.describe.backbone import shipped_networks, whole_path
from manifind.describe.describer import ONE_ZOOM
from manifind.index.state.manifest import LEARNT, NONE, SHIPPED, Manifest, WhiteningOrigin
from manifind.index.state.parameters import AUTO, RECIPES

LEARN = "learn"
DESCRIBED = ("pooling", "zooms", "long_side")
"""Choices of `Index.create` that are settings of its describer."""


def made_otherwise(manifest: Manifest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices that the index was made without, each with what it has instead.

    `given` has parameters of `Index.create` by their names. A recipe stands for its choices, except where one of them
    is given as well.
    """
    choices = dict(given)
    recipe = choices.pop("recipe", None)
    if recipe is not None:
        choices = {name: value for name, value in RECIPES[recipe].items() if value is not None} | choices
        if "backbone" not in given and recipe == "default":
            del choices["backbone"]  # the device may have chosen another
    has = _choices_of(manifest)
    return {name: has[name] for name, value in choices.items() if not _same(name, value, has[name], manifest)}


def _choices_of(manifest: Manifest) -> dict[str, Any]:
    """Return what an index was made with, by the names of `Index.create`."""
    settings, parameters = manifest.describer_settings, manifest.parameters
    described = {"zooms": list(ONE_ZOOM), **{name: settings[name] for name in DESCRIBED if name in settings}}
    return {
        **{name: value for name, value in parameters.items() if name not in DESCRIBED},
        **described,
        "backbone": manifest.backbone,
        "whiten": _whitening_word(manifest.whitening),
        "means": manifest.means,
        "geometry": manifest.geometry is not None,
        "frames": manifest.frames,
    }


def _whitening_word(origin: WhiteningOrigin) -> str:
    """Return the word that asks for such a whitening."""
    if origin.source == LEARNT:
        return LEARN if origin.prior is None else AUTO
    return origin.source


def _same(name: str, given: Any, has: Any, manifest: Manifest) -> bool:
    if name == "backbone":
        return bool(whole_path(str(given)) == has)
    if name == "whiten" and given == AUTO and manifest.backbone not in shipped_networks():
        return has in (AUTO, SHIPPED, NONE)  # a network of one's own may have nothing to learn with
    if name == "whiten" and str(given) not in (AUTO, LEARN, SHIPPED, NONE):
        return bool(str(Path(given).resolve()) == has)
    if name == "zooms":
        return bool(list(given) == list(has))
    return bool(given == has)

"""Parameters that choose themselves, by the number of photos.

A few dozen photos have a few objects each: far neighbours are other objects, and a walk that goes on for long ends
everywhere. Thousands of photos have long chains of views, and whitened by their own collection they gain from every
neighbour up to 200, as in the paper. Chosen on parts of Holidays and of one other collection; the tables are in
docs/descriptions.md.
"""

from dataclasses import dataclass
from typing import Any

from manifind.describe.describer import ONE_ZOOM, ZOOMS

AUTO = "auto"

CHOSEN = ("k", "query_k", "alpha")
"""Parameters of a manifold that an index chooses unless told otherwise."""


@dataclass(frozen=True)
class Setting:
    """The parameters for collections of a certain number of photos."""

    below: float
    """The setting serves collections of fewer photos than this; larger ones take the next setting."""
    k: int
    query_k: int
    alpha: float


SETTINGS = (
    Setting(150, 50, 50, 0.9),
    Setting(500, 50, 50, 0.99),
    Setting(3_000, 100, 50, 0.99),
    Setting(float("inf"), 200, 50, 0.99),
)

GLOBAL = {"k": 50, "query_k": 10, "alpha": 0.5}
"""For one vector a photo: with α = 0.99 the walk forgets the query where an object is in two or three photos alone."""


RECIPES: dict[str, dict[str, Any]] = {
    "default": {"backbone": "mobilenet_v2_int8", "whiten": AUTO, "zooms": ZOOMS, "pooling": None},
    # Iscen et al., CVPR 2017: R-MAC at one size, a finished whitening where there is one for it, k and query_k 200.
    "paper": {
        "backbone": "mobilenet_v2",
        "whiten": "shipped",
        "zooms": ONE_ZOOM,
        "pooling": "mac",
        "k": 200,
        "query_k": 200,
        "alpha": 0.99,
        "gamma": 3.0,
        "max_iter": 20,
    },
}
"""Recipes, each a set of choices under one name. A parameter that is given explicitly takes precedence."""


def given_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that somebody decided on."""
    return {name: value for name, value in parameters.items() if not (name in CHOSEN and value == AUTO)}


def chosen_parameters(given: dict[str, Any], photos: int) -> dict[str, Any]:
    """Return the parameters that were given, and for all others those chosen for so many photos."""
    setting = next(one for one in SETTINGS if photos < one.below)
    chosen = {**{name: getattr(setting, name) for name in CHOSEN}, **given}
    # Enough neighbours in reserve for a fifth of the photos to go unnoticed.
    return {"reserve": max(4, chosen["k"] // 4), **chosen}

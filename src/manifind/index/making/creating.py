"""What is asked of a new index becomes its recipe: checked, and filled in where nothing was said."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manifind.checks import choice, whole_number
from manifind.describe import Describer
from manifind.describe.backbone import whole_path
from manifind.errors import InvalidInput
from manifind.index.making.describing import described_by
from manifind.index.making.device import network_for
from manifind.index.making.films import checked_frames
from manifind.index.making.wanted import Wanted, all_of
from manifind.index.state.kept import KEEPING
from manifind.index.state.manifest import OWN, WhiteningOrigin
from manifind.index.state.parameters import RECIPES, given_parameters
from manifind.index.state.recipe import Recipe
from manifind.kernels import CPU
from manifind.manifold import Manifold
from manifind.storage import store


def recipe_for(
    root: Path,
    recipe: str,
    asked: Mapping[str, Any],
    parameters: Mapping[str, Any],
    *,
    long_side: int | None,
    describer: Describer | None,
    means: int | None,
    geometry: bool | None,
    frames: float | None,
    by_workers: bool,
) -> tuple[Recipe, Wanted]:
    """Return how the photos below a folder become an index, and those photos.

    Parameters
    ----------
    root
        The folder of photos.
    recipe
        The name of what is taken for all that was not given.
    asked
        The backbone, whiten, zooms and pooling; None where nothing was said.
    parameters
        Those of `Manifold` that were given.
    long_side, describer, means, geometry, frames
        As for `Index.create`.
    by_workers
        Whether Dask's workers describe the photos: then this machine's device has no say in the network.
    """
    means = None if means is None else whole_number(means, "means")
    preset = RECIPES[choice(recipe, RECIPES, "recipe")]
    described: dict[str, Any] = {name: preset[name] if value is None else value for name, value in asked.items()}
    given = given_parameters({**{name: preset[name] for name in preset if name not in asked}, **parameters})
    Manifold(**given).check_params()
    frames = None if frames is None else checked_frames(frames)
    wanted = all_of(root, films=frames is not None)
    source = str(described.pop("backbone"))
    if asked["backbone"] is None and not by_workers:
        source = network_for(source, len(wanted.found), parameters.get("device", CPU))
    if describer is None:
        made, origin, learning = described_by(source, **described, long_side=long_side)
    else:
        made, origin, learning = describer, WhiteningOrigin(OWN), None
    own = whole_path(source) if describer is None else None
    keeping = KEEPING if geometry or (geometry is None and KEEPING.available()) else None
    return Recipe(root, made, given, means, own, origin, learning=learning, geometry=keeping, frames=frames), wanted


def check_free(target: Path) -> None:
    """Raise `InvalidInput` where an index is, or was before its manifest was lost."""
    if (target / store.MANIFEST).exists():
        raise InvalidInput(f"{target} is an index already; open it and call sync(), or choose another path.")
    if target.is_dir() and store.copies_of_manifest(target):
        raise InvalidInput(
            f"{target} is an index without its {store.MANIFEST}; manifind index PHOTOS --repair puts it back."
        )

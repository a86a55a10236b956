"""An index moves to other photos: what its maker settled stays, and only what is asked for is made anew."""

from dataclasses import replace
from typing import Any

from manifind.errors import InvalidInput
from manifind.index.making.build import Changes, build
from manifind.index.making.wanted import Wanted
from manifind.index.state.generation import Generation
from manifind.index.state.kept import Keeping
from manifind.index.state.recipe import Recipe
from manifind.storage.store import Writer


def changed(
    writer: Writer,
    now: Generation,
    recipe: Recipe,
    photos: Wanted,
    *,
    anew: bool,
    keeping: Keeping | None,
    **options: Any,
) -> Changes:
    """Write the generation that holds the photos wanted; say what became of each.

    Parameters
    ----------
    writer
        Where to write; nobody else writes meanwhile.
    now
        The generation that is there.
    recipe
        How its photos became an index.
    photos
        What the new generation is to hold.
    anew
        Learn the whitening again, and describe all photos with it.
    keeping
        What is kept of photos from now on, where nothing was so far.
    **options
        Memory, progress, announce and workers, as for `build`.
    """
    first = keeping is not None and recipe.geometry is None
    if (anew or first) and photos.unread:
        what = "a whitening is learnt from" if anew else "local features are made of"
        raise InvalidInput(
            f"{photos.unread[0].key} lies in a folder that cannot be listed; {what} all photos: make it readable."
        )
    if anew:
        recipe = recipe.to_learn()
    if first:
        recipe = replace(recipe, geometry=keeping)
    return build(writer, recipe, photos, before=now, known=None if anew else now, **options)

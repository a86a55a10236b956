"""Who describes photos.

For a new index the words that the commands and `Index.create` take say so; the photos and queries of an index that is
there are described as its photos were before.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manifind.describe import Describer, Whitening, load_describer, shipped_moments
from manifind.errors import InvalidInput
from manifind.index.state.generation import State
from manifind.index.state.manifest import LEARNT, NONE, SHIPPED, Fingerprint, WhiteningOrigin
from manifind.index.state.recipe import Learning


def described_by(
    source: str, whiten: str | os.PathLike[str], zooms: Sequence[float], pooling: str | None, long_side: int | None
) -> tuple[Describer, WhiteningOrigin, Learning | None]:
    """Return a describer with the whitening asked for, where that is from, and how it is to be learnt if it must be."""
    given = {"zooms": zooms, "pooling": pooling, "long_side": long_side}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if whiten in ("auto", "shipped"):
        made = load_describer(source, **settings)
        prior = shipped_moments(made) if whiten == "auto" else None
        if prior is not None:
            return made.with_whitening(None), WhiteningOrigin(LEARNT, 0), Learning(prior)
        return made, WhiteningOrigin(NONE if made.whitening is None else SHIPPED), None
    bare = load_describer(source, whitening=None, **settings)
    if whiten == "none":
        return bare, WhiteningOrigin(NONE), None
    if whiten == "learn":
        return bare, WhiteningOrigin(LEARNT, 0), Learning()
    file = Path(whiten)
    return bare.with_whitening(Whitening.load(file)), WhiteningOrigin(str(file.resolve())), None


def describer_of(now: State, given: Describer | None, where: str) -> Describer:
    """Return what described the photos of a generation; it is kept with the generation, so that the two never part.

    Parameters
    ----------
    now
        The generation.
    given
        The describer of an index that was made by one of its maker's own.
    where
        What messages call the index.
    """
    with now.made.lock:
        if now.made.describer is None:
            now.made.describer = _checked(_made(now, given, where), now, where)
        return now.made.describer


def _made(now: State, given: Describer | None, where: str) -> Describer:
    manifest = now.manifest
    if given is not None:
        return given.with_whitening(now.whitening) if manifest.whitening.source == LEARNT else given
    if manifest.backbone is None:
        raise InvalidInput(
            f"{where} was made by a describer of its maker's own; give the same to Index.open(describer=…)."
        )
    return load_describer(manifest.backbone, whitening=now.whitening, **manifest.describer_settings)


def _checked(describer: Describer, now: State, where: str) -> Describer:
    """Return the describer where it is the one that described the photos; refuse any other."""
    stored, given = now.manifest.describer, Fingerprint.of(describer)
    if stored.sha256 != given.sha256:
        raise InvalidInput(
            f"{where} was made by {stored.name}; queries of this {given.name} cannot be compared "
            f"with it ({', '.join(stored.differences(given))} differ). Use the same backbone and settings."
        )
    return describer

"""How photos are to be described, from the words that the commands and `Index.create` take."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manifind.describe import Describer, Whitening, load_describer, shipped_moments
from manifind.index.manifest import LEARNT, NONE, SHIPPED, WhiteningOrigin
from manifind.index.recipe import Learning


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

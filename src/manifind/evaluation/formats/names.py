"""What every format asks of the names of images."""

from collections.abc import Sequence
from pathlib import Path

from manifind.errors import InvalidInputError
from manifind.evaluation.protocol import preview


def needed_names(names: Sequence[str] | None, path: Path) -> Sequence[str]:
    """Return the names of the collection's images, which a ground truth that lists none takes from elsewhere."""
    if names is None:
        raise InvalidInputError(
            f"{path} does not list the collection's images and the descriptors do not name them; give --names."
        )
    return names


def refuse_missing(missing: Sequence[str], file: str) -> None:
    """Raise `InvalidInputError` where a ground truth names images that the collection does not have."""
    if missing:
        unique = list(dict.fromkeys(missing))
        raise InvalidInputError(
            f"{file} names images that are not in the collection: {preview(unique)}; give its own collection."
        )


def title_of(path: Path) -> str:
    """Return what a published ground truth is called, or the name of its file."""
    stem = path.stem.removeprefix("gnd_").removeprefix("ground_")
    known = {
        "roxford5k": "ROxford5k",
        "rparis6k": "RParis6k",
        "oxford5k": "Oxford5k",
        "paris6k": "Paris6k",
        "instre": "INSTRE",
    }
    return known.get(stem.lower(), stem)

"""Rankings kept between runs, so that an evaluation that was interrupted goes on where it was.

An entry is known by a checksum of everything that it depends on: the descriptors or the photos, the method or the
extractor, its parameters, and the code that works on them. It is a folder of `manifind.storage.store`: written in one
step, with checksums, and nothing in it is a pickle.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from manifind.errors import DamagedError, InvalidInputError
from manifind.kernels.cpu.native import core
from manifind.storage import store

KIND, FORMAT = "evaluated ranking", 1
PACKAGE = Path(__file__).parents[1]


def default_cache_folder() -> Path:
    """Return where rankings are kept unless the user says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "manifind" / "evaluate"


@cache
def code_checksum(*rooms: str, root: Path = PACKAGE) -> str:
    """Return the SHA-256 of rooms of the house: every module by name and content, and the compiled core, if any.

    What code computed is worth keeping until the code changes, which it often does without a new version.
    """
    digest = hashlib.sha256(b"" if core is None else Path(core.__file__).read_bytes())
    for room in sorted(rooms):
        below = root / room
        for file in sorted(below.rglob("*.py")) if below.is_dir() else [below]:
            digest.update(f"{file.relative_to(root).as_posix()} {file.stat().st_size} ".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Cache:
    """A folder of entries; with `folder` None nothing is kept.

    Parameters
    ----------
    folder
        Made when the first entry is kept.
    say : callable
        Told of what is damaged, and computed again.
    """

    def __init__(self, folder: Path | None, say: Callable[[str], None] = lambda _: None) -> None:
        self.folder = folder
        self._say = say

    def get(self, key: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """Return the fields and arrays that were kept for a key; None where there are none, or damaged ones."""
        entry = self._entry(key)
        if entry is None or not entry.exists():
            return None
        try:
            stored = store.read(entry, KIND, FORMAT)
        except (DamagedError, OSError) as error:
            self._say(f"a kept ranking is damaged and is computed again: {error}")
            return None
        if stored.fields.get("key") != _plain(key):
            self._say(f"{entry} is not what its name says and is computed again.")
            return None
        return stored.fields, stored.arrays

    def put(self, key: Mapping[str, Any], fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep fields and arrays for a key.

        Where the folder cannot be written, `say` is told once, and nothing more is kept.
        """
        entry = self._entry(key)
        if entry is None:
            return
        try:
            with store.writing(entry, KIND) as writer:
                writer.write(FORMAT, {**fields, "key": _plain(key)}, arrays)
        except (OSError, InvalidInputError) as error:
            self._say(f"rankings are not kept: {error}")
            self.folder = None

    def _entry(self, key: Mapping[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / hashlib.sha256(json.dumps(_plain(key), sort_keys=True).encode()).hexdigest()[:40]


def _plain(key: Mapping[str, Any]) -> Any:
    """Return a key as JSON gives it back."""
    return json.loads(json.dumps(key))

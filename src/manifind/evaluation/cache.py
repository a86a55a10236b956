"""Rankings cached between runs, so that an evaluation that was interrupted goes on where it was.

The key of an entry is a checksum of everything that it depends on: the descriptors or the photos, the method or the
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
    """Return the default folder of cached rankings."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "manifind" / "evaluate"


@cache
def code_checksum(*packages: str, root: Path = PACKAGE) -> str:
    """Return the SHA-256 of packages: every module by name and content, and the compiled core, if any.

    A cached result holds until the code that computed it changes, which happens without a new version.
    """
    digest = hashlib.sha256(b"" if core is None else Path(core.__file__).read_bytes())
    for package in sorted(packages):
        below = root / package
        for file in sorted(below.rglob("*.py")) if below.is_dir() else [below]:
            digest.update(f"{file.relative_to(root).as_posix()} {file.stat().st_size} ".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Cache:
    """A folder of cached entries; with `folder` None nothing is cached.

    `warn` is called with a sentence about an entry that is damaged and is computed again.
    """

    def __init__(self, folder: Path | None, warn: Callable[[str], None] = lambda _: None) -> None:
        self.folder = folder
        self._warn = warn

    def get(self, key: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """Return the fields and arrays of a key; None where there are none, or damaged ones."""
        entry = self._entry(key)
        if entry is None or not entry.exists():
            return None
        try:
            stored = store.read(entry, KIND, FORMAT)
        except (DamagedError, OSError) as error:
            self._warn(f"a cached ranking is damaged and is computed again: {error}")
            return None
        if stored.fields.get("key") != _json_value(key):
            self._warn(f"{entry} is not what its name says and is computed again.")
            return None
        return stored.fields, stored.arrays

    def put(self, key: Mapping[str, Any], fields: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the fields and arrays of a key; where the folder cannot be written, warn once and cache no more."""
        entry = self._entry(key)
        if entry is None:
            return
        try:
            with store.writing(entry, KIND) as writer:
                writer.write(FORMAT, {**fields, "key": _json_value(key)}, arrays)
        except (OSError, InvalidInputError) as error:
            self._warn(f"rankings are not cached: {error}")
            self.folder = None

    def _entry(self, key: Mapping[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / hashlib.sha256(json.dumps(_json_value(key), sort_keys=True).encode()).hexdigest()[:40]


def _json_value(key: Mapping[str, Any]) -> Any:
    """Return a key as it is after a round trip through JSON."""
    return json.loads(json.dumps(key))

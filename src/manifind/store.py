"""A folder on disk: plain ``.npy`` arrays, other files, and a ``manifest.json`` that vouches for them.

The manifest names every file with its size and SHA-256, and carries a checksum of its own. Nothing is a pickle. A new
version is written beside the old one under names of its own and becomes visible when the manifest is replaced, in one
atomic rename: a process killed at any instant leaves the old version or the new. Arrays are memory-mapped when read.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import Damaged, InvalidInput

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Stored:
    """What a folder holds."""

    generation: int
    fields: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    """Memory-mapped, read only."""
    files: dict[str, Path]
    """The files that are not arrays, by the name they were given."""


def write(
    path: Path,
    kind: str,
    version: int,
    fields: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    files: Mapping[str, Callable[[Path], None]] | None = None,
) -> None:
    """Write to the folder `path`, replacing what the same kind of thing is there.

    Parameters
    ----------
    path, kind, version
        Where, what, and in which format; `read` refuses another kind or format.
    fields : mapping
        Whatever JSON can say.
    arrays : mapping
        Arrays by name.
    files : mapping, optional
        For each other file, such as ``"images.sqlite"``, a function that writes it at the path it is called with.
    """
    if path.exists() and not _is_ours(path, kind):
        raise InvalidInput(f"{path} exists and is not a saved {kind}; choose another path or remove it.")
    path.mkdir(parents=True, exist_ok=True)
    before = _generation(path)
    writers: dict[str, Callable[[Path], None]] = {
        f"{name}.npy": partial(_write_array, array=array) for name, array in arrays.items()
    } | dict(files or {})
    new = {name: path / _of_generation(name, before + 1) for name in writers}
    try:
        listed = {name: _write_file(new[name], writer) for name, writer in writers.items()}
        manifest = {"kind": kind, "version": version, "generation": before + 1, "fields": fields, "files": listed}
        _write_manifest(path, manifest)
    except BaseException:
        for file in new.values():
            file.unlink(missing_ok=True)
        if before == 0:
            _remove_if_empty(path)
        raise
    _sync_folder(path)
    for stray in set(_numbered(path)) - set(new.values()):
        stray.unlink(missing_ok=True)


def read(path: Path, kind: str, version: int, *, verify: bool = True) -> Stored:
    """Read the folder `path`.

    Sizes are always compared with the manifest; `verify` also reads every file through and compares checksums.
    """
    manifest = _read_manifest(path, kind)
    if manifest["version"] != version:
        raise Damaged(
            f"{path} is a saved {kind} of format {manifest['version']} and this manifind reads format {version}; "
            "save it again with this version."
        )
    stored = Stored(manifest["generation"], manifest["fields"], {}, {})
    for name, listed in manifest["files"].items():
        file = path / listed["file"]
        size = file.stat().st_size if file.is_file() else None
        if size != listed["bytes"]:
            found = "missing" if size is None else f"{size} bytes long instead of {listed['bytes']}"
            raise Damaged(f"{file} is {found}: {path} was cut short or altered; restore it or save it again.")
        if verify and _digest(file) != listed["sha256"]:
            raise Damaged(f"{file} does not match its checksum: {path} was altered; restore it or save it again.")
        if name.endswith(".npy"):
            stored.arrays[name.removesuffix(".npy")] = _map(file)
        else:
            stored.files[name] = file
    return stored


def _write_array(file: Path, array: npt.NDArray[Any]) -> None:
    with file.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)


def _write_file(file: Path, writer: Callable[[Path], None]) -> dict[str, Any]:
    file.unlink(missing_ok=True)
    writer(file)
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    return {"file": file.name, "bytes": file.stat().st_size, "sha256": _digest(file)}


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    draft = path / f"{MANIFEST}.draft"
    with draft.open("w", encoding="utf-8") as stream:
        json.dump({**manifest, "checksum": _checksum(manifest)}, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path / MANIFEST)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_manifest(path: Path, kind: str) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a saved {kind}.")
    if not (path / MANIFEST).is_file():
        raise Damaged(f"{path} has no {MANIFEST}: it is not a saved {kind}, or it was not saved to the end.")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        checksum = manifest.pop("checksum")
    except (ValueError, KeyError, AttributeError) as error:
        raise Damaged(f"{path / MANIFEST} cannot be read ({error}); restore {path} or save it again.") from error
    if checksum != _checksum(manifest):
        raise Damaged(f"{path / MANIFEST} does not match its checksum; restore {path} or save it again.")
    if manifest["kind"] != kind:
        raise Damaged(f"{path} is a saved {manifest['kind']}, not a {kind}; load it as what it is.")
    return dict(manifest)


def _is_ours(path: Path, kind: str) -> bool:
    """Whether `path` is an empty folder or holds the same kind of thing, damaged or not."""
    if not path.is_dir():
        return False
    if not (path / MANIFEST).exists():
        return not any(path.iterdir())
    try:
        return bool(_read_manifest(path, kind))
    except Damaged:
        return _generation(path) > 0


def _of_generation(name: str, generation: int) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{generation}{dot}{suffix}"


def _numbered(path: Path) -> Iterator[Path]:
    """Yield the files that carry a generation in their name."""
    return (file for file in path.iterdir() if re.fullmatch(r"\w+-\d+\.\w+", file.name))


def _generation(path: Path) -> int:
    """Return the newest generation of which a file is here, whole or not; 0 where there is none."""
    return max((int(file.stem.rpartition("-")[2]) for file in _numbered(path)), default=0)


def _remove_if_empty(path: Path) -> None:
    (path / f"{MANIFEST}.draft").unlink(missing_ok=True)
    if not any(path.iterdir()):
        path.rmdir()


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _map(file: Path) -> npt.NDArray[Any]:
    mapped = np.load(file, mmap_mode="r", allow_pickle=False)
    return np.asarray(mapped)

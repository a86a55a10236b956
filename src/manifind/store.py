"""A folder on disk: plain ``.npy`` arrays, other files, and a ``manifest.json`` that vouches for them.

The manifest names every file with its size and SHA-256, and carries a checksum of its own. Nothing is a pickle. A new
version is written beside the old one under names of its own and becomes visible when the manifest is replaced, in one
atomic rename: a process killed at any instant leaves the old version or the new. Arrays are memory-mapped when read.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manifind.errors import Damaged, InvalidInput

MANIFEST = "manifest.json"
LOCK = ".lock"


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
    check_target(path, kind)
    path.mkdir(parents=True, exist_ok=True)
    with lock(path / LOCK, path):
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


def check_target(path: Path, kind: str) -> None:
    """Raise `InvalidInput` unless `path` is free, or holds the same kind of thing, damaged or interrupted or whole."""
    if path.exists() and not _is_ours(path, kind):
        raise InvalidInput(f"{path} exists and is not a saved {kind}; choose another path or remove it.")


@contextmanager
def lock(file: Path, what: Path) -> Iterator[None]:
    """Hold the lock `file`, which dies with the process; `InvalidInput` names the process that has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise InvalidInput(f"{what} is being written by process {holder}; wait for it, or stop it.") from None
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def read(path: Path, kind: str, version: int, *, verify: bool = True) -> Stored:
    """Read the folder `path`.

    Sizes are always compared with the manifest; `verify` also reads every file through and compares checksums.
    """
    while True:
        manifest = _read_manifest(path, kind)
        if manifest["version"] != version:
            raise Damaged(
                f"{path} is a saved {kind} of format {manifest['version']} and this manifind reads format {version}; "
                "save it again with this version."
            )
        try:
            return _read_files(path, manifest, verify=verify)
        except Damaged:
            # A writer may have replaced the files between the two looks; then there is a newer manifest.
            if _read_manifest(path, kind)["generation"] == manifest["generation"]:
                raise


def _read_files(path: Path, manifest: dict[str, Any], *, verify: bool) -> Stored:
    stored = Stored(manifest["generation"], manifest["fields"], {}, {})
    for name, listed in manifest["files"].items():
        file = path / listed["file"]
        try:
            size = file.stat().st_size
            if size != listed["bytes"]:
                found = f"{size} bytes long instead of {listed['bytes']}"
                raise Damaged(f"{file} is {found}: {path} was cut short or altered; restore it or save it again.")
            if verify and _digest(file) != listed["sha256"]:
                raise Damaged(f"{file} does not match its checksum: {path} was altered; restore it or save it again.")
            if name.endswith(".npy"):
                stored.arrays[name.removesuffix(".npy")] = _map(file)
            else:
                stored.files[name] = file
        except FileNotFoundError as error:
            raise Damaged(f"{file} is missing: {path} was cut short; restore it or save it again.") from error
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
        whole = {"kind", "version", "generation", "fields", "files"} <= set(manifest)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Damaged(f"{path / MANIFEST} cannot be read ({error}); restore {path} or save it again.") from error
    if checksum != _checksum(manifest) or not whole:
        raise Damaged(f"{path / MANIFEST} does not match its checksum; restore {path} or save it again.")
    if manifest["kind"] != kind:
        raise Damaged(f"{path} is a saved {manifest['kind']}, not a {kind}; load it as what it is.")
    return dict(manifest)


def _is_ours(path: Path, kind: str) -> bool:
    """Whether `path` is an empty folder or holds the same kind of thing: whole, damaged, or first saved by half."""
    if not path.is_dir():
        return False
    if (path / MANIFEST).exists():
        try:
            return bool(_read_manifest(path, kind))
        except Damaged:
            return _generation(path) > 0
    own = {LOCK, f"{MANIFEST}.draft"} | {file.name for file in _numbered(path)}
    return all(file.name in own for file in path.iterdir())


def _of_generation(name: str, generation: int) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{generation}{dot}{suffix}"


def _numbered(path: Path) -> Iterator[Path]:
    """Yield the files that carry a generation in their name: ours, whatever else a user may have laid beside them."""
    return (file for file in path.iterdir() if re.fullmatch(r"\w+-\d+\.(npy|sqlite)", file.name))


def _generation(path: Path) -> int:
    """Return the newest generation of which a file is here, whole or not; 0 where there is none."""
    return max((int(file.stem.rpartition("-")[2]) for file in _numbered(path)), default=0)


def _remove_if_empty(path: Path) -> None:
    for name in (f"{MANIFEST}.draft", LOCK):
        (path / name).unlink(missing_ok=True)
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

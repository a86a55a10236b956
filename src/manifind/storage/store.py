"""A folder on disk: plain ``.npy`` arrays, other files, and a ``manifest.json`` that vouches for them.

The manifest names every file with its size and SHA-256, and carries a checksum of its own. Nothing is a pickle. A new
generation is written beside the old one under names of its own and becomes visible when the manifest is replaced, in
one atomic rename: a process killed at any instant leaves the old generation or the new. Arrays are memory-mapped when
read.

What is read is not trusted. Opening compares every file's size and type with the manifest, and the checksum of those
that are small, so that it takes no longer for a large folder; ``verify`` reads all of it. Files that are small are read
and not mapped. Files are replaced and never changed in place: a mapped file that somebody cuts short ends the process
that reads it, and nothing that a program does can prevent that.
"""

import hashlib
import json
import re
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from manifind.errors import DamagedError, FormatVersionError, InvalidInputError, MissingFileError
from manifind.storage import disk
from manifind.storage.arrays import NotAnArrayError, read_array

MEND = "restore it or save it again; manifind index PHOTOS --repair mends an index"
MANIFEST = "manifest.json"
DRAFT = f"{MANIFEST}.draft"
LOCK = ".lock"
WORK = ".part"
"""Folder below the saved one for what is not finished; it is nobody's but the writer's."""

SMALL = 2**20
"""Files of up to this many bytes are compared with their checksum whenever they are opened."""

OWN = re.compile(r"(\w{1,100})-([0-9]{1,18})\.(npy|sqlite|json)")
"""Names of files with their generation."""

LARGEST_MANIFEST = 2**26


class DamagedFileError(DamagedError):
    """A file is not as the manifest lists it; `wrong` says how, in a few words."""

    remedy = MEND

    def __init__(self, file: Path, wrong: str, *, code: str | None = None) -> None:
        super().__init__(file, wrong, code=code)
        self.file, self.wrong = file, wrong

    @property
    def problem(self) -> str:
        """What is wrong, without the remedy."""
        return f"{self.file} {self.wrong}: {self.file.parent} was cut short or altered"


@dataclass(frozen=True)
class Stored:
    """What a folder holds."""

    generation: int
    stamp: str
    """No other writing has the same, here or elsewhere."""
    fields: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    """Read only: memory-mapped, the small ones read."""
    files: dict[str, Path]
    """The files that are not arrays, by the name they were given."""
    sizes: dict[str, int]
    """Bytes of each file, by the name it was given."""


@dataclass(frozen=True)
class Writer:
    """The one process that may change a folder at the moment."""

    path: Path
    kind: str
    names: Collection[str] = ()
    """Files that a thing of this kind may have and this generation may have not."""

    @property
    def work(self) -> Path:
        """A folder of the writer's own, on the same disk; it may hold what an earlier writer left."""
        return self.path / WORK

    def write(
        self,
        version: int,
        fields: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        files: Mapping[str, bytes] | None = None,
        *,
        keep: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a new generation, which replaces what is there in one step, or not at all.

        Parameters
        ----------
        version
            The format; `read` refuses another.
        fields : mapping
            Whatever JSON can say.
        arrays : mapping
            Arrays by name, which is of letters, digits and underscores.
        files : mapping, optional
            The bytes of other files, such as ``"images.sqlite"``.
        keep : mapping, optional
            Files of the present generation that the new one has too, as the present manifest lists them.
        """
        odd = [name for name in arrays if not re.fullmatch(r"\w{1,100}", name)]
        if odd:
            raise ValueError(f"{odd[0]!r} is no name for an array: letters, digits and underscores make one")
        generation = _newest(self.path) + 1
        kept = dict(keep or {})
        contents = {f"{name}.npy": disk.npy(array) for name, array in arrays.items()}
        contents |= {name: iter([content]) for name, content in (files or {}).items()}
        names = {name: _file_name(name, generation) for name in contents}
        draft, copy = self.path / DRAFT, self.path / _file_name(MANIFEST, generation)
        try:
            listed = {
                name: {"file": names[name], **disk.write(self.path / names[name], chunks)._asdict()}
                for name, chunks in contents.items()
            }
            manifest: dict[str, Any] = {
                "kind": self.kind,
                "version": version,
                "generation": generation,
                "stamp": secrets.token_hex(8),
                "fields": dict(fields),
                "files": kept | listed,
            }
            text = json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1).encode()
            disk.write(draft, [text])
            disk.sync_folder(self.path)
            disk.replace(draft, self.path / MANIFEST)
        except BaseException:
            # An interrupt may come just after the rename: what is seen by then must stay.
            if self._current_manifest()["generation"] != generation:
                for file in (draft, *(self.path / name for name in names.values())):
                    disk.remove(file)
            raise
        # A copy, should the manifest be lost; not before there is one, or it would speak for what was never finished.
        disk.write(copy, [text])
        disk.sync_folder(self.path)
        self.tidy()

    def tidy(self) -> None:
        """Remove what earlier generations and interrupted writers left; nothing, unless the manifest is whole.

        These are files that this generation or a copy of an earlier manifest names, and files of the same names with
        another number. Whatever else lies there is not ours to touch.
        """
        manifest = self._current_manifest()
        if manifest["generation"] is None:
            return
        present = {listed["file"] for listed in manifest["files"].values()}
        present |= {MANIFEST, _file_name(MANIFEST, manifest["generation"])}
        copies = [name for name in copies_of_manifest(self.path) if name not in present]
        stems = {_stem(_file_name(name, 1)) for name in self.names} | {_stem(name) for name in present}
        for name in copies:
            with suppress(DamagedError, OSError):
                other = _read_manifest(self.path, self.kind, name)
                if other["generation"] > manifest["generation"]:
                    return  # the manifest is an old one that somebody put back
                stems |= {_stem(listed["file"]) for listed in other["files"].values()}
        stems.discard("")
        strays = [file.name for file in _own_files(self.path) if _stem(file.name) in stems and file.name not in present]
        # Copies of manifests go last: they are what the others are known by.
        for name in sorted(strays, key=lambda name: name in copies):
            if not (self.path / name).is_dir():
                disk.remove(self.path / name)
        if DRAFT in {file.name for file in self.path.iterdir()}:
            disk.remove(self.path / DRAFT)

    def _current_manifest(self) -> dict[str, Any]:
        try:
            return _read_manifest(self.path, self.kind)
        except (DamagedError, OSError):
            return {"generation": None, "files": {}}


@contextmanager
def writing(path: Path, kind: str, names: Collection[str] = ()) -> Iterator[Writer]:
    """Become the one writer of the folder `path`, made if it is not there, until the end of the block.

    What earlier writers left unfinished is removed. `names` are the files that a thing of this kind may have.
    `InvalidInputError` where `path` is something else, or another process is writing; its number is named.
    """
    check_target(path, kind)
    disk.make_folder(path)
    with disk.lock(path / LOCK, path):
        try:
            writer = Writer(path, kind, names)
            writer.tidy()
            yield writer
        finally:
            if not (path / MANIFEST).exists():
                _remove_if_empty(path)


def check_target(path: Path, kind: str) -> None:
    """Raise `InvalidInputError` unless `path` is free or holds the same kind of store, damaged or whole."""
    if path.exists() and not _is_ours(path, kind):
        raise InvalidInputError(
            f"{path} exists and is not a saved {kind}; choose another path or remove it.", code="occupied"
        )


def read(path: Path, kind: str, version: int, *, oldest: int | None = None, verify: bool = True) -> Stored:
    """Read the folder `path`, of a format from `oldest` to `version`.

    Sizes and types are always compared with the manifest, and the checksums of small files; with `verify`, all.
    """
    while True:
        manifest = read_manifest(path, kind, version, oldest=oldest)
        try:
            stored = Stored(manifest["generation"], manifest["stamp"], manifest["fields"], {}, {}, {})
            for name, listed in manifest["files"].items():
                file = path / listed["file"]
                opened = open_file(file, listed, verify=verify or listed["bytes"] <= SMALL)
                stored.sizes[name] = listed["bytes"]
                if opened is None:
                    stored.files[name] = file
                else:
                    stored.arrays[name.removesuffix(".npy")] = opened
        except DamagedError:
            # A writer may have replaced the files between the two looks; then there is a newer manifest.
            if read_manifest(path, kind, version, oldest=oldest)["stamp"] == manifest["stamp"]:
                raise
        else:
            return stored


def open_file(file: Path, listed: Mapping[str, Any], *, verify: bool) -> npt.NDArray[Any] | None:
    """Compare a file with what the manifest says of it; return the array that it holds, if it holds one."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DamagedFileError(file, "is no plain file", code="not-a-file")
        if status.st_size != listed["bytes"]:
            wrong = f"is {status.st_size} bytes long instead of {listed['bytes']}"
            raise DamagedFileError(file, wrong, code="wrong-size")
        content = file.read_bytes() if status.st_size <= SMALL else None
        if verify:
            actual = digest(file) if content is None else hashlib.sha256(content).hexdigest()
            if actual != listed["sha256"]:
                raise DamagedFileError(file, "does not match its checksum", code="wrong-checksum")
        return read_array(file, content) if file.suffix == ".npy" else None
    except FileNotFoundError as error:
        raise DamagedFileError(file, "is missing", code="missing-file") from error
    except NotAnArrayError as error:
        raise DamagedFileError(file, f"is no plain array ({error})", code="not-an-array") from error


def read_manifest(
    path: Path, kind: str, version: int, name: str = MANIFEST, *, oldest: int | None = None
) -> dict[str, Any]:
    """Return the manifest of a folder of this kind, of a format from `oldest` to `version`; by default `version`."""
    manifest = _read_manifest(path, kind, name)
    stored, first = manifest["version"], version if oldest is None else oldest
    if type(stored) is not int or not first <= stored <= version:
        newer = isinstance(stored, int) and stored > version
        readable = f"format {version}" if first == version else f"formats {first} to {version}"
        raise FormatVersionError(
            f"{path} is a saved {kind} of format {stored} and this manifind reads {readable}",
            remedy="install a newer manifind" if newer else "make it again with this one",
        )
    return manifest


def copies_of_manifest(path: Path) -> list[str]:
    """Return the names of what could stand in for a damaged manifest, the newest first."""
    copies = [file.name for file in _own_files(path) if file.name.startswith("manifest-")]
    return sorted(copies, key=_generation_of, reverse=True)


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_manifest(path: Path, kind: str, name: str = MANIFEST) -> dict[str, Any]:
    if not path.exists():
        raise MissingFileError(f"{path} does not exist; give the path of a saved {kind}.")
    file = path / name
    if not file.is_file():
        wrong = f"{path} has no {name}: it is not a saved {kind}, or it was not saved to the end"
        raise DamagedError(wrong, remedy=MEND, code="no-manifest")
    manifest = _read_signed(file)
    if not {"kind", "version", "generation", "stamp", "fields", "files"} <= set(manifest):
        raise DamagedError(f"{file} does not say all that a manifest says", remedy=MEND)
    if manifest["kind"] != kind:
        wrong = f"{path} is a saved {manifest['kind']} and no saved {kind}"
        raise DamagedError(wrong, remedy="load it as what it is", code="other-kind")
    types = {"fields": dict, "files": dict, "stamp": str, "generation": int}
    if not all(type(manifest[part]) is expected for part, expected in types.items()) or not (
        0 < manifest["generation"] < 10**18
    ):
        raise DamagedError(f"{file} does not say what a saved {kind} is", remedy=MEND)
    for name, listed in manifest["files"].items():
        parts: list[Any] = [name]
        if isinstance(listed, dict):
            parts = [listed.get(part) for part in ("file", "bytes", "sha256")]
        valid = [type(part) for part in parts] == [str, int, str] and parts[1] >= 0
        if not valid or not OWN.fullmatch(parts[0]):
            wrong = f"{file} names {parts[0]!r}, which is no file of a saved {kind}"
            raise DamagedError(wrong, remedy=f"restore {path}", code="foreign-file")
    return manifest


def _read_signed(file: Path) -> dict[str, Any]:
    """Return what a manifest of any kind and format says, if its checksum is right."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_MANIFEST:
        wrong = f"{file} is no plain file, or {status.st_size} bytes long, which no manifest is"
        raise DamagedError(wrong, remedy=MEND)
    try:
        manifest = dict(json.loads(file.read_text(encoding="utf-8")))
        signed = manifest.pop("checksum") == _checksum(manifest)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(f"{file} cannot be read ({error})", remedy=MEND) from error
    if not signed:
        raise DamagedError(f"{file} does not match its checksum", remedy=MEND, code="wrong-checksum")
    return manifest


def _is_ours(path: Path, kind: str) -> bool:
    """Whether `path` is an empty folder or holds the same kind of thing: whole, damaged, or first saved by half."""
    if not path.is_dir():
        return False
    if any(_is_manifest(path, kind, name) for name in (MANIFEST, *copies_of_manifest(path))):
        return True
    own_names = {LOCK, WORK, DRAFT} | {file.name for file in _own_files(path)}
    names = {file.name for file in path.iterdir()}
    # A writer makes its lock before anything else.
    return not names or (LOCK in names and names <= own_names)


def _is_manifest(path: Path, kind: str, name: str) -> bool:
    """Say whether this is a manifest of that kind, whatever its format."""
    try:
        return _read_signed(path / name).get("kind") == kind
    except (OSError, DamagedError):
        return False


def _file_name(name: str, generation: int) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{generation}{dot}{suffix}"


def _stem(name: str) -> str:
    match = OWN.fullmatch(name)
    return match[1] if match else ""


def _generation_of(name: str) -> int:
    match = OWN.fullmatch(name)
    return int(match[2]) if match else 0


def _own_files(path: Path) -> Iterator[Path]:
    return (file for file in path.iterdir() if OWN.fullmatch(file.name))


def _newest(path: Path) -> int:
    """Return the newest generation of which a file is here, whole or not; 0 where there is none."""
    return max((_generation_of(file.name) for file in _own_files(path)), default=0)


def _remove_if_empty(path: Path) -> None:
    if {file.name for file in path.iterdir()} <= {LOCK}:
        disk.remove(path / LOCK)
        if not path.is_symlink():
            disk.remove_folder(path)


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()

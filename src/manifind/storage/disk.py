"""Writing to a disk: every write, flush, rename and removal of a saved thing is a call from here to ``os``.

Whoever wants to know what a full disk, a failing one or a killed process does at any of these points replaces the
module's ``os``.
"""

import fcntl
import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.errors import InvalidInput

CHUNK = 2**24
"""Bytes handed to the system at a time."""

Bytes = bytes | memoryview


class Written(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


def write(file: Path, chunks: Iterable[Bytes]) -> Written:
    """Write a new file and wait until it is on the disk; checksummed on the way, so that it is not read again."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            digest.update(chunk)
            size += put(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Written(size, digest.hexdigest())


def put(descriptor: int, chunk: Bytes) -> int:
    """Write all of `chunk` to an open file, and return its length."""
    rest = memoryview(chunk).cast("B")
    length = len(rest)
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]
    return length


def scratch(file: Path, kind: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an array in a file of its own, mapped for writing, on space that is there.

    A file that only gets its blocks as pages are written would end the process on a full disk.
    """
    array = np.lib.format.open_memmap(file, "w+", kind, shape)
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.posix_fallocate(descriptor, 0, file.stat().st_size)
    finally:
        os.close(descriptor)
    return array


def truncate(descriptor: int, size: int) -> None:
    """Cut an open file to `size`."""
    os.ftruncate(descriptor, size)


def replace(new: Path, old: Path) -> None:
    """Let `new` take the place of `old` in one step."""
    os.replace(new, old)


def remove(file: Path) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(file)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    if folder.is_dir():
        for file in folder.iterdir():
            remove_folder(file) if file.is_dir() and not file.is_symlink() else remove(file)
        os.rmdir(folder)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless it is there."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with suppress(FileExistsError):
            os.mkdir(folder)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def npy(array: npt.NDArray[Any]) -> Iterator[Bytes]:
    """Yield the bytes of an ``.npy`` file a chunk at a time, without a copy of the array."""
    header = io.BytesIO()
    described = np.lib.format.header_data_from_array_1_0(array)
    described["fortran_order"] = False
    np.lib.format.write_array_header_1_0(header, described)
    yield header.getvalue()
    if not array.size:
        return
    rows = max(1, CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield np.ascontiguousarray(array[start : start + rows]).data.cast("B")


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
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)

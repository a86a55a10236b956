"""Writing to a disk: every write, flush, rename and removal of a saved thing is a call from here to ``os``.

Tests replace the module's ``os`` to see what a full disk, a failing disk or a killed process does at each of these
points.

A folder may come from anybody, with links under our names. Nothing here follows a link in the place of one of our files
or folders: a file is created anew and never opened for writing through an existing name, and removing a link leaves its
target. For the same reason a file with a second hard link is left alone.

What a system lacks is asked of ``os``, never guessed from its name. Without ``O_NOFOLLOW``, links are looked for before
a file is opened. Without descriptors of folders, folders are walked by name, and the system flushes their names when it
pleases. Windows keeps an open file: the file stays, and the next writer removes it.
"""

import errno
import hashlib
import importlib
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manifind.errors import DamagedError, InUseError, InvalidInputError

CHUNK = 2**24
"""Bytes handed to the system at a time."""

IN_USE = (5, 32, 145)
"""Windows' errors for a file that is open or mapped, and for a folder with such a file."""

LOCK_OFFSET = 2**30
"""The byte that is locked where a lock keeps others from reading: far behind whatever the file says."""

Bytes = bytes | memoryview


class Written(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


def write(file: Path, chunks: Iterable[Bytes]) -> Written:
    """Write a new file, wait until it is on the disk, and return its size and checksum."""
    descriptor = _create(file, "O_WRONLY")
    try:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            digest.update(chunk)
            size += write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Written(size, digest.hexdigest())


def write_all(descriptor: int, chunk: Bytes) -> int:
    """Write all of `chunk` to an open file, and return its length."""
    rest = memoryview(chunk).cast("B")
    length = len(rest)
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]
    return length


def read(file: Path, max_bytes: int) -> bytes:
    """Return the content of a file of ours; a link, a pipe or a longer file is a `DamagedError`, without waiting."""
    remedy = f"remove {file}, or restore it from a copy"
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(file):
        raise DamagedError(f"{file} is a link", remedy=remedy, code="not-a-file")
    try:
        descriptor = os.open(file, _flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK"))
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise DamagedError(f"{file} is a link or a socket", remedy=remedy, code="not-a-file") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError(f"{file} is no plain file", remedy=remedy, code="not-a-file")
        with open(descriptor, "rb", closefd=False) as stream:
            content = stream.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise DamagedError(f"{file} is longer than {max_bytes} bytes", remedy=remedy, code="wrong-size")
    return content


def scratch(file: Path, kind: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an array in a file of its own, mapped for writing, with its space reserved.

    A sparse file would end the process on a full disk.
    """
    dtype = np.dtype(kind)
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    descriptor = _create(file, "O_RDWR")
    try:
        _reserve_space(descriptor, max(1, size))
        with os.fdopen(os.dup(descriptor), "r+b") as stream:
            return np.memmap(stream, dtype, "r+", shape=shape)
    finally:
        os.close(descriptor)


def _reserve_space(descriptor: int, size: int) -> None:
    """Reserve bytes of the disk for an empty file; by writing them where the system has no call for it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    blank = bytes(min(size, CHUNK))
    for start in range(0, size, CHUNK):
        write_all(descriptor, memoryview(blank)[: size - start])


def open_append(file: Path) -> int:
    """Open a file of ours for reading and appending, created if missing, and return its descriptor."""
    return _open_own(file, "O_APPEND")


def truncate(descriptor: int, size: int) -> None:
    """Cut an open file to `size`."""
    os.ftruncate(descriptor, size)


def replace(new: Path, old: Path) -> None:
    """Replace `old` by `new` in one step."""
    os.replace(new, old)


def remove(file: Path) -> None:
    """Remove a file, if it exists; of a link, the link."""
    with suppress(FileNotFoundError), _unless_in_use():
        os.unlink(file)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its contents, if it exists; a link in its place is refused."""
    if _is_folder(folder):
        with _unless_in_use():
            _remove_below(folder)
            os.rmdir(folder)


@contextmanager
def _unless_in_use() -> Iterator[None]:
    """Ignore Windows' refusal of an open file; any other refusal is an error."""
    try:
        yield
    except OSError as error:
        if getattr(error, "winerror", None) not in IN_USE:
            raise


def _remove_below(folder: Path) -> None:
    """Remove the contents of a folder through its descriptor: its name may lead elsewhere meanwhile."""
    if os.open not in os.supports_dir_fd:
        _empty_by_name(folder)
        return
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _empty(inside)
    finally:
        os.close(inside)


def _empty(inside: int) -> None:
    for name in os.listdir(inside):
        if stat.S_ISDIR(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode):
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
            try:
                _empty(below)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=inside)
        else:
            os.unlink(name, dir_fd=inside)


def _empty_by_name(folder: Path) -> None:
    for name in os.listdir(folder):
        if stat.S_ISDIR(os.lstat(folder / name).st_mode):
            _empty_by_name(folder / name)
            os.rmdir(folder / name)
        else:
            os.unlink(folder / name)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with suppress(FileExistsError):
            os.mkdir(folder)


def make_own_folder(folder: Path) -> None:
    """Make a folder within one of ours, unless it exists; a link in its place is refused."""
    if not _is_folder(folder):
        os.mkdir(folder)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system lets one wait for that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def npy(array: npt.NDArray[Any]) -> Iterator[Bytes]:
    """Yield the bytes of an ``.npy`` file a chunk at a time, without a copy of the array."""
    header = io.BytesIO()
    fields = np.lib.format.header_data_from_array_1_0(array)
    fields["fortran_order"] = False
    np.lib.format.write_array_header_1_0(header, fields)
    yield header.getvalue()
    if not array.size:
        return
    rows = max(1, CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield np.ascontiguousarray(array[start : start + rows]).data.cast("B")


@contextmanager
def lock(file: Path, what: Path) -> Iterator[None]:
    """Hold the lock `file`, which dies with the process; `InUseError` names the process that has it."""
    try:
        descriptor = _open_own(file)
    except OSError:
        _refuse_link(file)
        raise
    try:
        if not _hold_lock(descriptor):
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise InUseError(f"{what} is being written by process {holder}; wait for it, or stop it.")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def _hold_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False where another process has it."""
    posix = _import_or_none("fcntl")
    return _hold_on_windows(descriptor) if posix is None else _hold_on_posix(descriptor, posix)


def _hold_on_posix(descriptor: int, fcntl: ModuleType) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold_on_windows(descriptor: int) -> bool:
    msvcrt = importlib.import_module("msvcrt")
    os.lseek(descriptor, LOCK_OFFSET, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def _import_or_none(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _flags(*names: str) -> int:
    """Return those flags for ``os.open`` that the system has, and binary mode."""
    return sum(getattr(os, name, 0) for name in ("O_BINARY", *names))


def _open_own(file: Path, *how: str) -> int:
    """Open a file of ours for reading and writing, created if missing; a link is refused."""
    if not hasattr(os, "O_NOFOLLOW"):
        _refuse_link(file)
    return _check_own(file, os.open(file, _flags("O_RDWR", "O_CREAT", "O_NOFOLLOW", "O_NONBLOCK", *how), 0o644))


def _create(file: Path, how: str) -> int:
    """Create a file; a link or an earlier writer's file in its place is removed."""
    flags = _flags(how, "O_CREAT", "O_EXCL", "O_NOFOLLOW")
    try:
        return os.open(file, flags, 0o644)
    except FileExistsError:
        os.unlink(file)
        return os.open(file, flags, 0o644)


def _check_own(file: Path, descriptor: int) -> int:
    """Return the descriptor of a plain file with one name; close and refuse anything else."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise InvalidInputError(
        f"{file} is not a file of its own: it has another name elsewhere, or is none; remove it.", code="not-a-file"
    )


def _is_folder(folder: Path) -> bool:
    """Say whether a folder exists; a link, or anything else in its place, is refused."""
    _refuse_link(folder)
    try:
        mode = os.lstat(folder).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise InvalidInputError(f"{folder} is a file where a folder of ours is to be; remove it.", code="not-a-folder")
    return True


def _refuse_link(file: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISLNK(os.lstat(file).st_mode):
            raise InvalidInputError(
                f"{file} is a link, and its target may belong to someone else; remove the link.", code="link"
            )

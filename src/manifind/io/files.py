"""Files of photos on the disk: opened as regular files only, hashed, dated.

What lies at a path may change at any time. So a file is opened once, without waiting (opening a pipe might never
return), and what was opened is checked, never the path. Every reader of a photo's bytes goes through `open_regular`.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from manifind.errors import UnreadableImageError

HEAD_BYTES = 64
"""How much of a file's beginning tells its format."""

MAX_TIME_NS = 2**63 - 1
"""The latest time that an index can hold, in nanoseconds since 1970: 11 April 2262."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def open_regular(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> BufferedReader:
    """Open a regular file to read its bytes, or raise `UnreadableImageError`.

    Folders, pipes and devices are refused, and never waited for.

    Parameters
    ----------
    path : path
        The file; links are followed.
    root : path, optional
        The folder that must hold the file, links resolved; where the file lies elsewhere, the error's code is
        ``outside-root``. A link that is put on the path meanwhile is not followed.
    """
    try:
        descriptor = os.open(path, _FLAGS) if root is None else _open_below(Path(root), Path(path))
    except UnreadableImageError as error:
        error.name = printable(path)
        raise
    except OSError as error:
        raise UnreadableImageError(access_reason(error), printable(path), code="no-access") from error
    except ValueError:  # a null byte
        raise UnreadableImageError("no such file", printable(path), code="no-access") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    reason = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise UnreadableImageError(reason, printable(path), code="not-a-file")


def _open_below(root: Path, path: Path) -> int:
    """Return a descriptor of a file below `root`: its path is resolved once, then walked without following links."""
    root, real = root.resolve(strict=True), path.resolve(strict=True)
    if root not in real.parents:
        raise UnreadableImageError("a link out of the folder", code="outside-root")
    if os.open not in os.supports_dir_fd:  # Windows, where links need a privilege
        return os.open(real, _FLAGS)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    *parents, name = real.relative_to(root).parts
    try:
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(name, _FLAGS | _NO_FOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def read_head(path: str | os.PathLike[str]) -> bytes:
    """Return the first `HEAD_BYTES` of a file, opened by `open_regular`."""
    with open_regular(path) as file, _read_errors(path):
        return file.read(HEAD_BYTES)


def content_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes: files with the same are the same photo."""
    with open_regular(path) as file, _read_errors(path):
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _read_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableImageError(access_reason(error), printable(path), code="no-access") from error


def modified_ns(status: os.stat_result) -> int:
    """Return when a file was last changed, in nanoseconds since 1970, within the times that an index can hold."""
    return min(max(status.st_mtime_ns, -MAX_TIME_NS), MAX_TIME_NS)


def access_reason(error: OSError) -> str:
    """Return in a few words why a file or folder cannot be read."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if error.errno == errno.ENXIO:  # a socket
        return "not a regular file"
    return (error.strerror or "an error of the file system").lower()


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path in characters that can be printed."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")

"""A system with less than Linux has: takes away from `os` what Windows lacks, and refuses what Windows refuses.

Run as a program, before anything of manifind is imported: ``python -m tests.elsewhere FILE ARGUMENTS``.
"""

import errno
import fcntl
import os
import runpy
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

LACKING = (
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "fork",
    "getuid",
    "mkfifo",
    "posix_fallocate",
    "pread",
    "preadv",
    "pwrite",
    "pwritev",
    "register_at_fork",
    "sched_getaffinity",
)
"""Of `os`, on Windows."""

SHARING_VIOLATION, ACCESS_DENIED, NOT_EMPTY = 32, 5, 145

LOADED = (shutil, socket, sqlite3, subprocess, tempfile)
"""Of Python itself; each takes what the system has when it is imported, and the real system is Linux."""


class Refused(PermissionError):
    """What Windows says, with its number."""

    def __init__(self, winerror: int, path: object) -> None:
        super().__init__(errno.EACCES, "Access is denied", str(path))
        self.winerror = winerror


def in_use(path: Path) -> bool:
    """Whether this process has a file open or mapped."""
    if not path.exists():
        return False
    wanted = str(path.resolve())
    if any(line.endswith(f" {wanted}") for line in Path("/proc/self/maps").read_text().splitlines()):
        return True
    held = Path("/proc/self/fd")
    return any(link.exists() and str(link.resolve()) == wanted for link in list(held.iterdir()))


def pretend() -> list[str]:
    """Change `os` for the rest of the process; return a list that grows with every refusal."""
    refusals: list[str] = []
    taken: dict[str, Callable[..., Any]] = {
        name: getattr(os, name) for name in ("open", "unlink", "replace", "rmdir", "listdir")
    }

    def refuse(winerror: int, path: object) -> None:
        refusals.append(str(path))
        raise Refused(winerror, path)

    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if Path(path).is_dir():
            refuse(ACCESS_DENIED, path)
        return int(taken["open"](path, flags & ~0x10000, mode))

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if in_use(Path(path)):
            refuse(SHARING_VIOLATION, path)
        taken["unlink"](path)

    def replace(source: Any, target: Any) -> None:
        for path in (source, target):
            if in_use(Path(path)):
                refuse(SHARING_VIOLATION, path)
        taken["replace"](source, target)

    def rmdir(path: Any) -> None:
        if taken["listdir"](path):
            refuse(NOT_EMPTY, path)
        taken["rmdir"](path)

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 1000, "a lock keeps others from reading what it covers"
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    stand_in = types.ModuleType("msvcrt")
    stand_in.__dict__.update(LK_NBLCK=2, locking=locking)
    hidden: dict[str, Any] = {"msvcrt": stand_in, "fcntl": None, "resource": None}
    sys.modules.update(hidden)
    for name in LACKING:
        delattr(os, name)
    for name, function in (("open", opened), ("unlink", unlink), ("replace", replace), ("rmdir", rmdir)):
        setattr(os, name, function)
    os.O_BINARY = 0x10000  # type: ignore[attr-defined]  # a bit that `opened` takes out again
    os.supports_dir_fd.clear()
    os.supports_fd.clear()
    return refusals


if __name__ == "__main__":
    pretend()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")

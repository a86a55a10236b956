"""A lock on an open file, which dies with the process that holds it."""

import importlib
import os
from types import ModuleType

BEYOND = 2**30
"""The byte that is locked where a lock keeps others from reading: far behind whatever the file says."""


def hold(descriptor: int) -> bool:
    """Lock an open file until it is closed; False where somebody else has it."""
    posix = _module("fcntl")
    return _hold_on_windows(descriptor) if posix is None else _hold_on_posix(descriptor, posix)


def _hold_on_posix(descriptor: int, fcntl: ModuleType) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold_on_windows(descriptor: int) -> bool:
    msvcrt = importlib.import_module("msvcrt")
    os.lseek(descriptor, BEYOND, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None

"""A disk that fails, or a process that dies, at one chosen point: stands in for `os` in `manifind.storage.disk`."""

import errno
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from manifind.storage import disk

POINTS = ("open", "write", "fsync", "ftruncate", "replace", "unlink", "mkdir", "rmdir", "posix_fallocate")
"""What reaches the disk."""

FAULTS = ("kill", "torn", "ENOSPC", "EIO", "interrupt")
"""Death before the point; death in the middle of it, if it writes; a full disk or a failing one from there on; Ctrl-C
just after it."""


class FaultyOs:
    """`os`, but for what happens at the point `at`."""

    def __init__(self, at: int, fault: str) -> None:
        self.at, self.fault, self.seen = at, fault, 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._pointed(name, real) if name in POINTS else real

    def _pointed(self, name: str, real: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.seen += 1
            if self.seen == self.at + 1:
                self._die(name, arguments)
            if self.seen > self.at and self.fault in ("ENOSPC", "EIO") and self._fails(name, arguments):
                code = getattr(errno, self.fault)
                raise OSError(code, os.strerror(code))
            result = real(*arguments, **keywords)
            if self.fault == "interrupt" and self.seen == self.at + 1:
                raise KeyboardInterrupt
            return result

        return call

    def _die(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self.fault == "torn" and name == "write":
            descriptor, data = arguments
            os.write(descriptor, data[: len(data) // 2])
        if self.fault in ("kill", "torn"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _fails(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """A full disk still lets go of files, and opens those that are there."""
        if self.fault == "EIO":
            return True
        return name in ("write", "fsync", "mkdir", "posix_fallocate") or (
            name == "open" and bool(arguments[1] & os.O_EXCL)
        )


@contextmanager
def faulty(at: int, fault: str) -> Iterator[FaultyOs]:
    """Let a fault strike in `manifind.storage.disk` at the point of this number."""
    stand_in = FaultyOs(at, fault)
    setattr(disk, "os", stand_in)  # noqa: B010 (its import, not a name that it offers)
    try:
        yield stand_in
    finally:
        setattr(disk, "os", os)  # noqa: B010


def struck(operation: Callable[[], object], at: int, fault: str) -> bool:
    """Run an operation with a fault at a point; whether it came to its end before."""
    if fault in ("ENOSPC", "EIO", "interrupt"):
        try:
            with faulty(at, fault) as stand_in:
                operation()
        except (OSError, KeyboardInterrupt):
            return False
        return stand_in.seen <= at
    child = os.fork()
    if child == 0:
        try:
            with faulty(at, fault):
                operation()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the writer failed without being killed"
    return True

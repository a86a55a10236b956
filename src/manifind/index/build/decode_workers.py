"""Photos read, and their local features found if nobody else does, by other processes (`making.reading`)."""

import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Self

import numpy as np

from manifind.errors import UnreadableImageError
from manifind.geometry import FEATURE_BYTES
from manifind.geometry.packing import Packed
from manifind.index.storage.local_features import LocalFeatureConfig
from manifind.io import Found, Photo
from manifind.io.limits import MAX_BYTES, MAX_PIXELS, Admit

CRASHED = "the program that reads photos came to an end over it"
PIPE = 2**20
"""Bytes that a pipe may hold: pixels go through it."""
LARGE = 2**25
"""Bytes of pixels from which they are made smaller before they are sent: more than are left of any photo that was read
to be extracted at the usual size. A GPU makes photos smaller in less time than sending them takes."""

HELD = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
"""What tells the C library to hold on to the memory of one photo for the next: the system takes long to give it."""

SeenSize = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ReadPhoto(Photo):
    """A photo as another process read it, in the size at which it is seen if it was much larger."""

    local: Packed | None
    """Its local features, where they are kept; None where they are left to be found."""


class Readers:
    """Processes that read photos, one for each thread that asks; they end when this is closed, or with this process.

    Parameters
    ----------
    seen_size : callable
        The size, (height, width), at which the network sees a photo of some size.
    keeping : LocalFeatureConfig, optional
        What is kept of local features.
    left : bool
        Whether local features are left to be found elsewhere. Those of a photo that is too large to be sent as it is
        are found all the same, before it is made smaller.
    long_side, max_pixels, max_bytes
        As for `read_photo`.
    """

    def __init__(
        self,
        seen_size: SeenSize,
        keeping: LocalFeatureConfig | None,
        *,
        left: bool = False,
        long_side: int,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._seen_size = seen_size
        kept = {"kind": None, "max_keypoints": 0} if keeping is None else keeping.fields
        limits = {"long_side": long_side, "max_pixels": max_pixels, "max_bytes": max_bytes}
        self._asked = {**limits, **kept, "left": LARGE if left else 0}
        self._of_thread = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            _end(process)

    def read(self, one: Found, admit: Admit) -> ReadPhoto:
        """Read a photo, or raise `UnreadableImageError`."""
        process = getattr(self._of_thread, "process", None)
        if process is None:
            process = self._of_thread.process = _begun()
            self._processes.append(process)
        try:
            return self._read(process, one, admit)
        except (BrokenPipeError, EOFError) as error:
            # A decoder may crash on what it is given; the next photo has another process.
            self._of_thread.process = None
            _end(process)
            raise UnreadableImageError(CRASHED, os.fspath(one.path)) from error
        except UnreadableImageError:
            raise
        except BaseException:
            # Somebody stopped waiting in the middle of an answer.
            self._of_thread.process = None
            process.kill()
            raise

    def _read(self, process: "subprocess.Popen[bytes]", one: Found, admit: Admit) -> ReadPhoto:
        source: Any = process.stdout
        sink: Any = process.stdin
        say(sink, {"path": os.fsencode(one.path).hex(), **self._asked})
        told = _heard(source)
        if "needs" in told:
            admit(told["needs"])
            sink.write(b"\n")
            sink.flush()
            told = _heard(source)
        if "unreadable" in told:
            raise UnreadableImageError(told["unreadable"], os.fspath(one.path), temporary=told["temporary"])
        height, width = told["shape"]
        size = self._seen_size(height, width) if 3 * height * width > LARGE else (height, width)
        say(sink, {"size": size})
        local = np.empty((told["features"] or 0, FEATURE_BYTES), np.uint8)
        pixels = np.empty((*size, 3), np.uint8)
        for array in (local, pixels):
            if array.nbytes and source.readinto(array.reshape(-1).data) != array.nbytes:
                raise EOFError
        return ReadPhoto(pixels, told["width"], told["height"], None if told["features"] is None else local)


def _begun() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        # -P: what lies in the folder where this is called is none of its modules.
        [sys.executable, "-P", "-m", "manifind.index.build.decode_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **HELD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None  # noqa: S101 (it is a pipe)
    if sys.platform == "linux":
        fcntl = importlib.import_module("fcntl")
        fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Let a process end, and wait for it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def say(sink: BinaryIO, what: dict[str, Any]) -> None:
    """Write one line of what the two programs tell each other."""
    sink.write(json.dumps(what).encode() + b"\n")
    sink.flush()


def _heard(source: Any) -> dict[str, Any]:
    line = source.readline()
    if not line:
        raise EOFError
    told: dict[str, Any] = json.loads(line)
    return told

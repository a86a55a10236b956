"""Processes that read photos and extract local features for the building process.

Threads that decode photos wait for each other in the interpreter; processes do not. `Readers` starts a process for each
of its threads, and `main` is what runs there: requests come on its standard input, replies go to its standard output, a
line of JSON each, and pixels as they are. For each photo:

========  ==============================================================================================================
request   ``{"path", "long_side", "max_pixels", "max_bytes", "local_features", "left"}``: the file, the limits of
          `read_photo`, the fields of `LocalFeatureConfig` or null, and up to how many bytes of pixels local features
          are left to the building process
reply     ``{"needs": bytes}`` before the photo is decoded
request   an empty line when there is so much memory
reply     ``{"unreadable": reason, "temporary": bool}``, and that is all, or
          ``{"width", "height", "shape", "features"}``, where features that are left are null
request   ``{"size": [height, width]}``: what the pixels are to be resized to
reply     the features, and the pixels
========  ==============================================================================================================

A process ends when its input does.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Self

import numpy as np

from manifind.errors import UnreadableImageError
from manifind.features.extractor import resized
from manifind.geometry import FEATURE_BYTES
from manifind.geometry.packing import Packed
from manifind.index.build.journal import NO_FEATURES
from manifind.index.storage.local_features import LocalFeatureConfig, keep
from manifind.io import ListedFile, Photo
from manifind.io.image import read_photo
from manifind.io.limits import MAX_BYTES, MAX_PIXELS, Admit
from manifind.kernels import set_threads

CRASHED = "the program that reads photos came to an end over it"
PIPE_BYTES = 2**20
"""Bytes that a pipe may hold: pixels go through it."""
MAX_SENT_BYTES = 2**25
"""Bytes of pixels from which they are made smaller before they are sent: more than are left of any photo that was read
to be extracted at the usual size. A GPU makes photos smaller in less time than sending them takes."""

MALLOC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
"""What tells the C library to hold on to the memory of one photo for the next: the system takes long to give it."""

SeenSize = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ReadPhoto(Photo):
    """A photo as another process read it, in the size at which it is seen if it was much larger."""

    local: Packed | None
    """Its local features, where they are kept; None where they are left to be found."""


class Readers:
    """Processes that read photos, one for each thread that asks; they end when this is closed, or with this process.

    `seen_size` returns the size, (height, width), at which the network sees a photo of some size. With `left`, local
    features are left to be found elsewhere, except those of a photo that is too large to be sent as it is.
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
        kept = {"local_features": None if keeping is None else keeping.fields}
        limits = {"long_side": long_side, "max_pixels": max_pixels, "max_bytes": max_bytes}
        self._request = {**limits, **kept, "left": MAX_SENT_BYTES if left else 0}
        self._of_thread = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            _end(process)

    def read(self, one: ListedFile, admit: Admit) -> ReadPhoto:
        """Read a photo, or raise `UnreadableImageError`."""
        process = getattr(self._of_thread, "process", None)
        if process is None:
            process = self._of_thread.process = _start_process()
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

    def _read(self, process: "subprocess.Popen[bytes]", one: ListedFile, admit: Admit) -> ReadPhoto:
        source: Any = process.stdout
        sink: Any = process.stdin
        send(sink, {"path": os.fsencode(one.path).hex(), **self._request})
        reply = _receive(source)
        if "needs" in reply:
            admit(reply["needs"])
            sink.write(b"\n")
            sink.flush()
            reply = _receive(source)
        if "unreadable" in reply:
            raise UnreadableImageError(reply["unreadable"], os.fspath(one.path), temporary=reply["temporary"])
        height, width = reply["shape"]
        size = self._seen_size(height, width) if 3 * height * width > MAX_SENT_BYTES else (height, width)
        send(sink, {"size": size})
        local = np.empty((reply["features"] or 0, FEATURE_BYTES), np.uint8)
        pixels = np.empty((*size, 3), np.uint8)
        for array in (local, pixels):
            if array.nbytes and source.readinto(array.reshape(-1).data) != array.nbytes:
                raise EOFError
        return ReadPhoto(pixels, reply["width"], reply["height"], None if reply["features"] is None else local)


def _start_process() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        # -P: what lies in the folder where this is called is none of its modules.
        [sys.executable, "-P", "-c", "from manifind.index.build.decode_workers import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **MALLOC_SETTINGS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None  # noqa: S101 (it is a pipe)
    if sys.platform == "linux":
        fcntl = importlib.import_module("fcntl")
        fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
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


def send(sink: BinaryIO, message: dict[str, Any]) -> None:
    """Write a line of JSON to the other process."""
    sink.write(json.dumps(message).encode() + b"\n")
    sink.flush()


def _receive(source: Any) -> dict[str, Any]:
    line = source.readline()
    if not line:
        raise EOFError
    reply: dict[str, Any] = json.loads(line)
    return reply


def serve_request(request: dict[str, Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Read the photo of a request, and reply."""

    def admit(needed: int) -> None:
        send(sink, {"needs": needed})
        if not source.readline():
            sys.exit()

    limits = {name: request[name] for name in ("long_side", "max_pixels", "max_bytes")}
    try:
        photo = read_photo(os.fsdecode(bytes.fromhex(request["path"])), admit=admit, **limits)
    except UnreadableImageError as error:
        send(sink, {"unreadable": error.reason, "temporary": error.temporary})
        return
    kept = NO_FEATURES
    fields = request["local_features"]
    left = fields is not None and photo.pixels.nbytes <= request["left"]
    if fields is not None and not left:
        kept = keep(photo.pixels, LocalFeatureConfig(**fields)).rows
    send(
        sink,
        {
            "width": photo.width,
            "height": photo.height,
            "shape": photo.pixels.shape[:2],
            "features": None if left else len(kept),
        },
    )
    asked = json.loads(source.readline())
    sink.write(np.ascontiguousarray(kept).data)
    sink.write(np.ascontiguousarray(resized(photo.pixels, *asked["size"])).data)
    sink.flush()


def main() -> None:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides when to stop
    set_threads(1)  # there is a program like this for each core
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    source = sys.stdin.buffer
    while line := source.readline():
        serve_request(json.loads(line), source, sink)

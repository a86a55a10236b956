"""A program that reads photos and finds local features for another: ``python -m manifind.index.build.decode_worker``.

Threads that decode photos wait for each other in the interpreter; programs do not. What it is asked comes on standard
input, what it answers goes to standard output, a line of JSON each, and pixels as they are. For each photo:

========  ==============================================================================================================
asked     ``{"path", "long_side", "max_pixels", "max_bytes", "kind", "max_keypoints", "left"}``: the file, the limits of
          `read_photo`, which local features are extracted, if any, and up to how many bytes of pixels these are left
          to the asking process
answers   ``{"needs": bytes}`` before it is decoded
asked     an empty line when there is so much memory
answers   ``{"unreadable": reason, "temporary": bool}``, and that is all, or
          ``{"width", "height", "shape", "features"}``, where features that are left are null
asked     ``{"size": [height, width]}``: what the pixels are to be resized to
answers   the features, and the pixels
========  ==============================================================================================================

It ends when its input does.
"""

import json
import os
import signal
import sys
from typing import Any, BinaryIO

import numpy as np

from manifind.errors import UnreadableImageError
from manifind.features.extractor import resized
from manifind.index.build.decode_workers import say
from manifind.index.build.journal import NO_FEATURES
from manifind.index.storage.local_features import LocalFeatureConfig, keep
from manifind.io.image import read_photo
from manifind.kernels import set_threads


def answer(asked: dict[str, Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Read one photo."""

    def admit(needed: int) -> None:
        say(sink, {"needs": needed})
        if not source.readline():
            sys.exit()

    limits = {name: asked[name] for name in ("long_side", "max_pixels", "max_bytes")}
    try:
        photo = read_photo(os.fsdecode(bytes.fromhex(asked["path"])), admit=admit, **limits)
    except UnreadableImageError as error:
        say(sink, {"unreadable": error.reason, "temporary": error.temporary})
        return
    kept = NO_FEATURES
    left = asked["kind"] is not None and photo.pixels.nbytes <= asked["left"]
    if asked["kind"] is not None and not left:
        kept = keep(photo.pixels, LocalFeatureConfig(asked["kind"], asked["max_keypoints"])).rows
    found = None if left else len(kept)
    say(sink, {"width": photo.width, "height": photo.height, "shape": photo.pixels.shape[:2], "features": found})
    wanted = json.loads(source.readline())
    sink.write(np.ascontiguousarray(kept).data)
    sink.write(np.ascontiguousarray(resized(photo.pixels, *wanted["size"])).data)
    sink.flush()


def main() -> None:
    """Answer until there is nothing more to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides when to stop
    set_threads(1)  # there is a program like this for each core
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    source = sys.stdin.buffer
    while line := source.readline():
        answer(json.loads(line), source, sink)


if __name__ == "__main__":
    main()
